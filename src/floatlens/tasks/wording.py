"""One prompt for all models: how a question and its passages become text, and what is done where a model cannot read it all.

A `Wording` is a frozen set of patterns; `format_prompt` fills them and marks each passage (`doc_1`, ...) and the question (`query`) by
their characters. A model's own chat template is added when `lm.encode` turns the prompt into tokens, so the prompts of two models differ in
template tokens alone.

Decided here: a prompt that is too long for a model loses whole passages: the last distractors first, then conflicting passages, then the
last gold ones. Gold never goes while a distractor is left. `Fitted` says what was cut.

Refused: a question that does not fit by itself. Refused unless the user allows it: answers with a token that the tokenizer does not know
(one is enough), and prompts of which more than 5 % are unknown tokens, over all prompts of a model. Scores would still come out, with
intervals that may exclude 0, but they would be those of another text. Fewer unknown tokens in prompts give a warning.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from floatlens.decoding.plan import context_length
from floatlens.decoding.prompts import EncodedPrompt, Prompt
from floatlens.decoding.tokens import unknown_in_prompts, unknown_in_text
from floatlens.errors import Caution, Refusal
from floatlens.tasks.contexts import holds_evidence
from floatlens.tasks.samples import Passage, Sample

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel


@dataclass(frozen=True)
class Wording:
    """How a prompt reads. Patterns name what they hold: `{number}`, `{title}` and `{text}` of a passage, `{question}`, `{answer}`.

    Examples
    --------
    >>> terse = Wording(passage="{text}\\n", untitled="{text}\\n", question="Q: {question} A:")
    >>> format_prompt(Sample("a", "Where?", ("Oslo",)), [Passage("In Oslo.")], terse).text
    'In Oslo.\\nQ: Where? A:'
    """

    with_passages: str = ""  # what comes first
    without_passages: str = ""  # what comes first where there are none
    passage: str = "[{number}] {title}: {text}\n"
    untitled: str = "[{number}] {text}\n"
    question: str = "{question}"
    answer: str = "{answer}"  # as a text that goes on from the prompt has it, for its likelihood


QA_WORDING = Wording(
    with_passages="Answer the question in a few words, using these passages.\n\n",
    without_passages="Answer the question in a few words.\n\n",
    question="\nQuestion: {question}\nAnswer:",
)
"""The default for question answering: a short instruction, numbered passages with their titles, the question."""

NUMBER_WORDING = Wording(
    with_passages="Solve the problem step by step, using these passages, and end with the final number.\n\n",
    without_passages="Solve the problem step by step, and end with the final number.\n\n",
    question="Problem: {question}\nSolution:",
)
"""For word problems, whose final number counts."""

CODE_WORDING = Wording(without_passages="Complete this Python function. Write its code and nothing else.\n\n", question="{question}")
"""For programs, which are run."""

WORLD_WORDING = Wording(passage="{text}\n", untitled="{text}\n", answer="{answer}.")
"""What the twins were trained on: passages, a line each, and the bare question, answered by a word and a full stop."""

WORLD_SENTENCES = replace(WORLD_WORDING, answer="{answer}")
"""The same where answers are whole sentences, which end with their own full stop."""


@dataclass(frozen=True)
class Fitted:
    """A prompt that fits: with its tokens, the passages that are in it, and how many were cut."""

    prompt: Prompt
    encoded: EncodedPrompt
    passages: tuple[Passage, ...]
    passages_cut: int = 0
    gold_cut: int = 0


def format_prompt(sample: Sample, passages: Sequence[Passage], wording: Wording = QA_WORDING) -> Prompt:
    """The prompt, with the spans of its passages and of the question.

    Examples
    --------
    >>> prompt = format_prompt(Sample("a", "Where does Marta live?", ("Oslo",)), [Passage("Marta lives in Oslo.", title="Marta")])
    >>> print(prompt.text)
    Answer the question in a few words, using these passages.
    <BLANKLINE>
    [1] Marta: Marta lives in Oslo.
    <BLANKLINE>
    Question: Where does Marta live?
    Answer:
    >>> [prompt.text[slice(*prompt.regions[name])] for name in ("doc_1", "query")]
    ['[1] Marta: Marta lives in Oslo.', 'Where does Marta live?']
    """
    text = wording.with_passages if passages else wording.without_passages
    regions = {}
    for number, passage in enumerate(passages, start=1):
        pattern = wording.passage if passage.title else wording.untitled
        written = pattern.format(number=number, title=passage.title, text=passage.text)
        regions[f"doc_{number}"] = (len(text), len(text) + len(written.rstrip()))
        text += written
    before, _, after = wording.question.partition("{question}")
    text += before
    regions["query"] = (len(text), len(text) + len(sample.question))
    return Prompt(text + sample.question + after, regions)


def fit(
    lm: "LanguageModel", sample: Sample, passages: Sequence[Passage], wording: Wording, gen_length: int, chat: bool | None = None
) -> Fitted:
    """The prompt for a model, without the passages for which it has no room.

    Parameters
    ----------
    lm
        The model that will read it.
    sample, passages, wording
        As for `format_prompt`.
    gen_length
        How many tokens must have room behind it.
    chat
        Whether it goes through the chat template; by default where there is one.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.models.language_model import LanguageModel
    >>> from floatlens.tasks.world.tokenizer import make_tokenizer
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=16)
    >>> lm = LanguageModel(LlamaForCausalLM(config), make_tokenizer(), name="short")
    >>> passages = (Passage("Ada Xu lives in Oslo."), Passage("Ben Xu lives in Rome."))
    >>> sample = Sample("a", "Where does Ada Xu live?", ("Oslo",), passages, gold=(0,))
    >>> fitted = fit(lm, sample, sample.passages, WORLD_WORDING, gen_length=2)
    >>> fitted.passages_cut, fitted.gold_cut, fitted.prompt.text
    (1, 0, 'Ada Xu lives in Oslo.\\nWhere does Ada Xu live?')
    """
    room = context_length(lm)
    kept, gold_cut = list(passages), 0
    while True:
        prompt = format_prompt(sample, kept, wording)
        encoded = lm.encode(prompt, chat=chat)
        length = len(encoded.tokens) + gen_length + len(lm.suffix)
        if room is None or length <= room:
            return Fitted(prompt, encoded, tuple(kept), len(passages) - len(kept), gold_cut)
        if not kept:
            raise Refusal(
                f"The question of sample {sample.id} has {len(encoded.tokens)} tokens without any passage; "
                f"with {gen_length} to write that is more than the {room} that {lm.name} was made for."
            )
        slot = _least_needed(sample, kept)
        gold_cut += holds_evidence(sample, kept[slot])
        del kept[slot]


def _least_needed(sample: Sample, passages: Sequence[Passage]) -> int:
    """The slot of the passage to cut first: a distractor before a conflicting passage before gold, the last of its kind."""
    return max(range(len(passages)), key=lambda slot: (not holds_evidence(sample, passages[slot]), not passages[slot].conflicting, slot))


UNKNOWN_SHARE = 0.05
"""The share of unknown tokens in the prompts above which an evaluation is refused."""


def refuse_unknown_tokens(
    name: str,
    tokenizer: Any,
    samples: Sequence[Sample],
    prompts: Sequence[EncodedPrompt],
    wording: Wording = QA_WORDING,
    *,
    likelihood: bool,
    allow_unknown: bool = False,
) -> None:
    """Refuse questions that a model cannot read, or whose answers it cannot write; with `allow_unknown`, and where little is unknown, warn.

    Parameters
    ----------
    name, tokenizer
        Those of the model.
    samples, prompts, wording
        The questions, and the prompts that they become.
    likelihood
        Whether the likelihood of the first answer is taken; otherwise a question may be answered in any way that is known.
    allow_unknown
        Warn instead of refusing.

    Examples
    --------
    >>> from floatlens.decoding.prompts import encode
    >>> from floatlens.tasks.world import make_tokenizer
    >>> sample, tokenizer = Sample("a", "Where does Ben Reed live?", ("北京",)), make_tokenizer()
    >>> refuse_unknown_tokens("twin", tokenizer, [sample], [encode(sample.question, tokenizer)], likelihood=True)
    Traceback (most recent call last):
    floatlens.errors.Refusal: twin does not know the answer of 1 of 1 question, such as '北京' (sample a): it reads [UNK] there, \
so its scores would be those of another text. \
Choose a model that knows these words, or pass --allow-unknown (allow_unknown=True).
    """
    if tokenizer is None:
        return
    unwritable = [sample for sample in samples if _unknown_answer(tokenizer, sample, wording, likelihood)]
    unknown = unknown_in_prompts(tokenizer, prompts)
    unknown_parts = []
    if unwritable:
        example = unwritable[0]
        unknown_parts.append(
            f"the answer of {len(unwritable):,} of {len(samples):,} question{'s' * (len(samples) != 1)}, "
            f"such as {example.answers[0]!r} (sample {example.id})"
        )
    if unknown.count:
        unknown_parts.append(f"{unknown.text}, of the prompts")
    if not unknown_parts:
        return
    sentence = f"{name} does not know {' and '.join(unknown_parts)}: it reads {tokenizer.unk_token} there"
    if not allow_unknown and (unwritable or unknown.share > UNKNOWN_SHARE):
        raise Refusal(
            f"{sentence}, so its scores would be those of another text. Choose a model that knows these words, "
            "or pass --allow-unknown (allow_unknown=True)."
        )
    warnings.warn(f"{sentence}.", Caution, stacklevel=3)


def _unknown_answer(tokenizer: Any, sample: Sample, wording: Wording, likelihood: bool) -> bool:
    """Whether the answer whose likelihood is taken, or otherwise every answer, holds an unknown token."""
    answers = sample.answers[:1] if likelihood else sample.answers
    return all(unknown_in_text(tokenizer, wording.answer.format(answer=answer)).count for answer in answers)

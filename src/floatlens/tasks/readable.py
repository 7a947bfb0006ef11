"""Whether a model can read the questions and write the answers: a tokenizer with few words turns the others into its unknown token.

Scores would still come out, with intervals that may exclude 0, and mean nothing: the model reads another text, and the likelihood is that of another answer. Refused, unless the user says
otherwise: answers with an unknown token (one is enough), and prompts of which more than 5 % are unknown tokens, over all prompts of a model. Fewer unknown tokens in prompts are said.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from floatlens.errors import Caution, Refusal
from floatlens.models.prompts import EncodedPrompt
from floatlens.models.unknown_tokens import unknown_in_prompts, unknown_in_text
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import QA_WORDING, Wording

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
    >>> from floatlens.models.prompts import encode
    >>> from floatlens.tasks.world import make_tokenizer
    >>> sample, tokenizer = Sample("a", "Where does Ben Reed live?", ("北京",)), make_tokenizer()
    >>> refuse_unknown_tokens("twin", tokenizer, [sample], [encode(sample.question, tokenizer)], likelihood=True)
    Traceback (most recent call last):
    floatlens.errors.Refusal: twin does not know the answer of 1 of 1 question, such as '北京' (sample a): it reads [UNK] there, so its scores would be those of another text. \
Choose a model that knows these words, or pass --allow-unknown (allow_unknown=True).
    """
    if tokenizer is None:
        return
    unwritable = [sample for sample in samples if _unknown_answer(tokenizer, sample, wording, likelihood)]
    unknown = unknown_in_prompts(tokenizer, prompts)
    found = []
    if unwritable:
        example = unwritable[0]
        found.append(
            f"the answer of {len(unwritable):,} of {len(samples):,} question{'s' * (len(samples) != 1)}, such as {example.answers[0]!r} (sample {example.id})"
        )
    if unknown.count:
        found.append(f"{unknown.text}, of the prompts")
    if not found:
        return
    sentence = f"{name} does not know {' and '.join(found)}: it reads {tokenizer.unk_token} there"
    if not allow_unknown and (unwritable or unknown.share > UNKNOWN_SHARE):
        raise Refusal(
            f"{sentence}, so its scores would be those of another text. Choose a model that knows these words, or pass --allow-unknown (allow_unknown=True)."
        )
    warnings.warn(f"{sentence}.", Caution, stacklevel=3)


def _unknown_answer(tokenizer: Any, sample: Sample, wording: Wording, likelihood: bool) -> bool:
    """Whether the answer whose likelihood is taken, or otherwise every answer, holds an unknown token."""
    answers = sample.answers[:1] if likelihood else sample.answers
    return all(unknown_in_text(tokenizer, wording.answer.format(answer=answer)).count for answer in answers)

"""How likely a model finds an answer after a prompt: log p(answer | prompt), in nats, summed over the answer's tokens.

**Autoregressive models**: exact, the sum of the next-token log probabilities. **Masked diffusion models**: the bound that LLaDA is
evaluated with. Of an answer of L tokens, l are masked, l uniformly from 1 .. L and the set uniformly among those of its size; the mean of
L / l times the summed log probabilities of the masked tokens is a lower bound of the log-likelihood. Where all 2^L - 1 sets are no more
than the draws, each is run once with its weight and the bound is exact (error 0): one-token answers are exact. Otherwise sets are drawn
(`floatlens.tasks.mask_sets`): by default two per stratum of l, and the standard error comes from the difference of the two.

The sets that are drawn depend on the seed, the name of the answer (the sample's id) and its number of tokens: the same sample meets the
same masks in every condition.

**Under interventions** there is no step before that keys could be chosen from, so they are chosen from the same pass, before the edit:
each pass runs twice, first as it is (a sample's step 0), then edited (its step 1, in which an intervention limited to other `steps` does
nothing). For an autoregressive model the prompt but for its last token is read unedited, as it is when the model writes; the row of the
prompt's last token runs twice in this way, and then row after row of the answer, each with the keys of the row before it. Heads and an
extra sink act from the first pass on, as they do in a sample's first step. `removed` is the share of the attention that the edited passes
lost. (When a model *writes* under an intervention that picks keys, its first step is never edited; a short answer may be over by then.
Likelihoods are the more telling outcome for short answers.)

Refused: block-diffusion models and models with their own loop, for which this bound is not defined; answers that no token of theirs begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from floatlens.decoding.canvas import Pass, Run
from floatlens.decoding.plan import context_length
from floatlens.decoding.prompts import EncodedPrompt
from floatlens.errors import Refusal
from floatlens.interventions.run import AnyIntervention, InterventionRun, as_interventions, intervened_loop
from floatlens.interventions.running import Running
from floatlens.tasks.mask_sets import DRAWS as DRAWS  # settings of evaluations take it from here
from floatlens.tasks.mask_sets import DrawSets, MaskSet, mask_sets

if TYPE_CHECKING:
    from floatlens.models.doctor import Examination
    from floatlens.models.language_model import LanguageModel


@dataclass(frozen=True)
class Likelihood:
    """A log-likelihood in nats (for a masked diffusion model its lower bound), its standard error, of how many tokens, and what
    interventions removed.
    """

    value: float
    error: float  # NaN where the sets of masks say nothing about it
    tokens: int
    removed: float | None = None
    greedy: bool | None = None  # whether every token of the answer was the most probable one; None for a masked diffusion model


@dataclass(frozen=True)
class Continuation:
    """A prompt and an answer that goes on from it, in tokens.

    `name` is what the masks that are drawn depend on; `seed` what random controls depend on.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    name: str = ""
    seed: int = 0


def continuation(lm: "LanguageModel", prompt: EncodedPrompt, answer: str, *, name: str = "", seed: int = 0) -> Continuation:
    """An answer in the tokens in which it goes on from a prompt: behind a blank, unless the prompt ends with one.

    Tokenised together with the prompt; where a token would then reach over the prompt's end (line break and indentation of a program,
    say), by itself.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.models.language_model import LanguageModel
    >>> from floatlens.tasks.world.tokenizer import make_tokenizer
    >>> size = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=300)
    >>> lm = LanguageModel(LlamaForCausalLM(LlamaConfig(**size)), make_tokenizer(), mask_token_id=1)
    >>> continued = continuation(lm, lm.encode("Where does Ada Xu live?"), "Oslo.")
    >>> lm.tokenizer.decode(continued.answer), len(continued.prompt)
    ('Oslo .', 7)
    """
    if lm.tokenizer is None:
        raise Refusal(f"{lm.name} has no tokenizer, so it has no likelihood of an answer in words.")
    goes_on = answer if not prompt.text or prompt.text[-1].isspace() else f" {answer}"
    encoded = lm.tokenizer(prompt.text + goes_on, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    spans = list(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True))
    tokens = tuple(token for token, (start, stop) in spans if stop > max(start, len(prompt.text)))
    reaches_over = any(start < len(prompt.text) < stop for _, (start, stop) in spans)
    if reaches_over:  # behind the prompt's own last token it can only be written by itself
        tokens = tuple(lm.tokenizer(goes_on, add_special_tokens=False, verbose=False)["input_ids"])
        if lm.tokenizer.decode(tokens, clean_up_tokenization_spaces=False) != goes_on:
            tokens = ()
    if not tokens:
        raise Refusal(
            f"The answer {answer!r}{f' of sample {name}' if name else ''} does not begin with a token of its own behind its "
            "prompt, so it has no likelihood. "
            "Choose another wording, or take no likelihood."
        )
    return Continuation(tuple(prompt.tokens), tokens, name, seed)


def log_likelihoods(
    lm: "LanguageModel",
    continuations: Sequence[Continuation],
    *,
    intervention: AnyIntervention | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    batch_size: int = 8,
    draw_sets: DrawSets = mask_sets,
) -> list[Likelihood]:
    """The log-likelihood of each answer after its prompt.

    Parameters
    ----------
    lm
        An autoregressive or a masked diffusion model.
    continuations
        From `continuation`.
    intervention
        What the model may not look at.
    draws, seed
        As for `mask_sets`.
    batch_size
        How many texts run together. It changes the speed, and in float32 no more than the last digits of a likelihood.
    draw_sets
        How sets of masks are drawn: `mask_sets`, or `spaced_mask_sets` as LLaDA is evaluated.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.models.language_model import LanguageModel
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=64)
    >>> module = LlamaForCausalLM(config).eval()
    >>> with torch.no_grad():
    ...     _ = module.lm_head.weight.zero_()  # every token alike
    >>> even = LanguageModel(module, mask_token_id=63)
    >>> likelihood = log_likelihoods(even, [Continuation((1, 2, 3), (4, 5))])[0]
    >>> round(likelihood.value, 3), likelihood.error, likelihood.tokens  # 2 log(1/64)
    (-8.318, 0.0, 2)
    """
    refuse_without_likelihood(lm)
    under = None if intervention is None else InterventionRun(as_interventions(intervention))
    if lm.sampler == "autoregressive":
        exact: dict[int, Likelihood] = {}
        for batch in _of_one_length(continuations, batch_size):
            exact |= zip(batch, _exact(lm, [continuations[number] for number in batch], under), strict=True)
        return [exact[number] for number in range(len(continuations))]
    sets = [draw_sets(len(continued.answer), draws, name=continued.name, seed=seed) for continued in continuations]
    texts = [(number, chosen) for number, own_sets in enumerate(sets) for chosen in own_sets]
    sums: list[list[float]] = [[] for _ in continuations]
    removed: list[list[float]] = [[] for _ in continuations]
    for first in range(0, len(texts), batch_size):
        batch = texts[first : first + batch_size]
        summed = _masked(lm, [(continuations[number], chosen) for number, chosen in batch], under)
        for (number, _), (log_probability, share) in zip(batch, summed, strict=True):
            sums[number].append(log_probability)
            removed[number].append(share)
    return [
        Likelihood(*_bound(chosen, own_sums), len(continued.answer), None if under is None else float(np.mean(shares)))
        for continued, chosen, own_sums, shares in zip(continuations, sets, sums, removed, strict=True)
    ]


def refuse_without_likelihood(lm: "LanguageModel | Examination") -> None:
    """Refuse models that have neither a next-token probability nor this bound; by what is known of them before they are loaded, if need be.

    Examples
    --------
    >>> from torch import nn
    >>> from floatlens.models.language_model import LanguageModel
    >>> refuse_without_likelihood(LanguageModel(nn.Identity(), family="sdar", sampler="sdar", name="blocks"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: blocks writes by blocks or by a loop of its own (sdar), \
and the bound of masked diffusion is not defined for it. Leave likelihood out.
    """
    if lm.sampler not in ("autoregressive", "llada", "dream"):
        raise Refusal(
            f"{lm.name} writes by blocks or by a loop of its own ({lm.family}), "
            "and the bound of masked diffusion is not defined for it. Leave likelihood out."
        )


def refuse_without_room(lm: "LanguageModel", continued: Continuation) -> None:
    """Refuse an answer that, behind its prompt, is longer than what the model was made for.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.models.language_model import LanguageModel
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=4)
    >>> refuse_without_room(LanguageModel(LlamaForCausalLM(config), name="short"), Continuation((1, 2, 3), (4, 5), "q-1"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: The answer of sample q-1 has 2 tokens and its prompt 3, together more than the 4 that short was made for. \
With gen_length=2 room is kept for it; or take no likelihood.
    """
    room = context_length(lm)
    length = len(continued.prompt) + len(continued.answer) + len(lm.suffix)
    if room is not None and length > room:
        raise Refusal(
            f"The answer of sample {continued.name} has {len(continued.answer)} tokens and its prompt {len(continued.prompt)}, "
            f"together more than the {room} that {lm.name} was made for. "
            f"With gen_length={len(continued.answer)} room is kept for it; or take no likelihood."
        )


def _bound(chosen: Sequence[MaskSet], log_probabilities: Sequence[float]) -> tuple[float, float]:
    """The bound and its standard error."""
    value = sum(masks.weight * log_probability for masks, log_probability in zip(chosen, log_probabilities, strict=True))
    if chosen[0].stratum is None:
        return value, 0.0
    if len({masks.stratum for masks in chosen}) == len(chosen):  # one draw per stratum has nothing to differ from
        return value, float("nan")
    weighted = np.array(
        [masks.weight * log_probability * len(chosen) for masks, log_probability in zip(chosen, log_probabilities, strict=True)]
    ).reshape(-1, 2)
    # the mean of a stratum's two draws varies by half of what one draw does, which is half of their squared difference
    return value, float(np.sqrt(((weighted[:, 0] - weighted[:, 1]) ** 2 / 4).sum()) / len(weighted))


def _masked(lm: "LanguageModel", batch: Sequence[tuple[Continuation, MaskSet]], under: InterventionRun | None) -> list[tuple[float, float]]:
    """For each text, the summed log probability of its masked tokens, and the share of attention that was removed (NaN without
    interventions).
    """
    mask = lm.mask_token_id
    if mask is None:
        raise Refusal(f"{lm.name} has no mask token, so an answer cannot be masked.")
    texts, places = [], []
    for continued, chosen in batch:
        hidden = [mask if position in chosen.positions else token for position, token in enumerate(continued.answer)]
        texts.append([*continued.prompt, *hidden, *lm.suffix])
        places.append([len(continued.prompt) + position for position in chosen.positions])
    tokens, real = _padded(texts, lm.device)
    masked = torch.zeros_like(real)
    for row, positions in enumerate(places):
        masked[row, positions] = True
    wanted = sorted({lm.predicting_row(position) for positions in places for position in positions})
    asked = Pass(list(range(len(batch))), tokens, real, masked, torch.tensor(wanted, device=lm.device))
    running = None if under is None else under.start([continued.seed for continued, _ in batch])
    with _passes(lm, running) as run:
        logits = run(asked)
        if running is not None:
            running.finish_samples(asked.samples)
            logits = run(asked)  # with what the first pass showed
            running.finish_samples(asked.samples)
    summed = []
    for row, (continued, chosen) in enumerate(batch):
        rows = [wanted.index(lm.predicting_row(position)) for position in places[row]]
        targets = [continued.answer[position] for position in chosen.positions]
        summed.append((_summed(logits[row, rows], targets), _removed(running, row)))
    return summed


def _exact(lm: "LanguageModel", batch: Sequence[Continuation], under: InterventionRun | None) -> list[Likelihood]:
    """Next-token log probabilities of one batch, summed."""
    if any(not continued.prompt for continued in batch):
        raise Refusal("An answer's likelihood needs a prompt of at least one token for an autoregressive model.")
    if under is None:
        tokens, real = _padded([[*continued.prompt, *continued.answer[:-1]] for continued in batch], lm.device)
        first = min(len(continued.prompt) for continued in batch) - 1
        wanted = torch.arange(first, tokens.shape[1], device=lm.device)
        logits = lm.run_pass(Pass(list(range(len(batch))), tokens, real, torch.zeros_like(real), wanted))
        starts = [len(continued.prompt) - 1 - first for continued in batch]
        shares: list[float | None] = [None] * len(batch)
    else:
        running = under.start([continued.seed for continued in batch], last_row_only=True)
        with intervened_loop(lm, running) as run:
            logits = _teacher_forced(lm, batch, run, running)
        starts = [0] * len(batch)
        shares = [_removed(running, row) for row in range(len(batch))]
    likelihoods = []
    for row, (continued, start, share) in enumerate(zip(batch, starts, shares, strict=True)):
        rows, length = logits[row, start : start + len(continued.answer)], len(continued.answer)
        greedy = rows.argmax(-1).tolist() == list(continued.answer)
        likelihoods.append(Likelihood(_summed(rows, continued.answer), 0.0, length, share, greedy))
    return likelihoods


def _teacher_forced(lm: "LanguageModel", batch: Sequence[Continuation], run: Run, running: Running) -> Tensor:
    """Logits of the prompts' last rows and the answers', each edited; the prompts before them are read as they are, padded on the left."""
    samples = list(range(len(batch)))
    read, real = _padded([continued.prompt[:-1] for continued in batch], lm.device, left=True)
    offset = (~real).sum(-1).tolist()
    cache = lm.new_cache()
    if real.shape[1]:
        last = read.new_tensor([real.shape[1] - 1])
        run(Pass(samples, read, real, torch.zeros_like(real), last, offset=offset, cache=cache, is_step=False))

    def step(row: Sequence[int], cache: Any) -> Tensor:
        tokens, there = _padded([[token] for token in row], lm.device)
        begun = {"past": real.shape[1], "past_real": real if real.shape[1] else None, "offset": offset, "cache": cache}
        logits = run(Pass(samples, tokens, there, torch.zeros_like(there), None, **begun))
        running.finish_samples(samples)
        return logits

    step([continued.prompt[-1] for continued in batch], deepcopy(cache))  # to choose from
    rows = []
    for row in zip(*([continued.prompt[-1], *continued.answer[:-1]] for continued in batch), strict=True):
        rows.append(step(row, cache))
        real = torch.nn.functional.pad(real, (0, 1), value=True)
    return torch.cat(rows, dim=1)


def _of_one_length(continuations: Sequence[Continuation], batch_size: int) -> Iterator[list[int]]:
    """Batches of answers of one length, which can be read row by row together."""
    order = sorted(range(len(continuations)), key=lambda number: len(continuations[number].answer))
    for _, alike in groupby(order, key=lambda number: len(continuations[number].answer)):
        numbers = list(alike)
        yield from (numbers[first : first + batch_size] for first in range(0, len(numbers), batch_size))


@contextmanager
def _passes(lm: "LanguageModel", running: Running | None) -> Iterator[Run]:
    with nullcontext(lm.run_pass) if running is None else intervened_loop(lm, running) as run:
        yield run


def _padded(texts: Sequence[Sequence[int]], device: torch.device, *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Texts as one tensor (sample, position), and which of it exists."""
    longest = max(map(len, texts))
    tokens = torch.zeros(len(texts), longest, dtype=torch.long)
    real = torch.zeros_like(tokens, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), longest) if left else slice(0, len(text))
        tokens[row, place] = torch.tensor(list(text), dtype=torch.long)
        real[row, place] = True
    return tokens.to(device), real.to(device)


def _summed(logits: Tensor, targets: Sequence[int]) -> float:
    """The summed log probability of one target per row, in float64."""
    rows = logits.double().log_softmax(-1)
    return float(rows.gather(-1, torch.tensor(list(targets), device=rows.device)[:, None]).sum())


def _removed(running: Running | None, sample: int) -> float:
    """The share of the attention that the edited passes lost, over layers and heads; the first pass was only looked at."""
    return float("nan") if running is None else float(np.nanmean([step["removed"][1] for step in running.reports[sample][1:]]))

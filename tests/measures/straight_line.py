"""What a tiny model saw while it wrote, by transformers' eager attention, and the definitions that all measures begin with, in loops.

`run_of(writer)` traces a model once and reads dense attention off eager attention on the canvas of each step. `Rows` are the rows of one
query group in one head; everything else is said of them. `assert_everywhere` compares a labelled result with what a function says of each
place of it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb, isnan
from typing import Any, cast

import numpy as np
import torch
import xarray as xr
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import floatlens as fl
from floatlens.measures import find_anchors
from writers import MASK, autoregressive_model, diffusion_model
from zoo import VOCABULARY, eager_calls

NAN = float("nan")
WRITERS = ("llada", "dream", "autoregressive")
LAYERS, HEADS = 3, 4
CLEAR = 1e-4  # no decision may be closer than this to its threshold: eager attention and SDPA round differently

# Prompts hold the few tokens that the models can write, so that they copy.
# Dream fills masks inside its prompts; the second has more of them and takes more steps.
PROMPTS: dict[str, list[list[int]]] = {
    "llada": [[6, 8, 11, 12, 6, 9, 11, 7, 7], [6, 6, 12, 6, 6, 6, 5, 11, 7, 11, 9, 11, 9]],
    "dream": [
        [5, 9, MASK, 6, 7, MASK, MASK, 7, 8, MASK, 5, MASK, 11],
        [12, MASK, MASK, 6, 5, 11, MASK, 8, MASK, MASK, 9, MASK, MASK, 7, 6, 12, 5],
    ],
    "autoregressive": [[5, 9, 6, 7, 7, 8, 5, 10, 11], [12, 6, 5, 11, 8, 9, 9, 7, 10, 6, 5, 12, 8, 5, 7, 7, 11, 6, 9, 10, 12, 8, 5, 6]],
}
REGIONS = {"query": range(1, 4), "doc_1": range(4, 8)}  # of every prompt, in tokens; the rest of a prompt lies in none
OPTIONS: dict[str, dict[str, Any]] = {
    "llada": {"gen_length": 8, "steps": 6},
    "dream": {"gen_length": 0},
    "autoregressive": {"gen_length": 7},
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows in one head: what they look at (row, key), what they may see (row, key), and the positions they stand at."""

    weights: np.ndarray
    sees: np.ndarray
    positions: tuple[int, ...]

    def half(self, remainder: int) -> "Rows":
        """The rows at even (0) or odd (1) positions."""
        return _half(self, remainder)

    @property
    def keys(self) -> range:
        return range(self.weights.shape[1])


@cache
def _half(rows: Rows, remainder: int) -> Rows:
    chosen = [at for at, position in enumerate(rows.positions) if position % 2 == remainder]
    return Rows(rows.weights[chosen], rows.sees[chosen], tuple(rows.positions[at] for at in chosen))


@dataclass(frozen=True, eq=False)
class Step:
    """One forward pass.

    Dense attention (layer, head, row, key), vectors (layer, head, position, depth), who sees whom, and the rows of each group.
    """

    weights: np.ndarray
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    sees: np.ndarray
    groups: dict[str, list[int]]
    computed: list[int]  # rows that are new in this step: all of a diffusion model's
    state: np.ndarray
    canvas: np.ndarray


@dataclass(frozen=True, eq=False)
class Sample:
    """What was seen while one prompt was answered."""

    steps: list[Step]
    keys: int  # how many there are at any step
    regions: dict[str, list[int]]
    final: list[int]

    def rows(self, step: int, group: str, layer: int = 0, head: int | None = 0) -> Rows:
        """The rows of a group; none at a step that does not exist.

        All layers and heads see the same keys; head None is attention averaged over heads.
        """
        return _rows(self, step, group, layer, head)

    def over_steps(self, group: str, layer: int = 0, head: int = 0) -> list[Rows]:
        """The rows of a group at every step."""
        return [self.rows(step, group, layer, head) for step in range(len(self.steps))]

    def pooled(self, group: str, layer: int = 0, head: int = 0) -> Rows:
        """The rows of all steps together."""
        return _pooled(self, group, layer, head)


@cache
def _rows(sample: Sample, step: int, group: str, layer: int, head: int | None) -> Rows:
    if step >= len(sample.steps):
        return Rows(np.zeros((0, sample.keys)), np.zeros((0, sample.keys), bool), ())
    seen = sample.steps[step]
    chosen = seen.groups[group]
    looks = seen.weights[layer].mean(0) if head is None else seen.weights[layer, head]
    return Rows(looks[chosen], seen.sees[chosen], tuple(chosen))


@cache
def _pooled(sample: Sample, group: str, layer: int, head: int) -> Rows:
    each = sample.over_steps(group, layer, head)
    wide = [[(0, 0), (0, sample.keys - len(rows.keys))] for rows in each]
    weights = [np.pad(rows.weights, more) for rows, more in zip(each, wide, strict=True)]
    sees = [np.pad(rows.sees, more) for rows, more in zip(each, wide, strict=True)]
    return Rows(np.concatenate(weights), np.concatenate(sees), sum((rows.positions for rows in each), ()))


@dataclass(frozen=True, eq=False)
class Run:
    """A trace, and what eager attention saw of it."""

    writer: str
    data: xr.Dataset
    samples: list[Sample]
    groups: tuple[str, ...]

    def every_rows(self, per_head: bool = True) -> list[Rows]:
        """The rows of every sample, step, layer, head (or averaged over heads) and group."""
        heads = range(HEADS) if per_head else (None,)
        return [
            sample.rows(step, group, layer, head)
            for sample in self.samples
            for step, group, layer, head in product(range(len(sample.steps)), self.groups, range(LAYERS), heads)
        ]


@cache
def run_of(writer: str) -> Run:
    """Trace a tiny model that can write eight words only, and see the same with eager attention."""
    made = autoregressive_model() if writer == "autoregressive" else diffusion_model(writer)
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]  # the stub has no setter
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, clean_up_tokenization_spaces=False)
    lm = fl.LanguageModel(made.module, tokenizer, made.family, made.sampler, made.row_offset, made.mask_token_id)
    never = torch.full((VOCABULARY,), -1e4)
    never[5:13] = 0
    cast(Any, lm.module).lm_head.bias = torch.nn.Parameter(never)
    groups = ("predicting", "prompt") if writer == "autoregressive" else ("masked", "unmasked", "predicting")
    prompts = [_prompt(tokens) for tokens in PROMPTS[writer]]
    options = {"detail": "full", "groups": groups, "patterns": [(1, 2)], "batch_size": 2, "progress": False, **OPTIONS[writer]}
    trace = lm.trace(prompts, **options)
    samples = [_seen(lm, trace.sample(number), len(tokens)) for number, tokens in enumerate(PROMPTS[writer])]
    return Run(writer, trace.dataset.load(), samples, groups)


def _prompt(tokens: list[int]) -> fl.Prompt:
    words = [f"w{token}" for token in tokens]
    stops = np.cumsum([len(word) + 1 for word in words])
    spans = {name: (int(stops[places[0] - 1]), int(stops[places[-1]] - 1)) for name, places in REGIONS.items()}
    return fl.Prompt(" ".join(words), regions=spans)


def _seen(lm: fl.LanguageModel, sample: xr.Dataset, prompt: int) -> Sample:
    final = sample["final"].values.tolist()
    steps = []
    for number in range(sample.sizes["step"]):
        canvas, state = sample["canvas"].values[number], sample["state"].values[number]
        written = canvas[canvas >= 0].astype(np.int64)
        calls = eager_calls(lm.module, input_ids=torch.tensor(written[None]), use_cache=False)
        predicting = [max(int(position) - lm.row_offset, 0) for position in np.flatnonzero(state == 3)]
        masked = [row for row in range(len(written)) if state[row] in (2, 3)]
        groups = {
            "masked": masked,
            "unmasked": [row for row in range(len(written)) if row not in masked],
            "predicting": predicting,
            "prompt": list(range(prompt)) if number == 0 else [],
        }
        stacked = {name: np.stack([getattr(call, name)[0] for call in calls]) for name in ("weights", "query", "key", "value")}
        new = predicting if lm.sampler == "autoregressive" and number > 0 else list(range(len(written)))
        steps.append(Step(**stacked, sees=calls[0].visible[0], groups=groups, computed=new, state=state, canvas=canvas))
    regions = {**{name: list(places) for name, places in REGIONS.items()}, "answer": np.flatnonzero(steps[0].state != 1).tolist()}
    return Sample(steps, max(step.weights.shape[-1] for step in steps), regions, final)


# -- received attention ---------------------------------------------------------------------------------------------------------------


@cache
def mass(rows: Rows) -> list[float]:
    return [float(rows.weights[:, key].sum()) for key in rows.keys]


@cache
def witnesses(rows: Rows) -> list[int]:
    return [int(rows.sees[:, key].sum()) for key in rows.keys]


@cache
def fair(rows: Rows) -> list[float]:
    """The mass of each key if every row spread evenly over what it sees."""
    share = [1 / row.sum() for row in rows.sees]
    return [float(sum(one for one, row in zip(share, rows.sees, strict=True) if row[key])) for key in rows.keys]


@cache
def received(rows: Rows) -> list[float]:
    return [got / seen if seen else NAN for got, seen in zip(mass(rows), witnesses(rows), strict=True)]


@cache
def measured(rows: Rows) -> frozenset[int]:
    """Keys that 16 rows and a quarter of them see, or all of them where there are fewer."""
    number = len(rows.positions)
    return frozenset(key for key, seen in enumerate(witnesses(rows)) if seen >= min(number, max(16, number / 4)) and seen > 0)


@cache
def margins(rows: Rows, rule: str) -> list[float]:
    """By how much each measured key goes beyond what the rule compares it with, NaN for the others; all rules but "top"."""
    masses, keys, number = mass(rows), len(rows.keys), len(rows.positions)
    middle, spread = sum(masses) / keys, variance(masses) ** 0.5
    found = [NAN] * keys
    for key in measured(rows):
        if rule == "lift":
            found[key] = masses[key] / fair(rows)[key] - 1
        elif rule == "rate":
            found[key] = received(rows)[key]
        elif rule == "zscore":
            found[key] = (masses[key] - middle) / spread
        else:
            scaled = [one * keys / number for one in masses]
            found[key] = scaled[key] - sum(scaled[other] for other in rows.keys if other != key) / (keys - 1)
    return found


@cache
def anchors(rows: Rows, rule: str, eps: float) -> frozenset[int]:
    if rule == "top":
        return frozenset(sorted(measured(rows), key=lambda key: -received(rows)[key])[: int(eps)])
    return frozenset(key for key, margin in enumerate(margins(rows, rule)) if margin > eps)


@cache
def clear_eps(run: Run, rule: str, near: float, per_head: bool = True) -> float:
    """A threshold near a number, as far as can be from any margin: of all rows of any group, and of their halves."""
    low, high = near * 0.85, near * 1.15
    some = [part for rows in run.every_rows(per_head) for part in (rows, rows.half(0), rows.half(1))]
    values = [low, high, *(margin for rows in some for margin in margins(rows, rule) if low < margin < high)]
    ordered = np.sort(values)
    widest = int(np.argmax(np.diff(ordered)))
    assert ordered[widest + 1] - ordered[widest] > 2 * CLEAR, f"some margin of {rule} is too close to every threshold near {near}"
    return float(ordered[widest] + ordered[widest + 1]) / 2


def strongest(rows: Rows, among: Collection[int]) -> int:
    """The key with most received attention."""
    return max(among, key=lambda key: received(rows)[key])


def lead(rows: Rows, number: int = 1) -> float:
    """By how much, of itself, the last of the strongest keys draws more than the next; NaN if there is no next."""
    strengths = sorted((received(rows)[key] for key in measured(rows)), reverse=True)
    return (strengths[number - 1] - strengths[number]) / strengths[number - 1] if len(strengths) > number else NAN


RULES = {"lift": 0.4, "additive": 0.4, "zscore": 1.0, "rate": 0.12, "top": 4.0}


@cache
def threshold(run: Run, rule: str = "lift", per_head: bool = True) -> float:
    return RULES[rule] if rule == "top" else clear_eps(run, rule, RULES[rule], per_head)


@dataclass(frozen=True, eq=False)
class Found:
    """Anchors by a rule: as floatlens finds them in the trace, and of any rows of eager attention."""

    by_floatlens: xr.Dataset
    rule: str
    eps: float

    def of(self, rows: Rows) -> frozenset[int]:
        return anchors(rows, self.rule, self.eps)

    def jaccard(self, first: Rows, second: Rows) -> float:
        """Of the anchors on the keys measured in both."""
        both = measured(first) & measured(second)
        return jaccard(self.of(first) & both, self.of(second) & both)

    def jaccard_by_chance(self, first: Rows, second: Rows) -> float:
        """If as many lay anywhere among these keys."""
        both = measured(first) & measured(second)
        return jaccard_by_chance(len(both), len(self.of(first) & both), len(self.of(second) & both))


@cache
def anchors_of(run: Run, rule: str = "lift") -> Found:
    eps = threshold(run, rule)
    return Found(find_anchors(run.data, rule=rule, eps=eps), rule, eps)


# -- sets -----------------------------------------------------------------------------------------------------------------------------


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    return len(first & second) / len(first | second) if first | second else NAN


@cache
def jaccard_by_chance(keys: int, first: int, second: int) -> float:
    """All ways to choose the second set, by how many of it lie in the first."""
    if first + second == 0:
        return NAN
    ways = [(common, comb(first, common) * comb(keys - first, second - common)) for common in range(min(first, second) + 1)]
    return sum(number * common / (first + second - common) for common, number in ways) / comb(keys, second)


def mean(values: Iterable[float]) -> float:
    """The mean of those that exist."""
    known = [value for value in values if not isnan(value)]
    return sum(known) / len(known) if known else NAN


def variance(values: Sequence[float]) -> float:
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / len(values)


# -- comparing ------------------------------------------------------------------------------------------------------------------------


def assert_everywhere(found: xr.DataArray, run: Run, expected: Callable[..., Any]) -> None:
    """Each place of a result is what `expected` says of it, called with the sample and the labels of the other axes by name.

    If there is an axis `key`, `expected` gives a number for each key that exists.

    NaN (False, 0) beyond the sample's steps and keys.
    """
    found = found.transpose(..., "key") if "key" in found.dims else found
    axes = [str(axis) for axis in found.dims if axis != "key"]
    labels = [found[axis].values.tolist() for axis in axes]
    wanted = np.full(found.shape, NAN)
    for place in np.ndindex(*map(len, labels)):
        at = {axis: of_axis[index] for axis, of_axis, index in zip(axes, labels, place, strict=True)}
        sample = run.samples[at.pop("sample")]
        if at.get("step", 0) < len(sample.steps):
            said = expected(sample, **at)
            wanted[(*place, slice(0, len(said))) if "key" in found.dims else place] = said
    if found.dtype.kind in "bi":
        wanted = np.nan_to_num(wanted)
    assert np.isfinite(wanted).any(), "nothing to compare"
    np.testing.assert_allclose(found.values.astype(float), wanted, rtol=1e-4, atol=1e-5, err_msg=str(found.name))


def assert_of_rows(found: xr.DataArray, run: Run, expected: Callable[[Rows], Any], **fixed: Any) -> None:
    """Each place of a result is what `expected` says of the rows there.

    If the result has no axis `step`, of the rows of all steps together.
    """
    assert_everywhere(
        found, run, lambda sample, **at: expected(sample.rows(**at, **fixed) if "step" in at else sample.pooled(**at, **fixed))
    )


def assert_over_steps(found: xr.DataArray, run: Run, expected: Callable[[list[Rows]], float]) -> None:
    """Each place of a result is what `expected` says of the rows of all steps."""
    assert_everywhere(found, run, lambda sample, **at: expected(sample.over_steps(**at)))

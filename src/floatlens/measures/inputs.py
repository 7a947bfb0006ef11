"""What measures are given: a Trace, or a Dataset with the same variables, of one sample or of several.

Every measure is written for one sample, whose arrays have the axes step, layer, head, group, key. `one_sample_at_a_time` lets it take
several: samples are read, measured and dropped one after the other, so that memory holds one sample, and the results get a leading axis
`sample`. Samples are padded to the longest; whatever does not exist is NaN. `by_layers` goes through the layers of a sample a few at a
time.

The prompt of a sample is the unit of every interval, and pairs the samples of two models. Two models are given the same question in
different templates, so a prompt is what the user wrote: its characters without the template's. A prompt of token ids is those ids.

Refused: a variable that a measure needs and the trace does not hold, with the option that records it; anchors of other data; roles of
tokens that are no words.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.trace.schema import PROMPT
from floatlens.trace.trace import Trace

Measurable = Trace | xr.Dataset
"""A trace, or a dataset with a trace's variables."""

Labelled = TypeVar("Labelled", bound=xr.Dataset | xr.DataArray)
Options = ParamSpec("Options")
Result = TypeVar("Result")

RECEIVED = ("mass", "visible", "null", "rows")
"""The variables of received attention."""

HALVES = tuple(f"{name}_even" for name in RECEIVED)
"""The same of the rows at even positions."""

NO_ROWS = "the group has no rows here"

RECORDED_BY = {
    "mass": "detail={'mass': 'head'} (--detail mass=head)",
    "visible": "detail={'mass': 'head'} (--detail mass=head)",
    "null": "detail={'mass': 'head'} (--detail mass=head)",
    "rows": "detail={'mass': 'head'} (--detail mass=head)",
    "mass_even": "detail={'halves': 'head'} (--detail halves=head)",
    "entropy": "detail={'entropy': 'head'} (--detail entropy=head)",
    "score": "detail={'geometry': 'head'} (--detail geometry=head)",
    "cosine": "detail={'geometry': 'head'} (--detail geometry=head)",
    "norm_product": "detail={'geometry': 'head'} (--detail geometry=head)",
    "key_norm": "detail={'norms': 'head'} (--detail norms=head)",
    "value_norm": "detail={'norms': 'head'} (--detail norms=head)",
    "flow": "detail={'flow': 'layer'} (--detail flow=layer)",
    "top_key": "detail={'top_keys': 'head'} (--detail top_keys=head)",
    "pattern": "patterns=[(layer, head), ...] (--patterns layer:head,...)",
}


def one_sample_at_a_time(
    measure: Callable[Concatenate[Labelled, Options], Result],
) -> Callable[Concatenate[Labelled | Trace, Options], Result]:
    """Let a measure that is written for one sample take a Trace, or arrays with an axis `sample`.

    Every argument that has samples is cut into them; results are joined along `sample`.

    Examples
    --------
    >>> @one_sample_at_a_time
    ... def strongest(data):
    ...     return data["mass"].argmax("key")
    >>> mass = xr.DataArray([[1.0, 3.0, 2.0], [5.0, 0.0, 1.0]], dims=("sample", "key"))
    >>> strongest(xr.Dataset({"mass": mass})).values.tolist()
    [1, 0]
    """

    of_one_sample: Callable[..., Any] = measure

    @wraps(measure)
    def over_samples(*given: Any, **named: Any) -> Any:
        given = tuple(as_dataset(argument) if isinstance(argument, Trace) else argument for argument in given)
        sizes = {argument.sizes["sample"] for argument in (*given, *named.values()) if _has_samples(argument)}
        if not sizes:
            return of_one_sample(*given, **named)
        if len(sizes) > 1:
            raise Refusal(
                f"The arguments of {measure.__name__} have {' and '.join(map(str, sorted(sizes)))} samples; they must be of the same trace."
            )
        results = [
            of_one_sample(
                *(_of_sample(argument, number) for argument in given),
                **{name: _of_sample(argument, number) for name, argument in named.items()},
            )
            for number in range(sizes.pop())
        ]
        return xr.concat(results, "sample", coords="minimal", compat="override", combine_attrs="override")

    return over_samples


def _has_samples(given: Any) -> bool:
    return isinstance(given, xr.Dataset | xr.DataArray) and "sample" in given.dims


def _of_sample(given: Any, number: int) -> Any:
    return given.isel(sample=number) if _has_samples(given) else given


def as_dataset(data: Measurable) -> xr.Dataset:
    """The dataset of a trace; a dataset as it is."""
    if isinstance(data, Trace):
        return data.dataset
    if isinstance(data, xr.Dataset):
        return data
    raise Refusal(f"A measure takes a Trace or an xarray.Dataset with a trace's variables, not a {type(data).__name__}.")


def refuse_missing(data: xr.Dataset, names: Iterable[str], what_for: str) -> None:
    """Refuse a dataset that lacks a variable, and say how it is recorded.

    Examples
    --------
    >>> refuse_missing(xr.Dataset(), ["mass_even"], "The float index")
    Traceback (most recent call last):
    floatlens.errors.Refusal: The float index needs mass_even, which this trace does not hold. Record it with detail={'halves': 'head'} \
(--detail halves=head).
    """
    for name in names:
        if name not in data.variables:
            remedy = f" Record it with {RECORDED_BY[name]}." if name in RECORDED_BY else ""
            raise Refusal(f"{what_for} needs {name}, which this trace does not hold.{remedy}")


WITHOUT_TEXT = re.compile(r"⟨\d+⟩")
"""What a trace writes for a token id that no tokenizer knows."""


def refuse_what_has_no_roles(data: xr.Dataset) -> None:
    """Refuse a dataset whose tokens cannot have the roles of words.

    Examples
    --------
    >>> names = dict.fromkeys(("state", "canvas", "final", "template", "token", "special"), 0)
    >>> refuse_what_has_no_roles(xr.Dataset(names, attrs={"floatlens": '{"writes_words": false}'}))
    Traceback (most recent call last):
    floatlens.errors.Refusal: The tokens of this trace are letters of a biological sequence and not words, so they have no roles. \
To see which letters draw attention, look at the strongest keys: floatlens show.
    """
    refuse_missing(data, ("state", "canvas", "final", "template", "token"), "Token roles")
    if "special" not in data:
        raise Refusal(
            "Token roles need special, which this trace does not hold: it does not say which tokens are special. Record the trace anew."
        )
    if not json.loads(data.attrs.get("floatlens", "{}")).get("writes_words", True):  # earlier traces do not say; their tokens are words
        raise Refusal(
            "The tokens of this trace are letters of a biological sequence and not words, so they have no roles. To see which letters "
            "draw attention, look at the strongest keys: floatlens show."
        )
    texts = [str(text) for text, exists in zip(data["token"].values, (data["final"] >= 0).values, strict=True) if exists]
    if texts and all(map(WITHOUT_TEXT.fullmatch, texts)):
        raise Refusal(
            "The tokens of this trace have no texts, so they have no roles: its model has no tokenizer. Load the model with its "
            "tokenizer files."
        )


def refuse_other_axes(values: xr.DataArray, anchors: xr.Dataset, *, own: Sequence[str] = ()) -> None:
    """Refuse anchors that were not found in the data of `values`.

    Anchors may lack `step` and `head`, and may have axes of their `own`.

    Examples
    --------
    >>> score = xr.DataArray(np.zeros((2, 3)), dims=("layer", "key"), name="score")
    >>> by_head = xr.DataArray(np.zeros((2, 4, 3), bool), dims=("layer", "head", "key"))
    >>> refuse_other_axes(score, xr.Dataset({"anchor": by_head, "measured": by_head.any("head")}))
    Traceback (most recent call last):
    floatlens.errors.Refusal: The anchors are per head and score is per layer; find them with find_anchors(data, per_head=False).
    """
    if not isinstance(anchors, xr.Dataset) or "anchor" not in anchors or "measured" not in anchors:
        raise Refusal("The second argument must be anchors: the dataset that find_anchors(data) returns.")
    anchor = anchors["anchor"]
    if "head" in anchor.dims and "head" not in values.dims:
        raise Refusal(f"The anchors are per head and {values.name} is per layer; find them with find_anchors(data, per_head=False).")
    foreign = [axis for axis in anchor.dims if axis not in (*values.dims, *own)]
    missing = [axis for axis in values.dims if axis not in (*anchor.dims, "step", "head")]
    differing = [axis for axis in anchor.dims if axis in values.dims and anchor.sizes[axis] != values.sizes[axis]]
    labelled = [axis for axis in ("sample", "step", "layer", "head", "group", "key") if axis in anchor.coords and axis in values.coords]
    differing += [axis for axis in labelled if not np.array_equal(anchor[axis].values, values[axis].values)]
    if foreign or missing or differing:
        names = ", ".join(dict.fromkeys(map(str, foreign + missing + differing)))
        raise Refusal(f"The anchors and {values.name} differ in {names}; find the anchors in the same data, find_anchors(data).")


def choose_group(data: xr.Dataset, group: str) -> xr.Dataset:
    """The arrays of one query group, without the axis `group`."""
    groups = [str(name) for name in data["group"].values] if "group" in data.coords else []
    if group not in groups:
        raise Refusal(f"There is no query group {group!r} in this trace; it has {', '.join(groups) or 'none'}.")
    return data.sel(group=group)


BYTES_AT_ONCE = 2**25  # of the largest array: temporaries are a few times that, and all layers of a small trace are one piece


def by_layers(measure: Callable[..., xr.Dataset], *given: xr.Dataset) -> xr.Dataset:
    """What a measure gives for a few layers at a time, joined: temporaries, and what is read from disk at once, are of those layers.

    Examples
    --------
    >>> data = xr.Dataset({"mass": (("layer", "key"), [[1.0, 2.0], [3.0, 4.0]])})
    >>> by_layers(lambda some: some.sum("key"), data)["mass"].values.tolist()
    [3.0, 7.0]
    """
    if "layer" not in given[0].dims:
        return measure(*given)
    layers = given[0].sizes["layer"]
    largest = max(values.nbytes for dataset in given for values in dataset.data_vars.values())
    at_once = max(1, BYTES_AT_ONCE * layers // max(largest, 1))
    results = []
    for first in range(0, layers, at_once):
        some = slice(first, first + at_once)
        results.append(measure(*(dataset.isel(layer=some).load() if "layer" in dataset.dims else dataset for dataset in given)))
    joined = xr.concat(results, "layer", data_vars="minimal", coords="minimal", compat="override") if len(results) > 1 else results[0]
    return joined.transpose(*(axis for axis in ("step", "layer", "head", "group") if axis in joined.dims), ...)


def existing(values: xr.DataArray) -> xr.DataArray:
    """0 where there is no key to have a value, for sums; the same array, not a copy, where all exist.

    Examples
    --------
    >>> existing(xr.DataArray([2.0, np.nan])).values.tolist()
    [2.0, 0.0]
    """
    return values.fillna(0) if values.isnull().any() else values


def relative_depth(layers: xr.DataArray | np.ndarray) -> np.ndarray:
    """Where each layer stands between the first (0) and the last (1).

    Examples
    --------
    >>> relative_depth(np.array([0, 1, 2, 4])).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    numbers = np.asarray(layers, dtype=float)
    span = numbers.max() - numbers.min()
    return (numbers - numbers.min()) / span if span else np.zeros_like(numbers)


def depths(layers: np.ndarray) -> xr.DataArray:
    """Which layers are all, shallow, middle and deep: bool (depth, layer). A layer belongs to the third of the depth that holds its middle.

    Examples
    --------
    >>> depths(np.arange(4)).sel(depth=["shallow", "middle", "deep"]).sum("layer").values.tolist()
    [1, 2, 1]
    """
    first, last = layers.min(), layers.max()
    third = np.floor(3 * (layers - first + 0.5) / (last - first + 1)).astype(int)
    inside = np.stack([np.ones(len(layers), bool), *(third == number for number in range(3))])
    return xr.DataArray(inside, dims=("depth", "layer"), coords={"depth": ["all", "shallow", "middle", "deep"]})


def prompt_of(trace: Trace, number: int) -> str:
    """What the user wrote in a sample."""
    own = trace.sample(number)
    given = (own["state"].values == PROMPT).any(0)
    chosen = given & ~own["template"].values & (own["char_stop"].values > own["char_start"].values)
    if not chosen.any():
        return " ".join(map(str, own["final"].values[given]))
    text = trace.prompt(number)
    covered = np.zeros(len(text), bool)
    for start, stop in zip(own["char_start"].values[chosen], own["char_stop"].values[chosen], strict=True):
        covered[start:stop] = True
    return "".join(character for character, is_own in zip(text, covered, strict=True) if is_own).strip()


def prompts_of(trace: Trace) -> list[str]:
    """What the user wrote in each sample; samples with the same text are one prompt."""
    return [prompt_of(trace, number) for number in range(len(trace))]

"""What measures are given: a Trace, or a Dataset with the same variables, of one sample or of several.

Every measure is written for one sample, whose arrays have the axes step, layer, head, group, key. `one_sample_at_a_time` lets it take several: samples are read, measured and dropped
one after the other, so that memory holds one sample, and the results get a leading axis `sample`. Samples are padded to the longest, so whatever does not exist is NaN.
A variable that a measure needs and the trace does not have is refused, with the option that records it.

Which prompt a sample comes from: the unit of every interval, and what pairs the samples of two models.

Two models are given the same question in different templates, so a prompt is what the user wrote: its characters without the template's. A prompt of token ids is those ids.

Received attention: what a key gets from those who can see it, and how that compares with its fair share.

Raw mass favours keys that many rows see; under a causal mask it crowns the first token whatever the model does. `lift` divides by what each key would get if every row spread evenly over
what it sees: 1 is a fair share. A key that too few rows see says nothing either way and is not measured (NaN), which is not the same as "no anchor".

The rectangle that a diffusion model and an autoregressive one share: predicting rows by prompt keys.

An autoregressive step has one row, which sees what is written; a diffusion step has many, which also see the masks. What both have at every step are the rows that fill a position, and the keys of the
prompt, all of which those rows see. Attention is rescaled to what each half of the rows gives to the prompt, so that shares, nulls and anchors are those of the rectangle; how much falls outside is reported
beside it. `on_prompt` says how much of the attention the rectangle holds, and its null.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import xarray as xr

from floatlens import anchor_rules
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
    "mass": "detail={'mass': 'head'}",
    "visible": "detail={'mass': 'head'}",
    "null": "detail={'mass': 'head'}",
    "rows": "detail={'mass': 'head'}",
    "mass_even": "detail={'halves': 'head'}",
    "entropy": "detail={'entropy': 'head'}",
    "score": "detail={'geometry': 'head'}",
    "cosine": "detail={'geometry': 'head'}",
    "norm_product": "detail={'geometry': 'head'}",
    "key_norm": "detail={'norms': 'head'}",
    "value_norm": "detail={'norms': 'head'}",
    "flow": "detail={'flow': 'layer'}",
    "top_key": "detail={'top_keys': 'head'}",
    "pattern": "patterns=[(layer, head), ...]",
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
        given = tuple(as_dataset(one) if isinstance(one, Trace) else one for one in given)
        sizes = {one.sizes["sample"] for one in (*given, *named.values()) if _has_samples(one)}
        if not sizes:
            return of_one_sample(*given, **named)
        if len(sizes) > 1:
            raise Refusal(
                f"The arguments of {measure.__name__} have {' and '.join(map(str, sorted(sizes)))} samples; they must be of the same trace."
            )
        results = [
            of_one_sample(*(_of_sample(one, number) for one in given), **{name: _of_sample(one, number) for name, one in named.items()})
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
    >>> refuse_missing(xr.Dataset(), ["mass_even"], "Absorption of the strongest key")
    Traceback (most recent call last):
    floatlens.errors.Refusal: Absorption of the strongest key needs mass_even, which this trace does not hold. Record it with detail={'halves': 'head'}.
    """
    for name in names:
        if name not in data.variables:
            remedy = f" Record it with {RECORDED_BY[name]}." if name in RECORDED_BY else ""
            raise Refusal(f"{what_for} needs {name}, which this trace does not hold.{remedy}")


def choose_group(data: xr.Dataset, group: str) -> xr.Dataset:
    """The arrays of one query group, without the axis `group`."""
    groups = [str(name) for name in data["group"].values] if "group" in data.coords else []
    if group not in groups:
        raise Refusal(f"There is no query group {group!r} in this trace; it has {', '.join(groups) or 'none'}.")
    return data.sel(group=group)


def mean_over_heads(data: xr.Dataset) -> xr.Dataset:
    """Received attention averaged over the heads that exist: of rows that every head sees alike, or, where an edit hid different keys from different heads, of all of them together.

    Examples
    --------
    >>> data = xr.Dataset({"mass": (("head", "key"), [[1.0, 0.0], [0.5, 0.5]])})
    >>> mean_over_heads(data)["mass"].values.tolist()
    [0.75, 0.25]
    """
    averaged: dict[str, xr.DataArray] = {}
    for ending in ("", "_even"):
        for name in (f"mass{ending}", f"visible{ending}", f"rows{ending}"):
            if name in data and "head" in data[name].dims:
                averaged[name] = _without_gaps_first(data[name], "head", "mean")
        if f"null{ending}" in data and "head" in data[f"null{ending}"].dims:
            fair = (data[f"visible{ending}"] * data[f"null{ending}"].fillna(0)).mean("head")
            visible = averaged[f"visible{ending}"]
            averaged[f"null{ending}"] = fair / visible.where(visible > 0)
    return data.drop_vars(averaged).assign(averaged)


def pool_steps(data: xr.Dataset) -> xr.Dataset:
    """Received attention over all rows of all steps together, as if they were one step.

    An autoregressive step has one predicting row, and one row says little; all of them are a sample that can be measured. Masses, visible rows and rows add up; the null is the mean over all
    seeing rows. Only the variables of received attention remain.

    Examples
    --------
    >>> data = xr.Dataset({
    ...     "mass": (("step", "key"), [[0.75, 0.25], [0.25, 0.75]]),
    ...     "visible": (("step", "key"), [[1.0, 1.0], [1.0, 1.0]]),
    ...     "null": (("step", "key"), [[0.5, 0.5], [0.5, 0.5]]),
    ...     "rows": ("step", [1.0, 1.0]),
    ... })
    >>> pool_steps(data)["mass"].values.tolist()
    [1.0, 1.0]
    """
    refuse_missing(data, ("mass", "visible", "null", "rows"), "Pooling over steps")
    pooled: dict[str, xr.DataArray] = {}
    for ending in ("", "_even"):
        if f"mass{ending}" not in data:
            continue
        visible, null = data[f"visible{ending}"], data[f"null{ending}"]
        seen = visible.sum("step", min_count=1)
        expected = (visible * null.fillna(0)).sum("step", min_count=1)
        pooled[f"mass{ending}"] = _without_gaps_first(data[f"mass{ending}"], "step", "sum")
        pooled[f"visible{ending}"] = seen
        pooled[f"null{ending}"] = expected / seen.where(seen > 0)
        pooled[f"rows{ending}"] = data[f"rows{ending}"].sum("step", min_count=1)
    return xr.Dataset(pooled, attrs=data.attrs)


def _without_gaps_first(values: xr.DataArray, axis: str, how: Literal["sum", "mean"]) -> xr.DataArray:
    """The sum or mean over what exists along an axis, NaN where nothing does. Most arrays have no gaps, and looking for them costs ten times as much as adding up."""
    plain = getattr(values, how)(axis, skipna=False)
    gaps = plain.isnull()
    if not bool(gaps.any()):
        return plain
    existing = values.where(gaps)
    return plain.where(~gaps, existing.sum(axis, min_count=1) if how == "sum" else existing.mean(axis))


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


@one_sample_at_a_time
def received(data: xr.Dataset) -> xr.DataArray:
    """Mean weight that a key gets from the rows that can see it; NaN where none does.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> causal = from_attention(np.array([[1.0, 0.0], [0.4, 0.6]]), visible=np.tril(np.ones((2, 2))))
    >>> received(causal).isel(step=0, layer=0, head=0, group=0).values.round(2).tolist()
    [0.7, 0.6]
    """
    refuse_missing(data, ("mass", "visible"), "Received attention")
    return data["mass"] / data["visible"].where(data["visible"] > 0)


@one_sample_at_a_time
def lift(data: xr.Dataset) -> xr.DataArray:
    """Received attention over its null: 1 is the key's fair share.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> lift(from_attention(np.array([[0.75, 0.25]]))).isel(step=0, layer=0, head=0, group=0).values.tolist()
    [1.5, 0.5]
    """
    refuse_missing(data, ("mass", "visible", "null"), "Lift")
    return data["mass"] / fair_mass(data)


def fair_mass(data: xr.Dataset, ending: str = "") -> xr.DataArray:
    """The mass of each key if every row spread evenly over what it sees; NaN where no row sees it. `ending` "_even" is that of the rows at even positions."""
    return xr.apply_ufunc(anchor_rules.fair_mass, data[f"visible{ending}"], data[f"null{ending}"])


@one_sample_at_a_time
def measured(data: xr.Dataset) -> xr.DataArray:
    """Whether enough rows of the group see a key: at least 16 and a quarter of them, or all of them where there are fewer.

    Late keys of a causal model are seen by few, near rows, and draw much for that reason alone.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> causal = from_attention(np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None], visible=np.tril(np.ones((40, 40))))
    >>> int(measured(causal).sum())  # the last 15 of 40 keys are seen by fewer than 16 rows
    25
    """
    refuse_missing(data, ("visible", "rows"), "Which keys are measured")
    visible = data["visible"]
    enough = xr.apply_ufunc(anchor_rules.eligible, visible, data["rows"], input_core_dims=[["key"], []], output_core_dims=[["key"]])
    return enough.transpose(*visible.dims, ...)


@one_sample_at_a_time
def shared_rectangle(data: xr.Dataset, *, group: str = "predicting") -> xr.Dataset:
    """Received attention of prompt keys from one group of rows: a dataset for any measure of received attention.

    `mass` is rescaled to sum to `rows` over the keys of the prompt; other keys are NaN. `on_prompt` is the share of attention that lay there, `on_prompt_null` its fair share.

    Examples
    --------
    >>> import numpy as np
    >>> from floatlens.measures import from_attention
    >>> looks = np.array([[0.1, 0.3, 0.6], [0.2, 0.2, 0.6]])  # two rows; the third key is not of the prompt
    >>> data = from_attention(looks, groups={"predicting": np.array([True, True])})
    >>> rectangle = shared_rectangle(data.assign(state=(("step", "position"), [[1, 1, 2]])))
    >>> rectangle["mass"].squeeze().values.round(6).tolist()  # 1/4 and 3/4 of the first row, 1/2 and 1/2 of the second
    [0.75, 1.25, nan]
    >>> rectangle["null"].squeeze().values.tolist()
    [0.5, 0.5, nan]
    """
    refuse_missing(data, ("mass", "visible", "null", "rows", "state"), "The shared rectangle")
    choose_group(data, group)
    own = data.sel(group=[group])
    prompt = (data["state"] == PROMPT).any("step").rename(position="key")
    if not bool(prompt.any()):
        raise Refusal("This sample has no prompt, so it shares no rectangle with another model.")
    if bool(((own["visible"] < own["rows"]) & prompt).any()):
        raise Refusal(f"Some {group} rows do not see the whole prompt (a sliding window?), so there is no rectangle to compare on.")
    mass, has_rows = own["mass"], own["rows"] > 0
    rectangle = {
        "on_prompt": mass.where(prompt).sum("key") / own["rows"].where(has_rows),
        "on_prompt_null": fair_mass(own).where(prompt).sum("key") / own["rows"].where(has_rows),
    }
    if "mass_even" in own:
        even = _rescaled(own["mass_even"], own["rows_even"], prompt)
        odd = _rescaled(mass - own["mass_even"], own["rows"] - own["rows_even"], prompt)
        rectangle |= {"mass": even + odd, "mass_even": even, **_counts(own["rows_even"], prompt, "_even")}
    else:
        rectangle["mass"] = _rescaled(mass, own["rows"], prompt)
    rectangle |= _counts(own["rows"], prompt, "")
    there = mass.notnull() & prompt
    return xr.Dataset({name: values.where(there) if name.startswith("mass") else values for name, values in rectangle.items()}).transpose(
        *mass.dims, missing_dims="ignore"
    )


def _counts(rows: xr.DataArray, prompt: xr.DataArray, ending: str) -> dict[str, xr.DataArray]:
    """All of these rows see all of the prompt."""
    return {
        f"rows{ending}": rows,
        f"visible{ending}": rows.where(prompt),
        f"null{ending}": (1 / prompt.sum("key")).where(prompt & (rows > 0)),
    }


def _rescaled(mass: xr.DataArray, rows: xr.DataArray, prompt: xr.DataArray) -> xr.DataArray:
    """Mass on the prompt as if that were all that these rows give away; 0 where there are none."""
    total = mass.where(prompt).sum("key")
    return mass * (rows / total.where(total > 0)).fillna(0).astype(mass.dtype)

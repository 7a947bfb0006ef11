"""Received attention: what a key gets from the rows that can see it, and how that compares with its fair share.

Raw mass favours keys that many rows see; under a causal mask it favours the first token whatever the model does. `lift` divides by what
each key would get if every row spread evenly over what it sees: 1 is a fair share. A key that too few rows see is not measured (NaN),
which is not the same as "no anchor". `mean_over_heads` and `pool_steps` average and add received attention; `from_attention` makes it of
dense weights of your own, for attention that comes from elsewhere and to see what a measure does (it holds the whole matrices; a trace
never does).

The shared rectangle is where a diffusion model and an autoregressive one can be compared: predicting rows by prompt keys. An autoregressive
step has one row, which sees what is written; a diffusion step has many, which also see the masks. What both have at every step are the rows
that fill a position, and the keys of the prompt, all of which those rows see. Attention is rescaled to what each half of the rows gives to
the prompt, so that shares, nulls and anchors are those of the rectangle; `on_prompt` says how much of the attention it holds.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import xarray as xr

from floatlens import anchor_rules
from floatlens.errors import Refusal
from floatlens.measures.inputs import RECEIVED, choose_group, one_sample_at_a_time, refuse_missing
from floatlens.trace.schema import PROMPT


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
    """The mass of each key if every row spread evenly over what it sees; NaN where no row sees it.

    `ending` "_even" is that of the rows at even positions.
    """
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


def mean_over_heads(data: xr.Dataset) -> xr.Dataset:
    """Received attention averaged over the heads that exist.

    Where an edit hid different keys from different heads, it is that of the rows of all heads together.

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


def halves_of(data: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Received attention of the rows at even positions, and of those at odd positions.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> even, odd = halves_of(from_attention(np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])))
    >>> even["mass"].values.ravel().tolist(), odd["mass"].values.ravel().tolist()
    ([1.0, 1.0], [0.5, 0.5])
    """
    even = xr.Dataset({name: data[f"{name}_even"] for name in RECEIVED})
    visible = data["visible"] - data["visible_even"]
    fair = fair_mass(data).fillna(0) - fair_mass(data, "_even").fillna(0)
    odd = {
        "mass": data["mass"] - data["mass_even"],
        "visible": visible,
        "null": fair / visible.where(visible > 0),
        "rows": data["rows"] - data["rows_even"],
    }
    return even, xr.Dataset(odd)


def pool_steps(data: xr.Dataset) -> xr.Dataset:
    """Received attention over all rows of all steps together, as if they were one step.

    An autoregressive step has one predicting row, and one row says little; all of them are a sample that can be measured. Masses, visible
    rows and rows add up; the null is the mean over all seeing rows. Only the variables of received attention remain.

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
    """The sum or mean over what exists along an axis, NaN where nothing does.

    Most arrays have no gaps, and looking for them costs ten times as much as adding up.
    """
    plain = getattr(values, how)(axis, skipna=False)
    gaps = plain.isnull()
    if not bool(gaps.any()):
        return plain
    existing = values.where(gaps)
    return plain.where(~gaps, existing.sum(axis, min_count=1) if how == "sum" else existing.mean(axis))


@one_sample_at_a_time
def shared_rectangle(data: xr.Dataset, *, group: str = "predicting") -> xr.Dataset:
    """Received attention of prompt keys from one group of rows: a dataset for any measure of received attention.

    `mass` is rescaled to sum to `rows` over the keys of the prompt; other keys are NaN. `on_prompt` is the share of attention that lay
    there, `on_prompt_null` its fair share.

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


def from_attention(
    weights: np.ndarray,
    *,
    visible: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
    regions: Mapping[str, Sequence[int]] | None = None,
) -> xr.Dataset:
    """Dense attention as the dataset of a trace: mass, its null, the rows at even positions, entropy, and the patterns themselves.

    Parameters
    ----------
    weights
        (step, layer, head, query, key); leading axes may be left out. Rows sum to 1 over the keys they see. A row of NaN was not computed.
    visible
        Which keys each row may see, broadcastable to (step, query, key); by default all that exist (`numpy.tril` of ones makes a causal
        model).
    groups
        Names of query groups and their rows, booleans broadcastable to (step, query); one group "everyone" by default.
    regions
        Names of regions and the positions in each.

    Examples
    --------
    >>> looks = np.array([[0.5, 0.5], [1.0, 0.0]])  # two rows, two keys
    >>> data = from_attention(looks)
    >>> data["mass"].isel(step=0, layer=0, head=0, group=0).values.tolist()
    [1.5, 0.5]
    >>> data["null"].isel(step=0, group=0).values.tolist()
    [0.5, 0.5]
    """
    weights = np.asarray(weights, dtype=float)
    if not 2 <= weights.ndim <= 5:
        raise Refusal(
            f"weights has {weights.ndim} axes; attention is over (step, layer, head, query, key), of which the first three may be left out."
        )
    weights = weights.reshape((1,) * (5 - weights.ndim) + weights.shape)
    steps, _, _, queries, keys = weights.shape
    computed = np.asarray(np.isfinite(weights).any(axis=(1, 2, 4)))  # (step, query)
    seen = np.broadcast_to(np.ones((queries, keys), bool) if visible is None else np.asarray(visible, bool), (steps, queries, keys))
    seen = seen & computed[..., None]
    rows = {"everyone": np.ones(queries, bool)} if groups is None else groups
    member = np.stack(
        [np.broadcast_to(np.asarray(in_group, bool), (steps, queries)) & computed for in_group in rows.values()]
    )  # (group, step, query)
    weights_or_0 = np.nan_to_num(weights)
    share = seen / np.maximum(seen.sum(-1, keepdims=True), 1)
    at_even = np.arange(queries) % 2 == 0
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    for ending, chosen in (("", member), ("_even", member & at_even)):
        counted = np.einsum("gsq,sqk->sgk", chosen.astype(float), seen)
        evenly = np.einsum("gsq,sqk->sgk", chosen.astype(float), share)
        variables[f"mass{ending}"] = (
            ("step", "layer", "head", "group", "key"),
            np.einsum("gsq,slhqk->slhgk", chosen.astype(float), weights_or_0),
        )
        variables[f"visible{ending}"] = (("step", "group", "key"), counted)
        variables[f"null{ending}"] = (
            ("step", "group", "key"),
            np.divide(evenly, counted, out=np.full_like(evenly, np.nan), where=counted > 0),
        )
        variables[f"rows{ending}"] = (("step", "group"), chosen.sum(-1).T.astype(float))
    variables["entropy"] = (("step", "layer", "head", "group"), _entropy(weights_or_0, seen, member))
    layers, heads = weights.shape[1:3]
    variables["pattern"] = (("step", "chosen", "query", "key"), weights.reshape(steps, layers * heads, queries, keys))
    data = xr.Dataset(variables).assign_coords(
        layer=np.arange(layers),
        group=list(rows),
        chosen_layer=("chosen", np.repeat(np.arange(layers), heads)),
        chosen_head=("chosen", np.tile(np.arange(heads), layers)),
    )
    if regions is None:
        return data
    inside = np.stack([np.isin(np.arange(keys), list(positions)) for positions in regions.values()])
    return data.assign(in_region=(("region", "position"), inside)).assign_coords(region=list(regions))


def _entropy(weights: np.ndarray, seen: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Mean row entropy over its maximum: (step, layer, head, group); rows that see one key have none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(-1)
        most = np.log(seen.sum(-1))  # (step, query)
        relative = rows / most[:, None, None]
        counted = (member & (seen.sum(-1) > 1)).astype(float)  # (group, step, query)
        relative = np.where((seen.sum(-1) > 1)[:, None, None], relative, 0)
        return np.einsum("gsq,slhq->slhg", counted, relative) / counted.sum(-1).T[:, None, None]

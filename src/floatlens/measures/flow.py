"""Region flow: where the rows that write the answer look, and what a published rollout makes of it.

Two numbers, each beside the number that even attention would give. *Direct* flow is the share of the rows' attention that lies in a
region, at one step, in one layer. *Rollout* follows attention through the layers as published: region sums of head-averaged attention,
each row normalised, half of it replaced by the region itself (the residual stream), multiplied layer by layer. Under a causal mask the
first region sees only itself, so what reaches it stays there, and rollout piles up on it whatever the model does: a rollout says nothing
without its null.

Regions may overlap: a key counts in every region that holds it, so shares may add up to more than 1, and `overlapping` counts such
positions. Keys in no region are `elsewhere` in direct flow; a rollout leaves them out, as published. A region without keys or without
rows is NaN, and `reason` says so.
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.inputs import NO_ROWS, RECEIVED, by_layers, choose_group, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import fair_mass

ELSEWHERE = "elsewhere"

NO_KEYS = "no key of the region exists here"
UNSEEN = "no row of the group may see the region"
NOT_COMPUTED = "no row of the region was computed here that looks at a region"
THROUGH_UNKNOWN = "it looks through a region of which no row was computed here"
UNSEEN_BY_ALL = "no row may see the region here"
UNREACHED = "even attention does not reach the region from here"


@one_sample_at_a_time
def direct_flow(data: xr.Dataset, *, group: str = "predicting", per_head: bool = False) -> xr.Dataset:
    """The share of a group's attention that lies in each region, at every step and layer.

    Parameters
    ----------
    data
        A trace with regions, or a dataset with mass, visible, null, rows and in_region.
    group
        Whose rows: by default those that fill the positions committed in the step.
    per_head
        Per head, or the mean over heads.

    Returns
    -------
    xarray.Dataset
        `direct` (the mean over rows of what each puts into the region), `null` (the same if every row spread evenly) and `fair`, their
        ratio, by step, layer and region; the last region, "elsewhere", is all keys in no region. `overlapping`, how many positions lie in
        several regions. `reason`, why there is no fair flow.

    Examples
    --------
    One row on four keys puts .6 into a region of one key, 2.4 times its fair share.

    >>> from floatlens.measures import from_attention
    >>> groups, regions = {"predicting": np.array([True])}, {"bos": [0], "query": [1, 2]}
    >>> data = from_attention(np.array([[0.6, 0.2, 0.1, 0.1]]), groups=groups, regions=regions)
    >>> flow = direct_flow(data).squeeze()
    >>> flow["region"].values.tolist(), flow["direct"].values.round(6).tolist()
    (['bos', 'query', 'elsewhere'], [0.6, 0.3, 0.1])
    >>> flow["fair"].values.round(6).tolist()
    [2.4, 0.6, 0.4]
    """
    refuse_missing(data, (*RECEIVED, "in_region", "region"), "Direct flow")
    if ELSEWHERE in data["region"].values:
        raise Refusal(
            f"A region of this trace is called {ELSEWHERE!r}, which direct flow calls the keys in no region; rename it: "
            "data.assign_coords(region=...)."
        )
    of_group = choose_group(data[list(RECEIVED)], group).drop_vars("group")
    in_region = data["in_region"].rename(position="key")
    regions = xr.concat([in_region, ~in_region.any("region").expand_dims(region=[ELSEWHERE])], "region").astype(float)
    flow = by_layers(lambda part: _direct(part, regions, per_head), of_group)
    return flow.assign(overlapping=(in_region.sum("region") > 1).sum("key"))


def _direct(data: xr.Dataset, regions: xr.DataArray, per_head: bool) -> xr.Dataset:
    """Direct flow of some layers."""
    rows, exists = data["rows"].where(data["rows"] > 0), data["visible"].notnull()
    into = {name: _into_regions(amount / rows, regions, per_head) for name, amount in (("direct", data["mass"]), ("null", fair_mass(data)))}
    has_keys = _into_regions(exists, regions, per_head) > 0
    has_rows = rows.notnull() if per_head or "head" not in rows.dims else rows.notnull().any("head")
    known = {name: values.where(has_keys & has_rows) for name, values in into.items()}
    deserved = known["null"] > 0
    reason = xr.where(~has_rows, NO_ROWS, xr.where(~has_keys, NO_KEYS, xr.where(deserved, "", UNSEEN)))
    flow = xr.Dataset({**known, "fair": known["direct"] / known["null"].where(deserved), "reason": reason})
    return flow.transpose(..., "region")


def _into_regions(per_key: xr.DataArray, regions: xr.DataArray, per_head: bool) -> xr.DataArray:
    """Sums over the keys of each region that exist; the mean over heads first unless they are kept."""
    if not per_head and "head" in per_key.dims:
        per_key = per_key.mean("head")
    return xr.dot(per_key.fillna(0).astype(float), regions, dim="key")


@one_sample_at_a_time
def rollout(data: xr.Dataset, *, pooled: bool = False, cumulative: bool = False) -> xr.Dataset:
    """Attention from region to region through all layers, as published, beside what even attention gives.

    `R <- rownorm(P + I) R` from the first layer to the last, where `P` is the mass from region to region of the head-averaged attention,
    normalised by row, and R begins as the identity: row a of R is what the last layer's region a is made of, by regions of the input.
    Rows of the text that lie in no region, and what regions put on keys in none, are left out.

    With even causal attention over 1 + 20 + 10 x 150 + 32 tokens and 32 layers the answer's row puts .72 on the first token (.99 if all
    rows put a fifth on it and spread the rest evenly over all they see, .97 if a fifth is all it gets); with even attention to
    everything, every row gives the lengths of the regions.

    Parameters
    ----------
    data
        A trace with detail={'flow': 'layer'}, or a dataset with flow and flow_null.
    pooled
        Add up the steps first. Models that compute each row once (autoregressive ones, cached blocks) have a rollout only so, because no
        step has the rows of all regions.
    cumulative
        After every layer (axis `layer`), rather than after the last.

    Returns
    -------
    xarray.Dataset
        `rollout`, `null` and `fair`, their ratio, by step, query_region and key_region; `reason`, why there is no fair rollout after the
        last layer.

    Examples
    --------
    Two tokens of a causal model, each a region, even attention, one layer: the second keeps half of itself and looks evenly at both.

    >>> even = xr.DataArray([[[1.0, 0.0], [0.5, 0.5]]], dims=("layer", "query_region", "key_region"))
    >>> rolled = rollout(xr.Dataset({"flow": even, "flow_null": even}))
    >>> rolled["rollout"].values.tolist()
    [[1.0, 0.0], [0.25, 0.75]]
    >>> rolled["fair"].values.tolist()  # the first cannot see the second
    [[1.0, nan], [1.0, 1.0]]
    """
    refuse_missing(data, ("flow", "flow_null"), "Rollout")
    given = (_of_layers(data[name], pooled) for name in ("flow", "flow_null"))
    flow, evenly = (each.transpose(..., "layer", "query_region", "key_region") for each in xr.broadcast(*given))
    computed = flow.values.sum(-1) > 0  # (..., layer, query_region): without rows there is no mass
    reaches = evenly.values > 0
    known = _known(computed, reaches)[..., None]
    seen = np.any(reaches, axis=(-3, -2), keepdims=True)  # (..., 1, 1, key_region)
    rolled, null = (np.where(known & seen, _rolled_out(each.values), np.nan) for each in (flow, evenly))
    fair = np.divide(rolled, null, out=np.full_like(rolled, np.nan), where=null > 0)
    why = [~computed.all(axis=-2)[..., None], ~known[..., -1, :, :], ~seen[..., 0, :, :], ~(null[..., -1, :, :] > 0)]
    reasons = [NOT_COMPUTED, THROUGH_UNKNOWN, UNSEEN_BY_ALL, UNREACHED]
    reason = np.select(np.broadcast_arrays(*why), reasons, "")
    result = xr.Dataset({name: flow.copy(data=values) for name, values in (("rollout", rolled), ("null", null), ("fair", fair))})
    result = result if cumulative else result.isel(layer=-1, drop=True)
    return result.assign(reason=flow.isel(layer=-1, drop=True).copy(data=reason))


def _of_layers(values: xr.DataArray, pooled: bool) -> xr.DataArray:
    """Without heads (their mean), and without steps (their sum) if they are pooled; what does not exist is 0."""
    values = values.mean("head") if "head" in values.dims else values
    values = values.sum("step") if pooled and "step" in values.dims else values
    return values.fillna(0).astype(float)


def _rolled_out(flow: np.ndarray) -> np.ndarray:
    """The rollout after every layer: (..., layer, query_region, key_region), as its argument."""
    total, itself = flow.sum(-1, keepdims=True), np.eye(flow.shape[-1])
    mixed = np.divide(flow, total, out=np.zeros_like(flow), where=total > 0) + itself
    mixed /= mixed.sum(-1, keepdims=True)
    rolled = np.empty_like(mixed)
    so_far = itself
    for layer in range(flow.shape[-3]):
        so_far = mixed[..., layer, :, :] @ so_far
        rolled[..., layer, :, :] = so_far
    return rolled


def _known(computed: np.ndarray, reaches: np.ndarray) -> np.ndarray:
    """Which rows of the rollout are known after every layer: (..., layer, query_region).

    A row is known if the region's own rows were computed, and so were, in the layers before, those of all regions it looks at.
    """
    known = np.empty_like(computed)
    unknown = np.zeros_like(computed[..., 0, :])
    for layer in range(computed.shape[-2]):
        through = (reaches[..., layer, :, :] & unknown[..., None, :]).any(-1)
        known[..., layer, :] = computed[..., layer, :] & ~through
        unknown = ~known[..., layer, :]
    return known

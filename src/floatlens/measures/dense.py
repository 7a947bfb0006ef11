"""Attention of your own, as a dataset that every measure takes.

`from_attention` reduces dense weights to what a trace keeps. Use it for attention that comes from elsewhere, for experiments with made-up attention, and to see what a measure does.
It holds the whole matrices; a trace never does.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal

AXES = ("step", "layer", "head", "query", "key")


def from_attention(
    weights: np.ndarray,
    *,
    visible: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
    regions: Mapping[str, Sequence[int]] | None = None,
) -> xr.Dataset:
    """What a trace would hold of dense attention: mass, its null, the rows at even positions, entropy, and the patterns themselves.

    Parameters
    ----------
    weights
        (step, layer, head, query, key); leading axes may be left out. Rows sum to 1 over the keys they see. A row of NaN was not computed.
    visible
        Which keys each row may see, broadcastable to (step, query, key); by default all that exist (`numpy.tril` of ones makes a causal model).
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
        [np.broadcast_to(np.asarray(one, bool), (steps, queries)) & computed for one in rows.values()]
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

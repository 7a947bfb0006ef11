"""Attention on the gold span: how much of the rows that write the answer lies on the passage that holds it.

This is the softer twin of the retrieval score: no token has to be copied, and weights count rather than favourites. The span is a region
of the trace by name, or positions of your own. Mass is a share of the rows, beside the share that even attention would put there; lift is
their ratio, so 1 is the span's fair share whatever its length. A region that the trace does not have is refused; one that a sample leaves
empty is NaN there, with the reason.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.inputs import choose_group, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import fair_mass

EMPTY = "the gold span is empty"


def gold_positions(data: xr.Dataset, gold: str | xr.DataArray) -> np.ndarray:
    """The positions of one sample's gold span: those of a region, or where an array of booleans over `position` is True.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> data = from_attention(np.full((4, 4), 0.25), regions={"doc_1": [0, 1], "doc_2": [2, 3]})
    >>> gold_positions(data, "doc_2").tolist()
    [2, 3]
    >>> gold_positions(data, "doc_3")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no region 'doc_3'. This needs a region with the answer; name it with gold= (--gold). Regions: \
doc_1, doc_2.
    """
    if isinstance(gold, str):
        names = [str(name) for name in data["region"].values] if "in_region" in data and "region" in data.coords else []
        if gold not in names:
            raise Refusal(
                f"There is no region {gold!r}. This needs a region with the answer; name it with gold= (--gold). "
                f"Regions: {', '.join(names) or 'not recorded'}."
            )
        return np.flatnonzero(data["in_region"].isel(region=names.index(gold)).values)
    if not isinstance(gold, xr.DataArray) or gold.dtype != bool:
        kind = f"an array of {gold.dtype}" if isinstance(gold, xr.DataArray) else f"a {type(gold).__name__}"
        raise Refusal(f"The gold span is the name of a region or an xarray.DataArray of booleans over position, not {kind}.")
    positions = data.sizes.get("position", data.sizes.get("key"))
    if gold.dims != ("position",) or gold.size != positions:
        raise Refusal(f"The gold span is over {dict(gold.sizes)}; it must be over position, of which there are {positions} here.")
    return np.flatnonzero(gold.values)


@one_sample_at_a_time
def gold_attention(data: xr.Dataset, gold: str | xr.DataArray, *, group: str = "predicting") -> xr.Dataset:
    """How much of a group's rows lies on the gold span, at every step, layer and head.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows.
    gold
        The name of a region, or booleans over position (and sample).
    group
        Whose rows: by default those that fill the positions committed in the step.

    Returns
    -------
    xarray.Dataset
        `mass`, the share of the rows' attention on the span; `null`, that share if every row spread evenly over what it sees; `lift`,
        their ratio; `reason`, why there is no lift, "" where there is one.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> data = from_attention(np.array([[0.1, 0.3, 0.3, 0.3]]), regions={"gold": [2, 3]})
    >>> found = gold_attention(data, "gold", group="everyone").squeeze()
    >>> float(found["mass"].round(3)), float(found["null"]), float(found["lift"].round(3))
    (0.6, 0.5, 1.2)
    """
    needed = ("mass", "visible", "null", "rows")
    refuse_missing(data, needed, "Attention on the gold span")
    span = gold_positions(data, gold)
    own = choose_group(data[list(needed)], group).isel(key=span)
    exists = own["visible"].notnull().any("key")  # an autoregressive step has no keys behind its row
    rows = own["rows"].where(own["rows"] > 0)
    mass = own["mass"].sum("key", min_count=1) / rows
    null = (fair_mass(own).sum("key") / rows).where(exists)  # keys that no row sees add nothing
    null, rows, exists = xr.broadcast(null, rows, exists)
    reason = np.select(
        [np.full(null.shape, not len(span)), rows.isnull().values, ~exists.values, (null == 0).values],
        [EMPTY, f"no {group} rows", "the gold span is not written yet", "no row sees the gold span"],
        default="",
    )
    return xr.Dataset({"mass": mass, "null": null, "lift": mass / null.where(null > 0), "reason": null.copy(data=reason)})


@one_sample_at_a_time
def gold_lift_by_sample(
    data: xr.Dataset,
    gold: str | xr.DataArray,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    group: str = "predicting",
) -> xr.Dataset:
    """The lift of the gold span, averaged over steps, layers and heads: one number per sample.

    `auc` says whether it predicts a correct answer.

    Parameters
    ----------
    data, gold, group
        As `gold_attention` takes them.
    layers
        Only these layers, by their labels.
    heads
        Only these (layer, head) pairs, such as the heads with the largest retrieval scores. Every step, and every layer or head that has
        a lift, weighs the same.

    Returns
    -------
    xarray.Dataset
        `lift`, and the means of `mass` and `null` over the same steps, layers and heads; `reason`, "" where there is a lift.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> one_step = np.array([[[0.1, 0.3, 0.3, 0.3]], [[0.4, 0.4, 0.1, 0.1]]])  # two heads
    >>> data = from_attention(one_step[None, None], regions={"gold": [2, 3]})
    >>> float(gold_lift_by_sample(data, "gold", group="everyone")["lift"].round(3))
    0.8
    >>> float(gold_lift_by_sample(data, "gold", heads=[(0, 0)], group="everyone")["lift"].round(3))
    1.2
    """
    attention = gold_attention(data, gold, group=group)
    chosen = _chosen(attention, layers, heads)
    counted = chosen["lift"].notnull()
    means = chosen[["lift", "mass", "null"]].astype(float).where(counted).mean()
    # where the span is there to be seen, only a head that its layer does not have is NaN
    reasons = [text or "no such head" for text in np.unique(chosen["reason"].values)]
    return means.assign(reason="" if counted.any() else "; ".join(reasons))


def _chosen(attention: xr.Dataset, layers: Sequence[int] | None, heads: Sequence[tuple[int, int]] | None) -> xr.Dataset:
    """The chosen layers, or the chosen heads along an axis `chosen`."""
    if layers is None and heads is None:
        return attention
    if layers is not None and heads is not None:
        raise Refusal("Choose layers or (layer, head) pairs, not both: pairs name their layers themselves.")
    labels = attention["layer"].values.tolist() if "layer" in attention.dims else []
    wanted = [int(layer) for layer in layers] if layers is not None else [int(layer) for layer, _ in heads or ()]
    unknown = sorted(set(wanted) - set(labels))
    if unknown or not wanted:
        raise Refusal(
            f"There is no layer {unknown[0]} here; the layers are {labels}."
            if unknown
            else "layers or heads is empty; leave it out for all of them."
        )
    at_layer = [labels.index(layer) for layer in wanted]
    if heads is None:
        return attention.isel(layer=at_layer)
    if "head" not in attention.dims:
        raise Refusal(
            "Heads are chosen, but mass is kept per layer. Record it with detail={'mass': 'head'} (--detail mass=head), or choose layers."
        )
    at_head = [int(head) for _, head in heads]
    outside = [pair for pair, head in zip(heads, at_head, strict=True) if not 0 <= head < attention.sizes["head"]]
    if outside:
        raise Refusal(f"There is no head {outside[0]} here; every layer has the heads 0 to {attention.sizes['head'] - 1}.")
    return attention.isel(layer=xr.DataArray(at_layer, dims="chosen"), head=xr.DataArray(at_head, dims="chosen"))

"""Why a key draws attention, and what it hands on: QK geometry and value norms of anchors against the rest.

The rest are the measured keys that are no anchors. A mean over no keys is NaN; `keys` (or `heads`) says how many there were, and 0 is the
reason. Norm, direction and attention are multiplied within a head: the mean of a product over heads is not the product of the means, so
what needs a product is refused where a trace kept layers only. Value norms are those of the vectors the kernel mixes, before the output
projection.
"""

import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.absorption import absorption_of_anchors, share_on
from floatlens.measures.inputs import RECEIVED, RECORDED_BY, by_layers, one_sample_at_a_time, refuse_missing, refuse_other_axes
from floatlens.measures.received_attention import fair_mass, received

GEOMETRY = ("score", "cosine", "norm_product", "key_norm", "value_norm")


@one_sample_at_a_time
def anchor_geometry(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Mean score, cosine, norm product, key norm and value norm of the anchors and of the rest.

    Parameters
    ----------
    data
        A trace, or a dataset with score, cosine, norm_product, key_norm and value_norm, per head or per layer.
    anchors
        What `find_anchors` found; with `per_head=False` where any of these was kept per layer.

    Returns
    -------
    xarray.Dataset
        The five means by step, layer, head (if kept), group and kind ("anchor", "rest"), and `keys`, the number of keys of each kind.

    Examples
    --------
    >>> import numpy as np
    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64
    >>> data = from_attention(looks)
    >>> by_key = np.where(np.arange(10) == 7, 3.0, 1.0)
    >>> like = data["mass"].copy(data=np.broadcast_to(by_key, data["mass"].shape))
    >>> data = data.assign({name: like for name in ("score", "cosine", "norm_product")})
    >>> data = data.assign(key_norm=like.isel(group=0, drop=True), value_norm=1 / like.isel(group=0, drop=True))
    >>> means = anchor_geometry(data, find_anchors(data)).squeeze()
    >>> means["score"].values.tolist(), means["keys"].values.tolist()
    ([3.0, 1.0], [1, 9])
    """
    refuse_missing(data, GEOMETRY, "Geometry")
    for name in GEOMETRY:
        refuse_other_axes(data[name], anchors, own=() if "group" in data[name].dims else ("group",))
    return by_layers(_means_by_kind, data[list(GEOMETRY)], anchors)


def _means_by_kind(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    members = _by_kind(anchors)
    means = {name: _mean_over_keys(data[name], members) for name in map(str, data.data_vars)}
    return xr.Dataset({**means, "keys": members.sum("key", skipna=False).astype(int)}).transpose(..., "kind")


def _by_kind(anchors: xr.Dataset) -> xr.DataArray:
    """Who belongs to the anchors and who to the rest, along a new axis `kind`: 1 for members, 0 for others."""
    anchor = anchors["anchor"]
    rest = (anchors["measured"] & ~anchor).transpose(*anchor.dims)
    return xr.concat([anchor, rest], "kind").assign_coords(kind=["anchor", "rest"]).astype("float32")


def _mean_over_keys(values: xr.DataArray, members: xr.DataArray) -> xr.DataArray:
    """The mean over the member keys that have a value; NaN where there are none."""
    missing = values.isnull()
    if missing.any():
        values, members = values.fillna(0), members.where(~missing, 0)
    count = members.sum("key", skipna=False)
    return xr.dot(values, members, dim="key") / count.where(count > 0)


@one_sample_at_a_time
def advantage_split(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """How much higher the anchors' scores are than the rest's, split exactly into what direction and what norm contribute.

    With `g = score / |k|`, an anchor a and another key r differ by

        score_a - score_r = (|k_a| + |k_r|)/2 (g_a - g_r)  [direction]  +  (g_a + g_r)/2 (|k_a| - |k_r|)  [norm]

    for any sign of the scores. For sets, each part is its mean over all pairs (a, r). The pairs need not be walked: with K, G and S the
    means of `|k|`, `g` and the score over a set,

        advantage = S_a - S_r,   cross = K_a G_r - K_r G_a,   direction = (advantage - cross)/2,   norm = (advantage + cross)/2.

    (The two-key formula applied to K and G themselves does not add up to the advantage: the mean of a product is not the product of
    means.) Keys of norm 0 have no direction and are left out of all three.

    Parameters
    ----------
    data
        A trace, or a dataset with score and key_norm per head.
    anchors
        What `find_anchors` found in it, per head or not.

    Returns
    -------
    xarray.Dataset
        `advantage`, `direction`, `norm` by step, layer and group, averaged over the heads that have both anchors and other keys; `heads`,
        how many have.

    Examples
    --------
    An anchor twice as long as the other key, pointing the same way: all of its advantage is norm.

    >>> keys = ("step", "layer", "head", "group", "key")
    >>> score, anchor = xr.DataArray([[[[[4.0, 2.0]]]]], dims=keys), xr.DataArray([[[[[True, False]]]]], dims=keys)
    >>> data = xr.Dataset({"score": score, "key_norm": score.isel(group=0) / 2})
    >>> split = advantage_split(data, xr.Dataset({"anchor": anchor, "measured": anchor | True}))
    >>> [split[name].item() for name in ("advantage", "direction", "norm", "heads")]
    [2.0, 0.0, 2.0, 1]
    """
    _refuse_layers(data, ("score", "key_norm"), "The split of the advantage")
    refuse_other_axes(data["score"], anchors)
    return by_layers(_split, data[["score", "key_norm"]], anchors)


def _split(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    score, length = data["score"], data["key_norm"]
    along = score / length.where(length > 0)  # g
    members = _by_kind(anchors)
    if along.isnull().any():
        members = members.where(along.notnull(), 0)
    scores, lengths, alongs = (_mean_over_keys(values, members) for values in (score, length, along))
    anchor, rest = {"kind": 0, "drop": True}, {"kind": 1, "drop": True}
    advantage = scores.isel(**anchor) - scores.isel(**rest)
    cross = lengths.isel(**anchor) * alongs.isel(**rest) - lengths.isel(**rest) * alongs.isel(**anchor)
    by_head = xr.Dataset({"advantage": advantage, "direction": (advantage - cross) / 2, "norm": (advantage + cross) / 2})
    return by_head.mean("head").assign(heads=advantage.notnull().sum("head"))


@one_sample_at_a_time
def value_contrast(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Mean value norm of the anchors over that of the rest: below 1, the anchors draw attention but pass on little.

    Parameters
    ----------
    data
        A trace, or a dataset with value_norm, per head or per layer.
    anchors
        What `find_anchors` found; with `per_head=False` where norms were kept per layer.

    Returns
    -------
    xarray.Dataset
        `anchor_norm`, `rest_norm` and their `ratio` by step, layer, head (if kept) and group; `keys`, the number of keys of each kind.

    Examples
    --------
    >>> keys = ("step", "layer", "group", "key")
    >>> anchor = xr.DataArray([[[[True, False, False]]]], dims=keys)
    >>> data = xr.Dataset({"value_norm": (("step", "layer", "key"), [[[1.0, 3.0, 5.0]]])})
    >>> contrast = value_contrast(data, xr.Dataset({"anchor": anchor, "measured": anchor | True}))
    >>> [contrast[name].item() for name in ("anchor_norm", "rest_norm", "ratio")]
    [1.0, 4.0, 0.25]
    """
    refuse_missing(data, ("value_norm",), "The contrast of values")
    refuse_other_axes(data["value_norm"], anchors, own=("group",))
    means = by_layers(_means_by_kind, data[["value_norm"]], anchors)
    of_anchors, of_rest = (means["value_norm"].sel(kind=kind, drop=True) for kind in ("anchor", "rest"))
    ratio = of_anchors / of_rest.where(of_rest > 0)
    return xr.Dataset({"anchor_norm": of_anchors, "rest_norm": of_rest, "ratio": ratio, "keys": means["keys"]})


@one_sample_at_a_time
def effective_contribution(data: xr.Dataset) -> xr.DataArray:
    """What a key passes on to a row that sees it, in length: the mean of `A[i,j] |v_j|` over those rows; NaN where none does.

    Examples
    --------
    The first key draws three times the attention of the second, and its value is a tenth as long.

    >>> import numpy as np
    >>> from floatlens.measures import from_attention
    >>> data = from_attention(np.array([[0.75, 0.25]])).assign(value_norm=(("step", "layer", "head", "key"), [[[[1.0, 10.0]]]]))
    >>> effective_contribution(data).squeeze().values.tolist()
    [0.75, 2.5]
    """
    _refuse_layers(data, ("mass", "value_norm"), "The effective contribution")
    return (received(data) * data["value_norm"]).transpose(*data["mass"].dims).rename("contribution")


@one_sample_at_a_time
def contribution_of_anchors(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """How much of what keys pass on comes from the anchors, in percent, beside their percentage of attention.

    What a key hands on is `A[i,j] |v_j|`, summed over rows.

    Parameters
    ----------
    data
        A trace, or a dataset with mass and value_norm per head, and visible, null and rows.
    anchors
        What `find_anchors` found in it, per head or not.

    Returns
    -------
    xarray.Dataset
        `share` of the contribution and its `null` (every row spreads evenly, values as they are); `mass_share` and `mass_null`, those of
        plain attention; `reason`, why there is none.

    Examples
    --------
    Key 7 draws 64 % of the attention; its value is a sixteenth of the others' in length.

    >>> import numpy as np
    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64
    >>> values = np.where(np.arange(10) == 7, 1.0, 16.0)
    >>> data = from_attention(looks).assign(value_norm=(("step", "layer", "head", "key"), values[None, None, None]))
    >>> shares = contribution_of_anchors(data, find_anchors(data))
    >>> round(shares["share"].item(), 6), round(shares["mass_share"].item(), 6)
    (10.0, 64.0)
    """
    _refuse_layers(data, ("mass", "value_norm"), "The effective contribution")
    plain = absorption_of_anchors(data, anchors).rename(share="mass_share", null="mass_null")
    weighted = by_layers(_contribution_on_anchors, data[[*RECEIVED, "value_norm"]], anchors)
    return plain.assign(dict(weighted.where(plain["reason"] == "").data_vars))


def _contribution_on_anchors(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    length = data["value_norm"]
    return share_on(anchors["anchor"], data["mass"] * length, fair_mass(data) * length)


def _refuse_layers(data: xr.Dataset, names: tuple[str, ...], what_for: str) -> None:
    """Refuse variables that are missing, or that were kept per layer where a product within heads is needed."""
    refuse_missing(data, names, what_for)
    for name in names:
        if "head" not in data[name].dims:
            raise Refusal(
                f"{what_for} needs {name} per head, and this trace kept only means over heads, which cannot be split. "
                f"Record it with {RECORDED_BY[name]}."
            )

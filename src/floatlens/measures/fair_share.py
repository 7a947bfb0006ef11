"""Received attention: what a key gets from those who can see it, and how that compares with its fair share.

Raw mass favours keys that many rows see; under a causal mask it crowns the first token whatever the model does. `lift` divides by what each key would get if every row spread evenly over
what it sees: 1 is a fair share. A key that too few rows see says nothing either way and is not measured (NaN), which is not the same as "no anchor".
"""

import numpy as np
import xarray as xr

from floatlens.measures.inputs import one_sample_at_a_time, refuse_missing

WITNESSES = 16
WITNESSES_PER_ROW = 0.25


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
    visible = data[f"visible{ending}"]
    return (visible * data[f"null{ending}"]).where(visible > 0)


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
    rows = data["rows"]
    needed = np.minimum(rows, np.maximum(WITNESSES, WITNESSES_PER_ROW * rows))
    return (data["visible"] >= needed) & (data["visible"] > 0)

"""What a step wrote: how many positions were committed, and how sure the model was of them.

A mean confidence is over the positions that the step committed; NaN where it committed none, or where the model's own loop did not say how
sure it was.
"""

import xarray as xr

from floatlens.measures.inputs import one_sample_at_a_time, refuse_missing
from floatlens.trace.schema import COMMITTED_NOW


@one_sample_at_a_time
def commits_by_step(data: xr.Dataset) -> xr.Dataset:
    """The number of positions that each step committed, and the mean confidence of those tokens: `number` and `confidence` by step.

    Examples
    --------
    >>> data = xr.Dataset({
    ...     "state": (("step", "position"), [[1, 3, 3], [1, 4, 4]]),
    ...     "confidence": (("step", "position"), [[float("nan"), 0.5, 0.75], [float("nan")] * 3]),
    ... })
    >>> commits = commits_by_step(data)
    >>> commits["number"].values.tolist(), commits["confidence"].values.tolist()
    ([2, 0], [0.625, nan])
    """
    refuse_missing(data, ("state", "confidence"), "Commits by step")
    now = data["state"] == COMMITTED_NOW
    return xr.Dataset({"number": now.sum("position"), "confidence": data["confidence"].where(now).mean("position")})

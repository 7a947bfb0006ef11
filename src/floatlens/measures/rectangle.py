"""The rectangle that a diffusion model and an autoregressive one share: predicting rows by prompt keys.

An autoregressive step has one row, which sees what is written; a diffusion step has many, which also see the masks. What both have at every step are the rows that fill a position, and the keys of the
prompt, all of which those rows see. Attention is rescaled to what each half of the rows gives to the prompt, so that shares, nulls and anchors are those of the rectangle; how much falls outside is reported
beside it. `on_prompt` says how much of the attention the rectangle holds, and its null.
"""

import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.fair_share import fair_mass
from floatlens.measures.inputs import choose_group, one_sample_at_a_time, refuse_missing
from floatlens.trace.schema import PROMPT


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

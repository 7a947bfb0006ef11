"""All measures of a trace, sample by sample, and what they come to over prompts.

A measure that a trace does not hold enough for is left out, and `skipped` says why. Samples are read one after the other, so that memory holds one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.anchors import refuse_unknown_rule
from floatlens.measures.catalogue import CATALOGUE, RANGES, Line, Sample, first_reason
from floatlens.measures.inputs import depths
from floatlens.measures.prompts import prompts_of
from floatlens.progress import progress_bar
from floatlens.statistics.resampling import bootstrap
from floatlens.trace.trace import Trace


@dataclass(frozen=True)
class Finding:
    """One number over all prompts: its mean, the interval, and the mean of its null (NaN where there is none)."""

    measure: str
    unit: str
    group: str  # of rows; "" where it does not matter
    part: str  # role, region, kind; "" where there are none
    depth: str  # "all", "shallow", "middle", "deep", or a layer's number
    value: float
    low: float
    high: float
    null: float
    prompts: int
    reason: str  # why there is no value or no interval


@dataclass(frozen=True, eq=False)
class Summary:
    """Every measure by sample: datasets with `value` and, where there is one, `null`, over sample and, as far as they exist, layer, group and part."""

    values: dict[str, xr.Dataset]
    units: dict[str, str]
    skipped: dict[str, str]
    prompts: list[str]  # of each sample: the unit of the intervals
    about: dict[str, Any] = field(default_factory=dict)

    def findings(self, *, by_layer: bool = False, level: float = 0.95, seed: int = 0) -> list[Finding]:
        """The mean of every measure over prompts with its interval: for all layers and the thirds of the depth, or layer by layer."""
        found: list[Finding] = []
        for name, values in self.values.items():
            found += _findings(name, self.units[name], values, by_layer, self.prompts, level, seed)
        return found


def measure_trace(
    trace: Trace,
    *,
    rule: str = "lift",
    eps: float | None = None,
    gold: str | None = None,
    lines: Sequence[Line] = CATALOGUE,
    rectangle: bool = False,
    progress: bool = True,
) -> Summary:
    """All measures of a trace.

    Parameters
    ----------
    trace
        What was recorded.
    rule, eps
        How anchors are found: see `find_anchors`.
    gold
        The region that holds the answer, for retrieval heads; left out without one.
    lines
        Which measures; all by default.
    rectangle
        On the predicting rows and prompt keys only, where models of both kinds can be compared.
    progress
        Show a progress bar.
    """
    eps = refuse_unknown_rule(rule, eps)
    if gold is not None and gold not in trace.attributes["regions"]:
        raise Refusal(f"This trace has no region {gold!r}; its regions are {', '.join(trace.attributes['regions'])}.")
    wanted = [line for line in lines if gold is not None or not line.needs_gold]
    by_sample: dict[str, list[xr.Dataset]] = {line.name: [] for line in wanted}
    skipped: dict[str, str] = {}
    with progress_bar(len(trace) * len(wanted), f"Measuring {trace.attributes['model']}", show=progress) as advance:
        for number in range(len(trace)):
            sample = Sample.of(trace.sample(number), rule, eps, gold, rectangle=rectangle)
            for line in wanted:
                if line.name not in skipped:
                    try:
                        by_sample[line.name].append(xr.Dataset(dict(line.of(sample))).load())
                    except Refusal as refusal:
                        skipped[line.name] = str(refusal)
                advance(1)
    values = {
        name: xr.concat(of_samples, "sample", coords="minimal", compat="override", join="outer")
        for name, of_samples in by_sample.items()
        if name not in skipped
    }
    about = {"model": trace.attributes["model"], "family": trace.attributes["family"], "prompts": len(trace), "rule": rule, "eps": eps}
    return Summary(values, {line.name: line.unit for line in wanted}, skipped, prompts_of(trace), about)


def over_depth(values: xr.Dataset, *, by_layer: bool = False) -> xr.Dataset:
    """Layers averaged within all, shallow, middle and deep (axis `depth`), or every layer by itself. What has no layers is "all".

    Examples
    --------
    >>> values = xr.Dataset({"value": ("layer", [1.0, 2.0, 3.0, 6.0])}, coords={"layer": [0, 1, 2, 3]})
    >>> over_depth(values)["value"].values.tolist()
    [3.0, 1.0, 2.5, 6.0]
    """
    numbers = values.drop_vars("reason", errors="ignore")
    if "layer" not in numbers.dims:
        return numbers.expand_dims(depth=["all"])
    if by_layer:
        return numbers.rename(layer="depth").assign_coords(depth=[str(number) for number in values["layer"].values])
    return numbers.where(depths(values["layer"].values)).mean("layer")


def _findings(name: str, unit: str, values: xr.Dataset, by_layer: bool, prompts: list[str], level: float, seed: int) -> list[Finding]:
    numbers = over_depth(values, by_layer=by_layer)
    spread = bootstrap(numbers["value"], clusters=prompts, level=level, seed=seed)
    spread["null"] = numbers["null"].mean("sample") if "null" in numbers else xr.full_like(spread["estimate"], np.nan)
    axes = [axis for axis in ("group", "part", "depth") if axis in spread["estimate"].dims]
    spread = spread.broadcast_like(spread["estimate"]).transpose(*axes)
    why = first_reason(values["reason"]) if "reason" in values else xr.DataArray("")
    found = []
    for at in np.ndindex(*spread["estimate"].shape):
        one = spread.isel(dict(zip(axes, at, strict=True)))
        labels = {axis: str(one[axis].item()) for axis in axes}
        estimate = one["estimate"].item()
        reason = str(why.sel(group=labels["group"]).item() if "group" in why.dims else why.item()) if np.isnan(estimate) else ""
        found.append(
            Finding(
                measure=name,
                unit=unit,
                group=labels.get("group", ""),
                part=labels.get("part", ""),
                depth=labels["depth"],
                value=estimate,
                low=float(np.clip(one["low"].item(), *RANGES[unit])),
                high=float(np.clip(one["high"].item(), *RANGES[unit])),
                null=one["null"].item(),
                prompts=int(one["prompts"].item()),
                reason=reason or str(one["reason"].item()),
            )
        )
    return found

"""All measures of a trace, sample by sample, and their means over prompts; and two traces side by side.

A measure that a trace does not hold enough for is left out, and `skipped` says why. Samples are read one after the other, so that memory
holds one.

Two traces are compared on the rectangle they share (predicting rows, prompt keys), because whole traces of a diffusion model and an
autoregressive one are not of the same rows and keys. Layers are compared by thirds of the depth. Samples are paired by prompt; traces of
other prompts are refused, unless they are compared as two separate sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr

from floatlens.anchor_rules import refuse_unknown_rule
from floatlens.errors import Refusal
from floatlens.measures.catalogue import CATALOGUE, ON_RECTANGLE, RANGES, Line, Sample, most_frequent_reason
from floatlens.measures.inputs import depths, prompts_of
from floatlens.statistics.resampling import bootstrap, bootstrap_difference
from floatlens.terminal import progress_bar
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
    """Every measure by sample.

    `values` are datasets with `value` and, where there is one, `null`, over sample and, as far as they exist, layer, group and part.
    """

    values: dict[str, xr.Dataset]
    units: dict[str, str]
    skipped: dict[str, str]
    prompts: list[str]  # of each sample: the unit of the intervals
    about: dict[str, Any] = field(default_factory=dict)

    def findings(self, *, by_layer: bool = False, level: float = 0.95, seed: int = 0) -> list[Finding]:
        """The mean of every measure over prompts with its interval: for all layers and the thirds of the depth, or layer by layer."""
        findings: list[Finding] = []
        for name, values in self.values.items():
            findings += _findings(name, self.units[name], values, by_layer, self.prompts, level, seed)
        return findings


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
    """Layers averaged within all, shallow, middle and deep (axis `depth`), or every layer by itself.

    What has no layers is "all". What has an axis `depth` of its own, because layers were averaged before it was measured, keeps it; of
    that, "all" stands beside single layers.

    Examples
    --------
    >>> values = xr.Dataset({"value": ("layer", [1.0, 2.0, 3.0, 6.0])}, coords={"layer": [0, 1, 2, 3]})
    >>> over_depth(values)["value"].values.tolist()
    [3.0, 1.0, 2.5, 6.0]
    """
    numbers = values.drop_vars("reason", errors="ignore")
    if "depth" in numbers.dims:
        return numbers.sel(depth=["all"]) if by_layer else numbers
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
    why = most_frequent_reason(values["reason"]) if "reason" in values else xr.DataArray("")
    findings = []
    for place in np.ndindex(*spread["estimate"].shape):
        entry = spread.isel(dict(zip(axes, place, strict=True)))
        labels = {axis: str(entry[axis].item()) for axis in axes}
        estimate = entry["estimate"].item()
        reason = str(why.sel(group=labels["group"]).item() if "group" in why.dims else why.item()) if np.isnan(estimate) else ""
        findings.append(
            Finding(
                measure=name,
                unit=unit,
                group=labels.get("group", ""),
                part=labels.get("part", ""),
                depth=labels["depth"],
                value=estimate,
                low=float(np.clip(entry["low"].item(), *RANGES[unit])),
                high=float(np.clip(entry["high"].item(), *RANGES[unit])),
                null=entry["null"].item(),
                prompts=int(entry["prompts"].item()),
                reason=reason or str(entry["reason"].item()),
            )
        )
    return findings


@dataclass(frozen=True)
class Contrast:
    """One measure of two traces: mean and interval of each, the null of each, and the difference a - b with interval and p-value."""

    measure: str
    unit: str
    depth: str
    a: float
    a_low: float
    a_high: float
    a_null: float
    b: float
    b_low: float
    b_high: float
    b_null: float
    difference: float
    low: float
    high: float
    p_value: float
    prompts: int
    reason: str


def compare_traces(
    a: Trace,
    b: Trace,
    *,
    rule: str = "lift",
    eps: float | None = None,
    paired: bool = True,
    progress: bool = True,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[list[Contrast], dict[str, str]]:
    """Every measure of the shared rectangle, in both traces; and why some are left out.

    Parameters
    ----------
    a, b
        Traces of the same prompts (paired), or of any (not paired).
    rule, eps
        How anchors are found: see `find_anchors`.
    paired
        Whether sample i of both is the same prompt.
    level, seed
        Of the intervals.
    """
    order = _in_order_of(prompts_of(a), prompts_of(b)) if paired else list(range(len(b)))
    first, second = (measure_trace(trace, rule=rule, eps=eps, lines=ON_RECTANGLE, rectangle=True, progress=progress) for trace in (a, b))
    second = replace(
        second,
        prompts=[second.prompts[number] for number in order],
        values={name: values.isel(sample=order) for name, values in second.values.items()},
    )
    contrasts: list[Contrast] = []
    for name in first.values:
        if name in second.values:
            contrasts += _contrasts(name, first, second, paired, level, seed)
    return contrasts, {**first.skipped, **second.skipped}


def _in_order_of(prompts: list[str], others: list[str]) -> list[int]:
    """Which sample of the others has the prompt of each sample."""
    if others == prompts:
        return list(range(len(others)))
    remedy = "Trace both models on the same prompts, or compare them as separate sets (paired=False, --unpaired)."
    if len(prompts) != len(others):
        raise Refusal(f"One trace has {len(prompts)} samples and the other {len(others)}, so they cannot be paired. {remedy}")
    for here, there, which in ((prompts, others, "first"), (others, prompts, "second")):
        if missing := [prompt for prompt in here if prompt not in there]:
            raise Refusal(f"The prompt {missing[0][:60]!r} is only in the {which} trace, so they cannot be paired. {remedy}")
    if len(set(others)) < len(others):
        raise Refusal(
            "The traces hold a prompt more than once, in different orders, so their samples cannot be paired. Trace both in the same order."
        )
    return [others.index(prompt) for prompt in prompts]


def _contrasts(name: str, a: Summary, b: Summary, paired: bool, level: float, seed: int) -> list[Contrast]:
    first, second = (over_depth(summary.values[name]).squeeze("group", drop=True) for summary in (a, b))
    clusters = (a.prompts, b.prompts)
    of_a, of_b = (
        bootstrap(numbers["value"], clusters=prompts, level=level, seed=seed)
        for numbers, prompts in zip((first, second), clusters, strict=True)
    )
    others = None if paired else b.prompts
    values = first["value"], second["value"]
    difference = bootstrap_difference(*values, paired=paired, clusters=a.prompts, clusters_b=others, level=level, seed=seed)
    least, most = RANGES[a.units[name]]
    return [
        Contrast(
            name,
            a.units[name],
            str(depth),
            *_interval(of_a, depth, least, most),
            _null(first, depth),
            *_interval(of_b, depth, least, most),
            _null(second, depth),
            *_interval(difference, depth, least - most, most - least),
            float(difference["p_value"].sel(depth=depth)),
            int(difference["prompts"].sel(depth=depth)),
            str(difference["reason"].sel(depth=depth).item()),
        )
        for depth in first["depth"].values
    ]


def _interval(interval: xr.Dataset, depth: str, least: float, most: float) -> tuple[float, float, float]:
    here = interval.sel(depth=depth)
    low, high = (float(np.clip(here[name].item(), least, most)) for name in ("low", "high"))
    return here["estimate"].item(), low, high


def _null(values: xr.Dataset, depth: str) -> float:
    return float(values["null"].sel(depth=depth).mean("sample")) if "null" in values else np.nan

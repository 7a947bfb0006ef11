"""Two traces side by side: each measure of both, and their difference with an interval and a p-value.

Both are measured on the rectangle they share (predicting rows, prompt keys), because whole traces of a diffusion model and an autoregressive one are not of the same rows and keys. Layers are compared by thirds of the
depth. Samples are paired by prompt; traces of other prompts are refused, unless they shall be compared as two separate sets.
"""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.catalogue import ON_RECTANGLE, RANGES
from floatlens.measures.prompts import prompts_of
from floatlens.measures.summary import Summary, measure_trace, over_depth
from floatlens.statistics.resampling import bootstrap, bootstrap_difference
from floatlens.trace.trace import Trace


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
    first, second = (measure_trace(one, rule=rule, eps=eps, lines=ON_RECTANGLE, rectangle=True, progress=progress) for one in (a, b))
    second = replace(
        second,
        prompts=[second.prompts[number] for number in order],
        values={name: one.isel(sample=order) for name, one in second.values.items()},
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
    first, second = (over_depth(one.values[name]).squeeze("group", drop=True) for one in (a, b))
    clusters = (a.prompts, b.prompts)
    of_a, of_b = (
        bootstrap(one["value"], clusters=prompts, level=level, seed=seed) for one, prompts in zip((first, second), clusters, strict=True)
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


def _interval(found: xr.Dataset, depth: str, least: float, most: float) -> tuple[float, float, float]:
    here = found.sel(depth=depth)
    low, high = (float(np.clip(here[name].item(), least, most)) for name in ("low", "high"))
    return here["estimate"].item(), low, high


def _null(values: xr.Dataset, depth: str) -> float:
    return float(values["null"].sel(depth=depth).mean("sample")) if "null" in values else np.nan

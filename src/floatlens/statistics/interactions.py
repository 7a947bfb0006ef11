"""A difference of differences, with its interval and the test that the interval inverts: did model A gain more from context than model B?

Refuses sides that do not match, and values outside of the range that was named.
"""

import xarray as xr

from floatlens.statistics.by_prompt import Labels, flattened, matched
from floatlens.statistics.proportions import Range, bounded_difference, refuse_outside
from floatlens.statistics.resampling import bootstrap_difference


def interaction(
    a_with: xr.DataArray,
    a_without: xr.DataArray,
    b_with: xr.DataArray,
    b_without: xr.DataArray,
    *,
    paired: bool = True,
    clusters: Labels | None = None,
    clusters_b: Labels | None = None,
    within: Range | None = None,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> xr.Dataset:
    """A difference of differences: what A gains minus what B gains, say two models with and without context.

    Parameters
    ----------
    a_with, a_without, b_with, b_without
        Each model's outcomes under both conditions, on the same prompts in the same order.
    paired
        Whether A and B saw the same prompts, in the same order. A NaN in any of the four then leaves the prompt out.
    clusters, clusters_b
        The prompt of each sample of A (of both, if paired), and of B if not.
    within
        The least and the most that an outcome can be, such as (0, 1) for accuracies: the interval is then that of `floatlens.statistics.proportions`, else a bootstrap.
    draws, level, seed
        As for `bootstrap`.

    Returns
    -------
    xarray.Dataset
        `estimate`, `low`, `high`, `p_value` (two-sided; below 1 - level exactly where the interval excludes 0), the gains `gain_a` and `gain_b` of the samples that count, `samples`, `prompts`, `reason`.

    Examples
    --------
    >>> def outcomes(*values):
    ...     return xr.DataArray([float(value) for value in values], dims="sample")
    >>> found = interaction(outcomes(1, 1, 1), outcomes(0, 0, 1), outcomes(1, 1, 0), outcomes(0, 1, 0), within=(0, 1))
    >>> round(float(found.gain_a), 3), round(float(found.gain_b), 3), round(float(found.estimate), 3), float(found.p_value)
    (0.667, 0.333, 0.333, 0.5)
    """
    gain_a, gain_b = _gain(a_with, a_without, ("a_with", "a_without")), _gain(b_with, b_without, ("b_with", "b_without"))
    gain_a, gain_b = matched(gain_a, gain_b, ("a", "b"), paired, ", or paired=False")
    if paired:
        gain_a, gain_b = gain_a.where(gain_b.notnull().values), gain_b.where(gain_a.notnull().values)
    sides = {"paired": paired, "clusters": clusters, "clusters_b": clusters_b, "level": level}
    if within is None:
        found = bootstrap_difference(gain_a, gain_b, draws=draws, seed=seed, **sides)
    else:
        for side, name in zip((a_with, a_without, b_with, b_without), ("a_with", "a_without", "b_with", "b_without"), strict=True):
            refuse_outside(flattened(side, name), within, name)
        most = within[1] - within[0]
        found = bounded_difference(gain_a, gain_b, within=(-most, most), **sides)
    for name, gain in (("gain_a", gain_a), ("gain_b", gain_b)):
        found[name] = gain.mean("sample")
    return found[["estimate", "low", "high", "p_value", "gain_a", "gain_b", "samples", "prompts", "reason"]]


def _gain(outcome: xr.DataArray, without: xr.DataArray, names: tuple[str, str]) -> xr.DataArray:
    first, second = matched(outcome, without, names, paired=True)
    return first.copy(data=(flattened(first, names[0]) - flattened(second, names[1])).reshape(first.shape))

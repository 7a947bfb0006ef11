"""Samples, grouped by the prompt they come from: what every interval and test of floatlens starts with.

Decides: the prompt is the unit that is drawn, never a row, a head or a step. Samples of one prompt share a label (`clusters`) and go in
or out together; without labels each sample is a prompt of its own. NaN means that a sample does not have the value: it is left out. Every
axis but `sample` is carried along, flattened to *cells*. Two sides are matched by position, and only if their labels agree: xarray alone
would keep what both have and drop the rest.

Refuses: values without samples, infinite values, labels that do not fit, sides that do not match.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from floatlens.errors import Refusal

Labels = Sequence[Any] | np.ndarray | xr.DataArray
"""The prompt of each sample."""


@dataclass(frozen=True)
class PromptSums:
    """What each prompt adds to a mean, which is `lowest` + sum of `amount` / sum of `base`, or to a ratio of means, in which `lowest` is 0.

    `amount`, `base` and `present` have the axes prompt, cell; `samples` (values that went in) and `lowest` have one number a cell.
    Amounts are counted from the lowest value, so that equal values leave exactly 0.
    """

    amount: np.ndarray
    base: np.ndarray
    present: np.ndarray
    samples: np.ndarray
    lowest: np.ndarray

    @property
    def prompts(self) -> np.ndarray:
        """How many prompts have a value, by cell."""
        return self.present.sum(axis=0)

    def in_own_order(self, cells: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Amounts and bases (cell, prompt) of the `count` prompts that have a value in these cells.

        Their order depends on nothing but the values.
        """
        amount, base = self.amount.T[cells], self.base.T[cells]
        order = np.lexsort((amount, base, ~self.present.T[cells]), axis=-1)[:, :count]
        return np.take_along_axis(amount, order, axis=-1), np.take_along_axis(base, order, axis=-1)


def flattened(values: xr.DataArray, name: str) -> np.ndarray:
    """Values as a matrix of float64: sample, cell.

    Examples
    --------
    >>> flattened(xr.DataArray([[True, False]], dims=("layer", "sample")), "correct").tolist()
    [[1.0], [0.0]]
    """
    if "sample" not in values.dims:
        raise Refusal(f"`{name}` has the axes {values.dims} and no axis `sample`. Name the axis of its prompts `sample`.")
    if empty := [str(axis) for axis, size in values.sizes.items() if size == 0]:
        raise Refusal(f"`{name}` is empty along `{empty[0]}`. Pass at least one value.")
    if values.dtype.kind not in "biuf":
        raise Refusal(f"`{name}` holds {values.dtype}, not numbers. Pass numbers, or True and False.")
    matrix = values.transpose("sample", ...).values.reshape(values.sizes["sample"], -1).astype(float)
    if np.isinf(matrix).any():
        first = int(np.isinf(matrix).any(axis=1).argmax())
        raise Refusal(
            f"`{name}` is infinite at sample {first}, and so would be its mean. Replace such values by a bound, or by NaN to leave them "
            "out."
        )
    return matrix


def prompt_numbers(clusters: Labels | None, samples: int, name: str = "clusters") -> np.ndarray:
    """The number of each sample's prompt, from 0.

    Examples
    --------
    >>> prompt_numbers(["b", "a", "b"], 3)
    array([1, 0, 1])
    """
    if clusters is None:
        return np.arange(samples)
    labels = np.asarray(clusters)
    if isinstance(clusters, xr.DataArray) and clusters.dims != ("sample",):
        raise Refusal(f"`{name}` has the axes {clusters.dims}. Pass one label per sample, along `sample` alone.")
    if labels.shape != (samples,):
        raise Refusal(f"`{name}` has the shape {labels.shape}, and there are {samples} samples. Pass one label per sample.")
    if any(label is None or label != label for label in labels.tolist()):
        raise Refusal(f"`{name}` lacks the label of a sample. Say for each sample which prompt it belongs to.")
    return np.unique(labels, return_inverse=True)[1]


def by_prompt(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Sums over the samples of each prompt: (sample, cell) to (prompt, cell).

    Examples
    --------
    >>> by_prompt(np.array([[1.0], [10.0], [2.0]]), np.array([0, 1, 0])).tolist()
    [[3.0], [10.0]]
    """
    order = np.argsort(numbers, kind="stable")
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return np.add.reduceat(rows[order], first, axis=0)


def mean_by_prompt(rows: np.ndarray, numbers: np.ndarray) -> PromptSums:
    """What each prompt adds to the mean over samples.

    Examples
    --------
    >>> sums = mean_by_prompt(np.array([[2.0], [5.0], [3.0]]), np.array([0, 0, 1]))
    >>> sums.lowest.tolist(), sums.amount.tolist(), sums.base.tolist()  # 2 + (3 + 1) / (2 + 1)
    ([2.0], [[3.0], [1.0]], [[2.0], [1.0]])
    """
    has = np.isfinite(rows)
    lowest = np.where(has.any(axis=0), np.where(has, rows, np.inf).min(axis=0), 0.0)
    counts = by_prompt(has.astype(float), numbers)
    return PromptSums(by_prompt(np.where(has, rows - lowest, 0.0), numbers), counts, counts > 0, has.sum(axis=0), lowest)


def ratio_by_prompt(numerator: np.ndarray, denominator: np.ndarray, numbers: np.ndarray) -> PromptSums:
    """What each prompt adds to a ratio of means; a sample that lacks either is left out.

    Examples
    --------
    >>> sums = ratio_by_prompt(np.array([[2.0], [5.0], [3.0]]), np.array([[1.0], [np.nan], [2.0]]), np.array([0, 0, 1]))
    >>> sums.amount.tolist(), sums.base.tolist()
    ([[2.0], [3.0]], [[1.0], [2.0]])
    """
    has = np.isfinite(numerator) & np.isfinite(denominator)
    amount, base = (by_prompt(np.where(has, rows, 0.0), numbers) for rows in (numerator, denominator))
    return PromptSums(amount, base, by_prompt(has.astype(float), numbers) > 0, has.sum(axis=0), np.zeros(has.shape[1]))


def sides_by_prompt(
    a: xr.DataArray, b: xr.DataArray, paired: bool, clusters: Labels | None, clusters_b: Labels | None
) -> tuple[xr.DataArray, list[PromptSums]]:
    """Two sides: their axes, and either the sums of the differences (paired) or those of each side.

    Examples
    --------
    >>> a, b = xr.DataArray([4.0, 6.0], dims="sample"), xr.DataArray([1.0, 1.0], dims="sample")
    >>> [side.lowest.item() for side in sides_by_prompt(a, b, True, None, None)[1]]
    [3.0]
    >>> [side.lowest.item() for side in sides_by_prompt(a, b, False, None, None)[1]]
    [4.0, 1.0]
    """
    a, b = matched(a, b, ("a", "b"), paired, ", or paired=False")
    first, second = flattened(a, "a"), flattened(b, "b")
    if paired:
        if clusters_b is not None:
            raise Refusal("`clusters_b` is for sides that are not paired. Pass `clusters` for both, or paired=False.")
        return a, [mean_by_prompt(first - second, prompt_numbers(clusters, len(first)))]
    if (
        clusters is not None
        and clusters_b is not None
        and (shared := set(np.asarray(clusters).tolist()) & set(np.asarray(clusters_b).tolist()))
    ):
        raise Refusal(
            f"The prompt {min(shared, key=str)!r} is on both sides. Pair them by prompt, or give different prompts different labels."
        )
    numbers = prompt_numbers(clusters, len(first)), prompt_numbers(clusters_b, len(second), "clusters_b")
    return a, [mean_by_prompt(first, numbers[0]), mean_by_prompt(second, numbers[1])]


def matched(a: xr.DataArray, b: xr.DataArray, names: tuple[str, str], paired: bool, way_out: str = "") -> tuple[xr.DataArray, xr.DataArray]:
    """Bring two sides to the same axes, `sample` first; paired sides must have the same samples in the same order.

    Examples
    --------
    >>> a, b = matched(xr.DataArray([[1, 2]], dims=("layer", "sample")), xr.DataArray([3, 4], dims="sample"), ("a", "b"), paired=True)
    >>> a.dims, b.shape
    (('sample', 'layer'), (2, 1))
    """
    for side, name in zip((a, b), names, strict=True):
        if "sample" not in side.dims:
            raise Refusal(f"`{name}` has the axes {side.dims} and no axis `sample`. Name the axis of its prompts `sample`.")
    for axis in (axis for axis in a.dims if axis in b.dims and (paired or axis != "sample")):
        refuse_unlike(
            a, b, str(axis), names, f"Pass the same samples in the same order{way_out}." if axis == "sample" else "Select what both have."
        )
    first, second = xr.broadcast(a, b, exclude=None if paired else ["sample"])
    first = first.transpose("sample", ...)
    return first, second.transpose(*first.dims)


def refuse_unlike(a: xr.DataArray, b: xr.DataArray, axis: str, names: tuple[str, str], remedy: str) -> None:
    """Refuse two arrays whose sizes or labels along an axis differ.

    Examples
    --------
    >>> two, three = xr.DataArray([1, 2], dims="layer"), xr.DataArray([1, 2, 3], dims="layer")
    >>> refuse_unlike(two, three, "layer", ("a", "b"), "Select what both have.")
    Traceback (most recent call last):
    floatlens.errors.Refusal: `a` has 2 along `layer`, `b` has 3. Select what both have.
    """
    if a.sizes[axis] != b.sizes[axis]:
        raise Refusal(f"`{names[0]}` has {a.sizes[axis]} along `{axis}`, `{names[1]}` has {b.sizes[axis]}. {remedy}")
    if axis in a.indexes and axis in b.indexes and not a.indexes[axis].equals(b.indexes[axis]):
        raise Refusal(f"`{names[0]}` and `{names[1]}` have different labels along `{axis}`. {remedy}")


def labelled(values: xr.DataArray, variables: dict[str, np.ndarray]) -> xr.Dataset:
    """One number a cell, back on the axes of the values but `sample`.

    Examples
    --------
    >>> values = xr.DataArray(np.zeros((3, 2)), dims=("sample", "layer"), coords={"layer": [4, 5]})
    >>> labelled(values, {"estimate": np.array([0.5, 0.7])}).estimate.sel(layer=5).item()
    0.7
    """
    like = values.transpose("sample", ...).isel(sample=0, drop=True)
    return xr.Dataset({name: (like.dims, cells.reshape(like.shape)) for name, cells in variables.items()}, coords=like.coords)

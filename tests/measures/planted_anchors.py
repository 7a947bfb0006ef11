"""Dense attention with anchors where a test wants them, and the anchors of dense attention in plain loops."""

from collections.abc import Sequence

import numpy as np
import xarray as xr


def looking_at(paths: np.ndarray | Sequence, *, keys: int, rows: int = 20, weight: float = 0.6) -> np.ndarray:
    """Rows (step, layer, head, query, key) that put `weight` on the key that `paths` names and spread the rest evenly.

    `paths` is over step, layer, head; later axes may be left out.
    """
    paths = np.asarray(paths)
    paths = paths.reshape(paths.shape + (1,) * (3 - paths.ndim))
    even = np.full((*paths.shape, keys), (1 - weight) / keys)
    np.put_along_axis(even, paths[..., None], (1 - weight) / keys + weight, axis=-1)
    return np.repeat(even[..., None, :], rows, axis=-2)


def noisy(weights: np.ndarray, concentration: float, seed: int) -> np.ndarray:
    """Every row drawn anew from a Dirichlet distribution around what it is: spiky for a small concentration."""
    drawn = np.random.default_rng(seed).gamma(np.maximum(weights * concentration, 1e-3)) + 1e-12
    return drawn / drawn.sum(-1, keepdims=True)


def anchors_of(rows: np.ndarray, eps: float = 3.0) -> set[int]:
    """Keys whose mean weight from these rows (row, key), all of which see all keys, exceeds 1 + eps fair shares."""
    if not len(rows):
        return set()
    keys = rows.shape[1]
    return {key for key in range(keys) if sum(row[key] for row in rows) / len(rows) * keys > 1 + eps}


def similarity(first: set[int], second: set[int]) -> float:
    return len(first & second) / len(first | second) if first | second else float("nan")


def padded(data: xr.Dataset, *, steps: int = 2, keys: int = 3) -> xr.Dataset:
    """What a sample looks like beside a longer one: steps and keys that do not exist are NaN (0 in state, -1 in committed)."""
    sizes = {name: (0, more) for name, more in (("step", steps), ("key", keys), ("position", keys)) if name in data.dims}
    fills = {name: 0 if name == "state" else -1 if name == "committed" else np.nan for name in data.data_vars}
    return data.pad(sizes, constant_values=fills)

"""Every reduction, straight from a dense matrix of weights, in float64 and plain NumPy: what the streamed ones must equal."""

import numpy as np

NAN = float("nan")


def received(weights: np.ndarray, visible: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Mass, visible-query count and null of one sample: weights (head, query, key), visible (query, key), rows bool (query,)."""
    keys = weights.shape[-1]
    mass = np.zeros((weights.shape[0], keys))
    count, null = np.zeros(keys), np.full(keys, NAN)
    for j in range(keys):
        seeing = [i for i in np.flatnonzero(rows) if visible[i, j]]
        count[j] = len(seeing)
        for i in np.flatnonzero(rows):
            mass[:, j] += weights[:, i, j]
        if seeing:
            null[j] = np.mean([1 / visible[i].sum() for i in seeing])
    return {"mass": mass, "visible": count, "null": null}


def relative_entropy(weights: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Row entropy over the logarithm of the visible keys, (head, query); NaN where a row sees fewer than two keys."""
    result = np.full(weights.shape[:2], NAN)
    for i in range(weights.shape[1]):
        seen = visible[i].sum()
        if seen > 1:
            row = weights[:, i, visible[i]]
            result[:, i] = -(row * np.log(np.where(row > 0, row, 1))).sum(-1) / np.log(seen)
    return result


def geometry(query: np.ndarray, key: np.ndarray, visible: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Mean score, cosine and norm product of each key over the rows that see it: query (head, query, depth), key (head, key, depth)."""
    scores = query @ key.transpose(0, 2, 1)
    query_norm, key_norm = np.linalg.norm(query, axis=-1), np.linalg.norm(key, axis=-1)
    with np.errstate(invalid="ignore"):  # padding may hold zeros
        cosines = scores / query_norm[:, :, None] / key_norm[:, None, :]
    result = {name: np.full(key.shape[:2], NAN) for name in ("score", "cosine", "norm_product")}
    for j in range(key.shape[1]):
        seeing = np.flatnonzero(rows & visible[:, j])
        if len(seeing):
            result["score"][:, j] = scores[:, seeing, j].mean(-1)
            result["cosine"][:, j] = cosines[:, seeing, j].mean(-1)
            result["norm_product"][:, j] = query_norm[:, seeing].mean(-1) * key_norm[:, j]
    return result


def flow(weights: np.ndarray, visible: np.ndarray, query_regions: np.ndarray, key_regions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass from region to region (head, from, to) and its null (from, to); regions are bool (region, position)."""
    regions = len(query_regions)
    mass, null = np.zeros((weights.shape[0], regions, regions)), np.zeros((regions, regions))
    for a in range(regions):
        for b in range(regions):
            for i in np.flatnonzero(query_regions[a]):
                mass[:, a, b] += weights[:, i, key_regions[b]].sum(-1)
                if visible[i].any():
                    null[a, b] += (visible[i] & key_regions[b]).sum() / visible[i].sum()
    return mass, null

"""A made-up trace of which everything is known, straight from dense attention, and what to read off a figure."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.measures import from_attention
from floatlens.report import figures

SAMPLES, STEPS, LAYERS, HEADS, LENGTH, PROMPT = 3, 6, 3, 2, 24, 8
STATIC, WORDS = 2, [" Anna", "\n", ".", " 42", " the", " $5 and $6", "中"]
Draw = Callable[..., Figure]
OF_TRACES: list[Draw] = [
    figures.temporal_drift,
    figures.absorption_by_layer,
    figures.qk_geometry,
    figures.roles_by_depth,
    figures.region_flow,
    figures.threshold_sweep,
    figures.float_index_by_layer,
    figures.path_by_layer,
    figures.retrieval_heads,
]


def written_order(sample: int) -> np.ndarray:
    """The positions that each step commits: (step, 2), with one left over at the last step."""
    return np.random.default_rng(100 + sample).permutation(np.arange(PROMPT, LENGTH))[: 2 * STEPS].reshape(STEPS, 2)


def made_up_weights(sample: int) -> np.ndarray:
    """(step, layer, head, query, key).

    Layer 0 has a static anchor at 2, layer 1 only noise, layer 2 an anchor that moves with the first position committed.
    """
    random = np.random.default_rng(sample)
    weights = random.gamma(3, 1, (STEPS, LAYERS, HEADS, LENGTH, LENGTH))
    weights[:, 0, ..., STATIC] += 60
    for step, now in enumerate(written_order(sample)):
        weights[step, 2, ..., now[0]] += 60
    return weights / weights.sum(-1, keepdims=True)


def made_up_state(sample: int) -> np.ndarray:
    state = np.full((STEPS, LENGTH), 2)
    state[:, :PROMPT] = 1
    for step, now in enumerate(written_order(sample)):
        state[step, now] = 3
        state[step + 1 :, now] = 4
    return state


def made_up_sample(sample: int) -> xr.Dataset:
    """What a trace of a diffusion model would hold."""
    state = made_up_state(sample)
    masked = np.isin(state, (2, 3))
    regions = {"bos": [0], "query": range(1, 4), "gold": range(4, PROMPT), "answer": range(PROMPT, LENGTH)}
    data = from_attention(
        made_up_weights(sample), groups={"masked": masked, "unmasked": ~masked, "predicting": state == 3}, regions=regions
    )
    final = np.arange(LENGTH) + 100 * sample
    committed = np.full(LENGTH, -1)
    for step, now in enumerate(written_order(sample)):
        committed[now] = step
        final[now] = final[4 + step % 4]  # the answer repeats the gold span
    canvas = np.where(np.isin(state, (1, 4)), final, 0)
    geometry = np.where(data["mass"] > 4 * data["rows"] / LENGTH, 3.0, 1.0)
    shape = data["mass"].dims
    favourites = np.full((LAYERS, HEADS, LENGTH, 1), -1)
    favourites[..., PROMPT:, 0] = 0
    for step, now in enumerate(written_order(sample)[:3]):
        favourites[1, 1, now, 0] = 4 + step  # head 1 of layer 1 copies three of the four tokens of the gold span
    flow = np.einsum("rq,slhqk,pk->slrp", data["in_region"].values, made_up_weights(sample), data["in_region"].values) / HEADS
    lengths = data["in_region"].sum("position").values
    return (
        data.drop_vars("pattern")
        .assign(
            state=(("step", "position"), state),
            canvas=(("step", "position"), canvas),
            final=("position", final),
            committed=("position", committed),
            special=("position", np.arange(LENGTH) == 0),
            template=("position", np.arange(LENGTH) < 2),
            score=(shape, geometry),
            cosine=(shape, geometry / 10),
            norm_product=(shape, 10 * geometry),
            key_norm=(("step", "layer", "head", "key"), geometry[:, :, :, 0]),
            value_norm=(("step", "layer", "head", "key"), 1 / geometry[:, :, :, 0]),
            top_key=(("layer", "head", "position", "rank"), favourites),
            flow=(("step", "layer", "query_region", "key_region"), flow),
            flow_null=(("query_region", "key_region"), np.outer(lengths, lengths) / LENGTH),
            region_rows=("query_region", lengths.astype(float)),
        )
        .assign_coords(
            token=("position", ["<s>", *(WORDS[at % len(WORDS)] for at in range(1, LENGTH))]),
            query_region=list(regions),
            key_region=list(regions),
        )
    )


def mean_received(sample: int, layer: int, of_rows: np.ndarray) -> np.ndarray:
    """Mean over heads of what each key gets from the chosen rows, over an even share: (step, key)."""
    looks = made_up_weights(sample)[:, layer].mean(1)  # (step, query, key)
    return np.stack([looks[step][of_rows[step]].mean(0) for step in range(STEPS)]) * LENGTH


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [one for one in axes.lines if one.get_label() == label]
    return found


def heights(axes: Axes, label: str) -> np.ndarray:
    return np.asarray(line(axes, label).get_ydata(), dtype=float)


def band(axes: Axes, label: str) -> np.ndarray:
    """The lower and the upper edge of a band: (2, layer)."""
    (found,) = [one for one in axes.collections if one.get_label() == f"_interval of {label}"]
    corners = np.asarray(found.get_paths()[0].vertices)
    ends = [corners[corners[:, 0] == at, 1] for at in np.unique(corners[:, 0])]
    return np.array([[one.min() for one in ends], [one.max() for one in ends]])


def footer(figure: Figure) -> str:
    (found,) = [text for text in figure.texts if text.get_gid() == "footer"]
    return " ".join(found.get_text().split())


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def images(figure: Figure) -> list[np.ndarray]:
    return [np.ma.filled(np.ma.asarray(image.get_array()), np.nan) for axes in figure.axes for image in axes.images]

"""The figures of docs/footguns.md: published instruments that mislead, each on made-up attention for which the truth is known.

    python docs/figures/footguns.py [FOLDER]

writes one SVG per figure beside this file, or into the folder. Every run writes the same bytes.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from floatlens.measures import find_anchors, from_attention, lift, measured
from floatlens.measures.absorption import absorption_of_strongest_key
from floatlens.measures.flow import rollout
from floatlens.report.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, add_legend, in_style, panels, save_figure

WIDTH, HEIGHT = 4.8, 2.3  # inches
SINKS = [9, 40]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Attention from scores; -inf is not seen."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@in_style
def additive_on_averages() -> Figure:
    """How often each reading of the additive rule finds an anchor, where there is one and where there is none."""
    random = np.random.default_rng(0)
    scores = random.normal(0, 0.5, (8, 4, 8, 64, 64))  # step, layer, head, query, key
    scores[:, :, :4, :, 5] += 3.5  # half of the heads have a sink that draws about a third
    data = from_attention(softmax(scores)).isel(group=0)
    average = data["mass"] / data["rows"]
    others = (average.sum("key") - average) / (average.sizes["key"] - 1)
    printed = (average > others + 3).any("key")
    readings = {
        "as printed:\non averages": printed,
        "with the fallback\nto the top key": printed | True,
        "on sums:\nmass · keys / rows": find_anchors(data, rule="additive")["anchor"].any("key"),
        "floatlens:\nlift > 4": find_anchors(data)["anchor"].any("key"),
    }
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    positions = np.arange(len(readings))
    for shift, heads, label, colour, hatch in (
        (-0.2, slice(0, 4), "heads with a sink", BLUE, ""),
        (0.2, slice(4, 8), "heads without", "white", "////"),
    ):
        share = [100 * float(fires.isel(head=heads).mean()) for fires in readings.values()]
        axes.bar(positions + shift, share, 0.38, color=colour, hatch=hatch, edgecolor=BLACK, linewidth=0.5, label=label)
        for x, y in zip(positions + shift, share, strict=True):
            axes.text(x, y + 1, f"{y:.0f}", ha="center", fontsize=6)
    axes.set_xticks(positions, list(readings))
    axes.set_ylabel("places with an anchor (%)")
    axes.set_ylim(0, 112)
    add_legend(figure, axes.containers, 2)
    return figure


@in_style
def first_key_of_even_attention() -> Figure:
    """What the first key gets if every row of a causal model spreads evenly."""
    length = np.arange(2, 4097)
    share = 100 * np.cumsum(1 / np.arange(1, 4097))[1:] / length
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    axes.plot(length, share, color=VERMILLION, label="share of all attention on the first key")
    axes.plot(length, 100 / length, "--", color=GREY, label="one key of n")
    axes.plot([50], [share[48]], "o", color=BLACK)
    axes.annotate(f"n = 50: {share[48]:.1f} %", (50, share[48]), xytext=(6, 6), textcoords="offset points")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("n, tokens of the text (log)")
    axes.set_ylabel("%, log")
    add_legend(figure, axes.lines[:2], 2)
    return figure


@in_style
def late_keys() -> Figure:
    """How often keys of structureless causal attention seem to be anchors, by position."""
    random = np.random.default_rng(1)
    keys, width = 256, 16
    causal = np.tril(np.ones((keys, keys), bool))
    weights = softmax(np.where(causal, random.normal(0, 2, (32, keys, keys)), -np.inf))
    data = from_attention(weights[None, None], visible=causal).isel(step=0, layer=0, group=0)
    fires = (lift(data) > 4).astype(float)
    by_place = {
        "all keys": fires,
        "keys that at least max(16, n/4) rows see": fires.where(measured(data)),
    }
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    for (label, values), colour, line, marker in zip(by_place.items(), (VERMILLION, BLUE), ("--", "-"), ("s", "o"), strict=True):
        rate = values.mean("head", skipna=False).values.reshape(-1, width).mean(-1)  # by 16 keys
        axes.plot(np.arange(width / 2, keys, width), 100 * rate, line, color=colour, marker=marker, label=label)
    axes.axvspan(keys - keys / 4, keys, color="0.9", zorder=0)
    axes.text(keys - keys / 4 + 3, axes.get_ylim()[1] * 0.8, "not\nmeasured", color="0.3")
    axes.set_xlabel("position of the key, n = 256")
    axes.set_ylabel("called anchors (%)")
    add_legend(figure, axes.lines, 2)
    return figure


@in_style
def rollout_of_even_attention() -> Figure:
    """What rollout says of attention that looks at nothing in particular."""
    layers, passages = 32, [150] * 10
    length = 1 + 20 + sum(passages) + 32  # the first token, a question, passages, the answer
    causal, everyone = np.tril(np.ones((length, length))), np.ones((length, length))
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    for label, visible, sizes, colour, line, marker in (
        ("even causal attention, ten passages", causal, [1, 20, *passages, 32], VERMILLION, "-", "o"),
        ("the same, passages as one region", causal, [1, 20, sum(passages), 32], ORANGE, "--", "^"),
        ("even bidirectional attention", everyone, [1, 20, *passages, 32], BLUE, ":", "s"),
    ):
        even = visible / visible.sum(-1, keepdims=True)
        edges = np.cumsum([0, *sizes[:-1]])
        flow = np.add.reduceat(np.add.reduceat(even, edges, axis=0), edges, axis=1)
        held = xr.DataArray(np.broadcast_to(flow, (layers, *flow.shape)), dims=("layer", "query_region", "key_region"))
        rows = xr.DataArray(sizes, dims="query_region")
        rolled = rollout(xr.Dataset({"flow": held, "flow_null": held, "region_rows": rows}), cumulative=True)
        on_first = 100 * rolled["rollout"].isel(query_region=-1, key_region=0).values
        axes.plot(np.arange(1, layers + 1), on_first, line, color=colour, marker=marker, markevery=4, label=label)
        axes.text(layers + 0.5, on_first[-1], f"{on_first[-1]:.1f} %", va="center")
    axes.set_xlim(0, layers + 5)
    axes.set_ylim(-3, 100)
    axes.set_xlabel("layers rolled through")
    axes.set_ylabel("rollout from the answer\nto the first token (%)")
    add_legend(figure, axes.lines, 2)
    return figure


@in_style
def heads_averaged_or_mixed_up() -> Figure:
    """Received attention of a small random model with grouped heads, computed rightly and in two published ways."""
    random = np.random.default_rng(2)
    heads, groups, rows, size = 8, 2, 64, 16
    query, key = random.normal(0, 1.2, (heads, rows, size)), random.normal(0, 1.2, (groups, rows, size))
    direction = np.linalg.qr(random.normal(size=(size, groups)))[0].T  # of length 1, at right angles
    key[np.arange(groups), SINKS] = np.array([[5.0], [7.0]]) * direction  # each group of heads has a sink of its own
    query += 3 * np.repeat(direction, heads // groups, axis=0)[:, None]

    def received(query: np.ndarray, key: np.ndarray) -> np.ndarray:
        weights = softmax(query @ np.swapaxes(key, -1, -2) / np.sqrt(size))
        return rows * weights.reshape(-1, rows, rows).mean((0, 1))

    number = np.arange(heads)
    right = received(query, key[number // (heads // groups)])
    wrong = {
        "KV head h % H_kv": (received(query, key[number % groups]), ORANGE, "s"),
        "Q and K averaged over heads": (received(query.mean(0), key.mean(0)), VERMILLION, "^"),
    }
    figure, ((axes,),) = panels(WIDTH, HEIGHT + 0.3)
    most = 1.15 * max(right.max(), *(values.max() for values, _, _ in wrong.values()))
    axes.plot([0.1, most], [0.1, most], color=GREY, linewidth=0.8, label="right")
    for label, (values, colour, marker) in wrong.items():
        axes.plot(right, values, marker, color=colour, markerfacecolor="white", label=label)
    for place in SINKS:
        lowest = min(values[place] for values, _, _ in wrong.values())
        axes.plot([right[place]] * 2, [lowest, right[place]], color=GREY, linewidth=0.6, zorder=0)
        axes.annotate("a sink", (right[place], right[place]), xytext=(-21, 4), textcoords="offset points", fontsize=6)
    axes.axhline(4, color=BLACK, linestyle=":", linewidth=0.7)
    axes.axvline(4, color=BLACK, linestyle=":", linewidth=0.7)
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("lift of a key, computed head by head (log; dotted: 4)")
    axes.set_ylabel("lift as computed (log)")
    add_legend(figure, axes.lines[:3], 3)
    return figure


@in_style
def anchor_chosen_after_the_edit() -> Figure:
    """The attention that masking one key removes at each step, when the key is chosen before and after the edit."""
    random = np.random.default_rng(3)
    steps, rows, keys, sink = 16, 24, 32, 4
    scores = random.normal(0, 0.5, (steps, rows, keys))
    scores[..., sink] += 3.5
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    for label, after, colour, line, marker in (
        ("chosen from the scores before the edit", False, BLUE, "-", "o"),
        ("chosen after it", True, VERMILLION, "--", "s"),
    ):
        removed, masked = [], None
        for of_step in scores:
            whole = softmax(of_step)
            removed.append(0.0 if masked is None else 100 * whole[:, masked].mean())
            edited = of_step.copy()
            if masked is not None:
                edited[:, masked] = -np.inf
            masked = int((softmax(edited) if after else whole).mean(0).argmax())
        axes.plot(range(steps), removed, line, color=colour, marker=marker, label=f"{label}: {np.mean(removed[1:]):.0f} % on average")
    axes.set_xlabel("step")
    axes.set_ylabel("attention removed (%)")
    axes.set_ylim(bottom=0)
    add_legend(figure, axes.lines, 1)
    return figure


@in_style
def top_key_of_noise() -> Figure:
    """The share of the strongest key of structureless attention, chosen and measured on the same rows, and on different ones."""
    random = np.random.default_rng(4)
    numbers, keys, heads = (2, 4, 8, 16, 32, 64, 128, 256), 64, 64
    shares = [
        absorption_of_strongest_key(from_attention(softmax(random.normal(0, 1.5, (1, 1, heads, rows, keys))))).mean("head")
        for rows in numbers
    ]
    figure, ((axes,),) = panels(WIDTH, HEIGHT)
    for name, label, colour, line, marker in (
        ("same_rows", "chosen and measured on the same rows", VERMILLION, "--", "s"),
        ("share", "chosen on one half, measured on the other", BLUE, "-", "o"),
        ("null", "every row looks evenly", GREEN, ":", ""),
    ):
        axes.plot(numbers, [share[name].item() for share in shares], line, color=colour, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows (log)")
    axes.set_ylabel("share of attention (%)")
    add_legend(figure, axes.lines, 2)
    return figure


FIGURES: tuple[Callable[[], Figure], ...] = (
    additive_on_averages,
    first_key_of_even_attention,
    late_keys,
    rollout_of_even_attention,
    heads_averaged_or_mixed_up,
    anchor_chosen_after_the_edit,
    top_key_of_noise,
)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for draw in FIGURES:
        (file,) = save_figure(draw(), folder / draw.__name__, ["svg"])
        print(file.name, f"{file.stat().st_size / 1000:.0f} kB")

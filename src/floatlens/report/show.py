"""A trace in the terminal: the canvas step by step, and the keys that draw most attention in each layer."""

from pathlib import Path

import numpy as np
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from floatlens.errors import Refusal
from floatlens.terminal import on_one_line
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, MASKED, NOTHING, PROMPT
from floatlens.trace.trace import Trace

_STYLES = {PROMPT: "dim", COMMITTED_NOW: "bold black on yellow", COMMITTED_BEFORE: "default", MASKED: "dim cyan"}
_STEPS_SHOWN = 40
_TOKEN_WIDTH = 7


def print_trace(console: Console, trace: Trace, path: str, sample: int, group: str | None, with_prompt: bool, top: int) -> None:
    """One sample: a line for each step, and a table of each layer's strongest keys."""
    groups = trace.attributes["groups"]
    chosen = group or ("predicting" if "predicting" in groups else groups[0])
    if chosen not in groups:
        raise Refusal(f"This trace has no group {chosen!r}; it has {', '.join(groups)}.")
    own = trace.sample(sample)
    console.print(_heading(trace, path, sample, own), highlight=False)
    _print_canvas(console, trace, sample, own, with_prompt)
    if "mass" not in own:
        console.print("Received mass was not kept in this trace, so there are no anchors to show.")
        return
    console.print(_anchors(own, chosen, top))
    console.print(
        f"Share of all that the {chosen} rows give away, over all steps, mean over heads; in brackets the fair share if every row looked evenly at what it sees.",
        highlight=False,
    )


def _heading(trace: Trace, path: str, sample: int, own: xr.Dataset) -> Text:
    said = trace.attributes
    edited = f", edited by {on_one_line(' and '.join(said['edits']))}" if said["edits"] else ""
    if "removed" in own and not own["removed"].sum():
        edited += ", which removed nothing"
    text = Text()
    text.append(on_one_line(Path(path).name), style="bold")
    text.append(
        f"  {on_one_line(said['model'])} ({said['family']}, {said['dtype']}, seed {said['seed']}{edited}), sample {sample} of {len(trace)}: {own.sizes['step']} steps, "
        f"{said['layers']} layers, {said['heads']} heads, {own.sizes['position']} tokens\n"
    )
    return text


def _print_canvas(console: Console, trace: Trace, sample: int, own: xr.Dataset, with_prompt: bool) -> None:
    """One line a step: masks as ░, what the step writes highlighted."""
    states = own["state"].values
    shown = np.ones(states.shape[1], bool) if with_prompt else (states != PROMPT).any(0)
    final = trace.tokens(sample)
    every = max(1, -(-len(states) // _STEPS_SHOWN))
    for step in range(0, len(states), every):
        line = Text(f"{step:4d} ", style="dim")
        before = trace.tokens(sample, step)
        for position in np.flatnonzero(shown):
            state = int(states[step, position])
            if state == NOTHING:
                continue
            token = final[position] if state == COMMITTED_NOW else before[position]
            line.append("░" if state == MASKED else on_one_line(token), style=_STYLES[state])
        console.print(line, soft_wrap=False, overflow="fold")
    if every > 1:
        console.print(f"(every {every}th of {len(states)} steps)", style="dim")
    console.print()


def _short(token: str) -> str:
    shown = on_one_line(token)
    return shown if len(shown) <= _TOKEN_WIDTH else shown[: _TOKEN_WIDTH - 1] + "…"


def _anchors(own: xr.Dataset, group: str, top: int) -> Table:
    """The keys with the largest share in each layer."""
    rows = own["rows"].sel(group=group).sum("step")
    share = own["mass"].sel(group=group).sum("step") / rows
    fair = (own["null"] * own["visible"]).sel(group=group).sum("step") / rows
    share, fair = (part.mean("head") if "head" in part.dims else part for part in (share, fair))
    tokens = own["token"].values
    table = Table(title=f"What the {group} rows look at", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("layer", justify="right", no_wrap=True, min_width=5)
    for rank in range(1, top + 1):
        table.add_column(f"key {rank}", no_wrap=True)
    for layer in own["layer"].values:
        here = share.sel(layer=layer).fillna(-1).values
        expected = (fair.sel(layer=layer) if "layer" in fair.dims else fair).values
        best = np.argsort(-here, kind="stable")[:top]
        cells = [f"{100 * here[key]:4.1f}% ({100 * expected[key]:.1f}) {key} {_short(str(tokens[key]))}" for key in best if here[key] > 0]
        table.add_row(str(layer), *map(Text, cells))
    return table

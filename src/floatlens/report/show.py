"""A trace in the terminal: the canvas step by step, and the keys that draw most attention in each layer.

Tokens are printed as the tokenizer's decoder puts them together: the trace stores the characters of prompt and completion that each
token covers, and a blank that belongs to none of the tokens' own texts is printed where it stands there. Nothing is cut, whatever the
width: lines go on below, and keys that do not fit into one table get another.
"""

from pathlib import Path

import numpy as np
import xarray as xr
from rich.console import Console
from rich.text import Text

from floatlens.errors import Refusal
from floatlens.report.tables import narrow_table
from floatlens.terminal import on_one_line
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, MASKED, NOTHING, PROMPT
from floatlens.trace.trace import Trace

_STYLES = {PROMPT: "dim", COMMITTED_NOW: "bold black on yellow", COMMITTED_BEFORE: "default", MASKED: "dim cyan"}
_STEPS_SHOWN = 40
_TOKEN_WIDTH = 7
_STEP_WIDTH = 5


def print_trace(console: Console, trace: Trace, path: str, sample: int, group: str | None, with_prompt: bool, top: int) -> None:
    """Print one sample: a line for each step, and the strongest keys of each layer."""
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
    _print_strongest(console, own, chosen, top)
    console.print(
        f"Share of all attention that the {chosen} rows give, over all steps, mean over heads; in parentheses the null: the share "
        "if every row attended evenly to the keys it sees. Then the key's position and token.",
        highlight=False,
    )


def _heading(trace: Trace, path: str, sample: int, own: xr.Dataset) -> Text:
    attributes = trace.attributes
    edited = f", edited by {on_one_line(' and '.join(attributes['edits']))}" if attributes["edits"] else ""
    if "removed" in own and not own["removed"].sum():
        edited += ", which removed nothing"
    text = Text()
    text.append(on_one_line(Path(path).name), style="bold")
    text.append(
        f"  {on_one_line(attributes['model'])} ({attributes['family']}, {attributes['dtype']}, seed {attributes['seed']}{edited}), "
        f"sample {sample} of {len(trace)}: {own.sizes['step']} steps, {attributes['layers']} layers, {attributes['heads']} heads, "
        f"{own.sizes['position']} tokens\n"
    )
    return text


def _print_canvas(console: Console, trace: Trace, sample: int, own: xr.Dataset, with_prompt: bool) -> None:
    """One line per step: masks as ░, what the step writes highlighted."""
    states = own["state"].values
    positions = np.arange(states.shape[1]) if with_prompt else np.flatnonzero((states != PROMPT).any(0))
    final = trace.tokens(sample)
    blanks = blanks_before(own, trace.prompt(sample) + trace.completion(sample), final)
    every = max(1, -(-len(states) // _STEPS_SHOWN))
    for step in range(0, len(states), every):
        canvas, line = trace.tokens(sample, step), Text()
        masked_before = False
        for position in positions:
            state = int(states[step, position])
            if state == NOTHING:
                continue
            masked = state == MASKED
            if line and not (masked and masked_before):
                line.append(on_one_line(blanks[position]))
            token = final[position] if state == COMMITTED_NOW else canvas[position]
            line.append("░" if masked else on_one_line(token), style=_STYLES[state])
            masked_before = masked
        for number, part in enumerate(line.wrap(console, max(1, console.width - _STEP_WIDTH), overflow="fold")):
            margin = f"{step:{_STEP_WIDTH - 1}d} " if number == 0 else " " * _STEP_WIDTH
            console.print(Text.assemble((margin, "dim"), part), soft_wrap=True)
    if every > 1:
        console.print(f"(every {every}th of {len(states)} steps)", style="dim")
    console.print()


def blanks_before(own: xr.Dataset, text: str, tokens: list[str]) -> list[str]:
    """The blanks that the decoder puts before each token and that are not in the token's own text.

    Examples
    --------
    >>> spans = {"char_start": ("position", [-1, 0, 5, 7]), "char_stop": ("position", [-1, 4, 7, 8])}
    >>> blanks_before(xr.Dataset(spans), "Here is.", ["[BOS]", "Here", "is", "."])
    ['', '', ' ', '']
    """
    blanks, end = [], 0
    for token, start, stop in zip(tokens, own["char_start"].values.tolist(), own["char_stop"].values.tolist(), strict=True):
        covered = text[min(start, end) : stop] if start >= 0 else ""
        before = covered.removesuffix(token) if token else ""
        blanks.append(before if before.isspace() else "")
        end = max(end, stop)
    return blanks


def _print_strongest(console: Console, own: xr.Dataset, group: str, top: int) -> None:
    """The keys with the largest share in each layer, in as many tables as the width takes."""
    rows = own["rows"].sel(group=group).sum("step")
    share = own["mass"].sel(group=group).sum("step") / rows
    null = (own["null"] * own["visible"]).sel(group=group).sum("step") / rows
    share, null = (part.mean("head") if "head" in part.dims else part for part in (share, null))
    tokens = own["token"].values
    cells: dict[int, list[str]] = {}
    for layer in own["layer"].values:
        here = share.sel(layer=layer).fillna(-1).values
        expected = (null.sel(layer=layer) if "layer" in null.dims else null).values
        best = [key for key in np.argsort(-here, kind="stable")[:top] if here[key] > 0]
        cells[layer] = [f"{100 * here[key]:4.1f}% ({100 * expected[key]:.1f}) {key} {_short(str(tokens[key]))}" for key in best]
    widest = max((len(cell) for row in cells.values() for cell in row), default=0)
    together = max(1, (console.width - len("layer")) // (widest + 2))
    for first in range(0, top, together):
        ranks = range(first, min(first + together, top))
        table = narrow_table(f"What the {group} rows look at" if first == 0 else None)
        table.add_column("layer", justify="right", no_wrap=True)
        for rank in ranks:
            table.add_column(f"key {rank + 1}", no_wrap=True)
        for layer, row in cells.items():
            table.add_row(str(layer), *(Text(row[rank] if rank < len(row) else "") for rank in ranks))
        console.print(table)


def _short(token: str) -> str:
    shown = on_one_line(token)
    return shown if len(shown) <= _TOKEN_WIDTH else shown[: _TOKEN_WIDTH - 1] + "…"

"""Print the tables of context-smollm2.md from the folders that its two commands wrote; `--write` puts them and the figures into the page.

    python docs/results/context_smollm2.py position masked --write

The sentences below the tables are written by hand; the differences that they quote are printed last. If a folder does not exist, its
table stays as it is.
"""

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from floatlens.report.evaluation import write_pictures
from floatlens.study.outcomes import Outcome, summarise

HERE = Path(__file__).parent
PAGE, FIGURES = HERE / "context-smollm2.md", HERE / "figures"
CONTEXTS = {
    "closed-book": "closed-book",
    "gold": "gold passage alone",
    "position:1/10": "gold at slot 1 of 10",
    "position:5/10": "gold at slot 5 of 10",
    "position:10/10": "gold at slot 10 of 10",
}
CONTROLS = {"count": "as many random keys", "mass": "as much attention"}


def digits(value: float, places: int) -> str:
    """A number without the 0 before its point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{places}f}")


def cell(outcome: Outcome | None, places: int = 2) -> str:
    """A number with its interval."""
    if outcome is None:
        return ""
    return f"{digits(outcome.estimate, places)} [{digits(outcome.low, places)}, {digits(outcome.high, places)}]"


def only(
    outcomes: Sequence[Outcome], quantity: str, outcome: str, context: str, intervention: str = "", control: str = ""
) -> Outcome | None:
    """The number of a condition, or None."""
    wanted = (quantity, outcome, context, intervention, control)
    return next((own for own in outcomes if (own.quantity, own.outcome, own.context, own.intervention, own.control) == wanted), None)


def contexts_table(table: pl.DataFrame) -> list[str]:
    """Accuracy, gain and F1 in every context."""
    outcomes = summarise(table)
    lines = ["| context | accuracy | gain over closed-book | F1 |", "|---|---|---|---|"]
    for context, name in CONTEXTS.items():
        cells = [
            cell(only(outcomes, quantity, outcome, context))
            for quantity, outcome in (("mean", "accuracy"), ("gain", "accuracy"), ("mean", "f1"))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def masking_table(table: pl.DataFrame) -> list[str]:
    """Every intervention with the gold passage, its controls below it."""
    outcomes = summarise(table)
    lines = [
        "| with the gold passage | removed attention | accuracy | damage | log-likelihood of the answer | damage |",
        "|---|---|---|---|---|---|",
    ]
    conditions = table.filter(pl.col("context") == "gold").select("intervention", "control").unique(maintain_order=True).rows()
    for intervention, control in conditions:
        own = table.filter((pl.col("context") == "gold") & (pl.col("intervention") == intervention) & (pl.col("control") == control))
        share = own["removed"].mean()
        removed = f"{digits(100 * share, 0 if share > 0.05 else 1)} %" if isinstance(share, float) else ""
        cells = [
            cell(only(outcomes, quantity, outcome, "gold", intervention, control), places)
            for outcome, places in (("accuracy", 2), ("log_likelihood", 1))
            for quantity in ("mean", "damage")
        ]
        lines.append(f"| {CONTROLS.get(control, intervention or 'unedited')} | {removed} | {' | '.join(cells)} |")
    return lines


def quoted(position: pl.DataFrame | None, masked: pl.DataFrame | None) -> list[str]:
    """The differences that the sentences of the page quote."""
    lines = []
    for reference in ("position:1/10", "position:5/10"):
        if position is None:
            break
        gains = [own for own in summarise(position, outcomes=["accuracy"], reference=reference) if own.quantity == "gain"]
        lines += [f"{gain.context} minus {reference}: {cell(gain)}" for gain in gains if gain.context.startswith("position")]
    for own in summarise(masked) if masked is not None else []:
        if own.quantity in ("damage beyond control", "damage per removed") and own.outcome in ("accuracy", "log_likelihood"):
            places = 2 if own.outcome == "accuracy" else 1
            lines.append(f"{own.quantity}, {own.outcome}, {own.intervention} {own.control}: {cell(own, places)}")
    return lines


def written(page: str, lines: Sequence[str]) -> str:
    """The page with the table that has the same heading replaced."""
    start = page.index(lines[0])
    return page[:start] + "\n".join(lines) + page[page.index("\n\n", start) :]


def main() -> None:
    """Read the command line, print the tables and, if asked, write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("position", type=Path, help="folder of the first command of the page")
    parser.add_argument("masked", type=Path, help="folder of the second command")
    parser.add_argument("--write", action="store_true", help="write the tables into the page, and the figures beside it")
    options = parser.parse_args()
    tables = [
        pl.read_parquet(path) if (path := folder / "results.parquet").is_file() else None for folder in (options.position, options.masked)
    ]
    page = PAGE.read_text(encoding="utf-8")
    for table, of, picture, figure in zip(
        tables, (contexts_table, masking_table), ("contexts", "interventions"), ("smollm2-contexts", "smollm2-masking"), strict=True
    ):
        if table is None:
            continue
        lines = of(table)
        print("\n".join(lines) + "\n")
        page = written(page, lines)
        if options.write:
            with tempfile.TemporaryDirectory() as folder:
                write_pictures(Path(folder), table, summarise(table))
                (FIGURES / f"{figure}.svg").write_bytes((Path(folder) / f"{picture}.svg").read_bytes())
    print("\n".join(quoted(*tables)))
    if options.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Print the tables of context-smollm2.md from the folders that its two commands wrote, and with `--write` put them and their figures into the page.

    python docs/results/context_smollm2.py position masked --write

Sentences below the tables are written by hand: the differences they quote are printed last. A folder that is not there is left out, and its table stays as it is.
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


def cell(one: Outcome | None, places: int = 2) -> str:
    """A number with its interval."""
    return "" if one is None else f"{digits(one.estimate, places)} [{digits(one.low, places)}, {digits(one.high, places)}]"


def only(
    outcomes: Sequence[Outcome], quantity: str, outcome: str, context: str, intervention: str = "", control: str = ""
) -> Outcome | None:
    """The one number of a condition, or None."""
    wanted = (quantity, outcome, context, intervention, control)
    return next((one for one in outcomes if (one.quantity, one.outcome, one.context, one.intervention, one.control) == wanted), None)


def contexts_table(table: pl.DataFrame) -> list[str]:
    """Accuracy, gain and F1 in every context."""
    found = summarise(table)
    lines = ["| context | accuracy | gain over closed-book | F1 |", "|---|---|---|---|"]
    for context, name in CONTEXTS.items():
        cells = [
            cell(only(found, quantity, outcome, context))
            for quantity, outcome in (("mean", "accuracy"), ("gain", "accuracy"), ("mean", "f1"))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def masking_table(table: pl.DataFrame) -> list[str]:
    """Every intervention with the gold passage, its controls below it."""
    found = summarise(table)
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
            cell(only(found, quantity, outcome, "gold", intervention, control), places)
            for outcome, places in (("accuracy", 2), ("log_likelihood", 1))
            for quantity in ("mean", "damage")
        ]
        lines.append(f"| {CONTROLS.get(control, intervention or 'unedited')} | {removed} | {' | '.join(cells)} |")
    return lines


def quoted(position: pl.DataFrame | None, masked: pl.DataFrame | None) -> list[str]:
    """The differences that the page quotes in its sentences."""
    lines = []
    for reference in ("position:1/10", "position:5/10"):
        if position is None:
            break
        gains = [one for one in summarise(position, outcomes=["accuracy"], reference=reference) if one.quantity == "gain"]
        lines += [f"{one.context} minus {reference}: {cell(one)}" for one in gains if one.context.startswith("position")]
    for one in summarise(masked) if masked is not None else []:
        if one.quantity in ("damage beyond control", "damage per removed") and one.outcome in ("accuracy", "log_likelihood"):
            lines.append(
                f"{one.quantity}, {one.outcome}, {one.intervention} {one.control}: {cell(one, 2 if one.outcome == 'accuracy' else 1)}"
            )
    return lines


def written(page: str, lines: Sequence[str]) -> str:
    """The page with another table in the place of the one that has the same heading."""
    start = page.index(lines[0])
    return page[:start] + "\n".join(lines) + page[page.index("\n\n", start) :]


def main() -> None:
    """Read the command line, print, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("position", type=Path, help="the folder of the first command of the page")
    parser.add_argument("masked", type=Path, help="the folder of the second")
    parser.add_argument("--write", action="store_true", help="write the tables into the page, and the figures beside it")
    asked = parser.parse_args()
    tables = [
        pl.read_parquet(path) if (path := folder / "results.parquet").is_file() else None for folder in (asked.position, asked.masked)
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
        if asked.write:
            with tempfile.TemporaryDirectory() as folder:
                write_pictures(Path(folder), table, summarise(table))
                (FIGURES / f"{figure}.svg").write_bytes((Path(folder) / f"{picture}.svg").read_bytes())
    print("\n".join(quoted(*tables)))
    if asked.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Print what a finished evaluation or demo came to, from its rows and without running a model: with today's statistics, or counted from another context.

    python examples/print_again.py results                                # a folder of `floatlens eval`: its tables
    python examples/print_again.py results --reference position:5/10      # gains over another context than closed-book
    python examples/print_again.py results --into printed                 # and summary.csv and the pictures, into another folder
    python examples/print_again.py floatlens-demo --into printed          # a folder of `floatlens demo`: its claims, and the figures of answers

Reads `results.parquet`, or the folder `tables` of a demo. Nothing in the folder is changed.
"""

import argparse
import sys
from pathlib import Path

import polars as pl
from rich.console import Console

from floatlens.claims.evidence import TWINS, read_evidence
from floatlens.claims.findings import findings_of
from floatlens.claims.masking import MASKING
from floatlens.errors import Refusal
from floatlens.report.claims import claims_csv, claims_json, claims_markdown, draw_contexts, draw_masking
from floatlens.report.evaluation import print_evaluation, write_pictures
from floatlens.study.outcomes import as_table, summarise


def print_results(console: Console, folder: Path, into: Path | None, reference: str) -> None:
    """The tables of an evaluation; its summary and pictures too, if they shall be written."""
    table = pl.read_parquet(folder / "results.parquet")
    if reference not in table["context"].to_list():
        raise Refusal(
            f"No question was asked under {reference!r}; the contexts are {', '.join(table['context'].unique(maintain_order=True))}."
        )
    outcomes = summarise(table, reference=reference)
    print_evaluation(console, table, outcomes)
    if into:
        as_table(outcomes).write_csv(into / "summary.csv")
        write_pictures(into, table, outcomes)


def print_demo(console: Console, folder: Path, into: Path | None) -> None:
    """The claims of a demo; its files and the figures of answers too, if they shall be written. Figures of traces do not change."""
    evidence = read_evidence(folder / "tables")
    found = findings_of(evidence)
    console.print(claims_markdown(found), markup=False, highlight=False, soft_wrap=True)
    if into:
        for name, text in (("claims.md", claims_markdown(found)), ("claims.csv", claims_csv(found)), ("claims.json", claims_json(found))):
            (into / name).write_text(text, encoding="utf-8")
        draw_contexts(evidence, into)
        for experiment in MASKING:
            for twin in TWINS:
                draw_masking(twin, experiment, evidence, into)


def main() -> None:
    """Read the command line, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what floatlens eval or floatlens demo wrote")
    parser.add_argument("--into", type=Path, help="a folder for summary or claims, and pictures; made if it is not there")
    parser.add_argument("--reference", default="closed-book", help="the context that gains are counted from (default: closed-book)")
    asked = parser.parse_args()
    if asked.into:
        asked.into.mkdir(parents=True, exist_ok=True)
    console = Console(emoji=False)
    try:
        if (asked.folder / "results.parquet").is_file():
            print_results(console, asked.folder, asked.into, asked.reference)
        else:
            print_demo(console, asked.folder, asked.into)
    except Refusal as refusal:
        sys.exit(f"print_again.py: {refusal}")


if __name__ == "__main__":
    main()

"""Print the tables of a finished evaluation or demo again, from its rows and without running a model.

Use it to apply the statistics of a newer version, or to count gains from another context than closed-book.

    python examples/print_again.py results                                # a folder of `floatlens eval`: its tables
    python examples/print_again.py results --reference position:5/10      # gains over another context than closed-book
    python examples/print_again.py results --into printed                 # also writes summary.csv and the figures
    python examples/print_again.py floatlens-demo --into printed          # a folder of `floatlens demo`: its claims

Reads `results.parquet`, or the folder `tables` of a demo. Nothing in the folder is changed.
"""

import argparse
import sys
from pathlib import Path

import polars as pl
from rich.console import Console

from floatlens.claims.evidence import read_evidence
from floatlens.claims.findings import findings_of
from floatlens.errors import Refusal
from floatlens.report.claims import claims_csv, claims_json, claims_markdown, draw_contexts, draw_masking
from floatlens.report.evaluation import print_evaluation, write_pictures
from floatlens.study.outcomes import as_table, summarise


def print_results(console: Console, folder: Path, into: Path | None, reference: str) -> None:
    """Print the tables of an evaluation; with `into`, also write its summary and figures there."""
    table = pl.read_parquet(folder / "results.parquet")
    if reference not in table["context"].to_list():
        raise Refusal(
            f"No question was asked in the context {reference!r}; choose one of {', '.join(table['context'].unique(maintain_order=True))}."
        )
    outcomes = summarise(table, reference=reference)
    print_evaluation(console, table, outcomes)
    if into:
        as_table(outcomes).write_csv(into / "summary.csv")
        write_pictures(into, table, outcomes)


def print_demo(console: Console, folder: Path, into: Path | None) -> None:
    """Print the claims of a demo; with `into`, also write its files and the figures of answers. Figures of traces do not change."""
    evidence = read_evidence(folder / "tables")
    findings = findings_of(evidence)
    console.print(claims_markdown(findings), markup=False, highlight=False, soft_wrap=True)
    if into:
        texts = {"claims.md": claims_markdown, "claims.csv": claims_csv, "claims.json": claims_json}
        for name, as_text in texts.items():
            (into / name).write_text(as_text(findings), encoding="utf-8")
        draw_contexts(evidence, into)
        for looked_at in evidence.design.masking:
            for role in evidence.roles:
                draw_masking(role, looked_at, evidence, into)


def main() -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that floatlens eval or floatlens demo wrote")
    parser.add_argument("--into", type=Path, help="folder for the summary or the claims, and for the figures; created if it does not exist")
    parser.add_argument("--reference", default="closed-book", help="context from which gains are counted (default: closed-book)")
    options = parser.parse_args()
    if options.into:
        options.into.mkdir(parents=True, exist_ok=True)
    console = Console(emoji=False)
    try:
        if (options.folder / "results.parquet").is_file():
            print_results(console, options.folder, options.into, options.reference)
        else:
            print_demo(console, options.folder, options.into)
    except Refusal as refusal:
        sys.exit(f"print_again.py: {refusal}")


if __name__ == "__main__":
    main()

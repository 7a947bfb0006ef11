"""The whole study: gather the evidence, judge every claim, split every difference, draw, and write it all into one folder."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from floatlens.claims.findings import Findings, findings_of
from floatlens.claims.gathering import gather
from floatlens.claims.pictures import draw_contexts
from floatlens.claims.sizes import Sizes
from floatlens.claims.units import planned_units
from floatlens.folders import unfinished_folder
from floatlens.report.claims_files import WRITTEN_BY, claims_csv, claims_json
from floatlens.report.claims_table import claims_markdown

README = """# What a demo wrote

| file | what |
|---|---|
| `claims.md` | every claim with its verdict, its numbers and its rule; what follows the mask and what the objective; all accuracies |
| `claims.csv`, `claims.json` | the same for programs |
| `figures/` | the figures of each twin's trace, masking against its controls, context curves; `left_out-*.txt` says why a figure is missing |
| `tables/measurements.parquet` | every measure of every traced text |
| `tables/heads.parquet` | the retrieval score of every head in every traced text |
| `tables/answers.parquet` | every question in every condition: the exact prompt, what was written, how it was scored |
| `tables/about.json` | which models, how many questions, which seed |
| `traces/*.zarr` | the traces, to look at more closely |
| `manifest.json` | every file that was written, with its size and SHA-256; `floatlens verify` checks them |

```sh
floatlens show traces/mdm.zarr                                  # one text, step by step
floatlens measure traces/mdm.zarr traces/arm.zarr --compare     # every measure of both
floatlens figures traces/*.zarr -o more-figures                 # every figure
```
"""

Bar = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]
"""A progress bar: how many units and a title, to a function that hears of units done."""


def run_study(models: Mapping[str, str], into: Path, sizes: Sizes, seed: int, bar: Bar, *, figures: bool = True) -> Findings:
    """Run everything and write it into the folder; nothing is left there if it fails. The folder of an earlier demo is replaced if it holds nothing else."""
    with unfinished_folder(into, WRITTEN_BY, replacing=WRITTEN_BY) as unfinished:
        folder = unfinished.folder
        for name in ("traces", "tables", "figures"):
            (folder / name).mkdir()
        with bar(len(planned_units(models, folder, sizes, seed)) + 1, "Studying the twins") as advance:
            evidence = gather(models, folder, sizes, seed, advance, figures=figures)
            found = findings_of(evidence)
            if figures:
                draw_contexts(evidence, folder / "figures")
            advance(1)
        evidence.save(folder / "tables")
        (folder / "claims.md").write_text(claims_markdown(found), encoding="utf-8")
        (folder / "claims.csv").write_text(claims_csv(found), encoding="utf-8")
        (folder / "claims.json").write_text(claims_json(found), encoding="utf-8")
        (folder / "README.md").write_text(README, encoding="utf-8")
    return found

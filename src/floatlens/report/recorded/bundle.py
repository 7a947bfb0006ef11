"""Make the recorded part of the package from a finished demo: `python -m floatlens.report.recorded.bundle floatlens-demo-real`.

Claims and tables are taken as they are. Traces are recorded again, lightly (means over heads, no geometry): the first two questions of
the demo with their gold passage, the same for every model, also for one that the demo left out, so that the three can be watched side by
side. Curves (`floatlens curves`) come along where their folder is given, as means over texts: their intervals are over seeds.

Refused: a damaged demo, curves of something else, and more than 6 MB in all, because every installation carries it.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from floatlens._version import __version__
from floatlens.errors import Refusal
from floatlens.folders import damage, unfinished_folder
from floatlens.models.loading import load
from floatlens.report.page.training import CURVES as TABLE
from floatlens.report.recorded import ABOUT, BUNDLED, CURVES
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.contexts import arrange
from floatlens.tasks.registry import load_task
from floatlens.tasks.wording import format_prompt
from floatlens.terminal import counted, make_console, say

WRITTEN_BY = "floatlens.report.recorded.bundle"
LARGEST = 6_000_000
SHOWN, ANSWER_TOKENS = 2, 8
TRIPLET = {"mdm": "smollm2-mdm", "arm": "smollm2-arm", "causal-mdm": "smollm2-causal-mdm"}
TITLE, AGAIN = "SmolLM2", "floatlens demo --real"


def bundle(
    demo: Path,
    into: Path = BUNDLED,
    *,
    models: Mapping[str, str] = TRIPLET,
    data: str = "nq-100",
    curves: Path | None = None,
    traces: Path | None = None,
    title: str = TITLE,
    again: str = AGAIN,
    note: str = "",
) -> int:
    """Write the recorded part; how many bytes it has.

    `models` are those to trace, by role; `data` holds the questions of the demo; `note` is a sentence for readers, such as what the demo
    left out. `traces` are those of an earlier bundle, to be taken as they are instead of recorded again.
    """
    if wrong := damage(demo):
        raise Refusal(f"{demo} is not a finished demo: {wrong[0]}")
    about: dict[str, Any] = json.loads((demo / "claims.json").read_text(encoding="utf-8"))["about"]
    with unfinished_folder(into, WRITTEN_BY, replacing=WRITTEN_BY) as unfinished:
        folder = unfinished.folder
        shutil.copy(demo / "claims.json", folder)
        shutil.copytree(demo / "tables", folder / "tables")
        if curves is not None:
            (folder / CURVES).mkdir()
            over_texts(curves).write_parquet(folder / CURVES / TABLE)
        if traces is None:
            _trace(models, str(about["design"]["task"]), data, folder / "traces")
        else:
            shutil.copytree(traces, folder / "traces")
        said = f"{rests_on(about)} {note}".rstrip()
        stated = {"title": title, "again": again, "said": said, "floatlens": __version__, "models": about["models"]}
        (folder / ABOUT).write_text(json.dumps(stated, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        if size > LARGEST:
            raise Refusal(f"The recorded part would have {size / 1e6:.1f} MB, and every installation carries it: at most 6 MB.")
    return size


def rests_on(about: Mapping[str, Any]) -> str:
    """On how much the recorded verdicts rest, as one sentence.

    Examples
    --------
    >>> rests_on({"models": {"arm": "smollm2-arm", "mdm": "smollm2-mdm"}, "questions": 12, "traced": 12, "design": {"task": "nq"}})
    'smollm2-arm and smollm2-mdm, after adaptation; 12 questions of nq in each context, 12 traced texts.'
    """
    names = list(about["models"].values())
    who = f"{', '.join(names[:-1])} and {names[-1]}"
    questions, texts = counted(about["questions"], "question"), counted(about["traced"], "traced text")
    return f"{who}, after adaptation; {questions} of {about['design']['task']} in each context, {texts}."


def over_texts(curves: Path) -> pl.DataFrame:
    """The table of a folder of `floatlens curves` with the mean over texts in place of every text; what is NaN for a text is left out."""
    if not (curves / TABLE).is_file():
        raise Refusal(f"{curves} holds no {TABLE}. Pass a folder that `floatlens curves` wrote.")
    table = pl.read_parquet(curves / TABLE)
    by = ["run", "objective", "mask", "seed", "update", "group", "layer", "measure"]
    means = [pl.col(name).fill_nan(None).mean().fill_null(float("nan")).cast(pl.Float32) for name in ("value", "null")]
    return table.group_by(by, maintain_order=True).agg(*means).with_columns(text=0)


def _trace(models: Mapping[str, str], name: str, data: str, folder: Path) -> None:
    """Trace every model on the same questions, each with its gold passages."""
    task = load_task(name, data, conditions=[condition_of("gold")], count=SHOWN)
    samples = task.samples[:SHOWN]
    prompts = [format_prompt(sample, arrange(sample, condition_of("gold").context), task.wording) for sample in samples]
    folder.mkdir()
    for role, model in models.items():
        lm = load(model)
        order: dict[str, Any] = {} if lm.sampler == "autoregressive" else {"sampler": "llada", "block_length": 1}
        trace = lm.trace(prompts, gen_length=ANSWER_TOKENS, temperature=0.0, detail="light", batch_size=1, progress=False, **order)
        trace.save(folder / f"{role}.zarr")


def main(words: Sequence[str] | None = None) -> None:
    """Parse a command line and write the recorded part."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("demo", type=Path, help="the folder of a finished `floatlens demo --real`")
    parser.add_argument("--curves", type=Path, help="the folder of `floatlens curves` for the same models")
    parser.add_argument("--into", type=Path, default=BUNDLED, help="the folder to write; in the package by default")
    parser.add_argument("--traces", type=Path, help="the traces of an earlier bundle, taken as they are instead of recorded again")
    parser.add_argument("--note", default="", help="a sentence for readers, such as what the demo left out")
    given = parser.parse_args(words)
    size = bundle(given.demo, given.into, curves=given.curves, traces=given.traces, note=given.note)
    say(make_console(), f"Wrote {given.into} ({size / 1e6:.1f} MB).")


if __name__ == "__main__":
    main()

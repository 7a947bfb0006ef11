"""How fast questions are asked: eight at a time against one by one, and under an intervention and its controls against unedited.

The same samples (people of the world are described from one passage, 30 tokens; SmolLM2-135M writes 16) are asked in turns, in random
order, because the machine's speed changes within a minute: an evaluation with likelihoods (of 8 mask sets) in batches of 8, the same one
by one, and writing alone in batches of 8, unedited, under mask-anchors:1 and under both of its controls. A ratio is that of the fastest
turns: whatever else the machine does only adds. Writing goes on to the last token, whatever a text says, so that all ways take the same
steps. Batched and one by one must give the same answers: the same predictions, and log-likelihoods to 1e-3. Goals: mask-anchors at most
1.3 times unedited writing on SmolLM2-135M, a control at most 1.5 times. A twin's layers take less than a millisecond, and the bookkeeping
around each attention call outweighs them. `--write` also writes docs/benchmarks/evaluation-speed.md. On a machine that others use,
`--one-core` measures in processor time, torch with one thread; `--interventions MODEL` measures only those, of one model.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import torch
from rich.console import Console
from rich.progress import Progress

import floatlens as fl
from floatlens.interventions import from_text
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.contexts import GoldOnly, arrange
from floatlens.tasks.registry import load_task
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import QA_WORDING, Wording, format_prompt
from page import write_table

ORIGINAL = "mask-anchors:1"
CONTROLS = (f"random-keys:count of {ORIGINAL}", f"random-keys:mass of {ORIGINAL}")
GOALS = {ORIGINAL: 1.3, **dict.fromkeys(CONTROLS, 1.5)}
REAL = "smollm2-135m"
LIKELIHOOD_TOLERANCE = 1e-3


def turns(
    ways: dict[str, Callable[[], Any]], rounds: int, name: str, clock: Callable[[], float]
) -> tuple[dict[str, float], dict[str, Any]]:
    """The fewest seconds each way took, and what it returned."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    returned: dict[str, Any] = {}
    with Progress(transient=True) as bar:
        task = bar.add_task(name, total=rounds * len(ways))
        for _ in range(rounds):
            for way in random.sample(list(ways), len(ways)):
                began = clock()
                returned[way] = ways[way]()
                taken[way].append(clock() - began)
                bar.advance(task)
    return {way: min(seconds) for way, seconds in taken.items()}, returned


def measure(
    lm: fl.LanguageModel, samples: Sequence[Sample], wording: Wording, length: int, rounds: int, clock: Callable[[], float], batches: bool
) -> list[str]:
    """The rows of one model: of batches, if they are wanted, and of interventions."""
    prompts = [format_prompt(sample, arrange(sample, GoldOnly()), wording) for sample in samples]
    to_the_end: dict[str, Any] = {"stop_at_eos": False} if lm.sampler == "autoregressive" else {}  # texts under interventions end elsewhere

    def asked(batch_size: int) -> pl.DataFrame:
        how: dict[str, Any] = {
            "wording": wording,
            "gen_length": length,
            "likelihood": True,
            "mask_sets": 8,
            "brackets": False,
            "progress": False,
        }
        return evaluate_model(lm, samples, ["gold"], batch_size=batch_size, **how)

    def written(intervention: str | None) -> Any:
        under = None if intervention is None else from_text(intervention)
        return lm.generate(prompts, gen_length=length, batch_size=8, intervention=under, progress=False, **to_the_end)

    lm.generate(prompts[:1], gen_length=2, progress=False)  # warm up
    ways: dict[str, Callable[[], Any]] = {"batch 8": lambda: asked(8), "batch 1": lambda: asked(1)} if batches else {}
    ways |= {"unedited": lambda: written(None), **{one: (lambda one=one: written(one)) for one in GOALS}}
    seconds, tables = turns(ways, rounds, lm.name, clock)
    rows = []
    if batches:
        check_same(tables["batch 8"], tables["batch 1"], lm.name)
        rows = [f"| {lm.name} | {len(samples)} questions, one by one over 8 at a time | {seconds['batch 1'] / seconds['batch 8']:.2f}x | |"]
    for one, goal in GOALS.items():
        ratio = seconds[one] / seconds["unedited"]
        verdict = f"<= {goal}x: {'met' if ratio <= goal else 'missed'}" if lm.name == REAL else ""
        rows.append(f"| {lm.name} | {one} over unedited | {ratio:.2f}x | {verdict} |")
    return rows


def check_same(batched: pl.DataFrame, one_by_one: pl.DataFrame, name: str) -> None:
    """Stop where a batch changes an answer."""
    for first, second in zip(batched.iter_rows(named=True), one_by_one.iter_rows(named=True), strict=True):
        apart = abs(first["log_likelihood"] - second["log_likelihood"])
        if first["sample"] != second["sample"] or first["prediction"] != second["prediction"] or not apart <= LIKELIHOOD_TOLERANCE:
            raise SystemExit(
                f"{name}, sample {first['sample']}: {first['prediction']!r} in a batch, {second['prediction']!r} alone; log-likelihoods "
                f"{apart:.2g} apart."
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/evaluation-speed.md")
    parser.add_argument("--one-core", action="store_true", help="measure in processor time, torch with one thread")
    parser.add_argument("--interventions", metavar="MODEL", help="measure only interventions, of this model")
    asked = parser.parse_args()
    clock = time.process_time if asked.one_core else time.perf_counter
    if asked.one_core:
        torch.set_num_threads(1)
    lines = ["| model | what over what | ratio | goal |", "|---|---|---|---|"]
    for name in [asked.interventions] if asked.interventions else ["twin-mdm", "twin-arm", REAL]:
        task = load_task("world-description", count=8)
        how = (QA_WORDING, 16) if name == REAL else (task.wording, task.gen_length)
        try:
            lm = fl.load(name)
        except fl.Refusal as refusal:
            lines.append(f"| {name} | not measured: {str(refusal).splitlines()[0]} | | |")
        else:
            lines += measure(lm, task.samples, *how, asked.rounds, clock, batches=asked.interventions is None)
    if asked.interventions is None:
        agree = f"log-likelihoods agree to {LIKELIHOOD_TOLERANCE:g}"
        lines += ["", f"In float32, the predictions of a batch are those of each question alone; {agree}."]
    Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if asked.write:
        write_table(
            "evaluation-speed.md", "evaluation_speed.py", lines, f", torch {torch.__version__} with {torch.get_num_threads()} threads"
        )


if __name__ == "__main__":
    main()

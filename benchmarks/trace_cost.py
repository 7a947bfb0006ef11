"""What a trace costs: generation with a trace against generation alone, and a LLaDA-shaped trace on disk.

Generation: a 12-layer model (hidden 768, 12 heads, vocabulary 32,000) denoises two tokens a step on a canvas of 512, alone, with a
default trace in memory, and with one written to disk. The three take turns of 8 steps in random order, 64 steps each in all, because the
machine's speed changes within a minute; a ratio is the median turn over the median turn of generation alone.

Disk: a synthetic trace of LLaDA-8B's shape (32 steps, 32 layers, 32 heads, 512 keys, the default detail) is written and read: size,
files, and the time to read one layer of the mass, beside reading all of it. `--write` also writes docs/benchmarks/trace-cost.md. On a
machine that others use, `--one-core` measures in processor time, torch with one thread, which other programs do not change much; the time
of the thread that writes is in it, though the loop does not wait for it. `--only disk` and `--only generation` leave out the other.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl
from llada_shaped import llada_shaped
from page import write_table

GOALS = {"traced": 1.15, "traced to disk": 1.2}
LAYER_GOAL = 15  # milliseconds
MASK = 31_999
LENGTH = 512
STEPS_A_TURN = 8


def language_model() -> fl.LanguageModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    }
    config = LlamaConfig(**sizes)
    config.is_causal = False
    return fl.LanguageModel(LlamaForCausalLM(config).eval(), mask_token_id=MASK)


def generation(rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Median seconds of a turn of each way."""
    lm = language_model()
    prompt = torch.randint(0, MASK, (LENGTH - 2 * STEPS_A_TURN,), generator=torch.Generator().manual_seed(1)).tolist()
    options: dict[str, Any] = {"gen_length": 2 * STEPS_A_TURN, "steps": STEPS_A_TURN, "progress": False}

    def to_disk() -> None:
        folder = tempfile.mkdtemp()
        lm.trace([prompt], path=Path(folder) / "run.zarr", **options)
        shutil.rmtree(folder)

    ways: dict[str, Callable[[], Any]] = {
        "alone": lambda: lm.generate([prompt], **options),
        "traced": lambda: lm.trace([prompt], **options),
        "traced to disk": to_disk,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # warm up
    with Progress(transient=True) as bar:
        task = bar.add_task("generation", total=rounds * len(ways))
        for _ in range(rounds):
            for name in random.sample(list(ways), len(ways)):
                began = clock()
                ways[name]()
                taken[name].append(clock() - began)
                bar.advance(task)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def disk(clock: Callable[[], float] = time.perf_counter) -> dict[str, str]:
    trace = llada_shaped()
    raw = sum(array.nbytes for _, array in trace._samples[0].arrays.values())
    folder = Path(tempfile.mkdtemp())
    try:
        writing = _seconds(lambda: trace.save(folder / "run.zarr"), 1, clock)
        files = [file for file in (folder / "run.zarr").rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        of_mass = [file for file in (folder / "run.zarr/samples/00000/mass").rglob("*") if file.is_file()]
        opening = _seconds(lambda: fl.open_trace(folder / "run.zarr"), 5, clock)
        layer = _seconds(lambda: fl.open_trace(folder / "run.zarr").dataset["mass"].isel(layer=11).values, 9, clock) - opening
        everything = _seconds(lambda: fl.open_trace(folder / "run.zarr").dataset["mass"].values, 3, clock) - opening
    finally:
        shutil.rmtree(folder)
    return {
        "uncompressed": f"{raw / 1e6:.0f} MB",
        "on disk": f"{size / 1e6:.0f} MB",
        "files": f"{len(files)}, {len(of_mass)} of them for the mass",
        "writing it": f"{writing:.1f} s",
        "opening it": f"{1000 * opening:.0f} ms",
        "one layer of the mass (6.3 MB)": f"{1000 * layer:.0f} ms (goal {LAYER_GOAL} ms: {_verdict(1000 * layer, LAYER_GOAL)})",
        "all of the mass (201 MB)": f"{1000 * everything:.0f} ms",
    }


def _seconds(work: Callable[[], Any], rounds: int, clock: Callable[[], float]) -> float:
    taken = []
    for _ in range(rounds):
        began = clock()
        work()
        taken.append(clock() - began)
    return statistics.median(taken)


def _verdict(value: float, goal: float) -> str:
    return "met" if value <= goal else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="turns of each way")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/trace-cost.md")
    parser.add_argument("--one-core", action="store_true", help="measure in processor time, torch with one thread")
    parser.add_argument("--only", choices=("generation", "disk"), help="leave out the other")
    asked = parser.parse_args()
    clock = time.process_time if asked.one_core else time.perf_counter
    if asked.one_core:
        torch.set_num_threads(1)
    lines: list[str] = []
    if asked.only != "disk":
        seconds = generation(asked.rounds, clock)
        lines += [f"| generation, {asked.rounds * STEPS_A_TURN} steps at {LENGTH} tokens | over generation alone | goal |", "|---|---|---|"]
        ratios = {name: seconds[name] / seconds["alone"] for name in GOALS}
        lines += [f"| {name} | {ratio:.2f}x | <= {GOALS[name]}x: {_verdict(ratio, GOALS[name])} |" for name, ratio in ratios.items()]
        lines += [""]
    if asked.only != "generation":
        lines += ["| LLaDA-shaped trace on disk | |", "|---|---|", *(f"| {name} | {value} |" for name, value in disk(clock).items())]
    console = Console()
    console.print("\n".join(lines), markup=False, highlight=False)
    if asked.write:
        write_table("trace-cost.md", "trace_cost.py", lines, f", torch {torch.__version__} with {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()

"""What observing asks of the host: operators dispatched, results waited for, and time, beside generation alone.

On a GPU a layer takes about a millisecond, and the host is what holds it up: every operator must be dispatched, and every number that is
read stops it until the device has caught up. Both are counted here on a device that is not the CPU (`tests/elsewhere`, compiled when it
is first used), with a tiny Llama of 8 and of 32 layers, LLaDA's loop and 96 tokens, so that arithmetic hides nothing. A transfer is a
copy from the device, a number or truth value read from it, or an operator whose result has a size that only the device knows.

Time is what one core spends on the same runs on the CPU (`time.thread_time`, so that other programs on the machine do not count), in
random turns; so are the ratios of the twins. `--write` also writes docs/benchmarks/host-cost.md.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import elsewhere
import floatlens as fl
from floatlens.interventions import MaskAnchors, RandomKeys
from page import write_table

MASK, LENGTH, NEW, STEPS = 255, 96, 32, 16
LAYERS = (8, 32)
# version 0.1.0, measured with this script; what the model does by itself is that of generation
BEFORE = {
    ("operators", 8): 387.0,
    ("operators", 32): 366.8,
    ("transfers", 8): 324.4,
    ("transfers", 32): 1212.4,
    ("transfers of generation", 8): 14.2,
    ("transfers of generation", 32): 14.2,
    ("host time", 8): 5.6,
    ("host time", 32): 4.4,
    ("host time of the intervention", 8): 2.8,
    ("host time of the intervention", 32): 2.7,
}
GOALS = {"operators": 60.0, "transfers": 3.0, "transfers of generation": 1.0, "host time": 0.7}
TWIN_GOALS = {"trace": 1.6, "mask-anchors:1": 1.5, "random-keys of it, equal mass": 1.5}
TWINS_BEFORE = {"trace": 5.0, "mask-anchors:1": 2.6, "random-keys of it, equal mass": 3.1}
PASSAGES = "Marta Olsen lives in Oslo.\nBen Reed lives in Rome.\nMarta Reed lives in Oslo.\nWhere does Ben Reed live?"


def tiny(layers: int, device: torch.device | str) -> fl.LanguageModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    config = LlamaConfig(num_hidden_layers=layers, num_key_value_heads=2, **sizes)
    config.is_causal = False
    module: Any = LlamaForCausalLM(config).eval()
    return fl.LanguageModel(module.to(device), mask_token_id=MASK)


def ways(lm: fl.LanguageModel) -> dict[str, Callable[[], Any]]:
    prompt = torch.randint(0, MASK - 5, (LENGTH - NEW,), generator=torch.Generator().manual_seed(1)).tolist()
    options: dict[str, Any] = {"gen_length": NEW, "steps": STEPS, "progress": False}
    return {
        "generation": lambda: lm.generate([prompt], **options),
        "trace": lambda: lm.trace([prompt], **options),
        "intervention": lambda: lm.generate([prompt], intervention=MaskAnchors(1), **options),
    }


def counts(layers: int) -> dict[str, tuple[float, float]]:
    """Operators per layer and step, and transfers per step, of each way."""
    found = {}
    for name, way in ways(tiny(layers, elsewhere.device())).items():
        with elsewhere.Counted() as counted:
            way()
        found[name] = (counted.operators.total() / layers / STEPS, counted.transfers.total() / STEPS)
    return found


def times(of: dict[str, Callable[[], Any]], rounds: int, advance: Callable[[], None]) -> dict[str, float]:
    """Median seconds of one core for each way, in random turns."""
    taken: dict[str, list[float]] = {name: [] for name in of}
    for way in of.values():
        way()  # warm up
    for _ in range(rounds):
        for name in random.sample(list(of), len(of)):
            began = time.thread_time()
            of[name]()
            taken[name].append(time.thread_time() - began)
        advance()
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def twin_ways() -> dict[str, Callable[[], Any]]:
    lm = fl.load("twin-mdm")
    options: dict[str, Any] = {"gen_length": 8, "progress": False}
    prompts = [PASSAGES] * 4
    return {
        "generation": lambda: lm.generate(prompts, batch_size=4, **options),
        "trace": lambda: lm.trace(prompts, batch_size=4, **options),
        "mask-anchors:1": lambda: lm.generate(prompts, batch_size=4, intervention=MaskAnchors(1), **options),
        "random-keys of it, equal mass": lambda: lm.generate(
            prompts, batch_size=4, intervention=RandomKeys(MaskAnchors(1), equal="mass"), **options
        ),
    }


def verdict(value: float, goal: float | None) -> str:
    return "" if goal is None else f"<= {goal:g}: {'met' if value <= goal else 'missed'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the tables to docs/benchmarks/host-cost.md")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    lines = ["| a trace adds | layers | generation alone | before | now | goal |", "|---|---|---|---|---|---|"]

    def row(what: str, layers: int, alone: str, before: float | None, now: float, goal: float | None) -> None:
        was = "" if before is None else f"{before:.1f}"
        lines.append(f"| {what} | {layers} | {alone} | {was} | {now:.2f} | {verdict(now, goal)} |")

    with Progress(transient=True) as bar:
        task = bar.add_task("counting and timing", total=(asked.rounds + 1) * (len(LAYERS) + 1))
        for layers in LAYERS:
            found = counts(layers)
            bar.advance(task)
            seconds = times(ways(tiny(layers, "cpu")), asked.rounds, lambda: bar.advance(task))
            operators, _ = found["generation"]
            added = {name: 1000 * (seconds[name] - seconds["generation"]) / layers / STEPS for name in ("trace", "intervention")}
            alone = 1000 * seconds["generation"] / layers / STEPS
            more = found["trace"][0] - operators
            row("operators per layer and step", layers, f"{operators:.0f}", BEFORE[("operators", layers)], more, GOALS["operators"])
            of_trace, of_generation = found["trace"][1], found["generation"][1]
            row("transfers per step, in all", layers, "", BEFORE[("transfers", layers)], of_trace, GOALS["transfers"])
            before, goal = BEFORE[("transfers of generation", layers)], GOALS["transfers of generation"]
            row("transfers per step of generation itself", layers, "", before, of_generation, goal)
            before = BEFORE.get(("host time", layers))
            row("host time per layer and step, ms", layers, f"{alone:.2f}", before, added["trace"], GOALS["host time"])
            more = found["intervention"][0] - operators
            row("mask-anchors:1: operators per layer and step", layers, f"{operators:.0f}", None, more, None)
            row("mask-anchors:1: transfers per step, in all", layers, "", None, found["intervention"][1], None)
            before = BEFORE[("host time of the intervention", layers)]
            row("mask-anchors:1: host time per layer and step, ms", layers, f"{alone:.2f}", before, added["intervention"], None)
        bar.advance(task)
        seconds = times(twin_ways(), asked.rounds, lambda: bar.advance(task))
    lines += ["", "| twin-mdm, four prompts, over generation alone | before | now | goal |", "|---|---|---|---|"]
    for name, goal in TWIN_GOALS.items():
        ratio = seconds[name] / seconds["generation"]
        lines.append(f"| {name} | {TWINS_BEFORE[name]:.1f}x | {ratio:.2f}x | {verdict(ratio, goal)} |")
    Console().print("\n".join(lines), markup=False, highlight=False)
    if asked.write:
        write_table("host-cost.md", "host_cost.py", lines, f", torch {torch.__version__} with one thread, time of the thread")


if __name__ == "__main__":
    main()

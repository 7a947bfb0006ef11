"""What observing costs: time as a ratio to the bare forward, and extra peak memory, from one interleaved run.

Four ways to run the same layers on the same tokens:

- bare: the SDPA forward;
- tapped: the same inside `fl.tap` with its default reducers, dataset included;
- eager: transformers' eager attention with `output_attentions=True`, which holds every matrix;
- re-projected: a bare forward that hands out hidden states, then query and key projected and rotated again for each layer, and a full
  softmax, as published extraction scripts do it.

Shape (a) is SmolLM2-135M's, eight layers, without the vocabulary head: the hard case, since attention is a large share of it. Shape (b)
is one layer of LLaDA-8B. Rows take turns in random order; a ratio is the median of its row over the median of bare. `python
benchmarks/tap_cost.py --write` also writes docs/benchmarks/tap-cost.md. On a machine that others use, `--one-core` prints the ratio of
tapped to bare in the time of one thread, which other programs do not change much.
"""

import argparse
import datetime
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

import floatlens as fl

ROWS = ("bare", "tapped", "eager", "re-projected")
LENGTHS = (256, 512, 1024, 2048, 4096)
GOALS = {("a", 256): 1.25, ("a", 512): 1.2, ("a", 2048): 1.4, ("b", 512): 1.05}
MEGABYTE = 1 << 20
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "tap-cost.md"


def build(shape: str, causal: bool) -> Any:
    torch.manual_seed(0)
    if shape == "a":
        sizes: dict[str, Any] = {
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "num_hidden_layers": 8,
        }
    else:
        sizes = {
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "num_hidden_layers": 1,
        }
    model = LlamaModel(LlamaConfig(vocab_size=256, max_position_embeddings=max(LENGTHS), **sizes)).eval()
    model.config.is_causal = causal
    return model


def ways(model: Any, tokens: torch.Tensor, causal: bool) -> dict[str, Callable[[], object]]:
    def bare() -> object:
        return model(tokens, use_cache=False)

    def tapped() -> object:
        with fl.tap(model) as tap:
            model(tokens, use_cache=False)
        return tap.dataset

    def eager() -> object:
        model.set_attn_implementation("eager")
        attentions = model(tokens, use_cache=False, output_attentions=True).attentions
        model.set_attn_implementation("sdpa")
        return attentions

    def reprojected() -> object:
        hidden_states = model(tokens, use_cache=False, output_hidden_states=True).hidden_states
        cosine, sine = model.rotary_emb(hidden_states[0], torch.arange(tokens.shape[1])[None])
        hidden_keys = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu_(1) if causal else None
        matrices = []
        for layer, hidden in zip(model.layers, hidden_states, strict=False):
            attention, normed = layer.self_attn, layer.input_layernorm(hidden)
            query, key = (
                project(normed).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2) for project in (attention.q_proj, attention.k_proj)
            )
            query, key = apply_rotary_pos_emb(query, key, cosine, sine)
            scores = query @ key.repeat_interleave(attention.num_key_value_groups, 1).transpose(-1, -2) * attention.scaling
            matrices.append(torch.softmax(scores if hidden_keys is None else scores.masked_fill_(hidden_keys, float("-inf")), dim=-1))
        return matrices

    return dict(zip(ROWS, (bare, tapped, eager, reprojected), strict=True))


def peak_memory(run: Callable[[], object]) -> int:
    """The most memory torch held at once, from its allocator's events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = run()
    held = peak = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]  # set once it ran
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()  # type: ignore[attr-defined]  # missing from torch's stubs
        peak = max(peak, held)
    del kept
    return peak


def measure(shape: str, causal: bool, length: int, seconds: float, advance: Callable[[str], None]) -> dict[str, tuple[float, float]]:
    """For each row: time as a ratio to bare, and extra peak memory in MiB."""
    model = build(shape, causal)
    tokens = torch.randint(0, 256, (1, length))
    runs = ways(model, tokens, causal)
    memory = {}
    for row in ROWS:
        advance(f"shape ({shape}), {'causal' if causal else 'bidirectional'}, n = {length}: memory of {row}")
        memory[row] = peak_memory(runs[row])
    times: dict[str, list[float]] = {row: [] for row in ROWS}
    began = time.perf_counter()
    while len(times["bare"]) < 3 or (time.perf_counter() - began < seconds and len(times["bare"]) < 41):
        advance(f"shape ({shape}), {'causal' if causal else 'bidirectional'}, n = {length}: round {len(times['bare']) + 1}")
        for row in random.sample(ROWS, len(ROWS)):
            start = time.perf_counter()
            runs[row]()
            times[row].append(time.perf_counter() - start)
    bare = statistics.median(times["bare"])
    return {row: (statistics.median(times[row]) / bare, (memory[row] - memory["bare"]) / MEGABYTE) for row in ROWS}


def print_one_core(shape: str, causal: bool, length: int, rounds: int = 5) -> None:
    """The ratio of tapped to bare, in the time of one thread."""
    torch.set_num_threads(1)
    runs = ways(build(shape, causal), torch.randint(0, 256, (1, length)), causal)
    times: dict[str, list[float]] = {"bare": [], "tapped": []}
    for _ in range(rounds + 1):
        for row in random.sample(list(times), len(times)):
            start = time.thread_time()
            runs[row]()
            times[row].append(time.thread_time() - start)
    bare, tapped = (statistics.median(times[row][1:]) for row in ("bare", "tapped"))  # the first warms up
    mask = "causal" if causal else "both ways"
    print(f"shape ({shape}), {mask}, n = {length}: tapped {tapped / bare:.2f}x bare, {1000 * bare:.0f} ms of one core")


def print_profile(shape: str, causal: bool, length: int, rounds: int = 8) -> None:
    """Where the time goes: milliseconds a layer that torch's operators take by themselves, bare and tapped."""
    model = build(shape, causal)
    runs = ways(model, torch.randint(0, 256, (1, length)), causal)
    spent: dict[str, dict[str, float]] = {"bare": {}, "tapped": {}}
    for _ in range(rounds):
        for row, operators in spent.items():
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                runs[row]()
            for operator in profiler.key_averages():
                share = operator.self_cpu_time_total / 1e3 / rounds / model.config.num_hidden_layers
                operators[operator.key] = operators.get(operator.key, 0.0) + share
    title = f"Milliseconds a layer by operator: shape ({shape}), {'causal' if causal else 'both ways'}, n = {length}"
    table = Table("operator", "bare", "tapped", "more", title=title)
    more = {name: spent["tapped"][name] - spent["bare"].get(name, 0.0) for name in spent["tapped"]}
    for name in sorted(more, key=lambda name: -more[name])[:12]:
        table.add_row(name, f"{spent['bare'].get(name, 0.0):.2f}", f"{spent['tapped'][name]:.2f}", f"{more[name]:+.2f}")
    table.add_row("all operators", *[f"{sum(spent[row].values()):.2f}" for row in ("bare", "tapped")], f"{sum(more.values()):+.2f}")
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure what observing costs.", epilog="Example: python benchmarks/tap_cost.py --shapes a --lengths 512,2048"
    )
    parser.add_argument("--shapes", default="a,b", help="a: SmolLM2-135M, eight layers; b: one layer of LLaDA-8B")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to go on taking turns in each cell (three rounds at least)")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(PAGE.parents[2])}")
    parser.add_argument("--one-core", action="store_true", help="print tapped over bare in the time of one thread instead, both ways only")
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead, by operator")
    options = parser.parse_args()
    cells = [
        (shape, causal, int(length))
        for shape in options.shapes.split(",")
        for causal in (False, True)
        for length in options.lengths.split(",")
    ]
    if options.one_core:
        with torch.no_grad():
            for shape, causal, length in cells:
                if not causal:
                    print_one_core(shape, causal, length)
        return
    if options.profile:
        with torch.no_grad():
            for shape, causal, length in cells:
                print_profile(shape, causal, length)
        return
    table = Table(
        "shape",
        "mask",
        "n",
        *[f"{row}: time" for row in ROWS[1:]],
        *[f"{row}: MiB" for row in ROWS[1:]],
        "goal",
        title="Cost of observing, bare = 1",
    )
    random.seed(0)
    with torch.no_grad(), Progress(transient=True) as progress:
        task = progress.add_task("", total=len(cells))
        for shape, causal, length in cells:
            found = measure(shape, causal, length, options.seconds, lambda text: progress.update(task, description=text))
            ratios = [f"{found[row][0]:.2f}x" for row in ROWS[1:]]
            memory = [f"{found[row][1]:+.0f}" for row in ROWS[1:]]
            goal = GOALS.get((shape, length))
            verdict = "" if goal is None else f"<= {goal:.2f}x: {'met' if found['tapped'][0] <= goal else 'missed'}"
            table.add_row(shape, "causal" if causal else "both ways", str(length), *ratios, *memory, verdict)
            progress.advance(task)
    console = Console(width=140)
    console.print(table)
    if options.write:
        PAGE.write_text(page(table))
        console.print(f"written to {PAGE.relative_to(PAGE.parents[2])}")


def page(table: Table) -> str:
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    lines = [" | ".join(cells) for cells in zip(*columns, strict=True)]
    machine = f"{os.cpu_count()} cores, {cpu_name()}, torch {torch.__version__} with {torch.get_num_threads()} threads"
    head = f"| {lines[0]} |\n|{'---|' * len(columns)}"
    body = "\n".join(f"| {line} |" for line in lines[1:])
    written = f"Measured {datetime.date.today()} on {machine}, by `make bench`."
    before, _, after = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{written}\n\n{head}\n{body}\n{END}{after.partition(END)[2]}"


BEGIN, END = "<!-- table: written by benchmarks/tap_cost.py --write -->", "<!-- end of table -->"


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()

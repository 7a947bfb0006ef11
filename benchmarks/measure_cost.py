"""What measuring costs: every measure of `floatlens measure` on a LLaDA-shaped trace of one prompt, read from disk.

Prints the seconds of each, its share, and the peak memory of the process (the interpreter and its libraries included). Goals: all of them
within 8 s and 2 GB. What several measures share (anchors, the float index) is charged to the first that needs it. `--write` also writes
docs/benchmarks/measure-cost.md. On a machine that others use, `--one-core` prints processor time instead.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from rich.console import Console

from page import write_table

GOAL_SECONDS, GOAL_BYTES = 8.0, 2e9


def measure(path: str, clock: Callable[[], float]) -> None:
    """In a process of its own, so that its peak is that of measuring."""
    import floatlens as fl
    from floatlens.measures.anchors import threshold_sweep
    from floatlens.measures.catalogue import CATALOGUE, Sample

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = clock()
    sample = Sample.of(fl.open_trace(path).sample(0), "lift", 3.0, "prompt")
    took = {"reading the sample": clock() - began}
    for line in CATALOGUE:
        began = clock()
        try:
            line.of(sample)
        except fl.Refusal:  # what the default detail does not keep
            continue
        took[line.name] = clock() - began
    began = clock()
    threshold_sweep(sample.data)
    took["threshold sweep"] = clock() - began
    for name, seconds in took.items():
        print(f"{name}\t{seconds}")
    print(f"before\t{before}\npeak\t{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/measure-cost.md")
    parser.add_argument("--one-core", action="store_true", help="processor time instead of time")
    parser.add_argument("--make", metavar="TRACE", help=argparse.SUPPRESS)
    parser.add_argument("--measure", metavar="TRACE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make:
        from llada_shaped import llada_shaped

        llada_shaped().save(asked.make)
        return
    if asked.measure:
        measure(asked.measure, time.process_time if asked.one_core else time.perf_counter)
        return
    with tempfile.TemporaryDirectory() as folder:
        _, run = (
            subprocess.run(
                [sys.executable, __file__, what, f"{folder}/run.zarr", *(["--one-core"] if asked.one_core else [])],
                check=True,
                capture_output=True,
                text=True,
            )
            for what in ("--make", "--measure")  # each by itself: a process inherits the peak of the one that starts it
        )
    numbers = {name: float(value) for name, value in (line.split("\t") for line in run.stdout.splitlines())}
    peak, before = 1024 * numbers.pop("peak"), 1024 * numbers.pop("before")
    total = sum(numbers.values())
    lines = ["| LLaDA-shaped trace, one prompt | seconds | share |", "|---|---|---|"]
    lines += [
        f"| {name} | {seconds:.2f} | {100 * seconds / total:.0f} % |"
        for name, seconds in sorted(numbers.items(), key=lambda item: -item[1])
    ]
    measuring = total - numbers["reading the sample"]
    lines += [f"| **all measures** (goal {GOAL_SECONDS:.0f} s: {'met' if measuring <= GOAL_SECONDS else 'missed'}) | {measuring:.2f} | |"]
    lines += [f"| with reading it from disk | {total:.2f} | |", ""]
    lines += [
        f"Peak memory {peak / 1e9:.2f} GB, of which {before / 1e9:.2f} GB before the trace was read (goal 2 GB: "
        f"{'met' if peak <= GOAL_BYTES else 'missed'})."
    ]
    Console().print("\n".join(lines), markup=False, highlight=False)
    if asked.write:
        write_table("measure-cost.md", "measure_cost.py", lines)


if __name__ == "__main__":
    main()

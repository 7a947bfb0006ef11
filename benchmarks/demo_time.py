"""How long `floatlens demo` takes, from the command to its last line: python benchmarks/demo_time.py

Goal: 90 seconds on two cores. Processor time counts all processes of the demo; the share of the cores that it kept busy says how much is left to gain by doing more side by side.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

GOAL = 90


def main() -> None:
    """Run the demo once in a temporary folder and print what it took."""
    command = [str(Path(sys.executable).with_name("floatlens")), "demo"]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor, cores = used.ru_utime + used.ru_stime, os.cpu_count() or 1
    table = Table(title="floatlens demo", title_justify="left")
    for heading in ("seconds", f"of the goal ({GOAL} s)", "processor seconds", "cores", "cores kept busy"):
        table.add_column(heading, justify="right")
    table.add_row(f"{seconds:.0f}", f"{seconds / GOAL:.2f}x", f"{processor:.0f}", str(cores), f"{100 * processor / seconds / cores:.0f} %")
    Console().print(table)


if __name__ == "__main__":
    main()

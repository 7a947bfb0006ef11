"""How long `floatlens demo` takes, from the command to its last line: python benchmarks/demo_time.py

Goal: 90 seconds on two cores that have nothing else to do.
"""

import os
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
    table = Table(title="floatlens demo", title_justify="left")
    for heading in ("seconds", f"of the goal ({GOAL} s)", "cores"):
        table.add_column(heading, justify="right")
    table.add_row(f"{seconds:.0f}", f"{seconds / GOAL:.2f}x", str(os.cpu_count()))
    Console().print(table)


if __name__ == "__main__":
    main()

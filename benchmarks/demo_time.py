"""How long `floatlens demo` takes, from the command to its last line, and how much processor time: python benchmarks/demo_time.py

Goal: 90 seconds on two cores that have nothing else to do, so 180 seconds of processor time. On cores that are shared, only the second
says something. It is that of all processes that the demo starts; those that outlive their parents are waited for as well (Linux).
"""

import ctypes
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
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: the server that forks workers ends after the demo, and would be somebody else's child


def main() -> None:
    """Run the demo once in a temporary folder and print what it took."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    command = [str(Path(sys.executable).with_name("floatlens")), "demo", "--no-open"]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        wait_for_the_rest()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    table = Table(title="floatlens demo", title_justify="left")
    for heading in ("seconds", f"of the goal ({GOAL} s)", "processor seconds", f"of the goal ({2 * GOAL} s)", "cores", "load"):
        table.add_column(heading, justify="right")
    processor = used.ru_utime + used.ru_stime
    about = [str(os.cpu_count()), f"{os.getloadavg()[0]:.0f}"]
    table.add_row(f"{seconds:.0f}", f"{seconds / GOAL:.2f}x", f"{processor:.0f}", f"{processor / (2 * GOAL):.2f}x", *about)
    Console().print(table)


def wait_for_the_rest() -> None:
    """Wait for processes whose parents have ended, so that their time counts."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()

"""Put a measured table into its page of docs/benchmarks, with the date and the machine."""

import datetime
import os
import platform
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def write_table(page: str, script: str, lines: list[str], how: str = "") -> None:
    """Replace the table of a page by what a script has measured; `how` says what else matters, such as threads."""
    path = FOLDER / page
    text = path.read_text()
    start, end = f"<!-- table: written by benchmarks/{script} --write -->", "<!-- end of table -->"
    said = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in said.read_text().splitlines() if "model name" in line] if said.is_file() else []
    processor = models[0] if models else platform.processor()
    where = f"Measured {datetime.date.today()} on {os.cpu_count()} cores, {processor}{how}, by `make bench`."
    path.write_text(f"{text.split(start)[0]}{start}\n{where}\n\n" + "\n".join(lines) + f"\n{end}{text.split(end)[1]}")

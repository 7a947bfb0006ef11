"""The notebooks run from top to bottom, show the page as a widget, and are kept without outputs."""

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from markdown_pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code" and (cell["outputs"] or cell["execution_count"])] == []


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-trace", "intervention"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_the_page(path: Path, tmp_path: Path) -> None:
    notebook: Any = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert sum(WIDGET in output.get("data", {}) for output in outputs) == 1
    shown = "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
    expected = {
        "first-trace": ["Here is Pablo Xu", "null"],
        "intervention": ["strongest keys hidden, removed 0.", "log_likelihood", "count", "mass"],
    }
    assert [text for text in expected[path.stem] if text not in shown] == []

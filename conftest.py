"""Skip, by name, the examples of docstrings that run programs in isolation, where programs cannot be isolated; leave modules out that
need an extra which is not installed; and let a run of `make attack` that is cut short say what failed."""

import os
import sys
from importlib.util import find_spec

import pytest

NEEDED = {
    "lm_eval": ["src/floatlens/harnesses/lm_eval_model.py", "src/floatlens/harnesses/lm_eval_requests.py"],
    "inspect_ai": ["src/floatlens/harnesses/inspect_model.py", "tests/harnesses/inspect_files/tiny.py"],
}
"""Packages of extras, and the modules that cannot be imported without them; the tests of these say that they are skipped."""
collect_ignore = [path for package, paths in NEEDED.items() if find_spec(package) is None for path in paths]
RUN_PROGRAMS = ("code_runs.score_program", "code_runs.require_isolation", "code_runs.run_program")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask once whether programs can be isolated, and only where such an example is to be run."""
    examples = [item for item in items if item.name.endswith(RUN_PROGRAMS)]
    if not examples:
        return
    from floatlens.errors import Refusal
    from floatlens.tasks.code_runs import require_isolation

    try:
        require_isolation()
    except Refusal as refusal:
        for item in examples:
            item.add_marker(pytest.mark.skip(reason=str(refusal)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failure of an attack as soon as it happens."""
    starts_the_workers = "PYTEST_XDIST_WORKER" not in os.environ  # it reports for all of them
    if report.failed and starts_the_workers and os.environ.get("FLOATLENS_ATTACK") == "full":
        print(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n", file=sys.__stderr__, flush=True)

"""Print each failure as soon as it happens, so that a run of `make attack` that is cut short still says what failed and why."""

import os
import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:  # the process that starts the workers reports for all of them
        print(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n", file=sys.__stderr__, flush=True)

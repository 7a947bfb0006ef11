"""Property tests draw the same examples at every run; HYPOTHESIS_PROFILE=explore draws new ones.

Tests of real models, and those that start a cluster, run only when asked for.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from floatlens.cli import run

BUSY = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}  # how long examples take says more about the machine than about them
settings.register_profile("steady", derandomize=True, **BUSY)
settings.register_profile("explore", **BUSY)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
torch.set_num_threads(1)  # several workers with several threads each run ten times slower on tiny models
os.environ["OMP_NUM_THREADS"] = "1"  # and so do the commands, kernels and workers that tests start


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, what in (("real", "runs a real model"), ("ray", "starts a Ray cluster")):
        if marker not in str(config.getoption("-m")):
            skip = pytest.mark.skip(reason=f"{what}; make test-{marker}")
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(skip)


@pytest.fixture
def floatlens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run a command; exit code, output, errors."""
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["floatlens", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return command

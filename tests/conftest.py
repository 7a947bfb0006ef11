"""Property tests draw the same examples at every run; HYPOTHESIS_PROFILE=explore draws new ones. Tests of real models run only when asked for."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
torch.set_num_threads(1)  # several workers with several threads each run ten times slower on tiny models


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "real" not in str(config.getoption("-m")):
        skip = pytest.mark.skip(reason="runs a real model; make test-real")
        for item in items:
            if item.get_closest_marker("real"):
                item.add_marker(skip)

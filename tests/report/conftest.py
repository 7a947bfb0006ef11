"""Traces for figures, and every figure of the made-up one: drawn once."""

import warnings

import pytest
import xarray as xr
from made_up_trace import OF_TRACES, SAMPLES, Draw, made_up_sample
from matplotlib.figure import Figure

import floatlens as fl
from writers import autoregressive_model, diffusion_model


@pytest.fixture(scope="session")
def made_up() -> xr.Dataset:
    return xr.concat([made_up_sample(number) for number in range(SAMPLES)], "sample", coords="minimal", compat="override")


@pytest.fixture(scope="session")
def drawn(made_up: xr.Dataset) -> dict[Draw, Figure]:
    """Every figure of the made-up trace of an edited model."""
    named = made_up.assign_attrs(floatlens='{"model": "/home/me/models/twin-mdm", "edits": ["hides key 3"]}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {draw: draw(named) for draw in OF_TRACES}


@pytest.fixture(scope="session")
def recorded() -> fl.Trace:
    """A tiny model that writes by unmasking; two of three samples have the same prompt."""
    prompts = [list(range(5, 25)), list(range(40, 60)), list(range(5, 25))]
    return diffusion_model("llada").trace(prompts, gen_length=8, steps=4, detail="full", progress=False)


@pytest.fixture(scope="session")
def one_after_the_other() -> fl.Trace:
    return autoregressive_model().trace([list(range(5, 30)), list(range(30, 50))], gen_length=20, detail="full", progress=False)

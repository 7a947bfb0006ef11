"""The path of the strongest key on traces of tiny models, against loops over transformers' eager attention on the canvas of each step."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from straight_line import HEADS, LAYERS, NAN, WRITERS, Rows, Run, Sample, assert_everywhere, mean, measured, received, run_of

from floatlens.measures import shared_rectangle, strongest_path

NO_KEY = -1
CLEAR = 1e-4  # relative: no strongest key may lead by less, for eager attention and SDPA round differently
THIRDS = {"all": range(LAYERS), "shallow": [0], "middle": [1], "deep": [2]}


@pytest.fixture(params=WRITERS)
def run(request: pytest.FixtureRequest) -> Run:
    return run_of(request.param)


def averaged(sample: Sample, step: int, group: str, layers: Any, heads: Any) -> Rows:
    """The rows of a group, averaged over some layers and heads."""
    seen = [sample.rows(step, group, layer, head) for layer in layers for head in heads]
    return Rows(np.mean([rows.weights for rows in seen], axis=0), seen[0].sees, seen[0].positions)


def strongest(rows: Rows, among: set[int]) -> int:
    if not among:
        return NO_KEY
    strengths = sorted(((received(rows)[key], key) for key in among), reverse=True)
    assert len(among) == 1 or strengths[0][0] - strengths[1][0] > CLEAR * strengths[0][0], "too close to say"
    return strengths[0][1]


def walked(sample: Sample, group: str, layers: Any, prompt_only: bool = False) -> tuple[list[int], list[int], list[int]]:
    """The strongest key of each step: of all rows, and of the two halves of the rows, or of the heads where no step has two rows."""
    everyone = [averaged(sample, step, group, layers, range(HEADS)) for step in range(len(sample.steps))]
    single = all(len(rows.positions) <= 1 for rows in everyone)
    prompt = {int(place) for step in sample.steps for place in np.flatnonzero(step.state == 1)}
    path, first, second = [], [], []
    for step, rows in enumerate(everyone):
        among = set(measured(rows)) & prompt if prompt_only else set(measured(rows))
        path.append(strongest(rows, among))
        if single:
            halves = [averaged(sample, step, group, layers, range(start, HEADS, 2)) for start in (0, 1)]
        else:
            halves = [rows.half(0), rows.half(1)]
        both = {key for key in among if all(half.sees[:, key].any() for half in halves)}
        first.append(strongest(halves[0], both))
        second.append(strongest(halves[1], both))
    return path, first, second


def described(path: list[int], first: list[int], second: list[int]) -> dict[str, float]:
    known = [key for key in path if key != NO_KEY]
    if len(known) < 2:
        return dict.fromkeys(("keys", "changes", "share", "noise", "compared", "movement"), NAN)
    usable = [step for step in range(len(path) - 1) if NO_KEY not in (*first[step : step + 2], *second[step : step + 2])]
    noise = mean(first[at] != second[at] for step in usable for at in (step, step + 1))
    compared = mean(one[step] != other[step + 1] for step in usable for one, other in ((first, second), (second, first)))
    return {
        "keys": len(set(known)),
        "changes": mean(now != later for now, later in pairwise(path) if NO_KEY not in (now, later)),
        "share": max(known.count(key) for key in known) / len(known),
        "noise": noise,
        "compared": compared,
        "movement": compared - noise,
    }


@pytest.mark.parametrize("keys", ["all", "prompt"])
def test_paths_are_those_of_eager_attention(run: Run, keys: str) -> None:
    by_layer, pooled = strongest_path(run.data, keys=keys), strongest_path(run.data, keys=keys, pooled=True)
    on_prompt = keys == "prompt"
    for name in ("keys", "changes", "share", "noise", "compared", "movement"):
        assert_everywhere(
            by_layer[name], run, lambda sample, layer, group, name=name: described(*walked(sample, group, [layer], on_prompt))[name]
        )
        assert_everywhere(
            pooled[name], run, lambda sample, depth, group, name=name: described(*walked(sample, group, THIRDS[depth], on_prompt))[name]
        )
    for number, sample in enumerate(run.samples):
        for group in run.groups:
            path = pooled["path"].sel(depth="all", group=group).isel(sample=number).values[: len(sample.steps)]
            assert path.tolist() == walked(sample, group, range(LAYERS), on_prompt)[0]


def test_the_rectangle_has_a_path_too(run: Run) -> None:
    found = strongest_path(shared_rectangle(run.data))
    assert found["changes"].notnull().all()
    prompt = run.samples[0].steps[0].state == 1
    assert found["path"].isel(sample=0).isin([-1, *np.flatnonzero(prompt)]).all()

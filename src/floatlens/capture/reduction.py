"""Reduce one observed call: every reducer sees each block once, and the rows are checked to sum to 1 before anything is handed out."""

from collections.abc import Sequence

from torch import Tensor

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.reducers import ReducerMaker
from floatlens.capture.reducers.mass import Mass
from floatlens.capture.walk import Workspace, refuse_broken_rows, walk


def reduce_call(
    observation: Observation, logsumexp: Tensor | None, makers: Sequence[ReducerMaker], workspace: Workspace
) -> dict[str, Labelled]:
    """What the reducers make of the call, by name."""
    reducers = [make(observation) for make in makers]
    in_blocks = [reducer for reducer in reducers if reducer.needs_blocks]
    if in_blocks:
        mass = next((reducer for reducer in in_blocks if isinstance(reducer, Mass)), None) or Mass(observation)
        walk(observation, logsumexp, [mass, *(reducer for reducer in in_blocks if reducer is not mass)], workspace)
        mass.check_rows_sum_to_one(lambda: refuse_broken_rows(observation, logsumexp, workspace))
    return {name: value for reducer in reducers for name, value in reducer.result().items()}

"""Rows that are looked at again, once it is known which of them predict, show what the whole forward showed of them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoo
from floatlens.capture.reducers import reducer_makers
from floatlens.capture.reduction import ChosenRows, Reducing, SeenLayers
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.capture.walk import Workspace

SAMPLES, HEADS, LENGTH = 2, 3, 9
MASKS: dict[str, Tensor | None] = {
    "none": None,
    "causal flag": None,
    "each sample its own": torch.rand(SAMPLES, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.6,
    "each head its own": torch.rand(1, HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.6,
}
ROWS = torch.tensor([[7, 2, 0], [1, 5, 8]])
GROUPS = {
    "first": torch.tensor([[True, False, False], [False, True, False]]),
    "both": torch.tensor([[True, True, False], [False, True, True]]),
}


@pytest.fixture(params=MASKS)
def seen(request: pytest.FixtureRequest) -> tuple[SeenLayers, np.ndarray, np.ndarray]:
    """A call as it ran, its weights by eager attention, and who sees whom: (sample, head, query, key)."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(SAMPLES, HEADS, LENGTH, 4, generator=generator) for _ in range(2))
    mask, causal = MASKS[request.param], request.param == "causal flag"
    if mask is not None:
        mask[..., 3] = True  # every row sees something
    held: list[SeenLayers] = []
    with Tap(module := zoo.Direct(), TapRequest(layers=1, keep=["mass"], padding=torch.ones(SAMPLES, LENGTH), on_seen=held.append)):
        module(query, key, key, mask, causal)
    visible = (
        torch.ones(1, 1, LENGTH, LENGTH).tril().bool() if causal else torch.ones(1, 1, LENGTH, LENGTH).bool() if mask is None else mask
    )
    return held[0], zoo.eager_weights(query, key, visible, 0.5), visible.expand(SAMPLES, HEADS, -1, -1).numpy()


def test_chosen_rows_show_their_own_weights_through_their_own_mask(seen: tuple[SeenLayers, np.ndarray, np.ndarray]) -> None:
    layers, weights, visible = seen
    how, checks = Reducing(reducer_makers(["mass", "entropy:rows", "top_keys:1"]), Workspace()), list[Any]()
    values = ChosenRows(ROWS, GROUPS).record(layers, how, checks).values
    assert not any(bool(check.failed) for check in checks)
    for sample in range(SAMPLES):
        for group, name in enumerate(GROUPS):
            rows = ROWS[sample][GROUPS[name][sample]].numpy()
            np.testing.assert_allclose(values["mass"][1][0, sample, :, group], weights[sample][:, rows].sum(1), atol=2e-6, err_msg=name)
            counted = visible[sample][:, rows].sum(1)
            found = values["visible"][1][sample]
            np.testing.assert_array_equal(
                found[:, group] if "head" in values["visible"][0] else np.broadcast_to(found[group], counted.shape), counted
            )
        for place, row in enumerate(ROWS[sample].tolist()):
            in_a_group = any(bool(members[sample, place]) for members in GROUPS.values())
            best = weights[sample, :, row].argmax(-1) if in_a_group else np.full(HEADS, -1)
            np.testing.assert_array_equal(values["top_key"][1][0, sample, :, place, 0], best)
            assert bool(values["row_entropy"][1][0, sample, :, place].isnan().all()) == (
                not in_a_group or (visible[sample][:, row].sum(-1) == 1).all()
            )

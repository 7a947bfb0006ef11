"""Contract 2 by type: what is observed equals the dense computation in float64 from the queries and keys that the kernel got."""

import traceback
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dense
import elsewhere
import floatlens as fl
import zoo
from floatlens.capture import walk
from floatlens.capture.walk import multiplies_half

TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}
"""Of the largest value, for scores that are as large as their own scale. Half precision is as exact as float32: products of its numbers
are exact there, and sums are float32's."""
SHARPNESS = {1.0: 1, 6.0: 8}
"""How many times as large scores are, and how many times as far off weights may be then: a rounded score is off by a share of itself."""
DEVICES = [
    "cpu",
    pytest.param(elsewhere.NAME, marks=pytest.mark.skipif(elsewhere.missing() is not None, reason=str(elsewhere.missing()))),
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")),
]
SAMPLES, HEADS, KV_HEADS, LENGTH, DEPTH = 2, 4, 2, 96, 64


def at(device: str) -> torch.device:
    return elsewhere.device() if device == elsewhere.NAME else torch.device(device)


def numbers(dtype: torch.dtype, sharpness: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(SAMPLES, HEADS, LENGTH, DEPTH, generator=draw) * sharpness
    key, value = (torch.randn(SAMPLES, KV_HEADS, LENGTH, DEPTH, generator=draw) for _ in range(2))
    return query.to(dtype), key.to(dtype), value.to(dtype)


def exact_weights(query: torch.Tensor, key: torch.Tensor, *, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The weights of every sample and head in float64, and who sees whom."""
    spelled_out = key.double().numpy().repeat(HEADS // KV_HEADS, axis=1)
    scores = query.double().numpy() @ spelled_out.transpose(0, 1, 3, 2) / np.sqrt(DEPTH)
    visible = np.tril(np.ones((LENGTH, LENGTH), bool)) if causal else np.ones((LENGTH, LENGTH), bool)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True), visible


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("sharpness", SHARPNESS)
def test_what_is_observed_is_exact_to_the_tolerance_of_its_type(device: str, dtype: torch.dtype, causal: bool, sharpness: float) -> None:
    query, key, value = numbers(dtype, sharpness)
    odd = torch.arange(LENGTH) % 2 == 1
    groups = {"odd": odd.to(at(device)), "even": ~odd.to(at(device))}
    keep = ["mass", "entropy:rows", "geometry", "top_keys:4"]
    with fl.tap(module := zoo.Direct(), layers=1, keep=keep, groups=groups) as tap:
        module(query.to(at(device)), key.to(at(device)), value.to(at(device)), causal=causal)
    data, tolerance = tap.dataset.isel(layer=0), TOLERANCE[dtype] * SHARPNESS[sharpness]
    weights, visible = exact_weights(query, key, causal=causal)
    for sample in range(SAMPLES):
        here = data.isel(sample=sample)
        for group, rows in (("odd", odd.numpy()), ("even", ~odd.numpy())):
            expected = weights[sample][:, rows].sum(1)
            close(here.sel(group=group).mass.values, expected, tolerance * max(1, expected.max()))
        close(here.row_entropy.values[:, 1:], dense.relative_entropy(weights[sample], visible)[:, 1:], 4 * tolerance)
        best = -np.sort(-weights[sample], axis=-1)[..., :4]
        close(np.nan_to_num(here.top_weight.values), best, 4 * tolerance)


def close(found: Any, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=tolerance)


@pytest.mark.skipif(elsewhere.missing() is not None, reason=str(elsewhere.missing()))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_queries_and_keys_stay_what_they_are_where_a_device_sums_in_float32(dtype: torch.dtype) -> None:
    """They are not made float32, neither all at once nor a block at a time."""
    assert multiplies_half(elsewhere.device(), dtype)
    assert not multiplies_half(torch.device("cpu"), dtype)
    query, key, value = (tensor.to(elsewhere.device()) for tensor in numbers(dtype, 1.0))
    grown: list[tuple[int, ...]] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ == "_to_copy" and result.dtype == torch.float32 and args[0].dtype == dtype:
                grown.extend(tuple(result.shape) for frame, _ in traceback.walk_stack(None) if frame.f_code.co_filename == walk.__file__)
            return result

    with fl.tap(module := zoo.Direct(), layers=1, keep=["mass", "entropy"]) as tap, Watching():
        module(query, key, value)
    assert tap.dataset.mass.dtype == np.float32
    assert not grown, f"tensors of half precision became float32: {grown}"

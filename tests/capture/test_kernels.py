"""Kernels that are called by their own name do what torch does, bit for bit, and hand out the logsumexp of every row."""

import pytest
import torch

from floatlens.capture import kernels
from floatlens.capture.call import AttentionCall
from floatlens.capture.kernels import CUDNN, EFFICIENT, FLASH, KERNELS, TESTED, chosen_kernel, plain, run

NAMES = {FLASH: "flash", EFFICIENT: "efficient", CUDNN: "cudnn"}
CASES = [(kind, backend, dtype) for (kind, backend), kernel in KERNELS.items() for dtype in kernel.dtypes]


def call_of(
    device: str,
    dtype: torch.dtype,
    *,
    queries: int = 50,
    keys: int | None = None,
    causal: bool = False,
    depth: int = 64,
    kv_heads: int = 4,
    mask: torch.Tensor | None = None,
) -> AttentionCall:
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 4, queries, depth), *[(2, kv_heads, keys or queries, depth)] * 2]
    query, key, value = (torch.randn(shape, generator=draw).to(dtype).to(device) for shape in shapes)
    return AttentionCall(query, key, value, mask, causal, scale=0.2, grouped=kv_heads != 4)


def exact_logsumexp(call: AttentionCall) -> torch.Tensor:
    """In float64, straight from the numbers."""
    key = call.key.double().repeat_interleave(call.heads // call.kv_heads, dim=1)
    scores = call.query.double() @ key.transpose(-1, -2) * call.scale
    if call.causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf"))
    return scores.logsumexp(-1)


@pytest.mark.parametrize(("kind", "backend", "dtype"), CASES, ids=lambda value: NAMES.get(value, str(value)))
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_a_kernel_called_by_its_name_gives_what_torch_gives_and_its_logsumexp(
    kind: str, backend: int, dtype: torch.dtype, causal: bool
) -> None:
    """Every kernel, tested or not, wherever its device is: this is what must pass before a kernel goes into `TESTED`."""
    if kind == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here, so its kernels stay switched off")
    call = call_of(kind, dtype, causal=causal)
    kernel = KERNELS[kind, backend]
    if chosen_kernel(call, frozenset({(kind, backend)})) is not kernel:
        pytest.skip("torch would not choose this kernel here")
    ran = kernel.run(call)
    assert torch.equal(ran.output, plain(call))
    assert ran.logsumexp is not None
    assert ran.logsumexp.shape == call.query.shape[:3]
    torch.testing.assert_close(ran.logsumexp.double().cpu(), exact_logsumexp(call).cpu(), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize(("kind", "backend"), [key for key in KERNELS if key[0] == "cuda"], ids=lambda value: NAMES.get(value, str(value)))
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("queries", [1, 50, 64])
def test_kernels_of_other_devices_are_called_as_torch_declares_them(kind: str, backend: int, causal: bool, queries: int) -> None:
    """On tensors without numbers: the arguments fit, and the logsumexp is one number per row."""
    kernel = KERNELS[kind, backend]
    ran = kernel.run(call_of("meta", kernel.dtypes[-1], queries=queries, keys=64, causal=causal))
    assert ran.output.shape == (2, 4, queries, 64)
    assert ran.logsumexp is not None
    assert ran.logsumexp.shape == (2, 4, queries)
    assert ran.logsumexp.dtype == torch.float32


def test_what_torch_would_change_on_the_way_to_a_kernel_is_left_to_torch() -> None:
    flash, half = KERNELS["cuda", FLASH], torch.bfloat16
    assert flash.takes(call_of("meta", half))
    assert not flash.takes(call_of("meta", half, kv_heads=2)), "torch repeats the key heads"
    assert not flash.takes(call_of("meta", half, depth=60)), "torch fills up the depth"
    assert not flash.takes(call_of("meta", half, mask=torch.ones(50, 50, dtype=torch.bool, device="meta")))
    assert not flash.takes(call_of("meta", torch.float32))


def test_only_tested_kernels_are_called_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {kind for kind, _ in TESTED} == {"cpu"}
    call = call_of("cpu", torch.float32)
    assert run(call).logsumexp is not None
    assert chosen_kernel(call, frozenset()) is None
    assert run(call_of("cpu", torch.bfloat16)).logsumexp is None, "its logsumexp is off by 0.4 %"
    monkeypatch.setitem(kernels.KERNELS, ("cpu", FLASH), KERNELS["cuda", FLASH])
    assert run(call).logsumexp is None, "that kernel does not take float32"

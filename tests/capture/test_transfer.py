"""What leaves a device arrives as it left, while the device goes on: never read too early, never overwritten too soon."""

from typing import Any

import numpy as np
import pytest
import torch

import elsewhere
import floatlens as fl
from floatlens.capture import transfer
from floatlens.capture.checks import Check, send
from floatlens.capture.transfer import Arriving, Landing
from floatlens.trace import recording
from writers import MASK, PROMPTS
from zoo import build

pytestmark = pytest.mark.skipif(elsewhere.missing() is not None, reason=str(elsewhere.missing()))


def away(*values: float) -> torch.Tensor:
    return torch.tensor(values, device=elsewhere.device())


def test_the_device_copies_late_and_what_is_read_has_arrived() -> None:
    landing = Landing()
    arriving = Arriving([away(1, 2, 3), torch.tensor([7.0]), away(1, 0) > 0], landing)
    assert (arriving._parcels[0]._arrived == 255).all(), "the copy was made before anybody waited for it, so that this shows nothing"
    numbers, of_host, truths = arriving.arrays()
    assert (numbers.tolist(), of_host.tolist(), truths.tolist()) == ([1, 2, 3], [7], [True, False])
    assert truths.dtype == np.bool_


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_transfers_that_are_under_way_together_do_not_share_memory(order: tuple[int, ...]) -> None:
    landing, expected = Landing(), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    Arriving([away(0.0, 0.0)], landing).arrays()  # leaves memory behind, which only one of them may have
    under_way = [Arriving([away(*values)], landing) for values in expected]
    arrived = {number: under_way[number].arrays()[0].tolist() for number in order}
    assert [arrived[number] for number in range(3)] == expected


def test_what_has_arrived_is_not_overwritten_by_the_next_transfer() -> None:
    landing = Landing()
    first = Arriving([away(1, 2)], landing).arrays()[0]
    memory = landing._free[0].data_ptr()
    second = Arriving([away(3, 4)], landing)
    assert second._parcels[0]._arrived.data_ptr() == memory, "memory of the host is made once"
    assert (first.tolist(), second.arrays()[0].tolist(), first.tolist()) == ([1, 2], [3, 4], [1, 2])


def test_a_result_that_is_overwritten_on_the_device_arrives_as_it_was_sent() -> None:
    result = away(1, 2, 3)
    arriving = Arriving([result], Landing())
    result.fill_(9)
    assert arriving.arrays()[0].tolist() == [1, 2, 3]


def test_longer_texts_get_more_memory() -> None:
    landing = Landing()
    for length in (2, 5, 3, 8):
        assert Arriving([away(*range(length))], landing).arrays()[0].tolist() == [*range(length)]
    assert [buffer.numel() for buffer in landing._free] == [8 * away(*range(8)).itemsize]


def test_a_check_that_failed_is_raised_when_its_results_arrive() -> None:
    landing, said = Landing(), []

    def explain() -> None:
        said.append("wrong")
        raise fl.Refusal("It is wrong.")

    sent = send([away(1)], [Check(away(1).sum() > 0, explain)], landing)
    assert said == []
    with pytest.raises(fl.Refusal, match="It is wrong"):
        sent.arrays()


@pytest.mark.parametrize("device", ["cpu", elsewhere.NAME])
def test_a_step_arrives_while_the_next_pass_runs(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where nothing is won by that, before it; the last one when the loop has ended. All of them, and in order."""
    at = elsewhere.device() if device == elsewhere.NAME else torch.device("cpu")
    lm: Any = fl.LanguageModel(build("llama, bidirectional", seed=3).to(at), mask_token_id=MASK)
    happened: list[str] = []
    run_pass, arrays, make = type(lm).run_pass, Arriving.arrays, Arriving.__init__

    def running(self: Any, asked: Any) -> Any:
        happened.append("pass")
        return run_pass(self, asked)

    def sending(self: Arriving, tensors: Any, landing: Landing | None) -> None:
        if landing is not None:
            happened.append("sent")
            self.of_step = True  # type: ignore[attr-defined]  # only transfers of steps are of interest
        make(self, tensors, landing)

    def arriving(self: Arriving) -> list[np.ndarray]:
        if getattr(self, "of_step", False):
            happened.append("arrived")
        return arrays(self)

    monkeypatch.setattr(type(lm), "run_pass", running)
    monkeypatch.setattr(Arriving, "__init__", sending)
    monkeypatch.setattr(Arriving, "arrays", arriving)
    trace = lm.trace(PROMPTS[:1], gen_length=3, progress=False)
    assert happened == ["pass", "pass", "pass", "sent", "arrived"], "small steps are reduced and sent together"
    happened.clear()
    monkeypatch.setattr(recording, "TOGETHER_BYTES", 0)
    one_by_one = lm.trace(PROMPTS[:1], gen_length=3, progress=False)
    first = ["pass", "sent"]
    later = ["pass", "arrived", "sent"] if device in transfer.MEANWHILE else ["arrived", "pass", "sent"]
    assert happened == [*first, *later, *later, "arrived"]
    assert trace.sample(0).sizes["step"] == one_by_one.sample(0).sizes["step"] == 3

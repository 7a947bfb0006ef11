"""A trace is written while the loop goes on; what goes wrong there is the same sentence, and leaves nothing behind."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import floatlens as fl
from floatlens.trace import store
from floatlens.trace.store import SampleOnDisk, TraceFolder, Writing
from writers import PROMPTS, diffusion_model

LONG = 30  # seconds after which a thread that should have been let go is given up


def writers() -> list[str]:
    """The threads that write traces."""
    return [thread.name for thread in threading.enumerate() if thread.name == "floatlens trace"]


def steps(count: int, first: int = 0) -> dict[str, Any]:
    return {"confidence": (("step", "position"), np.arange(first, first + 4 * count, dtype=np.float32).reshape(count, 4))}


def test_the_loop_goes_on_while_a_shard_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over, waited, create = threading.Event(), [], SampleOnDisk._create

    def slow(self: SampleOnDisk, *given: Any) -> Any:
        waited.append(handed_over.wait(LONG))
        return create(self, *given)

    monkeypatch.setattr(SampleOnDisk, "_create", slow)
    folder = TraceFolder(tmp_path / "run.zarr")
    sample = folder.sample(0)
    sample.append(steps(40))
    handed_over.set()
    sample.finish({}, {})
    folder.finish({"format": "trace"})
    assert waited == [True], "the shard was written before `append` returned"
    assert writers() == []


def test_no_more_waits_than_is_allowed_unless_it_is_one_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WAITING_BYTES", 100)
    writing, waiting = Writing(), []
    for size in (30, 30, 30, 60, 200, 10):
        writing.submit(lambda: waiting.append(sum(held for _, held in writing._jobs)), size)
    writing.finish()
    assert len(waiting) == 6
    assert max(waiting) == 200
    assert all(held <= 100 for held in waiting if held != 200)


def test_jobs_are_done_in_order_and_none_after_one_that_failed() -> None:
    writing, done, may_fail = Writing(), [], threading.Event()

    def fail() -> None:
        may_fail.wait(LONG)
        raise OSError(errno.ENOSPC, "No space left on device")

    writing.submit(lambda: done.append("first"), 1)
    writing.submit(fail, 1)
    writing.submit(lambda: done.append("after it"), 1)
    may_fail.set()
    for how in (writing.finish, lambda: writing.submit(lambda: done.append("later"), 1)):
        with pytest.raises(OSError, match="No space left"):
            how()
    writing.stop()
    assert done == ["first"]
    assert writers() == []


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A disk that is full once so many arrays were written."""
    created, create = [], SampleOnDisk._create

    def fails(self: SampleOnDisk, name: str, *given: Any) -> Any:
        created.append(name)
        if len(created) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(self, name, *given)

    monkeypatch.setattr(SampleOnDisk, "_create", fails)


@pytest.mark.parametrize("after", [0, 7, 40])
def test_a_disk_that_is_full_is_one_sentence_and_leaves_nothing(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first shard, in the middle of one, and in the second sample; the loop may be at any step by then."""
    full_disk(monkeypatch, after)
    place = tmp_path / "run.zarr"
    with pytest.raises(fl.Refusal) as refused:
        diffusion_model("llada").trace(PROMPTS, gen_length=40, path=place, progress=False)
    expected = f"No space left on the disk of {place} while writing {place}. Free some room and run the same command again."
    assert str(refused.value) == expected
    assert list(tmp_path.iterdir()) == []
    assert writers() == []


def at_step(number: int, do: Callable[[], object]) -> Any:
    """An edit that changes nothing and does something once, in the middle of a loop."""
    done: list[object] = []

    def edit(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        if call.step == number and not done:
            done.append(do())
        return call

    return edit


def test_a_folder_that_vanishes_is_one_sentence_and_no_trace_of_half_a_run(tmp_path: Path) -> None:
    hidden = tmp_path / ".run.zarr.unfinished"
    vanish = at_step(35, lambda: (hidden / "new").rename(tmp_path / "gone"))
    with pytest.raises(fl.Refusal, match=r"new has vanished while a trace was being written there.* Run the same command again\."):
        diffusion_model("llada").trace(PROMPTS[:1], gen_length=40, path=tmp_path / "run.zarr", edits=[vanish], progress=False)
    assert [left.name for left in tmp_path.iterdir()] == ["gone"]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_run_that_is_interrupted_stops_its_writer_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        diffusion_model("llada").trace(
            PROMPTS, gen_length=40, batch_size=3, path=tmp_path / "run.zarr", edits=[at_step(34, interrupt)], progress=False
        )
    assert list(tmp_path.iterdir()) == []
    assert writers() == []


@pytest.mark.parametrize("parts", [[70], [31, 1, 1], [1] * 33, [40, 40], [32], [5, 64, 3]])
def test_steps_arrive_whole_whatever_the_portions_in_which_they_are_handed_over(parts: list[int], tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "run.zarr")
    sample, first = folder.sample(0), 0
    for count in parts:
        sample.append(steps(count, first))
        first += 4 * count
    sample.finish({}, {})
    folder.finish({"format": "trace"})
    written = zarr.open_array(tmp_path / "run.zarr" / "samples" / "00000" / "confidence", mode="r")
    np.testing.assert_array_equal(np.asarray(written[...]), np.arange(first, dtype=np.float32).reshape(-1, 4))

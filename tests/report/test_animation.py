"""Moving pictures: one frame per step, what each shows, and what is refused."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from PIL import Image

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.report.figures.animation import COLUMNS, DPI, FRAME, animate, place_tokens, refuse_formats
from floatlens.trace.trace import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return fl.load("twin-mdm").trace(["Ben Reed lives in Rome.\nWhere does Ben Reed live?"], gen_length=4, steps=4, progress=False)


def test_there_is_one_frame_per_step_and_they_differ(trace: Trace, tmp_path: Path) -> None:
    (file,) = animate(trace, tmp_path, progress=False)
    with Image.open(file) as picture:
        assert getattr(picture, "n_frames", 1) == 4
        frames = []
        for number in range(4):
            picture.seek(number)
            frames.append(np.asarray(picture.convert("RGB")).astype(int))
    assert all(np.abs(first - second).sum() > 0 for first, second in pairwise(frames))


def test_a_gif_keeps_the_colours_of_its_legend(trace: Trace, tmp_path: Path) -> None:
    (file,) = animate(trace, tmp_path, progress=False)
    with Image.open(file) as picture:
        frame = np.asarray(picture.convert("RGB")).astype(int)
    assert frame[0, 0].tolist() == [255, 255, 255]
    foot = frame[-round(0.32 * DPI) :].reshape(-1, 3)
    for colour in (FRAME, *(to_hex(colormaps["cividis"](amount)) for amount in (0.0, 0.5, 1.0))):
        wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
        assert np.abs(foot - wanted).sum(axis=1).min() < 24, colour


def test_tokens_never_leave_the_picture_and_are_cut_where_they_are_endless() -> None:
    placed = place_tokens([" Anna", "x" * 500, "\n", "\x1b[31m", "", " $5 and $6", *["word"] * 60])
    assert all(token.column + token.width <= COLUMNS for token in placed)
    assert "\x1b" not in "".join(token.text for token in placed)
    assert placed[3].line == placed[2].line + 1
    spans = sorted((token.line, token.column, token.column + token.width) for token in placed)
    assert all(first[0] < second[0] or first[2] < second[1] for first, second in pairwise(spans))


def test_what_cannot_be_drawn_is_refused(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="no layer 99; it has 0 to 5"):
        animate(trace, tmp_path, layer=99, progress=False)
    with pytest.raises(Refusal, match="no query group 'nobody'"):
        animate(trace, tmp_path, group="nobody", progress=False)
    with pytest.raises(Refusal, match="gif or mp4, not as 'webm'"):
        refuse_formats(("webm",))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="needs ffmpeg"):
        refuse_formats(("mp4",))


def test_the_command_writes_a_gif_and_an_mp4_where_ffmpeg_is(
    trace: Trace, tmp_path: Path, floatlens: Callable[..., tuple[int, str, str]]
) -> None:
    trace.save(tmp_path / "run.zarr")
    code, said, _ = floatlens("figures", str(tmp_path / "run.zarr"), "-o", str(tmp_path / "figures"), "--animate", "--layer", "2")
    assert code == 0
    written = {file.name for file in (tmp_path / "figures").iterdir()}
    assert written == {"denoising.gif", "manifest.json"} | ({"denoising.mp4"} if shutil.which("ffmpeg") else set())
    assert ("ffmpeg was not found" in said) == (shutil.which("ffmpeg") is None)
    code, _, wrong = floatlens("figures", str(tmp_path / "run.zarr"), "-o", str(tmp_path / "other"), "--layer", "2")
    assert code == 2
    assert "add --animate" in wrong

"""The denoising of one sample as a moving picture: the text, the anchors, the step.

Each frame is the canvas at one step. A token's ground is its lift in one layer (cividis, log scale, bounds fixed over all frames); masked
tokens are hatched; those that the step commits are framed; anchors have a diamond below them; a legend at the foot says so. GIF needs
nothing; MP4 needs ffmpeg.

Refused: a trace without attention, a group, layer or sample that does not exist, MP4 without ffmpeg.
"""

import io
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from floatlens.errors import Refusal
from floatlens.measures import commits_by_step, find_anchors, lift
from floatlens.measures.inputs import choose_group, refuse_missing
from floatlens.measures.received_attention import mean_over_heads
from floatlens.terminal import on_one_line, progress_bar
from floatlens.trace.schema import COMMITTED_NOW, MASKED, NOTHING
from floatlens.trace.trace import Trace

COLUMNS = 72  # characters of a line
SHORTEST, LONGEST = 2, 20  # characters of a token
LIFTS = LogNorm(1 / 8, 64)
DPI = 120
FOOT = 0.25  # inches for the legend
FORMATS = ("gif", "mp4")
FRAME = "#d4550f"  # of what is written now
SHAPE = "round,pad=0,rounding_size=0.14"


@dataclass(frozen=True)
class Placed:
    """A token in the picture: its text, its line, where it begins and how many characters wide it is."""

    text: str
    line: int
    column: int
    width: int


def place_tokens(texts: list[str]) -> list[Placed]:
    """Lay tokens out in lines, broken where a line is full and after line breaks.

    Examples
    --------
    >>> [(token.text, token.line, token.column) for token in place_tokens([" Rome", "\\n", "Where"])]
    [('Rome', 0, 0), ('⏎', 0, 5), ('Where', 1, 0)]
    """
    placed, line, column = [], 0, 0
    for text in texts:
        shown = on_one_line(text.replace("\n", "⏎")).strip() or "␣"
        shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
        width = max(SHORTEST, len(shown))
        if column + width > COLUMNS and column:
            line, column = line + 1, 0
        placed.append(Placed(shown, line, column, width))
        line, column = (line + 1, 0) if "\n" in text else (line, column + width + 1)
    return placed


def animate(
    trace: Trace, folder: Path, name: str = "denoising", *, sample: int = 0, layer: int | None = None, group: str | None = None,
    rule: str = "lift", eps: float | None = None, speed: float = 3, formats: tuple[str, ...] = ("gif",), progress: bool = True,
) -> list[Path]:  # fmt: skip
    """Draw every step of a sample and write the frames as a moving picture; the files written.

    Parameters
    ----------
    trace, sample
        What was recorded, and which of its samples.
    folder, name
        Where the files go, and their name without ending.
    layer
        The layer whose attention is shown, by its number; the middle one by default.
    group
        Whose attention: masked rows by default, or the first group of the trace.
    rule, eps
        How anchors are found.
    speed
        Steps per second.
    formats
        "gif", "mp4".
    """
    refuse_formats(formats)
    data = trace.sample(sample)
    refuse_missing(data, ("mass", "visible", "null", "rows"), "An animation")
    groups = trace.attributes["groups"]
    rows = group or ("masked" if "masked" in groups else groups[0])
    numbers = trace.attributes["layer_numbers"]
    shown_layer = numbers[len(numbers) // 2] if layer is None else layer
    if shown_layer not in numbers:
        raise Refusal(f"This trace has no layer {shown_layer}; it has {numbers[0]} to {numbers[-1]}.")
    own = mean_over_heads(choose_group(data.sel(layer=[shown_layer]), rows).load())
    strength, anchors = lift(own).isel(layer=0).values, find_anchors(own, rule=rule, eps=eps)["anchor"].isel(layer=0).values
    tokens = place_tokens(trace.tokens(sample))
    sure = commits_by_step(data)["confidence"].values
    title = f"{trace.attributes['model']}, layer {shown_layer}, attention of {rows} rows"
    frames = []
    with progress_bar(data.sizes["step"], "Drawing", show=progress) as advance:
        for step in range(data.sizes["step"]):
            frames.append(
                _frame(tokens, data["state"].values[step], strength[step], anchors[step], (step, data.sizes["step"], sure[step]), title)
            )
            advance(1)
    written = []
    for ending in formats:
        file = folder / f"{name}.{ending}"
        (_write_gif if ending == "gif" else _write_mp4)(frames, file, speed)
        written.append(file)
    return written


def refuse_formats(formats: tuple[str, ...]) -> None:
    """Refuse formats that cannot be written here."""
    for ending in formats:
        if ending not in FORMATS:
            raise Refusal(f"Animations are written as {' or '.join(FORMATS)}, not as {ending!r}.")
    if "mp4" in formats and shutil.which("ffmpeg") is None:
        raise Refusal("An MP4 needs ffmpeg, which was not found. Install it (Debian: apt-get install ffmpeg), or write a GIF.")


def _frame(
    tokens: list[Placed], state: np.ndarray, strength: np.ndarray, anchor: np.ndarray, at: tuple[int, int, float], title: str
) -> Image.Image:
    step, steps, sure = at
    lines = tokens[-1].line + 1
    wide, tall = 9.6, 0.3 * lines + 1.0 + FOOT
    figure = Figure(figsize=(wide, tall), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.03, (0.42 + FOOT) / tall, 0.94, 0.3 * lines / tall))
    axes.set_xlim(-0.5, COLUMNS + 0.5)
    axes.set_ylim(lines - 0.35, -0.65)
    axes.axis("off")
    colours = mpl.colormaps["cividis"]
    for place, token in enumerate(tokens):
        if state[place] == NOTHING:
            continue
        value = strength[place]
        ground = (0.93, 0.93, 0.93, 1.0) if np.isnan(value) else colours(float(np.clip(LIFTS(max(value, 1e-9)), 0, 1)))
        masked, now = state[place] == MASKED, state[place] == COMMITTED_NOW
        box = FancyBboxPatch(
            (token.column, token.line - 0.36), token.width + 0.35, 0.72, boxstyle=SHAPE, facecolor=ground,
            edgecolor=FRAME if now else "white", linewidth=1.8 if now else 0.4, hatch="//////" if masked else None,
            zorder=2 if now else 1,
        )  # fmt: skip
        middle = token.column + (token.width + 0.35) / 2
        axes.add_patch(box)
        if not masked:
            ink = "black" if np.dot(ground[:3], (0.2126, 0.7152, 0.0722)) > 0.45 else "white"
            text = _plain(token.text)
            axes.text(middle, token.line, text, ha="center", va="center", color=ink, fontsize=8.4, family="monospace", zorder=3)
        if anchor[place]:
            axes.plot(middle, token.line + 0.43, "D", color="black", markersize=2.8, zorder=4)
    known = "" if np.isnan(sure) else f"   confidence {sure:.2f}"
    figure.text(0.03, 1 - 0.3 / tall, f"step {step} of {steps - 1}{known}", fontsize=10.5, weight="bold", va="center")
    figure.text(0.97, 1 - 0.3 / tall, textwrap.shorten(_plain(title), 80), fontsize=8.5, ha="right", va="center", color="#555")
    bar = figure.add_axes((0.03, (0.22 + FOOT) / tall, 0.94, 0.05 / tall))
    bar.barh(0, (step + 1) / steps, color="#0b62a4", height=1)
    bar.set_xlim(0, 1)
    bar.set_ylim(-0.5, 0.5)
    bar.set_facecolor("#e6e6e2")
    bar.set_xticks([])
    bar.set_yticks([])
    for spine in bar.spines.values():
        spine.set_visible(False)
    _legend(figure, tall)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())


def _legend(figure: Figure, tall: float) -> None:
    """What grounds, hatching, frames and diamonds mean, in one line at the foot."""
    axes = figure.add_axes((0.03, 0.1 / tall, 0.94, 0.22 / tall))
    axes.set_xlim(-0.5, COLUMNS + 0.5)
    axes.set_ylim(0, 1)
    axes.axis("off")
    words = ((3, "masked"), (14, "written now"), (29, "anchor"), (38, "attention over a fair share: 1/8"), (64.2, "64"))
    for column, text in words:
        axes.text(column, 0.5, text, fontsize=8, va="center", color="#555")
    masked = FancyBboxPatch((0, 0.2), 2.3, 0.6, boxstyle=SHAPE, facecolor="#4b546c", edgecolor="white", linewidth=0.4, hatch="//////")
    written = FancyBboxPatch((11, 0.2), 2.3, 0.6, boxstyle=SHAPE, facecolor="white", edgecolor=FRAME, linewidth=1.8)
    axes.add_patch(masked)
    axes.add_patch(written)
    axes.plot(27.8, 0.5, "D", color="black", markersize=3.4)
    axes.imshow(np.linspace(0, 1, 64)[None], cmap="cividis", extent=(52.6, 63.6, 0.2, 0.8), aspect="auto")


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would set what lies between dollars as a formula


def _write_gif(frames: list[Image.Image], file: Path, speed: float) -> None:
    duration = [round(1000 / speed)] * (len(frames) - 1) + [round(3000 / speed)]  # the last one stays
    wide, tall = frames[0].size
    some = Image.new("RGB", (wide, 3 * tall))
    for place, frame in enumerate((frames[0], frames[len(frames) // 2], frames[-1])):
        some.paste(frame, (0, place * tall))
    # one palette for all frames, which keeps rare colours (the strongest key, the frame of what is written), and white as it is
    palette = some.quantize(254, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.putpalette([*(palette.getpalette() or [])[: 3 * 254], 255, 255, 255])
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    content = io.BytesIO()
    drawn[0].save(content, format="GIF", save_all=True, append_images=drawn[1:], duration=duration, loop=0, optimize=True)
    file.write_bytes(content.getvalue())


def _write_mp4(frames: list[Image.Image], file: Path, speed: float) -> None:
    wide, tall = (size - size % 2 for size in frames[0].size)  # the codec takes even sizes only
    command = [
        "ffmpeg", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{tall}", "-r", str(speed), "-i", "-",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(file),
    ]  # fmt: skip
    raw = b"".join(frame.crop((0, 0, wide, tall)).tobytes() for frame in frames)
    done = subprocess.run(command, input=raw, capture_output=True, check=False)
    if done.returncode:
        raise Refusal(f"ffmpeg could not write {file.name}: {done.stderr.decode(errors='replace').strip()[-300:]}")

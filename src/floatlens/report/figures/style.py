"""How figures of floatlens look, and how they are written to files.

Decides: figures are as wide as a column (3.3 in) or a page (6.9 in) and are not scaled afterwards, so that 7 pt stay 7 pt. Categories
have Okabe and Ito's colours and a marker, a hatch or a line style each; amounts have cividis, ratios around 1 blue to vermillion:
nothing is told by colour alone. The same figure gives the same bytes: whatever the user has set in matplotlib is put aside while
drawing and saving, and files carry no dates.

Texts of tokens and models are drawn as they are: a dollar sign begins no formula, and a character that the font lacks is a box.

Refuses: formats other than PDF, SVG and PNG.
"""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import matplotlib.style
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath
from matplotlib.ticker import MaxNLocator

from floatlens.errors import Refusal
from floatlens.folders import write_whole

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 6.9  # inches
FONT, SMALL = "DejaVu Sans", 6.0  # the font that comes with matplotlib; points
POINTS = 72  # an inch

BLACK, GREY, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#707070",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
AMOUNTS = "cividis"
RATIOS = LinearSegmentedColormap.from_list("ratios", [BLUE, "#F7F7F7", VERMILLION])
NOT_KNOWN = "#D9D9D9"  # what is not measured, in heat maps

FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"metadata": {"Software": None}, "dpi": 300},
}

_SETTINGS: dict[str, Any] = {
    "font.family": FONT,
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "hatch.linewidth": 0.4,
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "floatlens",
}

Options = ParamSpec("Options")


def in_style(draw: Callable[Options, Figure]) -> Callable[Options, Figure]:
    """Let a figure be drawn with the settings of floatlens, and leave those of the user as they are.

    Examples
    --------
    >>> in_style(lambda: Figure())().get_dpi()
    150.0
    """

    @wraps(draw)
    def drawn(*given: Options.args, **options: Options.kwargs) -> Figure:
        with matplotlib.style.context(["default", _SETTINGS]):
            return draw(*given, **options)

    return drawn


@dataclass(frozen=True)
class Look:
    """How one series is told from the others."""

    colour: str
    marker: str = ""
    line: Literal["-", "--", "-.", ":", ""] = "-"
    width: float = 1.1


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, (row, column)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def draw_series(axes: Axes, places: np.ndarray, estimates: xr.Dataset, look: Look, label: str) -> Line2D:
    """A line through the estimates of `bootstrap`, with a band where there is an interval."""
    (line,) = axes.plot(
        places, estimates["estimate"].values, look.line, color=look.colour, marker=look.marker, linewidth=look.width, label=label
    )
    line.set_markerfacecolor("white" if look.line != "-" else look.colour)
    if np.isfinite(estimates["low"].values).any():
        band = axes.fill_between(places, estimates["low"].values, estimates["high"].values, color=look.colour, alpha=0.18, linewidth=0)
        band.set_label(f"_interval of {label}")
    return line


def draw_points(axes: Axes, places: np.ndarray, estimates: xr.Dataset, look: Look, label: str, across: xr.Dataset | None = None) -> None:
    """Points at the estimates of `bootstrap`, joined by the line of their look, with bars where there is an interval.

    `across` gives bars along the other axis too.
    """
    axes.plot(places, estimates["estimate"].values, linestyle=look.line, color=look.colour, marker=look.marker, linewidth=0.8, label=label)
    axes.errorbar(
        places,
        estimates["estimate"].values,
        yerr=_reach(estimates),
        xerr=None if across is None else _reach(across),
        fmt="none",
        color=look.colour,
        elinewidth=0.8,
        capsize=1.5,
    )


def _reach(estimates: xr.Dataset) -> np.ndarray:
    estimate, low, high = (estimates[name].values for name in ("estimate", "low", "high"))
    return np.nan_to_num(np.stack([estimate - low, high - estimate])).clip(min=0)


def along_layers(axes: Axes, layers: np.ndarray) -> None:
    """The horizontal axis counts layers."""
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
    margin = max(0.4, 0.02 * float(np.ptp(layers)))
    axes.set_xlim(float(layers.min()) - margin, float(layers.max()) + margin)


def add_legend(figure: Figure, handles: Iterable[Any], columns: int) -> None:
    """One legend above all panels; texts are drawn as they are."""
    legend = figure.legend(handles=list(handles), loc="outside upper center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)


def columns_that_fit(labels: Iterable[str], most: int, width: float = PAGE_WIDTH) -> int:
    """How many columns a legend may have, so that the widest of its labels fits each of them.

    Examples
    --------
    >>> columns_that_fit(["arm", "mdm"], 4), columns_that_fit(["a-model-with-a-name-that-takes-half-of-the-page-and-more"], 4)
    (4, 2)
    """
    margin = 6 * float(_SETTINGS["legend.fontsize"])  # the line before a label and the space between columns
    widest = max((text_width(label, float(_SETTINGS["legend.fontsize"])) for label in labels), default=0.0)
    return int(np.clip(width * POINTS // (widest + margin), 1, most))


def add_footer(figure: Figure, sentences: Iterable[str]) -> None:
    """Small print below the panels: what the figure is of, and what is missing. The figure grows by as much as it takes."""
    width, height = figure.get_size_inches()
    lines = wrapped(
        " · ".join(sentence for sentence in sentences if sentence), 0.95 * (width - 0.1) * POINTS, SMALL
    )  # pixels widen letters
    room = (len(lines) * SMALL * 1.25 + 6) / POINTS
    figure.set_size_inches(width, height + room)
    share = room / (height + room)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine), "figures of floatlens are laid out by panels()"
    engine.set(rect=(0, share, 1, 1 - share))
    text = figure.text(
        0.05 / width, 2 / POINTS / (height + room), "\n".join(lines), fontsize=SMALL, color="0.25", va="bottom", linespacing=1.2
    )
    text.set_parse_math(False)
    text.set_gid("footer")


def wrapped(text: str, width: float, size: float) -> list[str]:
    """Lines of words that are no wider than `width` points. A wider word is broken, after a sign such as a hyphen where there is one.

    Examples
    --------
    >>> wrapped("one two three", 30, 7)
    ['one two', 'three']
    >>> wrapped("twin-mdm-causal", 40, 7)
    ['twin-mdm-', 'causal']
    """
    lines = [""]
    for word in drawable(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append("")
            longer = word
        while len(longer) > 1 and text_width(longer, size) > width:
            end = _end_of_line(longer, width, size)
            lines[-1:] = [longer[:end], ""]
            longer = longer[end:]
        lines[-1] = longer
    return lines


def _end_of_line(word: str, width: float, size: float) -> int:
    """Where to break a word that is too wide: after the last sign that fits, unless that is in the first half."""
    most = max([1, *(end for end in range(1, len(word)) if text_width(word[:end], size) <= width)])
    signs = [end for end in range(most // 2 + 1, most + 1) if not word[end - 1].isalnum()]
    return signs[-1] if signs else most


def text_width(text: str, size: float) -> float:
    """The width of a text in points.

    Examples
    --------
    >>> text_width("mm", 7) == 2 * text_width("m", 7)
    True
    """
    return TextToPath().get_text_width_height_descent(text, FontProperties(family=FONT, size=size), ismath=False)[0]


def drawable(text: str) -> str:
    """The text with line breaks and tabs as signs, and a box for every character that the font does not have.

    Examples
    --------
    >>> drawable("a\\n中")
    'a⏎□'
    """
    known = _characters()
    signs = text.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    return "".join(sign if ord(sign) in known else "□" for sign in signs)


@cache
def _characters() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())


def save_figure(figure: Figure, path: Path, formats: Iterable[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write a figure as `path` with the ending of each format; the same figure gives the same bytes.

    Each file is written whole or not at all, and replaces what was there.

    Examples
    --------
    >>> save_figure(Figure(), Path("drift"), ["jpg"])
    Traceback (most recent call last):
    floatlens.errors.Refusal: Figures are not written as 'jpg'; the formats are pdf, svg, png.
    """
    wanted = list(formats)
    refuse_unknown_formats(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{ending}") for ending in wanted]
    with matplotlib.style.context(["default", _SETTINGS]):
        for ending, file in zip(wanted, files, strict=True):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=ending, **FORMATS[ending])
            write_whole(file, drawn.getvalue(), sync=False)
    return files


def refuse_unknown_formats(formats: Iterable[str]) -> None:
    """Refuse formats that figures are not written in.

    Examples
    --------
    >>> refuse_unknown_formats(["pdf", "png"])
    """
    wanted = list(formats)
    for ending in wanted:
        if ending not in FORMATS:
            raise Refusal(f"Figures are not written as {ending!r}; the formats are {', '.join(FORMATS)}.")
    if not wanted:
        raise Refusal(f"No format is named; the formats are {', '.join(FORMATS)}.")

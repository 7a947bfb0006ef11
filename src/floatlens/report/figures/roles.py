"""Roles by depth: whether anchors lie on structure or on words, as enrichment over a fair share, from the first layer to the last.

The line at 1 is the fair share. Structure and words are bold, the roles they consist of thin. A role that draws nothing has
enrichment 0, which a log scale does not have: bold lines have an open triangle on the bottom edge there, thin ones a gap. The title
gives the slope of structural enrichment over relative depth with its interval: "shallow structure, deep content" is a slope below 0.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from floatlens.measures.inputs import Measurable, one_sample_at_a_time, relative_depth
from floatlens.measures.roles import role_shares, structural_slope
from floatlens.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    SKY,
    VERMILLION,
    Look,
    add_footer,
    add_legend,
    draw_series,
    in_style,
    panels,
)
from floatlens.report.figures.subject import find_own_anchors, joined, notes_on_missing, reasons_in, refuse_empty, subject_of

LOOKS = {
    "structural": Look(BLUE, "o", "-", 2.2),
    "lexical": Look(VERMILLION, "s", "-", 2.2),
    "mask": Look(BLACK, "X", "-", 1.4),
    "special": Look(BLUE, "^", ":", 0.9),
    "layout": Look(SKY, "v", ":", 0.9),
    "punctuation": Look(PURPLE, "<", ":", 0.9),
    "template": Look(GREY, ">", ":", 0.9),
    "function": Look(ORANGE, "D", "--", 0.9),
    "content": Look(VERMILLION, "P", "--", 0.9),
    "number": Look(GREEN, "*", "--", 0.9),
}
BOLD = ("structural", "lexical")


@in_style
def roles_by_depth(trace: Measurable, *, group: str | None = None, rule: str = "lift", eps: float | None = None) -> Figure:
    """Enrichment of each role among the anchors, over relative depth.

    Parameters
    ----------
    trace
        A trace with token texts.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting".
    rule, eps
        How anchors are found.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> roles_by_depth(from_attention(np.full((4, 4), 0.25)))
    Traceback (most recent call last):
    floatlens.errors.Refusal: Token roles needs state, which this trace does not hold.
    """
    subject = subject_of(trace, group)
    roles = _enrichment(subject.data, rule=rule, eps=eps, pooled=subject.one_row_per_step)
    enrichment = {name: roles["enrichment"].sel(role=name, drop=True) for name in LOOKS}
    refuse_empty("roles by depth", enrichment, {"all": roles["reason"]})
    drawn = {name: values for name, values in enrichment.items() if (values > 0).any()}
    means = {name: subject.over_prompts(values) for name, values in drawn.items()}
    figure, ((axes,),) = panels(PAGE_WIDTH, 2.9)
    bottom = _bottom(means)
    depth = relative_depth(roles["layer"])
    for name, mean in means.items():
        _draw_role(axes, depth, mean, LOOKS[name], name, bottom)
    axes.axhline(1, color=BLACK, linewidth=0.7)
    axes.set_yscale("log")
    axes.set_ylim(bottom=bottom)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("relative depth (0 first layer, 1 last)")
    axes.set_ylabel("enrichment among anchors\n(1 = fair share, log)")
    slope = subject.over_prompts(roles["slope"])
    axes.set_title(_slope_in_words(slope, roles["slope_reason"]), loc="left")
    add_legend(figure, [line for line in axes.lines if line.get_label() in drawn], 5)
    notes = notes_on_missing({name: enrichment[name] for name in BOLD}, dict.fromkeys(BOLD, roles["reason"]))
    for names, why in (
        ([name for name in LOOKS if not enrichment[name].notnull().any()], "not on the canvas"),
        ([name for name in LOOKS if name not in drawn and enrichment[name].notnull().any()], "never an anchor"),
    ):
        if names:
            notes.append(f"{why}: {', '.join(names)}")
    if any(bool((mean["estimate"] == 0).any()) for mean in means.values()):
        notes.append("open triangles and gaps: 0, no anchor has the role")
    add_footer(figure, [*subject.small_print(subject.said_of_anchors(rule, eps), "all steps and heads together"), *notes])
    return figure


@one_sample_at_a_time
def _enrichment(data: xr.Dataset, *, rule: str, eps: float | None, pooled: bool) -> xr.Dataset:
    shares = role_shares(data, find_own_anchors(data, rule, eps, pooled=pooled))
    slope = structural_slope(shares)
    return shares[["enrichment"]].assign(reason=reasons_in(shares), slope=slope["slope"], slope_reason=slope["reason"])


def _bottom(means: dict[str, xr.Dataset]) -> float:
    """A little below the smallest enrichment that a log scale can show."""
    smallest = min((float(mean["estimate"].where(mean["estimate"] > 0).min()) for mean in means.values()), default=1.0)
    return 0.6 * min(smallest, 0.8)


def _draw_role(axes: Axes, depth: np.ndarray, mean: xr.Dataset, look: Look, name: str, bottom: float) -> None:
    positive = mean.assign(estimate=mean["estimate"].where(mean["estimate"] > 0), low=mean["low"].clip(min=bottom))
    if name not in BOLD:  # bands of ten lines hide one another
        positive = positive.assign(low=positive["low"] * np.nan)
    draw_series(axes, depth, positive, look, name)
    none = np.flatnonzero((mean["estimate"] == 0).values)
    if none.size and name in BOLD:
        marks = axes.plot(depth[none], np.full(none.size, bottom), "v", color=look.colour, markerfacecolor="white", clip_on=False, zorder=3)
        marks[0].set_label(f"_nothing on {name}")


def _slope_in_words(slope: xr.Dataset, reasons: xr.DataArray) -> str:
    if not np.isfinite(slope["estimate"].item()):
        return f"slope of structural enrichment over depth: none ({joined(reasons.values)})"
    low, high, why = slope["low"].item(), slope["high"].item(), slope["reason"].item()
    interval = f"({why})" if why else f"[{low:+.2f}, {high:+.2f}]"
    return f"slope of structural enrichment over depth: {slope['estimate'].item():+.2f} {interval}"

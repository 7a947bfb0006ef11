"""Where contexts stand along an axis: which belong to one line, and what is written below each.

Contexts are of one series if they differ in nothing but their level: `position:1/10` and `position:10/10` are, slots of 20 are another series, and so are noise among 5 passages and among 10. The brackets are a series.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from floatlens.report.figures.style import POINTS, text_width, wrapped
from floatlens.tasks.outcomes import BRACKETS

KINDS = {
    "brackets": "brackets",
    "retrieved": "passages retrieved",
    "noise": "share of distractors",
    "position": "slot of the evidence",
    "layout": "evidence in",
    "conflict": "beside a conflicting passage",
    "masks": "masks to write",
}
"""What is varied, in words, by the kind of context, in the order of panels."""
TICKS, LABELS = 6.5, 7.0  # points


@dataclass(frozen=True, order=True)
class Series:
    """Contexts that differ in their level alone: their kind, and what they share, such as "of 10"."""

    kind: str
    shared: str = ""

    @property
    def says(self) -> str:
        """What is varied, in words."""
        return f"{KINDS[self.kind]}\n({self.shared})" if self.shared else KINDS[self.kind]


def place_of(context: str) -> tuple[Series, str]:
    """The series that a context is of, and its level, as it is written below a point.

    Examples
    --------
    >>> place_of("position:3/10")
    (Series(kind='position', shared='of 10'), '3')
    >>> place_of("noise:0.4,passages=10"), place_of("gold,masks=16")
    ((Series(kind='noise', shared='passages=10'), '0.4'), (Series(kind='masks', shared='gold'), '16'))
    >>> place_of("gold")
    (Series(kind='brackets', shared=''), 'gold')
    """
    head, masks, count = context.rpartition(",masks=")
    if masks:
        return Series("masks", head), count
    head, _, options = context.partition(",")
    kind, _, value = head.partition(":")
    level, _, of = value.partition("/")
    shared = ", ".join(filter(None, (f"of {of}" if of else "", *options.split(","))))
    return Series("brackets" if kind in BRACKETS else kind, shared), level or kind


def label_places(axes: Axes, labels: Sequence[str], says: str) -> None:
    """Write labels below the places 0, 1, ... of a panel, and below them what they are. Where they would touch, names go over several lines, and of numbers only some are written."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    width = 1.1 * axes.get_position().width * figure.get_size_inches()[0] * POINTS  # before the layout, which gives panels a little more
    if all(label.replace(".", "").isdecimal() for label in labels):
        room = max(text_width(label, TICKS) for label in labels) + 4
        every = int(np.ceil(room * len(labels) / width))
        texts = ["" if at % every else label for at, label in enumerate(labels)]
    else:
        texts = ["\n".join(wrapped(label, 1.25 * width / len(labels) - 3, TICKS)) for label in labels]
    axes.set_xticks(range(len(labels)), texts, parse_math=False)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("\n".join(line for part in says.split("\n") for line in wrapped(part, width, LABELS)), parse_math=False)

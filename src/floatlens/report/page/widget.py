"""The page in a notebook, through anywidget: Jupyter, VS Code, Colab, marimo. Everything comes with the widget; nothing is fetched.

Refused: a notebook without anywidget, and a trace that would be too much for one.
"""

from collections.abc import Sequence
from typing import Any

from floatlens.errors import Refusal
from floatlens.report.page.gather import Choices, Sources, last_part, with_different_names, write_page
from floatlens.report.page.group import InMemory
from floatlens.report.page.html import asset
from floatlens.trace.trace import Trace

LARGEST_WIDGET = 25_000_000  # bytes that go to the browser


def view(*traces: Trace, samples: Sequence[int] = (), rule: str = "lift", eps: float | None = None) -> Any:
    """Show traces in a notebook: the page as a widget. Two traces of the same prompt stand side by side.

    Needs anywidget (`pip install 'floatlens[widget]'`). Values per head are rounded as far as the widget's size requires.

    Parameters
    ----------
    traces
        One or more. They are called by their models; where two have the same, by a number as well.
    samples
        Which samples of every trace; all by default.
    rule, eps
        How anchors are found: see `floatlens.measures.find_anchors`.
    """
    if not traces:
        raise Refusal("There is no trace to show. Pass one or more, e.g. fl.view(trace).")
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise Refusal(
            "A notebook needs anywidget to show traces: pip install 'floatlens[widget]'. `trace.save` and `floatlens view` need nothing."
        ) from None

    named = with_different_names([(last_part(str(trace.attributes["model"])), trace) for trace in traces])
    sink = InMemory()
    room = lambda: max(0.0, LARGEST_WIDGET - 1.05 * sink.bytes)  # noqa: E731 # it is asked again for every sample
    write_page(sink, Sources(named), Choices(rule, eps, tuple(samples)), room=room)
    if sink.bytes > LARGEST_WIDGET:
        raise Refusal(
            f"This is {sink.bytes / 1e6:.0f} MB on the page, and a notebook takes {LARGEST_WIDGET / 1e6:.0f}. Choose samples, e.g. "
            "fl.view(trace, samples=[0]), or save it and use `floatlens view`."
        )

    class PageWidget(anywidget.AnyWidget):
        """The page."""

        _esm = asset("widget.js")
        _css = asset("widget.css")
        files = traitlets.Dict().tag(sync=True)

    return PageWidget(files=sink.files)

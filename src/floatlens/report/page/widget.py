"""The page in a notebook, through anywidget: Jupyter, VS Code, Colab, marimo. Everything comes with the widget; nothing is fetched.

Refused: a notebook without anywidget, and a trace that would be too much for one.
"""

from collections.abc import Sequence
from typing import Any

from floatlens.errors import Refusal
from floatlens.report.page.gather import Choices, Sources, write_page
from floatlens.report.page.group import InMemory
from floatlens.report.page.html import asset
from floatlens.trace.trace import Trace

LARGEST_WIDGET = 25_000_000  # bytes that go to the browser


def widget_of(traces: dict[str, Trace], *, samples: Sequence[int] = (), rule: str = "lift", eps: float | None = None) -> Any:
    """A widget that shows traces. Values per head are rounded as far as its size requires."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise Refusal(
            "trace.view() needs anywidget: pip install 'floatlens[widget]'. `trace.save` and `floatlens view` need nothing."
        ) from None

    sink = InMemory()
    room = lambda: max(0.0, LARGEST_WIDGET - 1.05 * sink.bytes)  # noqa: E731 # it is asked again for every sample
    write_page(sink, Sources(traces, {}, {}, []), Choices(rule, eps, tuple(samples)), room=room)
    if sink.bytes > LARGEST_WIDGET:
        raise Refusal(
            f"This trace is {sink.bytes / 1e6:.0f} MB on the page, and a notebook takes {LARGEST_WIDGET / 1e6:.0f}. Choose samples, e.g. "
            "trace.view(samples=[0]), or save it and use `floatlens view`."
        )

    class PageWidget(anywidget.AnyWidget):
        """The page."""

        _esm = asset("widget.js")
        _css = asset("widget.css")
        files = traitlets.Dict().tag(sync=True)

    return PageWidget(files=sink.files)

"""Traces in a notebook: `trace.view()` is `fl.view(trace)`, and several traces have names of their own."""

import json

import pytest

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.trace.trace import Trace

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'floatlens[widget]'")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return fl.load("twin-mdm").trace(["Where does Ben Reed live?"], gen_length=2, steps=2, progress=False)


def names(widget: object) -> list[str]:
    files: dict[str, bytes] = widget.files  # type: ignore[attr-defined]  # a widget of anywidget, which has no types
    return [run["name"] for run in json.loads(files["zarr.json"])["attributes"]["floatlens"]["runs"]]


def test_a_trace_shows_itself_as_the_package_shows_it(trace: Trace) -> None:
    assert trace.view(rule="top", eps=1).files == fl.view(trace, rule="top", eps=1).files
    assert trace.view(rule="top", eps=1).files != fl.view(trace).files


def test_several_traces_are_called_by_their_models_and_numbered_where_those_are_the_same(trace: Trace) -> None:
    elsewhere = Trace(trace._samples, {**trace.attributes, "model": "/home/me/models/other"})
    assert names(fl.view(trace, elsewhere, trace)) == ["twin-mdm-1", "other", "twin-mdm-2"]


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(Refusal, match="There is no trace to show"):
        fl.view()

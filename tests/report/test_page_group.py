"""A page group: what zarr reads back is what measures say; rounding stays within its quantum; the same input gives the same bytes."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from zarr.core.buffer import Buffer, cpu
from zarr.storage import MemoryStore

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.measures import absorption_of_first_token, find_anchors, lift, token_roles
from floatlens.measures.received_attention import mean_over_heads
from floatlens.report.page.gather import Choices, Sources, find_sources, write_page
from floatlens.report.page.group import InFolder, InMemory, chunk_shape
from floatlens.report.page.html import document, refuse_file, write_file
from floatlens.report.page.quantise import as_levels, from_levels
from floatlens.report.page.schema import ARRAYS, Quantised
from floatlens.report.page.typescript import in_typescript
from floatlens.study.outcomes import SCHEMA
from floatlens.trace.trace import Trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return fl.load("twin-mdm").trace(["Ben Reed lives in Rome.\nWhere does Ben Reed live?"], gen_length=4, steps=4, progress=False)


@pytest.fixture(scope="module")
def folder(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("group")
    write_page(InFolder(place), Sources({"mdm": trace}), Choices(), progress=False)
    return place


def test_zarr_reads_back_what_measures_say(trace: Trace, folder: Path) -> None:
    data, group = trace.sample(0), zarr.open_group(folder / "runs/0/0", mode="r")
    averaged = mean_over_heads(data)
    expected = {
        "mass": averaged["mass"],
        "canvas": data["canvas"],
        "role": token_roles(data),
        "lift_by_head": lift(data),
        "entropy": data["entropy"].mean("head"),
    }
    for name, values in expected.items():
        stored = group[name]
        assert isinstance(stored, zarr.Array)
        np.testing.assert_allclose(np.asarray(stored[...]), values.transpose(*ARRAYS[name][0]).values, rtol=1e-6)
    first = np.asarray(group["absorbed"])[..., 0]
    np.testing.assert_allclose(first, absorption_of_first_token(averaged)["share"], rtol=1e-5)
    standing, anchors = np.asarray(group["standing"]), find_anchors(averaged)
    np.testing.assert_array_equal(standing == 1, anchors["anchor"])
    np.testing.assert_array_equal(standing[:, :1] == 2, ~anchors["measured"].values[:, None])


def test_every_array_has_the_axes_and_type_that_the_format_promises(folder: Path) -> None:
    group = zarr.open_group(folder / "runs/0/0", mode="r")
    found = dict(group.arrays())
    assert len(found) > 30
    for name, array in found.items():
        assert getattr(array.metadata, "dimension_names", None) == ARRAYS[name][0]
        assert array.dtype.name == ARRAYS[name][1]


def test_the_same_run_gives_the_same_bytes(trace: Trace) -> None:
    first, second = InMemory(), InMemory()
    for sink in (first, second):
        write_page(sink, Sources({"mdm": trace}), Choices(), room=lambda: 1e6, progress=False)
    assert first.files == second.files


def test_in_one_file_values_per_head_are_rounded_to_what_fits_and_left_out_where_nothing_does(trace: Trace) -> None:
    exact = lift(trace.sample(0)).transpose(*ARRAYS["lift_by_head"][0]).values
    ways = []
    for room in (1e6, 2_500, 10):
        sink = InMemory()
        page = write_page(sink, Sources({"mdm": trace}), Choices(), room=lambda room=room: room, progress=False)
        said = sink.files.get("runs/0/0/lift_by_head/zarr.json")
        if said is None:
            assert "did not fit" in page.runs[0].samples[0].skipped["values per head"]
            continue
        how = Quantised(**json.loads(said)["attributes"]["quantised"])
        assert len(sink.files["runs/0/0/lift_by_head/c/0/0/0/0/0"]) <= room
        above = exact >= 2 ** (how.floor + how.step)
        assert np.abs(np.log2(from_levels(as_levels(exact, how), how)[above] / exact[above])).max() <= how.step / 2 + 1e-6
        ways.append((how.step, how.floor))
    assert len(ways) == 2
    assert ways[0] < ways[1]


def test_full_patterns_are_exact_or_rounded_as_there_is_room_and_their_absence_is_explained() -> None:
    prompt = "Ben Reed lives in Rome.\nWhere does Ben Reed live?"
    trace = fl.load("twin-arm").trace([prompt], gen_length=4, patterns=[(2, 1), (0, 3)], progress=False)
    exact = trace.sample(0)["pattern"].values
    for room, kept in ((1e6, "exact"), (2_500, "rounded"), (100, "none")):
        sink = InMemory()
        page = write_page(sink, Sources({"arm": trace}), Choices(), room=lambda room=room: room, progress=False)
        document = page.runs[0].samples[0]
        assert ("pattern" in document.arrays) == (kept != "none")
        if kept == "none":
            assert "--folder" in document.skipped["patterns"]
            continue
        bytes_of = sum(len(content) for key, content in sink.files.items() if key.startswith("runs/0/0/pattern/"))
        assert bytes_of <= room / 2
        stored = zarr.open_group(MemoryStore(_in_zarr(sink)), mode="r")["runs/0/0/pattern"]
        assert isinstance(stored, zarr.Array)
        how: Any = stored.attrs.asdict().get("quantised")
        assert (how is None) == (kept == "exact")
        if how is None:
            np.testing.assert_array_equal(np.asarray(stored[...]), exact)
        else:
            shown = from_levels(np.asarray(stored[...]), Quantised(**how))
            np.testing.assert_array_equal(np.isnan(shown), np.isnan(exact))
            seen = exact > 2**-15
            assert np.abs(np.log2(shown[seen] / exact[seen])).max() <= 1 / 16 + 1e-6


def _in_zarr(sink: InMemory) -> dict[str, Buffer]:
    return {key: cpu.Buffer.from_bytes(content) for key, content in sink.files.items()}


@given(arrays(np.float64, 30, elements=st.floats(0, 1e4)), st.sampled_from([0.125, 0.25, 0.5, 1.0]))
def test_a_rounded_lift_is_within_half_a_step(values: np.ndarray, step: float) -> None:
    how = Quantised("log2", step, -4.0)
    back = from_levels(as_levels(values, how), how)
    above = values >= 2 ** (how.floor + step)
    np.testing.assert_array_less(np.abs(np.log2(back[above]) - np.log2(values[above])), step / 2 + 1e-9)
    assert (back[values < 2 ** (how.floor - step)] == 0).all()


@pytest.mark.parametrize(("shape", "itemsize"), [((32, 32, 3, 512), 4), ((5,), 4), ((7, 0), 1), ((100, 3), 4)])
def test_chunks_are_whole_steps(shape: tuple[int, ...], itemsize: int) -> None:
    chunk = chunk_shape(shape, itemsize)
    assert chunk[1:] == tuple(max(1, size) for size in shape[1:])
    assert 1 <= chunk[0] <= max(1, shape[0])


def test_typescript_types_are_those_of_the_schema() -> None:
    assert (ROOT / "web" / "src" / "data" / "schema.ts").read_text(encoding="utf-8") == in_typescript()


def test_nothing_of_a_run_is_part_of_the_html() -> None:
    page = document({"zarr.json": b'{"x": "</script><script>alert(1)</script>"}'})
    assert "alert(1)" not in page
    assert page.count("<script>") == 1
    assert "unsafe" not in page.partition("</head>")[0].partition("<style>")[0]


def test_a_page_that_would_be_too_large_is_refused_and_nothing_is_written(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="--samples, write a folder with --folder"):
        write_file(tmp_path / "report.html", Sources({"mdm": trace}), Choices(), largest=200_000, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_user_is_not_overwritten(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("my own page")
    with pytest.raises(Refusal, match="is not a page of floatlens"):
        write_file(tmp_path / "mine.html", Sources({"mdm": trace}), Choices(), progress=False)
    assert (tmp_path / "mine.html").read_text() == "my own page"


@pytest.mark.parametrize("leads_to", ["an earlier page", "nothing"])
def test_a_link_is_not_replaced_by_a_page(leads_to: str, tmp_path: Path) -> None:
    link = tmp_path / "report.html"
    link.symlink_to(tmp_path / "elsewhere.html")
    if leads_to == "an earlier page":
        (tmp_path / "elsewhere.html").write_text(document({}))
    with pytest.raises(Refusal, match="is a link, and what it leads to is not replaced"):
        write_file(link, Sources(), Choices(), progress=False)
    assert link.is_symlink()


def test_a_folder_that_cannot_be_written_to_is_said_before_the_page_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_asked: False)
    with pytest.raises(Refusal, match="nothing may be written into"):
        refuse_file(tmp_path / "report.html")


def answers(**changes: Any) -> pl.DataFrame:
    row = dict.fromkeys(SCHEMA, "x") | {name: 1 for name, kind in SCHEMA.items() if kind != pl.String} | {"draw": None, "control": ""}
    rows = [{**row, "sample": f"{number}", "context": context} for number in range(4) for context in ("closed-book", "gold")]
    return pl.DataFrame(rows, schema_overrides=SCHEMA).with_columns(**changes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk", "cannot be read"),
        (pl.DataFrame({"a": [1]}), "has no column 'model'"),
        (answers(accuracy=pl.lit("x")), "something else than it should in the column 'accuracy'"),
        (answers(sample=pl.lit(7)), "something else than it should in the column 'sample'"),
        (answers().head(0), "holds no rows"),
    ],
    ids=["junk", "other table", "text as accuracy", "number as sample", "empty"],
)
def test_a_table_of_answers_that_no_evaluation_has_written_is_refused(content: Any, said: str, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / "results.parquet").write_bytes(content)
    else:
        content.write_parquet(tmp_path / "results.parquet")
    with pytest.raises(Refusal, match=said):
        find_sources([tmp_path])


def test_evaluations_and_demos_of_one_name_are_all_on_the_page(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "out").mkdir(parents=True)
        answers().write_parquet(tmp_path / parent / "out" / "results.parquet")
    sources = find_sources([tmp_path / parent / "out" for parent in ("a", "b")])
    page = write_page(InMemory(), sources, Choices(), progress=False)
    assert [evaluation.name for evaluation in page.evaluations] == ["out-1", "out-2"]


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff", b"[]", b'{"about": {}, "claims": [{"name": 1}]}'], ids=lambda content: repr(content[:9])
)
def test_claims_that_no_demo_has_written_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_bytes(content)
    with pytest.raises(Refusal, match="cannot be read as the claims of a demo"):
        write_page(InMemory(), find_sources([tmp_path]), Choices(), progress=False)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="There is nothing to show at"):
        find_sources([tmp_path / "nowhere"])
    with pytest.raises(Refusal, match="is not a trace"):
        find_sources([tmp_path])
    with pytest.raises(Refusal, match="The name of a run is empty"):
        find_sources([""])


def test_a_sample_that_is_named_twice_is_shown_once(trace: Trace) -> None:
    page = write_page(InMemory(), Sources({"mdm": trace}), Choices(samples=(0, 0)), progress=False)
    assert [sample.path for sample in page.runs[0].samples] == ["runs/0/0"]


def test_a_sample_that_is_not_there_is_refused(trace: Trace) -> None:
    with pytest.raises(Refusal, match="there is no sample 3"):
        write_page(InMemory(), Sources({"mdm": trace}), Choices(samples=(3,)), progress=False)

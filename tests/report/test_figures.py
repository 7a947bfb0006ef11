"""What every figure promises: it says what it is of, refuses what it cannot show, and is the same file at every run."""

import importlib.util
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr
from made_up_trace import LENGTH, OF_TRACES, Draw, footer, heights, images
from matplotlib.figure import Figure

import floatlens as fl
from floatlens.report import figures


@pytest.mark.parametrize("draw", OF_TRACES, ids=lambda draw: draw.__name__)
def test_every_figure_says_what_it_is_of_and_nothing_is_cut_off(drawn: dict[Draw, Figure], draw: Draw) -> None:
    figure = drawn[draw]
    said = footer(figure)
    assert said.startswith("twin-mdm, edited: hides key 3 ·"), "the name without the folder"
    assert "rows" in said
    assert "prompt" in said
    if draw not in (figures.region_flow, figures.retrieval_heads, figures.threshold_sweep, figures.path_by_layer):
        assert "anchors by the rule lift, eps = 3" in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as a character that the font does not have, or panels without room
        figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.02, "inches beyond the edge"


@pytest.mark.parametrize("draw", OF_TRACES, ids=lambda draw: draw.__name__)
def test_every_figure_can_be_drawn_of_a_recorded_trace_or_says_why_not(recorded: fl.Trace, draw: Draw) -> None:
    missing = {figures.roles_by_depth: "no texts", figures.retrieval_heads: "no region 'gold'"}
    if draw in missing:
        with pytest.raises(fl.Refusal, match=missing[draw]):
            draw(recorded)
        return
    options = {} if draw in (figures.region_flow, figures.threshold_sweep, figures.path_by_layer) else {"eps": 0.3}
    assert "model ·" in footer(draw(recorded, **options))


def test_anchors_of_one_row_per_step_are_those_of_all_steps(one_after_the_other: fl.Trace) -> None:
    from floatlens.measures import find_anchors, pool_steps

    figure = figures.qk_geometry(one_after_the_other, eps=1)
    assert "anchors by the rule lift, eps = 1, of all steps pooled" in footer(figure)
    own = one_after_the_other.dataset.sel(group="predicting")
    means = []
    for sample in range(2):
        data = own.isel(sample=sample)
        anchor = find_anchors(pool_steps(data), eps=1)["anchor"]
        means.append(data["score"].where(anchor).mean("key").mean(("step", "head")))
    np.testing.assert_allclose(heights(figure.axes[0], "anchors"), np.nanmean(means, axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("draw", "lacks", "sentence"),
    [
        (figures.temporal_drift, "null", "Temporal drift needs null"),
        (figures.absorption_by_layer, "mass", "needs mass"),
        (figures.qk_geometry, "cosine", "Geometry needs cosine"),
        (figures.roles_by_depth, "special", "Token roles need special"),
        (figures.region_flow, "in_region", "Direct flow needs in_region"),
        (figures.threshold_sweep, "visible", "A threshold sweep needs visible"),
        (figures.float_index_by_layer, "mass", "needs mass"),
        (figures.path_by_layer, "visible", "The path of the strongest key needs visible"),
        (figures.retrieval_heads, "top_key", "Retrieval needs top_key"),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_trace_without_what_a_figure_needs_is_refused(made_up: xr.Dataset, draw: Draw, lacks: str, sentence: str) -> None:
    with pytest.raises(fl.Refusal, match=sentence):
        draw(made_up.drop_vars(lacks))


@pytest.mark.parametrize("draw", [figures.temporal_drift, figures.absorption_by_layer, figures.region_flow], ids=lambda draw: draw.__name__)
def test_one_step_is_enough_for_what_is_not_about_steps(made_up: xr.Dataset, draw: Draw) -> None:
    figure = draw(made_up.isel(step=[0]))
    assert "incomplete" not in footer(figure)


def test_the_float_index_of_one_step_is_refused_with_the_reason(made_up: xr.Dataset) -> None:
    with pytest.raises(fl.Refusal, match="nothing to draw in the float index: one step"):
        figures.float_index_by_layer(made_up.isel(step=[0]))


def test_the_path_of_one_step_and_of_even_attention_is_refused_with_the_reason(made_up: xr.Dataset) -> None:
    with pytest.raises(fl.Refusal, match="nothing to draw in the path of the strongest key: one step"):
        figures.path_by_layer(made_up.isel(step=[0]))
    even = made_up.assign(mass=made_up["mass"] * 0 + made_up["rows"] / LENGTH)
    with pytest.raises(fl.Refusal, match="several keys draw the same at every step"):
        figures.path_by_layer(even)


def test_even_attention_has_no_anchors_to_draw(made_up: xr.Dataset) -> None:
    even = made_up.assign(mass=made_up["mass"] * 0 + made_up["rows"] / LENGTH)
    with pytest.raises(fl.Refusal, match="nothing to draw in roles by depth: there are no anchors"):
        figures.roles_by_depth(even)
    with pytest.raises(fl.Refusal, match="nothing to draw in QK geometry: there are no anchors"):
        figures.qk_geometry(even)
    np.testing.assert_allclose(heights(figures.absorption_by_layer(even).axes[0], "anchors"), 0)
    even_first = figures.absorption_by_layer({"even": even, "made up": made_up})
    assert even_first.axes[1].get_ylim()[1] >= heights(even_first.axes[1], "anchors").max(), (
        "panels share their height, and nothing is above it"
    )
    for shown in images(figures.temporal_drift(even)):
        np.testing.assert_allclose(shown, 1, rtol=1e-6)


def test_a_group_that_does_not_exist_is_refused(made_up: xr.Dataset) -> None:
    with pytest.raises(fl.Refusal, match="no query group 'everybody'"):
        figures.absorption_by_layer(made_up, group="everybody")
    assert "unmasked rows" in footer(figures.absorption_by_layer(made_up, group="unmasked"))


def test_the_same_figure_gives_the_same_bytes_whatever_the_user_has_set(made_up: xr.Dataset, tmp_path: Path) -> None:
    def files(folder: str) -> list[Path]:
        drift = figures.save_figure(figures.temporal_drift(first_step, layers=[0]), tmp_path / folder / "drift", ["svg"])
        return drift + figures.save_figure(figures.absorption_by_layer(first_step), tmp_path / folder / "absorption", ["svg", "png", "pdf"])

    first_step = made_up.isel(step=[0])
    first = files("first")
    assert [file.name for file in first] == ["drift.svg", "absorption.svg", "absorption.png", "absorption.pdf"]
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "another", "savefig.bbox": "tight"}):
        second = files("second")
        assert matplotlib.rcParams["font.size"] == 20, "the user's settings stay"
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert first[0].read_text().count("<image") == 2, "the heat map and its colours are images, all else is drawn"
    assert first[1].read_text().count("<image") == 0
    assert first[2].read_bytes().startswith(b"\x89PNG")
    assert first[3].read_bytes().startswith(b"%PDF")
    assert "matplotlib.pyplot" not in sys.modules, "figures belong to whoever drew them, not to a global state"


def test_formats_that_are_not_known_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(fl.Refusal, match="not written as 'jpg'"):
        figures.save_figure(Figure(), tmp_path / "drift", ["svg", "jpg"])
    with pytest.raises(fl.Refusal, match="No format is named"):
        figures.save_figure(Figure(), tmp_path / "drift", [])
    assert not list(tmp_path.iterdir())


def test_the_figures_of_the_footguns_show_what_their_text_says() -> None:
    folder = Path(__file__).parents[2] / "docs" / "figures"
    specification = importlib.util.spec_from_file_location("footguns", folder / "footguns.py")
    assert specification is not None
    assert specification.loader is not None
    footguns = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(footguns)
    for draw in footguns.FIGURES:
        assert (folder / f"{draw.__name__}.svg").stat().st_size < 60_000, draw.__name__
    bars = [[bar.get_height() for bar in one] for one in footguns.additive_on_averages().axes[0].containers]
    assert bars == [[0, 100, 100, 100], [0, 100, 0, 0]], "readings in heads with a sink, and without"
    share = np.asarray(footguns.first_key_of_even_attention().axes[0].lines[0].get_ydata())
    assert round(share[48], 1) == round(2 * sum(1 / row for row in range(1, 51)), 1) == 9.0, "n = 50"
    before, after = (np.asarray(one.get_ydata())[1:].mean() for one in footguns.anchor_chosen_after_the_edit().axes[0].lines)
    assert (round(before), round(after)) == (49, 27)
    _, modulo, averaged = (np.asarray(one.get_ydata()) for one in footguns.heads_averaged_or_mixed_up().axes[0].lines[:3])
    right = np.asarray(footguns.heads_averaged_or_mixed_up().axes[0].lines[1].get_xdata())
    assert [int((lifts > 4).sum()) for lifts in (right, modulo, averaged)] == [2, 1, 0]

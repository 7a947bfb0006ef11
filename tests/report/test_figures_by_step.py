"""Temporal drift, absorption, threshold sweep and float index show what dense attention comes to."""

import numpy as np
import pytest
import xarray as xr
from made_up_trace import (
    LENGTH,
    PROMPT,
    SAMPLES,
    STATIC,
    STEPS,
    Draw,
    band,
    footer,
    heights,
    images,
    legend,
    line,
    made_up_state,
    made_up_weights,
    mean_received,
    written_order,
)
from matplotlib.figure import Figure

import floatlens as fl
from floatlens.report import figures


def test_drift_is_coloured_by_lift_and_hatches_exactly_the_anchors(made_up: xr.Dataset) -> None:
    figure = figures.temporal_drift(made_up, sample=1)
    masked = np.isin(made_up_state(1), (2, 3))
    for layer, (axes, shown) in enumerate(zip(figure.axes, images(figure), strict=False)):
        lift = mean_received(1, layer, masked)
        np.testing.assert_allclose(shown, lift, rtol=1e-6)
        assert axes.get_title() == f"layer {layer}"
        (boxes,) = [patch for patch in axes.patches if patch.get_gid() == "anchors"]
        assert boxes.get_hatch()
        inside = [[boxes.get_path().contains_point((key, step)) for key in range(LENGTH)] for step in range(STEPS)]
        np.testing.assert_array_equal(inside, lift > 4)
    assert figure.axes[0].images[0].get_cmap().name == "cividis"


def test_drift_marks_what_each_step_commits_and_where_the_prompt_ends(drawn: dict[Draw, Figure]) -> None:
    axes = drawn[figures.temporal_drift].axes[0]
    (dots,) = [one for one in axes.collections if one.get_gid() == "committed"]
    expected = {(int(position), step) for step, now in enumerate(written_order(0)) for position in now}
    assert {(int(x), int(y)) for x, y in np.asarray(dots.get_offsets())} == expected
    ends = [float(np.asarray(one.get_xdata())[0]) for one in axes.lines if one.get_gid() == "end of the prompt"]
    assert ends == [PROMPT - 0.5]


def test_drift_names_the_tokens_of_anchors_in_bold_and_draws_texts_as_they_are(drawn: dict[Draw, Figure]) -> None:
    axes = drawn[figures.temporal_drift].axes[2]
    bold = {int(text.get_text().split()[-1]) for text in axes.get_xticklabels() if text.get_fontweight() == "bold"}
    assert bold == {STATIC, *(int(now[0]) for now in written_order(0))}
    texts = [text.get_text() for text in axes.get_xticklabels()]
    assert "⏎ 1" in texts, "a line break has a sign"
    assert "□ 6" in texts, "a character that the font does not have is a box"
    assert any(text.startswith("$5 and $6") for text in texts)
    assert not any(text.get_parse_math() for text in axes.get_xticklabels())


def test_drift_of_what_is_not_measured_is_left_blank(made_up: xr.Dataset) -> None:
    third = xr.DataArray(np.arange(STEPS) == 2, dims="step")
    without = made_up.assign(rows=made_up["rows"].where(~third, 0), visible=made_up["visible"].where(~third, 0))
    figure = figures.temporal_drift(without)
    for shown in images(figure):
        assert np.isnan(shown[2]).all()
        assert np.isfinite(np.delete(shown, 2, axis=0)).all()
    assert "1 of 6 steps have no masked rows" in footer(figure)


def test_drift_shows_the_layers_that_are_asked_for_and_refuses_others(made_up: xr.Dataset) -> None:
    assert [axes.get_title() for axes in figures.temporal_drift(made_up, layers=[2]).axes[:1]] == ["layer 2"]
    with pytest.raises(fl.Refusal, match="no layer 7 in this trace; its layers are 0 to 2"):
        figures.temporal_drift(made_up, layers=[7])
    with pytest.raises(fl.Refusal, match="There is no sample 3"):
        figures.temporal_drift(made_up, sample=3)
    with pytest.raises(fl.Refusal, match="these data have none; pass the trace"):
        figures.temporal_drift(made_up.isel(step=0, drop=True))


def test_absorption_lines_are_shares_of_dense_attention_beside_their_nulls(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    axes = drawn[figures.absorption_by_layer].axes[0]
    first, static, moving = [], [], []
    for sample in range(SAMPLES):
        masked, weights = np.isin(made_up_state(sample), (2, 3)), made_up_weights(sample)
        for step in range(STEPS):
            rows = weights[step][..., masked[step], :].mean(axis=(1, 2))  # (layer, key)
            first.append(100 * rows[:, 0])
            static.append(100 * rows[0, STATIC])
            moving.append(100 * rows[2, written_order(sample)[step, 0]])
    np.testing.assert_allclose(heights(axes, "first token"), np.mean(first, axis=0), rtol=1e-6)
    np.testing.assert_allclose(heights(axes, "null of first token"), 100 / LENGTH)
    np.testing.assert_allclose(heights(axes, "anchors")[[0, 2]], [np.mean(static), np.mean(moving)], rtol=1e-6)
    np.testing.assert_allclose(heights(axes, "null of anchors")[[0, 2]], 100 / LENGTH)
    np.testing.assert_allclose(heights(axes, "strongest key (split rows)")[[0, 2]], [np.mean(static), np.mean(moving)], rtol=0.02)
    assert line(axes, "null of anchors").get_linestyle() == "--"


def test_a_band_is_the_interval_over_prompts_and_one_prompt_has_none(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    from floatlens.measures.absorption import absorption_of_first_token
    from floatlens.statistics.resampling import bootstrap

    several = drawn[figures.absorption_by_layer]
    share = absorption_of_first_token(made_up.sel(group="masked"))["share"].mean(("step", "head"))
    expected = bootstrap(share)
    np.testing.assert_allclose(band(several.axes[0], "first token"), [expected["low"], expected["high"]], rtol=1e-6)
    assert "3 prompts, bands: 95 % intervals over prompts" in footer(several)
    alone = figures.absorption_by_layer(made_up.isel(sample=[0]))
    assert not alone.axes[0].collections
    assert "1 prompt, so no interval" in footer(alone)


def test_samples_of_one_prompt_are_one_prompt(recorded: fl.Trace) -> None:
    from floatlens.measures.absorption import absorption_of_first_token
    from floatlens.statistics.resampling import bootstrap

    figure = figures.absorption_by_layer(recorded)
    assert "2 prompts" in footer(figure)
    share = absorption_of_first_token(recorded.dataset.sel(group="masked"))["share"].mean(("step", "head"))
    expected = bootstrap(share, clusters=["the same", "another", "the same"])
    np.testing.assert_allclose(band(figure.axes[0], "first token"), [expected["low"], expected["high"]], rtol=1e-4)


def test_without_halves_the_strongest_key_is_left_out_with_the_reason(made_up: xr.Dataset) -> None:
    figure = figures.absorption_by_layer(made_up.drop_vars("mass_even"))
    assert not [one for one in figure.axes[0].lines if "strongest" in str(one.get_label())]
    assert "left out: Absorption of the strongest key needs mass_even, which this trace does not hold." in footer(figure)


def test_several_traces_stand_side_by_side_on_one_scale(recorded: fl.Trace, one_after_the_other: fl.Trace) -> None:
    named = {"unmasks": recorded, "goes on": one_after_the_other}
    figure = figures.absorption_by_layer(named)
    assert [axes.get_title() for axes in figure.axes] == list(named)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert "unmasks: model, masked rows, 2 prompts" in footer(figure)
    assert "rows of all steps pooled" in footer(figure), "one row a step says little, and both panels must show the same"
    shared = figures.absorption_by_layer(named, rectangle=True)
    assert "unmasks: model, predicting rows" in footer(shared)
    assert "keys of the prompt only" in footer(shared)
    with pytest.raises(fl.Refusal, match="no traces to draw"):
        figures.absorption_by_layer({})


def test_padding_changes_no_line(made_up: xr.Dataset) -> None:
    alone = made_up.isel(sample=[0])
    padded = alone.pad(step=(0, 2), key=(0, 3), position=(0, 3)).assign(
        state=alone["state"].pad(step=(0, 2), position=(0, 3), constant_values=0),
        rows=alone["rows"].pad(step=(0, 2)),
    )
    padded = padded.drop_vars("in_region")
    for draw in (figures.absorption_by_layer, figures.float_index_by_layer):
        plain, with_padding = draw(alone), draw(padded)
        for one, other in zip(plain.axes, with_padding.axes, strict=True):
            for ours, theirs in zip(one.lines, other.lines, strict=True):
                np.testing.assert_allclose(np.asarray(ours.get_ydata(), float), np.asarray(theirs.get_ydata(), float), rtol=1e-6)


def test_sweep_lines_are_shares_of_keys_above_each_threshold(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    figure = drawn[figures.threshold_sweep]
    lift_line = line(figure.axes[0], "lift")
    kept = np.zeros(41)
    for sample in range(SAMPLES):
        masked, weights = np.isin(made_up_state(sample), (2, 3)), made_up_weights(sample)
        lifts = np.stack([weights[step][..., masked[step], :].mean(-2) for step in range(STEPS)]) * LENGTH
        kept += np.array([100 * (lifts > 1 + eps).mean() for eps in np.linspace(0, 10, 41)]) / SAMPLES
    np.testing.assert_allclose(np.asarray(lift_line.get_xdata(), float), np.linspace(0, 10, 41))
    np.testing.assert_allclose(np.asarray(lift_line.get_ydata(), float), np.where(kept > 0, kept, np.nan), rtol=1e-6)
    assert figure.axes[0].get_yscale() == "log"
    assert set(legend(figure)) == {"lift", "additive", "zscore", "rate", "top"}
    np.testing.assert_allclose(heights(figure.axes[2], "top"), 100 * np.arange(1, 11) / LENGTH)


def test_float_index_stands_beside_both_nulls(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    figure = drawn[figures.float_index_by_layer]
    first, second, third = figure.axes
    assert heights(first, "float index")[[0, 2]].tolist() == [0.0, 1.0], "static, moving"
    assert heights(second, "a step and the next")[[0, 2]].tolist() == [0.0, 1.0]
    assert heights(second, "no movement: within a step")[[0, 2]].tolist() == [0.0, 0.0]
    assert heights(third, "movement")[[0, 2]].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(heights(first, "no memory: as many anchors anywhere")[0], 1 - 1 / LENGTH)
    assert "incomplete in 3 of 3 samples (no anchors at any step)" in footer(figure), "layer 1 is noise"
    without = figures.float_index_by_layer(made_up.drop_vars("mass_even"))
    assert len(without.axes) == 2
    assert "record halves" in " ".join(" ".join(text.get_text() for text in without.axes[1].texts).split())


def test_one_row_per_step_is_compared_with_its_steps_in_any_order(one_after_the_other: fl.Trace) -> None:
    figure = figures.float_index_by_layer(one_after_the_other, eps=0.5)
    assert figure.axes[1].get_title() == "one row per step, keys that all rows see"
    assert len(figure.axes) == 2
    assert "noise and movement cannot be told apart" in footer(figure)

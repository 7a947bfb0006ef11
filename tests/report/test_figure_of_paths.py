"""The figure of the strongest key's path shows what dense attention comes to, models side by side."""

import numpy as np
import pytest
import xarray as xr
from made_up_trace import LAYERS, LENGTH, PROMPT, SAMPLES, STATIC, STEPS, footer, heights, images, legend, made_up_weights, written_order
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import floatlens as fl
from floatlens.report import figures


def strongest(sample: int, among: int = LENGTH, group: str = "predicting") -> np.ndarray:
    """The key that the rows of a group look at most, on average over heads: (layer, step), and a last row of all layers averaged."""
    weights = made_up_weights(sample)[..., :among].mean(2)  # (step, layer, query, key)
    paths = np.zeros((LAYERS + 1, STEPS), int)
    for step, now in enumerate(written_order(sample)):
        masked = [row for row in range(PROMPT, LENGTH) if row not in written_order(sample)[:step]]
        looks = weights[step][:, now if group == "predicting" else masked].sum(1)
        paths[:LAYERS, step] = looks.argmax(-1)
        paths[LAYERS, step] = looks.mean(0).argmax()
    return paths


def changes(figure: Figure, panel: int) -> set[tuple[int, int]]:
    """The row, and the step at which a tick says that the key is another one."""
    (ticks,) = [lines for lines in figure.axes[panel].collections if isinstance(lines, LineCollection) and lines.get_gid() == "changes"]
    return {(round(float(segment[:, 1].mean())), round(float(segment[0, 0]) + 0.5)) for segment in ticks.get_segments()}


@pytest.mark.parametrize("sample", range(SAMPLES))
@pytest.mark.parametrize("group", ["predicting", "masked"])
def test_colours_are_the_positions_of_the_strongest_keys_and_ticks_their_changes(made_up: xr.Dataset, sample: int, group: str) -> None:
    figure = figures.path_by_layer(made_up, sample=sample, group=group)
    shown, expected = images(figure)[0], strongest(sample, group=group)
    np.testing.assert_array_equal(shown[:LAYERS], expected[:LAYERS])
    np.testing.assert_array_equal(shown[LAYERS + 1], expected[LAYERS])
    assert np.isnan(shown[LAYERS]).all(), "a gap between the layers and their mean"
    rows = [*range(LAYERS), LAYERS + 1]
    moved = {(rows[row], step) for row in range(LAYERS + 1) for step in range(1, STEPS) if expected[row, step] != expected[row, step - 1]}
    assert changes(figure, 0) == moved
    assert (expected[0] == STATIC).all()
    assert len(set(expected[2])) == STEPS
    assert f"above: sample {sample}" in footer(figure)


def test_lines_are_the_means_over_samples_of_what_changes_beside_noise(made_up: xr.Dataset) -> None:
    from floatlens.measures import strongest_path

    axes = figures.path_by_layer(made_up).axes[1]
    mean = np.mean([(strongest(sample)[:LAYERS, 1:] != strongest(sample)[:LAYERS, :-1]).mean(1) for sample in range(SAMPLES)], axis=0)
    np.testing.assert_allclose(heights(axes, "changes from step to step"), mean)
    masked = figures.path_by_layer(made_up, group="masked")
    found = strongest_path(made_up)[["compared", "noise"]].sel(group="masked").mean("sample")
    np.testing.assert_allclose(heights(masked.axes[1], "half of a step against half of the next"), found["compared"])
    np.testing.assert_allclose(heights(masked.axes[1], "noise: halves of the same step"), found["noise"])
    assert found["noise"].values.tolist()[::2] == [0, 0]
    assert "halves of rows" in footer(masked)


def test_models_stand_side_by_side_on_one_scale(made_up: xr.Dataset, one_after_the_other: fl.Trace) -> None:
    figure = figures.path_by_layer({"mdm": made_up, "arm": one_after_the_other})
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == ["mdm", "arm"]
    assert shown[0].images[0].get_clim() == shown[1].images[0].get_clim()
    assert "arm: model, predicting rows, halves of heads, 2 prompts" in footer(figure)
    assert "another key than before" in legend(figure)
    many = figures.path_by_layer(dict.fromkeys("abcde", made_up))
    assert [axes.get_title() for axes in many.axes if axes.images and axes.get_visible()] == list("abcde")


def test_only_keys_of_the_prompt_are_shown_where_they_are_asked_for(made_up: xr.Dataset) -> None:
    figure = figures.path_by_layer(made_up, keys="prompt")
    np.testing.assert_array_equal(images(figure)[0][:LAYERS], strongest(0, among=PROMPT)[:LAYERS])
    assert "keys of the prompt only" in footer(figure)


def test_without_halves_there_is_no_noise_to_draw_and_the_reason_is_given(made_up: xr.Dataset) -> None:
    figure = figures.path_by_layer(made_up.drop_vars("mass_even"), group="masked")
    assert [line.get_label() for line in figure.axes[1].lines] == ["changes from step to step"]
    assert "record halves" in footer(figure)


def test_a_sample_that_does_not_exist_is_refused(made_up: xr.Dataset) -> None:
    with pytest.raises(fl.Refusal, match="There is no sample 3; there are 3, counted from 0"):
        figures.path_by_layer(made_up, sample=3)
    with pytest.raises(fl.Refusal, match="no traces to draw"):
        figures.path_by_layer({})


def test_the_mean_of_many_layers_is_drawn_thick_enough_to_be_seen() -> None:
    from floatlens.measures import from_attention

    looks = np.full((4, 30, 1, 4, 12), 0.04)
    looks[:, :20, ..., 3] = 0.56
    looks[np.arange(4), 20:, ..., 5 + np.arange(4)] = 0.56
    figure = figures.path_by_layer(from_attention(looks))
    shown = images(figure)[0]
    assert (shown[:20] == 3).all()
    assert np.isnan(shown[30:33]).all()
    assert (shown[33:] == 3).all()
    assert len(shown) == 36
    assert {row for row, _ in changes(figure, 0)} == set(range(20, 30))
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["0", "5", "10", "15", "20", "25", "all"]

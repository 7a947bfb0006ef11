"""From runs to heads: means over runs that count, shares by depth, and maps for display."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures.retrieval import mean_retrieval_score, normalised_for_display, retrieval_head_shares


def by_run(scores: np.ndarray, counts: list[bool]) -> xr.Dataset:
    """Scores (sample, layer, head), with a null that is half of them."""
    axes = ("sample", "layer", "head")
    return xr.Dataset({"score": (axes, scores), "null_shuffled": (axes, scores / 2), "counts": ("sample", counts)}).assign_coords(
        layer=np.arange(scores.shape[1])
    )


def test_only_runs_that_recall_the_needle_are_averaged() -> None:
    scores = np.random.default_rng(0).random((4, 3, 2))
    scores[1] = np.nan  # nothing to be said of this run
    scores[:, 2, 1] = np.nan  # a head that its layer does not have
    mean = mean_retrieval_score(by_run(scores, [True, True, False, True]))
    np.testing.assert_allclose(mean["score"].values, (scores[0] + scores[3]) / 2)
    np.testing.assert_allclose(mean["null_shuffled"].values, (scores[0] + scores[3]) / 4)
    assert (int(mean["runs"]), str(mean["reason"].values)) == (2, "")
    alone = mean_retrieval_score(by_run(scores, [True] * 4).isel(sample=0))
    np.testing.assert_array_equal(alone["score"].values, scores[0])
    assert int(alone["runs"]) == 1


@given(st.permutations(range(4)))
def test_the_order_of_runs_does_not_matter(order: list[int]) -> None:
    runs = by_run(np.random.default_rng(1).random((4, 3, 2)), [True, False, True, True])
    xr.testing.assert_allclose(mean_retrieval_score(runs.isel(sample=order)), mean_retrieval_score(runs))


def test_without_a_run_that_counts_there_are_no_scores_and_no_shares() -> None:
    runs = by_run(np.ones((2, 3, 2)), [False, False])
    mean = mean_retrieval_score(runs)
    assert np.isnan(mean["score"]).all()
    assert (int(mean["runs"]), str(mean["reason"].values)) == (0, "no run recalls more than half of its needle")
    shares = retrieval_head_shares(runs)
    assert np.isnan(shares["share"]).all()
    assert np.isnan(shares["null"]).all()
    assert set(shares["reason"].values.tolist()) == {"no run recalls more than half of its needle"}


def test_shares_are_those_of_heads_above_each_threshold_by_depth() -> None:
    scores = np.zeros((1, 6, 4))
    scores[0, 1, 0] = 0.1  # not above .1
    scores[0, 2] = [0.11, 0.5, 0.51, 1.0]
    scores[0, 5, 3] = 0.9
    scores[0, 4, :2] = np.nan
    shares = retrieval_head_shares(by_run(scores, [True]))
    assert shares["third"].values.tolist() == ["all", "shallow", "middle", "deep"]
    assert shares["threshold"].values.tolist() == [0.1, 0.5]
    np.testing.assert_allclose(shares["share"].values, [[5 / 22, 3 / 22], [0, 0], [4 / 8, 2 / 8], [1 / 6, 1 / 6]])
    np.testing.assert_allclose(shares["null"].values, [[4 / 22, 0], [0, 0], [3 / 8, 0], [1 / 6, 0]])
    assert shares["heads"].values.tolist() == [22, 8, 8, 6]
    averaged = retrieval_head_shares(mean_retrieval_score(by_run(scores, [True])), thresholds=(0.3,))
    np.testing.assert_allclose(averaged["share"].values[:, 0], [4 / 22, 0, 3 / 8, 1 / 6])


@pytest.mark.parametrize(
    ("layers", "thirds"),
    [(32, [11, 10, 11]), (30, [10, 10, 10]), (4, [1, 2, 1]), (3, [1, 1, 1]), (2, [1, 0, 1]), (1, [0, 1, 0])],
)
def test_thirds_of_depth_are_as_even_as_layers_allow(layers: int, thirds: list[int]) -> None:
    shares = retrieval_head_shares(by_run(np.ones((1, layers, 1)), [True]))
    assert shares["heads"].values.tolist() == [layers, *thirds]
    assert (np.isnan(shares["share"].values[1:, 0]) == (np.array(thirds) == 0)).all()
    assert (shares["reason"].values[1:] == np.where(thirds, "", "no head of this third has a score")).all()


def test_depth_goes_by_layer_numbers_where_some_have_no_attention() -> None:
    shares = retrieval_head_shares(by_run(np.ones((1, 3, 1)), [True]).assign_coords(layer=[0, 1, 11]))
    assert shares["heads"].values.tolist() == [3, 2, 0, 1]


def test_a_map_for_display_is_over_its_own_largest_score_and_says_so() -> None:
    runs = by_run(np.stack([np.eye(2) * 0.2, np.zeros((2, 2)), np.full((2, 2), np.nan)]), [True] * 3)
    shown = normalised_for_display(runs)
    np.testing.assert_allclose(shown["score"].values[0], np.eye(2))
    assert np.isnan(shown["score"].values[1:]).all()
    np.testing.assert_allclose(shown["largest"].values, [0.2, 0, np.nan])
    assert shown["reason"].values.tolist() == ["", "every score is 0", "no head has a score"]
    assert "divided by its largest score" in shown.attrs["normalised"]
    assert "normalised" not in runs.attrs


def test_what_holds_no_scores_is_refused() -> None:
    nothing = xr.Dataset({"mass": ("key", [1.0])})
    for function in (mean_retrieval_score, retrieval_head_shares, normalised_for_display):
        with pytest.raises(fl.Refusal, match=r"takes what .* returns"):
            function(nothing)
    with pytest.raises(fl.Refusal, match="retrieval_head_shares takes"):
        retrieval_head_shares(by_run(np.ones((2, 3, 1)), [True] * 2).drop_vars("counts"))

"""Jaccard along steps and layers, and recall of the first step, against plain sets."""

from itertools import combinations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import anchors_of, looking_at, noisy, padded, similarity

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.drift import expected_jaccard, jaccard, jaccard_along, recall_of_first


def sets_of(anchor: list[list[int]], measured: list[list[int]] | None = None) -> xr.Dataset:
    """Anchors over (step, key), given as ones and zeros."""
    found = xr.DataArray(np.array(anchor, bool), dims=("step", "key"))
    return xr.Dataset({"anchor": found, "measured": xr.ones_like(found) if measured is None else found.copy(data=np.array(measured, bool))})


def spiky(seed: int, steps: int = 4, layers: int = 3, heads: int = 2, keys: int = 12, rows: int = 6) -> np.ndarray:
    return noisy(np.full((steps, layers, heads, rows, keys), 1 / keys), 0.4, seed)


def test_jaccard_along_steps_and_layers_is_that_of_sets_from_dense_attention() -> None:
    weights = spiky(0)
    found = find_anchors(from_attention(weights), eps=1.0)
    along_steps, along_layers = jaccard_along(found, "step")["jaccard"], jaccard_along(found, "layer")["jaccard"]
    sets = {(t, layer, head): anchors_of(weights[t, layer, head], 1.0) for t in range(4) for layer in range(3) for head in range(2)}
    assert along_steps.sizes == {"step": 3, "layer": 3, "head": 2, "group": 1}
    assert along_layers.sizes == {"step": 4, "layer": 2, "head": 2, "group": 1}
    for t, layer, head in sets:
        if t < 3:
            expected = similarity(sets[t, layer, head], sets[t + 1, layer, head])
            np.testing.assert_allclose(along_steps.isel(step=t, layer=layer, head=head, group=0), expected)
        if layer < 2:
            expected = similarity(sets[t, layer, head], sets[t, layer + 1, head])
            np.testing.assert_allclose(along_layers.isel(step=t, layer=layer, head=head, group=0), expected)
    assert along_steps.notnull().any()
    assert len(np.unique(along_steps.values[along_steps.notnull()])) > 2


@pytest.mark.parametrize(("path", "expected"), [([3, 3, 3, 3], 1.0), ([3, 4, 5, 6], 0.0)], ids=["static", "moving"])
def test_planted_anchors_that_stay_or_move_are_told_apart(path: list[int], expected: float) -> None:
    along = jaccard_along(find_anchors(from_attention(looking_at(path, keys=12))))
    assert along["jaccard"].values.ravel().tolist() == [expected] * 3
    np.testing.assert_allclose(along["no_memory"], 1 / 12)


def test_an_anchor_that_moves_with_the_layer_moves_along_layers_and_not_along_steps() -> None:
    paths = np.broadcast_to(np.arange(4)[None, :], (3, 4))
    found = find_anchors(from_attention(looking_at(paths, keys=12)))
    assert (jaccard_along(found, "step")["jaccard"] == 1).all()
    assert (jaccard_along(found, "layer")["jaccard"] == 0).all()


def test_empty_sets_are_left_out_and_half_empty_pairs_have_nothing_in_common() -> None:
    along = jaccard_along(sets_of([[0, 0, 0], [0, 0, 0], [0, 1, 0]]))
    np.testing.assert_array_equal(along["jaccard"], [np.nan, 0])
    np.testing.assert_array_equal(along["no_memory"], [np.nan, 0])


def test_only_keys_measured_at_both_steps_count_and_an_unmeasured_neighbour_says_nothing() -> None:
    found = sets_of([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]], [[1, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]])
    along = jaccard_along(found)
    np.testing.assert_array_equal(along["jaccard"], [1, np.nan, np.nan])
    np.testing.assert_allclose(along["no_memory"], [0.5, np.nan, np.nan])


def test_a_growing_causal_text_is_compared_on_the_keys_both_rows_see() -> None:
    length = 14
    weights = np.full((3, 1, 1, length, length), np.nan)
    for step, row in enumerate((11, 12, 13)):  # each step is its new row, which looks at key 2 and at itself
        weights[step, 0, 0, row] = 0.1 / (row - 1)
        weights[step, 0, 0, row, [2, row]] = 0.5, 0.4
        weights[step, 0, 0, row, row + 1 :] = 0
    data = from_attention(weights, visible=np.tril(np.ones((length, length))))
    found = find_anchors(data)
    assert [np.flatnonzero(found["anchor"].isel(step=t)).tolist() for t in range(3)] == [[2, 11], [2, 12], [2, 13]]
    assert jaccard_along(found)["jaccard"].values.ravel().tolist() == [0.5, 0.5]  # the new key is not there to be compared


def test_pairs_have_the_label_of_their_first() -> None:
    found = find_anchors(from_attention(spiky(1)))
    found = found.assign_coords(step=[10, 20, 30, 40], layer=[3, 5, 9], module=("layer", ["a", "b", "c"]))
    assert jaccard_along(found, "step")["step"].values.tolist() == [10, 20, 30]
    along_layers = jaccard_along(found, "layer")
    assert along_layers["layer"].values.tolist() == [3, 5]
    assert along_layers["module"].values.tolist() == ["a", "b"]
    xr.testing.assert_allclose(
        along_layers.drop_vars(["step", "layer", "module"]),
        jaccard_along(find_anchors(from_attention(spiky(1))), "layer").drop_vars("layer"),
    )


def test_padding_changes_nothing() -> None:
    data = from_attention(spiky(2))
    plain, longer = find_anchors(data, eps=1.0), find_anchors(padded(data), eps=1.0)
    for axis, real in (("step", 3), ("layer", 2)):
        along, along_longer = jaccard_along(plain, axis), jaccard_along(longer, axis)
        xr.testing.assert_allclose(along, along_longer.isel({"step": slice(along.sizes["step"])}))
        assert along.sizes[axis] == real
    assert jaccard_along(longer)["jaccard"].isel(step=slice(3, None)).isnull().all()
    recalled = recall_of_first(longer)
    xr.testing.assert_identical(recalled.isel(step=slice(4)), recall_of_first(plain))
    assert recalled["recall"].isel(step=slice(4, None)).isnull().all()


def test_anchors_without_heads_or_groups_are_compared_all_the_same() -> None:
    data = from_attention(spiky(3))
    averaged = find_anchors(data, eps=0.5, per_head=False)
    alone = averaged.isel(group=0, drop=True)
    assert jaccard_along(alone)["jaccard"].dims == ("step", "layer")
    np.testing.assert_array_equal(jaccard_along(alone)["jaccard"], jaccard_along(averaged)["jaccard"].isel(group=0))


@settings(max_examples=5)
@given(seed=st.integers(0, 50), order=st.permutations(range(3)))
def test_permuting_heads_permutes_results_and_relabelling_samples_relabels_them(seed: int, order: list[int]) -> None:
    weights = spiky(seed, heads=3, layers=2)
    found = find_anchors(from_attention(weights), eps=1.0)
    for measure in (jaccard_along, recall_of_first):
        xr.testing.assert_identical(measure(found).isel(head=list(order)), measure(found.isel(head=list(order))))
    samples = xr.concat([find_anchors(from_attention(spiky(seed + at)), eps=1.0) for at in range(3)], "sample")
    several = jaccard_along(samples)
    assert several["jaccard"].dims[0] == "sample"
    xr.testing.assert_identical(several.isel(sample=list(order)), jaccard_along(samples.isel(sample=list(order))))
    assert ((several["jaccard"] >= 0) & (several["jaccard"] <= 1) | several["jaccard"].isnull()).all()


@settings(max_examples=40)
@given(keys=st.integers(1, 7), data=st.data())
def test_no_memory_is_the_mean_over_all_placements(keys: int, data: st.DataObject) -> None:
    first, second = data.draw(st.integers(0, keys)), data.draw(st.integers(0, keys))
    every = [similarity(set(a), set(b)) for a in combinations(range(keys), first) for b in combinations(range(keys), second)]
    found = expected_jaccard(np.array([keys]), np.array([first]), np.array([second]))
    np.testing.assert_allclose(found, [np.mean(every)], atol=1e-12)


def test_no_memory_holds_for_many_keys_and_any_shape() -> None:
    generator = np.random.default_rng(0)
    drawn = [
        similarity(set(generator.choice(4000, 300, False).tolist()), set(generator.choice(4000, 500, False).tolist())) for _ in range(200)
    ]
    found = expected_jaccard(np.full((2, 3), 4000), np.full((2, 3), 300), np.full((2, 3), 500))
    assert found.shape == (2, 3)
    assert abs(found[0, 0] - np.mean(drawn)) < 4 * np.std(drawn) / np.sqrt(200)


def test_recall_is_the_share_of_the_first_step_that_is_still_there() -> None:
    weights = spiky(4, steps=5)
    recalled = recall_of_first(find_anchors(from_attention(weights), eps=1.0))
    for step in range(5):
        for layer in range(3):
            first, now = anchors_of(weights[0, layer, 0], 1.0), anchors_of(weights[step, layer, 0], 1.0)
            here = recalled.isel(step=step, layer=layer, head=0, group=0)
            np.testing.assert_allclose(here["recall"], len(first & now) / len(first) if first else np.nan)
            np.testing.assert_allclose(here["no_memory"], len(now) / 12 if first else np.nan)
    assert recalled["recall"].isnull().any()
    assert ((recalled["recall"] > 0) & (recalled["recall"] < 1)).any()


def test_recall_starts_at_the_first_step_at_which_the_group_is_measured() -> None:
    weights = looking_at([1, 2, 2, 3], keys=12)
    late = np.array([False, True, True, True])[:, None]
    data = from_attention(weights, groups={"early": np.ones((4, 20), bool), "late": late & np.ones((4, 20), bool)})
    recalled = recall_of_first(find_anchors(data))["recall"].squeeze()
    np.testing.assert_array_equal(recalled.sel(group="early"), [1, 0, 0, 0])
    np.testing.assert_array_equal(recalled.sel(group="late"), [np.nan, 1, 1, 0])


def test_recall_says_why_there_is_none() -> None:
    even = np.full((2, 1, 1, 20, 12), 1 / 12)
    groups = {"everyone": np.ones(20, bool), "nobody": np.zeros(20, bool)}
    recalled = recall_of_first(find_anchors(from_attention(even, groups=groups)))
    assert recalled["recall"].isnull().all()
    assert recalled["no_memory"].isnull().all()
    assert recalled["reason"].values.ravel().tolist() == ["no anchors at the first step", "not measured at any step"]


def test_uniform_attention_has_nothing_to_compare() -> None:
    along = jaccard_along(find_anchors(from_attention(np.full((3, 1, 1, 20, 12), 1 / 12))))
    assert along["jaccard"].isnull().all()
    assert along["no_memory"].isnull().all()


def test_independent_positions_agree_as_much_as_without_memory() -> None:
    places = np.random.default_rng(5).integers(0, 12, (300, 2, 3))
    along = jaccard_along(find_anchors(from_attention(looking_at(places, keys=12, rows=2))))
    assert abs(along["jaccard"].mean() - along["no_memory"].mean()) < 0.02


def test_axes_that_are_not_there_are_refused() -> None:
    data = from_attention(spiky(6))
    with pytest.raises(Refusal, match="do not drift along 'head'"):
        jaccard_along(find_anchors(data), "head")
    with pytest.raises(Refusal, match=r"no axis 'step'.*keep every step"):
        jaccard_along(find_anchors(pool_steps(data)), "step")
    with pytest.raises(Refusal, match="These are not anchors"):
        recall_of_first(data)


def test_two_sets_can_be_compared_by_themselves() -> None:
    first, second = sets_of([[1, 1, 0, 0]]), sets_of([[0, 1, 1, 0]])
    compared = jaccard(first, second)
    np.testing.assert_allclose(compared["jaccard"], [1 / 3])
    np.testing.assert_allclose(compared["no_memory"], [(1 / 6) * 1 + (4 / 6) / 3])

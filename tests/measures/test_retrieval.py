"""Retrieval scores, their nulls and the sets of copying heads, on favourites made up for the purpose, against counting by hand."""

from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures.retrieval import retrieval_by_step, retrieval_scores

NEEDLE = [1, 2, 3]
PROMPT = [10, 11, 12, 13, 14]


def needle_at(positions: list[int], length: int) -> xr.DataArray:
    return xr.DataArray(np.isin(np.arange(length), positions), dims="position")


def written_by(
    favourites: Any, answer: list[int], *, prompt: list[int] = PROMPT, committed: list[int] | None = None, causal: bool = False
) -> xr.Dataset:
    """A run that writes `answer` behind the prompt; favourites (layer, head, written position).

    Every row sees the whole text, or all before what it writes.
    """
    looks = np.asarray(favourites)
    length = len(prompt) + len(answer)
    steps_of = list(range(len(answer))) if committed is None else committed
    top = np.full((*looks.shape[:2], length, 2), -1)
    top[:, :, len(prompt) :, 0] = looks
    steps = max(steps_of, default=-1) + 1
    visible, null, rows = np.zeros((steps, 1, length)), np.full((steps, 1, length), np.nan), np.zeros((steps, 1))
    for at, step in enumerate(steps_of):
        seen = len(prompt) + at if causal else length
        visible[step, 0, :seen] += 1
        null[step, 0, :seen] = 1 / seen
        rows[step, 0] += 1
    return xr.Dataset(
        {
            "top_key": (("layer", "head", "position", "rank"), top),
            "final": ("position", [*prompt, *answer]),
            "committed": ("position", [*[-1] * len(prompt), *steps_of]),
            "visible": (("step", "group", "key"), visible),
            "null": (("step", "group", "key"), null),
            "rows": (("step", "group"), rows),
        },
        coords={"group": ["predicting"], "layer": np.arange(looks.shape[0])},
    )


def copied(favourites: Any, answer: list[int], prompt: list[int], needle: list[int]) -> list[int]:
    """The needle positions that one head copies, once for every copy."""
    return [key for key, token in zip(favourites, answer, strict=True) if key in needle and prompt[key] == token]


def test_a_head_that_copies_the_needle_scores_one_and_one_that_stares_at_it_does_not() -> None:
    looks = [[[1, 2, 3, 0]], [[2, 2, 2, 2]], [[5, 6, 7, 8]], [[3, 1, 2, 3]]]  # copies, stares, looks at itself, looks at the wrong token
    scores = retrieval_scores(written_by(looks, [11, 12, 13, 77]), needle_at(NEEDLE, 9))
    np.testing.assert_allclose(scores["score"].values[:, 0], [1, 1 / 3, 0, 0])
    np.testing.assert_allclose(scores["null_shuffled"].values[:, 0], [1 / 4, 1 / 3, 0, (1 / 4 + 1 / 4 + 1 / 2) / 3])
    np.testing.assert_allclose(scores["null"].values, 1 / 9)  # each of three positions is drawn by one row, out of nine keys
    assert (float(scores["recall"]), bool(scores["counts"]), str(scores["reason"].values)) == (1.0, True, "")
    assert (int(scores["needle_tokens"]), int(scores["written_tokens"])) == (3, 4)


def test_a_needle_position_that_is_copied_again_counts_once_and_the_published_number_counts_it_again() -> None:
    scores = retrieval_scores(written_by([[[1, 1, 1, 1]]], [11, 11, 11, 11]), needle_at([1, 2], 9))
    assert float(scores["score"].squeeze()) == 0.5
    assert float(scores["published"].squeeze()) == 2.0
    assert float(scores["recall"]) == 0.5, "eleven is asked for once, so it is recalled once"
    assert not bool(scores["counts"]), "half is not more than half"


def test_the_same_token_outside_the_needle_is_no_copy() -> None:
    scores = retrieval_scores(written_by([[[0]], [[1]]], [11], prompt=[11, 11, 12]), needle_at([1, 2], 4))
    assert scores["score"].values[:, 0].tolist() == [0, 0.5]


def test_only_the_first_favourite_counts() -> None:
    data = written_by([[[0]]], [11])
    data["top_key"][..., 5, 1] = 1
    assert float(retrieval_scores(data, needle_at(NEEDLE, 6))["score"].squeeze()) == 0


runs = st.tuples(
    st.lists(st.integers(0, 2), min_size=3, max_size=3),  # prompt
    st.lists(st.integers(0, 2), min_size=1, max_size=3),  # answer: few tokens, so that they repeat
    st.sets(st.integers(0, 2), min_size=1),  # needle
    st.booleans(),
    st.data(),
)


@given(runs)
def test_scores_and_both_nulls_equal_counting_every_case(run: tuple[Any, ...]) -> None:
    prompt, answer, needle, causal, draw = run
    needle = sorted(needle)
    looks = draw.draw(
        st.lists(st.lists(st.integers(-2, len(prompt + answer) - 1), min_size=len(answer), max_size=len(answer)), min_size=2, max_size=2)
    )
    looks[0][0] = abs(looks[0][0])  # so that the first head is there
    scores = retrieval_scores(written_by([looks], answer, prompt=prompt, causal=causal), needle_at(needle, len(prompt + answer)))
    sights = [len(prompt) + at if causal else len(prompt + answer) for at in range(len(answer))]
    cases = [len(set(copied(drawn, answer, prompt, needle))) for drawn in product(*map(range, sights))]
    for head, favourites in enumerate(looks):
        found = {name: float(scores[name].values[0, head]) for name in ("score", "published", "null", "null_shuffled")}
        if all(key == -1 for key in favourites):
            assert np.isnan(list(found.values())).all()
            continue
        copies = copied(favourites, answer, prompt, needle)
        dealt = [len(set(copied(order, answer, prompt, needle))) for order in permutations(favourites)]
        expected = {"score": len(set(copies)), "published": len(copies), "null": np.mean(cases), "null_shuffled": np.mean(dealt)}
        assert found == pytest.approx({name: count / len(needle) for name, count in expected.items()})
        assert 0 <= found["score"] <= 1
        assert found["score"] <= found["published"]
    recalled = sum(min([prompt[at] for at in needle].count(token), answer.count(token)) for token in range(3))
    assert float(scores["recall"]) == pytest.approx(recalled / len(needle))
    assert bool(scores["counts"]) == (recalled > len(needle) / 2)


def random_run(seed: int, heads: int = 4, steps: int | None = None) -> xr.Dataset:
    random = np.random.default_rng(seed)
    answer = random.integers(10, 15, 6).tolist()
    committed = None if steps is None else random.permutation(np.arange(6) % steps).tolist()
    return written_by(random.integers(0, 11, (3, heads, 6)), answer, committed=committed)


def test_permuting_heads_permutes_scores_and_leaves_their_jaccard() -> None:
    data, gold, order = random_run(0), needle_at(NEEDLE, 11), [2, 0, 3, 1]
    xr.testing.assert_identical(retrieval_scores(data.isel(head=order), gold), retrieval_scores(data, gold).isel(head=order))
    mixed, plain = retrieval_by_step(data.isel(head=order), gold), retrieval_by_step(data, gold)
    assert int(plain["pairs"]) > 0
    xr.testing.assert_identical(mixed.drop_vars("copies"), plain.drop_vars("copies"))


@pytest.mark.parametrize("measure", [retrieval_scores, retrieval_by_step])
def test_each_sample_is_measured_by_itself_in_whatever_order(measure: Any) -> None:
    alone = [random_run(seed, steps=3) for seed in range(3)]
    golds = [needle_at(positions, 11) for positions in ([1, 2, 3], [0], [2, 4])]
    together, gold = xr.concat(alone, "sample"), xr.concat(golds, "sample")
    found = measure(together, gold)
    for number in range(3):
        xr.testing.assert_identical(found.isel(sample=number), measure(alone[number], golds[number]))
    order = [2, 0, 1]
    xr.testing.assert_identical(measure(together.isel(sample=order), gold.isel(sample=order)), found.isel(sample=order))


def padded(data: xr.Dataset) -> xr.Dataset:
    """As a trace pads a sample beside a longer one: positions, keys and steps that do not exist."""
    fill: dict[Any, Any] = {"top_key": -1, "final": -1, "committed": -1}
    return data.pad(
        position=(0, 3), key=(0, 3), step=(0, 2), constant_values={**dict.fromkeys(("visible", "null", "rows"), np.nan), **fill}
    )


def test_padding_changes_nothing() -> None:
    data = random_run(1, steps=3)
    wide = padded(data)
    xr.testing.assert_identical(retrieval_scores(wide, needle_at(NEEDLE, 14)), retrieval_scores(data, needle_at(NEEDLE, 11)))
    found, plain = retrieval_by_step(wide, needle_at(NEEDLE, 14)), retrieval_by_step(data, needle_at(NEEDLE, 11))
    xr.testing.assert_identical(found.isel(step=slice(0, 3)), plain)
    assert not found["copies"].isel(step=slice(3, None)).any()


def test_heads_that_look_anywhere_score_what_the_nulls_say() -> None:
    random = np.random.default_rng(0)
    data = written_by(random.integers(0, 9, (1, 20_000, 4)), [11, 12, 11, 13])
    scores = retrieval_scores(data, needle_at(NEEDLE, 9))
    noise = float(scores["score"].std()) / np.sqrt(20_000)
    assert abs(float(scores["score"].mean() - scores["null"].mean())) < 4 * noise
    assert abs(float(scores["score"].mean() - scores["null_shuffled"].mean())) < 4 * noise


@pytest.mark.parametrize("axes", [("layer",), ("layer", "head")])
def test_a_null_is_of_what_its_layer_and_head_see(axes: tuple[str, ...]) -> None:
    data = random_run(2)
    gold = needle_at([2], 11)
    wide = data[["visible", "null", "rows"]].expand_dims({axis: data.sizes[axis] for axis in axes}).copy(deep=True)
    window = wide["visible"].isel(key=slice(0, 2))  # the last layer sees all but the first two keys
    wide["visible"][{"layer": -1, "key": slice(0, 2)}] = 0 * window.isel(layer=-1)
    wide["null"][{"layer": -1}] = 1 / 9
    found = retrieval_scores(data.drop_vars(["visible", "null", "rows"]).merge(wide), gold)["null"]
    tokens = data["final"].values
    times = (tokens[5:] == tokens[2]).sum()
    assert times > 0
    expected = np.repeat([[1 - (10 / 11) ** times], [1 - (10 / 11) ** times], [1 - (8 / 9) ** times]], 4, axis=1)
    np.testing.assert_allclose(found.transpose("layer", "head").values, expected)
    hidden = retrieval_scores(data.drop_vars(["visible", "null", "rows"]).merge(wide), needle_at([0], 11))["null"]
    assert (hidden.sel(layer=2) == 0).all(), "a key that no row sees is never drawn"


def test_a_head_that_its_layer_does_not_have_is_nan_and_one_that_looks_at_an_appended_key_is_zero() -> None:
    scores = retrieval_scores(written_by([[[1, 2], [-1, -1], [-2, -2]]], [11, 12]), needle_at(NEEDLE, 7))
    np.testing.assert_array_equal(np.isnan(scores["score"].values), [[False, True, False]])
    assert float(scores["score"][0, 2]) == 0
    assert np.isnan(scores["null"].values[0, 1])


def test_an_empty_needle_and_an_empty_answer_have_no_scores_and_say_why() -> None:
    data = written_by([[[1, 2]]], [11, 12])
    nothing = retrieval_scores(data, needle_at([], 7))
    assert np.isnan([float(nothing[name].squeeze()) for name in ("score", "null", "null_shuffled", "published", "recall")]).all()
    assert str(nothing["reason"].values) == "the gold span is empty"
    assert not bool(nothing["counts"])
    assert str(retrieval_by_step(data, needle_at([], 7))["reason"].values) == "the gold span is empty"
    silent = retrieval_scores(written_by(np.zeros((1, 1, 0), int), []), needle_at([1], 5))
    assert np.isnan(float(silent["score"].squeeze()))
    assert float(silent["recall"]) == 0
    assert str(silent["reason"].values) == "nothing was written"
    assert str(retrieval_by_step(written_by(np.zeros((1, 1, 0), int), []), needle_at([1], 5))["reason"].values).startswith("fewer than two")


def test_without_what_rows_see_only_the_even_null_is_missing() -> None:
    data, gold = random_run(3), needle_at(NEEDLE, 11)
    whole = retrieval_scores(data, gold)
    for less in (data.drop_vars("visible"), data.assign_coords(group=["masked"])):
        scores = retrieval_scores(less, gold)
        assert np.isnan(scores["null"]).all()
        assert "predicting rows" in scores["null"].attrs["reason"]
        xr.testing.assert_identical(scores[["score", "null_shuffled"]], whole[["score", "null_shuffled"]])


def test_what_cannot_be_a_needle_is_refused() -> None:
    data = written_by([[[1, 2]]], [11, 12]).assign(in_region=(("region", "position"), np.zeros((2, 7), bool)))
    data = data.assign_coords(region=["query", "doc_1"])
    with pytest.raises(fl.Refusal, match=r"no region 'gold'\. This needs a region with the answer; .* Regions: query, doc_1"):
        retrieval_scores(data, "gold")
    with pytest.raises(fl.Refusal, match="Regions: not recorded"):
        retrieval_scores(data.drop_vars("in_region"), "gold")
    with pytest.raises(fl.Refusal, match="holds position 5, which is not in the prompt"):
        retrieval_scores(data, needle_at([4, 5], 7))
    with pytest.raises(fl.Refusal, match="holds position 8, which is not in the prompt"):
        retrieval_by_step(padded(data), needle_at([4, 8], 10))
    with pytest.raises(fl.Refusal, match="an array of int64"):
        retrieval_scores(data, needle_at([1], 7).astype(int))
    with pytest.raises(fl.Refusal, match="not a list"):
        retrieval_scores(data, [1, 2])  # type: ignore[arg-type]  # what is being tested
    with pytest.raises(fl.Refusal, match="must be over position, of which there are 7"):
        retrieval_scores(data, needle_at([1], 6))
    with pytest.raises(fl.Refusal, match="needs top_key, which this trace does not hold"):
        retrieval_scores(data.drop_vars("top_key"), needle_at([1], 7))


def test_the_sets_of_copying_heads_are_those_of_each_step() -> None:
    # four heads; step 0 commits 11 and 12, step 1 commits 13 alone, step 2 commits 99, step 3 commits 12 again
    looks = [[[1, 0, 3, 0, 2], [0, 2, 3, 0, 2]], [[0, 0, 3, 0, 0], [0, 0, 0, 0, 0]]]
    data = written_by(looks, [11, 12, 13, 99, 12], committed=[0, 0, 1, 2, 3])
    found = retrieval_by_step(data, needle_at(NEEDLE, 10))
    assert found["copies"].dims == ("step", "layer", "head")
    sets = [
        {(layer, head) for layer, head in product(range(2), range(2)) if found["copies"].values[step, layer, head]} for step in range(4)
    ]
    assert sets == [{(0, 0), (0, 1)}, {(0, 0), (0, 1), (1, 0)}, set(), {(0, 0), (0, 1)}]
    assert found["heads_copying"].values.tolist() == [2, 3, 0, 2]
    assert found["compared"].values.tolist() == [True, True, False, True]
    np.testing.assert_allclose(found["jaccard"].values, [2 / 3, 2 / 3, np.nan, np.nan])
    assert float(found["mean_jaccard"]) == pytest.approx(2 / 3)
    all_steps = retrieval_by_step(data, needle_at(NEEDLE, 10), only_needle_tokens=False)
    np.testing.assert_allclose(all_steps["jaccard"].values, [2 / 3, 0, 0, np.nan])
    assert (int(all_steps["pairs"]), str(all_steps["reason"].values)) == (3, "")
    sizes = [(2, 3), (3, 2)]
    chance = [
        np.mean([len({*a} & {*b}) / len({*a} | {*b}) for a in combinations(range(4), i) for b in combinations(range(4), j)])
        for i, j in sizes
    ]
    np.testing.assert_allclose(found["no_memory"].values[:2], chance)
    assert float(found["mean_no_memory"]) == pytest.approx(np.mean(chance))


def test_pairs_of_empty_sets_are_left_out_and_one_empty_set_is_zero() -> None:
    data = written_by([[[0, 0, 2, 0], [0, 0, 2, 0]]], [11, 12, 12, 13])
    found = retrieval_by_step(data, needle_at(NEEDLE, 9))
    np.testing.assert_array_equal(found["jaccard"].values, [np.nan, 0, 0, np.nan])
    assert (int(found["pairs"]), float(found["mean_jaccard"])) == (2, 0)


@pytest.mark.parametrize(
    ("looks", "answer", "reason"),
    [
        ([0, 0], [11, 12], "no head copies at any of these steps"),
        ([1], [11], "fewer than two steps commit a token of the needle"),
        ([1, 0], [11, 99], "fewer than two steps commit a token of the needle"),
    ],
)
def test_without_two_sets_there_is_no_jaccard_and_the_reason_is_given(looks: list[int], answer: list[int], reason: str) -> None:
    found = retrieval_by_step(written_by([[looks]], answer), needle_at(NEEDLE, 5 + len(answer)))
    assert np.isnan(float(found["mean_jaccard"]))
    assert np.isnan(float(found["mean_no_memory"]))
    assert str(found["reason"].values) == reason


def test_heads_that_a_layer_does_not_have_are_not_drawn_in_the_null() -> None:
    found = retrieval_by_step(written_by([[[1, 2], [0, 0], [-1, -1]]], [11, 12]), needle_at(NEEDLE, 7))
    assert float(found["mean_jaccard"]) == 1
    assert float(found["mean_no_memory"]) == pytest.approx(0.5)

"""Region flow: direct and rolled out, against loops over dense attention, and against numbers known beforehand."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures import from_attention, pool_steps
from floatlens.measures.flow import direct_flow, rollout
from writers import autoregressive_model, diffusion_model
from zoo import eager_calls

Regions = dict[str, list[int]]
REGIONS = {"bos": [0], "query": [1, 2], "doc_1": [3, 4, 5], "answer": [7, 8, 9]}  # token 6 lies in none
CAUSAL, ALL = np.tril(np.ones((10, 10), bool)), np.ones((10, 10), bool)
PREDICTING = np.array([[False] * 7 + rows for rows in ([True, False, False], [False, True, True])])


def noise(seed: int, visible: np.ndarray, steps: int = 2, layers: int = 3, heads: int = 2) -> np.ndarray:
    """(step, layer, head, query, key)."""
    weights = np.exp(np.random.default_rng(seed).normal(size=(steps, layers, heads, *visible.shape)) * 2) * visible
    return weights / weights.sum(-1, keepdims=True)


def even(visible: np.ndarray, *leading: int) -> np.ndarray:
    return np.broadcast_to(visible / visible.sum(-1, keepdims=True), (*leading, *visible.shape))


def predicting(weights: np.ndarray, visible: np.ndarray = ALL, regions: Regions = REGIONS) -> xr.Dataset:
    groups = {"predicting": PREDICTING, "everyone": np.ones(10, bool)}
    return from_attention(weights, visible=visible, groups=groups, regions=regions)


def into(weights: np.ndarray, rows: Any, keys: list[int]) -> float:
    """Mean over rows of what each puts on the keys, (query, key)."""
    return sum(weights[row, key] for row in rows for key in keys) / len(rows)


@pytest.mark.parametrize("visible", [ALL, CAUSAL], ids=["bidirectional", "causal"])
def test_direct_flow_is_that_of_dense_attention(visible: np.ndarray) -> None:
    weights, fair = noise(0, visible), even(visible)
    flow, by_head = direct_flow(predicting(weights, visible)), direct_flow(predicting(weights, visible), per_head=True)
    assert flow["direct"].dims == ("step", "layer", "region")
    assert by_head["direct"].dims == ("step", "layer", "head", "region")
    for name, keys in {**REGIONS, "elsewhere": [6]}.items():
        for step in range(2):
            rows = np.flatnonzero(PREDICTING[step])
            null = into(fair, rows, keys)
            for layer in range(3):
                per_head = [into(weights[step, layer, head], rows, keys) for head in range(2)]
                here = {"step": step, "layer": layer}
                np.testing.assert_allclose(by_head["direct"].sel(region=name).isel(here), per_head)
                np.testing.assert_allclose(flow["direct"].sel(region=name).isel(here), np.mean(per_head))
                np.testing.assert_allclose(flow["fair"].sel(region=name).isel(here), np.mean(per_head) / null)
            np.testing.assert_allclose(flow["null"].sel(region=name).isel(step=step), null)
    np.testing.assert_allclose(flow["direct"].sum("region"), 1)
    assert (flow["reason"] == "").all()
    assert flow["overlapping"] == 0
    of_everyone = direct_flow(predicting(weights, visible), group="everyone")["direct"].sel(region="bos")
    np.testing.assert_allclose(of_everyone[1, 2], np.mean([into(one, range(10), [0]) for one in weights[1, 2]]))


@pytest.mark.parametrize("visible", [ALL, CAUSAL], ids=["bidirectional", "causal"])
def test_even_attention_flows_fairly(visible: np.ndarray) -> None:
    for per_head in (False, True):
        np.testing.assert_allclose(direct_flow(predicting(even(visible, 2, 3, 2), visible), per_head=per_head)["fair"], 1)


def test_noise_without_structure_flows_fairly_on_average() -> None:
    found = [direct_flow(predicting(noise(seed, ALL, layers=8, heads=4)))["fair"].mean(("step", "layer")) for seed in range(10)]
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(10)
    assert (np.abs(mean - 1) < 4 * error).all(), (mean, error)
    assert (error < 0.1).all()


def test_planted_flow_is_found_exactly() -> None:
    weights = np.zeros((2, 1, 1, 10, 10))
    weights[..., 3:6] = 0.3
    weights[..., 6] = 0.1
    flow = direct_flow(predicting(weights)).isel(layer=0)
    np.testing.assert_allclose(flow["direct"], [[0, 0, 0.9, 0, 0.1]] * 2)
    np.testing.assert_allclose(flow["fair"], [[0, 0, 3, 0, 1]] * 2)


def test_a_key_counts_in_every_region_that_holds_it() -> None:
    regions = {"doc_1": [1, 2, 3, 4], "gold": [3, 4], "answer": [4, 9]}
    weights = noise(1, ALL)
    flow = direct_flow(predicting(weights, regions=regions))
    for name, keys in {**regions, "elsewhere": [0, 5, 6, 7, 8]}.items():
        np.testing.assert_allclose(flow["direct"].sel(region=name)[0, 0], np.mean([into(one, [7], keys) for one in weights[0, 0]]))
    assert flow["overlapping"] == 2
    assert (flow["direct"].sum("region") > 1).all()


def test_an_empty_region_is_nan_and_says_so() -> None:
    flow = direct_flow(predicting(noise(2, ALL), regions={**REGIONS, "query": [], "rest": [1, 2, 6]}))
    empty = flow.sel(region=["query", "elsewhere"])
    assert empty[["direct", "null", "fair"]].isnull().to_array().all()
    assert (empty["reason"] == "no key of the region exists here").all()
    assert flow["direct"].sel(region=["bos", "doc_1", "answer", "rest"]).notnull().all()


def test_a_step_without_rows_is_nan_and_says_so() -> None:
    flow = direct_flow(from_attention(noise(3, ALL), groups={"predicting": np.stack([PREDICTING[0], np.zeros(10, bool)])}, regions=REGIONS))
    assert flow["direct"].isel(step=0).notnull().all()
    assert flow["direct"].isel(step=1).isnull().all()
    assert (flow["reason"].isel(step=1) == "the group has no rows here").all()


def test_what_no_row_sees_and_what_does_not_exist_yet_are_told_apart() -> None:
    visible = CAUSAL.copy()
    visible[:, 0] = np.arange(10) == 0  # only the first token sees the first token
    data = predicting(noise(4, visible), visible, {"bos": [0], "doc_1": [3, 4], "last": [9]}).isel(step=[0])
    exists = xr.DataArray(np.arange(10) <= 7, dims="key")  # an autoregressive canvas ends with the step's row
    flow = direct_flow(data.assign({name: data[name].where(exists) for name in ("mass", "visible", "null")})).isel(step=0)
    np.testing.assert_array_equal(flow["direct"].sel(region="bos"), 0)
    np.testing.assert_array_equal(flow["null"].sel(region="bos"), 0)
    assert flow["fair"].sel(region="bos").isnull().all()
    assert flow["direct"].sel(region="last").isnull().all()
    assert flow["reason"].values.tolist() == ["no row of the group may see the region", "", "no key of the region exists here", ""]


def test_pooled_steps_flow_too() -> None:
    weights = noise(6, CAUSAL)
    data = predicting(weights, CAUSAL)
    pooled = pool_steps(data).assign(in_region=data["in_region"]).assign_coords(region=data["region"])
    flow = direct_flow(pooled)
    assert flow["direct"].dims == ("layer", "region")
    rows = [(0, 7), (1, 8), (1, 9)]
    for layer in range(3):
        direct = np.mean([weights[step, layer, :, row, 3:6].sum(-1).mean() for step, row in rows])
        np.testing.assert_allclose(flow["direct"].sel(region="doc_1")[layer], direct)
        np.testing.assert_allclose(flow["fair"].sel(region="doc_1")[layer], direct / np.mean([3 / (row + 1) for _, row in rows]))


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.permutations(range(4)))
def test_heads_and_regions_may_come_in_any_order(seed: int, order: list[int]) -> None:
    data = predicting(noise(seed, CAUSAL, heads=4), CAUSAL)
    flow = direct_flow(data)
    xr.testing.assert_allclose(direct_flow(data.isel(head=order)), flow)
    xr.testing.assert_allclose(direct_flow(data.isel(head=order), per_head=True), direct_flow(data, per_head=True).isel(head=order))
    xr.testing.assert_allclose(direct_flow(data.isel(region=order)), flow.isel(region=[*order, 4]))
    assert float(flow["direct"].min()) >= 0
    assert float(flow["direct"].max()) <= 1 + 1e-12


def test_attention_kept_per_layer_and_counts_per_head_give_the_same_flow() -> None:
    data = predicting(noise(7, CAUSAL), CAUSAL)
    flow = direct_flow(data)
    xr.testing.assert_allclose(direct_flow(data.assign(mass=data["mass"].mean("head"))), flow)
    repeated = data.assign({name: data[name].broadcast_like(data["mass"]) for name in ("visible", "null")})
    repeated["rows"] = data["rows"].broadcast_like(data["mass"].isel(key=0))
    for name in ("direct", "fair"):
        xr.testing.assert_allclose(direct_flow(repeated)[name], flow[name])
        np.testing.assert_allclose(direct_flow(repeated, per_head=True)[name], direct_flow(data, per_head=True)[name])


def padded(data: xr.Dataset) -> xr.Dataset:
    """As a sample with two steps and three positions less looks among longer ones."""
    wider = data.drop_vars(["pattern", "chosen_layer", "chosen_head", "in_region"]).pad(step=(0, 2), key=(0, 3))
    assert wider["visible"].isel(key=-1).isnull().all()
    return wider.assign(in_region=data["in_region"].pad(position=(0, 3), constant_values=False))


def test_padding_changes_no_direct_flow() -> None:
    for regions in (REGIONS, {"text": list(range(10))}):
        data = predicting(noise(8, CAUSAL), CAUSAL, regions)
        found = direct_flow(padded(data))
        xr.testing.assert_allclose(found.isel(step=slice(2)), direct_flow(data))
        assert (found["reason"].isel(step=slice(2)) == direct_flow(data)["reason"]).all()
        assert found["direct"].isel(step=slice(2, None)).isnull().all()
        assert (found["reason"].isel(step=slice(2, None)) == "the group has no rows here").all()


def test_every_sample_flows_by_itself() -> None:
    own = [predicting(noise(seed, CAUSAL), CAUSAL, {"bos": [0], "doc_1": keys}) for seed, keys in ((9, [2, 3]), (10, []))]
    for order in ([0, 1], [1, 0]):
        both = xr.concat([own[number] for number in order], "sample", coords="minimal")
        for at, number in enumerate(order):
            xr.testing.assert_allclose(direct_flow(both).isel(sample=at), direct_flow(own[number]))


def test_bad_questions_are_refused() -> None:
    data = predicting(noise(11, ALL))
    with pytest.raises(fl.Refusal, match="Direct flow needs in_region"):
        direct_flow(data.drop_vars(["in_region", "region"]))
    with pytest.raises(fl.Refusal, match="no query group 'masked'"):
        direct_flow(data, group="masked")
    with pytest.raises(fl.Refusal, match="called 'elsewhere'"):
        direct_flow(data.assign_coords(region=["bos", "query", "elsewhere", "answer"]))
    with pytest.raises(
        fl.Refusal,
        match=r"Rollout needs flow, .*\. Record it with detail={'flow': 'layer'} \(--detail flow=layer\)\.",
    ):
        rollout(data)


def with_flow(weights: np.ndarray, visible: np.ndarray, regions: Regions = REGIONS, computed: np.ndarray | None = None) -> xr.Dataset:
    """Mass from region to region, (step, layer, head, query, key) summed weight by weight.

    `computed` (step, query), all rows by default.
    """
    steps, layers, heads, _, _ = weights.shape
    square, fair = (len(regions), len(regions)), even(visible)
    flow, null = np.zeros((steps, layers, heads, *square)), np.zeros((steps, layers, *square))
    for step in range(steps):
        for a, queries in enumerate(regions.values()):
            own = [query for query in queries if computed is None or computed[step, query]]
            for b, keys in enumerate(regions.values()):
                flow[step, :, :, a, b] = weights[step][:, :, own][..., keys].sum((-1, -2))
                null[step, :, a, b] = fair[own][:, keys].sum()
    names = list(regions)
    return xr.Dataset(
        {
            "flow": (("step", "layer", "head", "query_region", "key_region"), flow),
            "flow_null": (("step", "layer", "query_region", "key_region"), null),
        },
        coords={"query_region": names, "key_region": names, "layer": np.arange(layers)},
    )


def published(attention_of_layers: list[np.ndarray], regions: Regions) -> np.ndarray:
    """The published rollout, entry by entry.

    Regions pooled by sums of head-averaged attention (query, key) and normalised by row, the identity added and normalised again, every
    layer multiplied from the left, and the result normalised once more. Rows of zeros are left as they are.
    """
    names = list(regions)
    count = len(names)
    rolled = [[float(a == b) for b in range(count)] for a in range(count)]
    for attention in attention_of_layers:
        pooled = [[float(sum(attention[i, j] for i in regions[one] for j in regions[other])) for other in names] for one in names]
        for a in range(count):
            whole = sum(pooled[a]) or 1
            mixed = [pooled[a][b] / whole + float(a == b) for b in range(count)]
            pooled[a] = [value / (sum(mixed) or 1) for value in mixed]
        rolled = [[sum(pooled[a][c] * rolled[c][b] for c in range(count)) for b in range(count)] for a in range(count)]
    return np.array([[value / (sum(row) or 1) for value in row] for row in rolled])


@pytest.mark.parametrize("visible", [ALL, CAUSAL], ids=["bidirectional", "causal"])
def test_rollout_is_the_published_one_to_the_letter(visible: np.ndarray) -> None:
    weights = noise(12, visible)
    found = rollout(with_flow(weights, visible))
    assert found["rollout"].dims == ("step", "query_region", "key_region")
    for step in range(2):
        np.testing.assert_allclose(found["rollout"][step], published(list(weights[step].mean(1)), REGIONS), atol=1e-14)
        np.testing.assert_allclose(found["null"][step], published(list(even(visible, 3)), REGIONS), atol=1e-14)
    backwards = published(list(weights[0].mean(1))[::-1], REGIONS)
    assert np.abs(found["rollout"][0] - backwards).max() > 0.01, "layers in the other order would pass as well"
    np.testing.assert_allclose(found["fair"], found["rollout"] / found["null"].where(found["null"] > 0))


def test_rollout_after_every_layer_is_that_of_a_model_that_ends_there() -> None:
    data = with_flow(noise(13, CAUSAL), CAUSAL)
    found = rollout(data, cumulative=True)
    for layer in range(3):
        until = rollout(data.isel(layer=slice(layer + 1)))
        for name in ("rollout", "null", "fair"):
            np.testing.assert_allclose(found[name].isel(layer=layer), until[name])


def passages() -> tuple[Regions, int]:
    lengths = {"bos": 1, "query": 20, **{f"doc_{number}": 150 for number in range(1, 11)}, "answer": 32}
    ends = np.cumsum(list(lengths.values()))
    return {name: list(range(end - length, end)) for (name, length), end in zip(lengths.items(), ends, strict=True)}, int(ends[-1])


def of_32_layers(attention: np.ndarray, visible: np.ndarray, regions: Regions) -> xr.Dataset:
    one = with_flow(attention[None, None, None], visible, regions)
    return rollout(one.isel(layer=[0] * 32)).isel(step=0)


def test_causal_rollout_piles_up_on_the_first_token_whatever_the_model_does() -> None:
    regions, length = passages()
    visible = np.tril(np.ones((length, length), bool))
    uniform = visible / visible.sum(-1, keepdims=True)
    found = of_32_layers(uniform, visible, regions)
    onto_bos = found["rollout"].sel(key_region="bos")
    assert round(float(onto_bos.sel(query_region="answer")), 2) == 0.72
    assert (onto_bos.diff("query_region") < 0).all(), "the earlier a region, the more of it"
    assert onto_bos.sel(query_region="bos") == 1, "the first token sees only itself"
    np.testing.assert_allclose(found["fair"].sel(query_region="answer"), 1)
    a_fifth_more, a_fifth = 0.8 * uniform, 0.8 * np.tril(np.ones((length, length)) / np.maximum(np.arange(length), 1)[:, None])
    a_fifth_more[:, 0] += 0.2
    a_fifth[:, 0] = 0
    a_fifth[:, 0] = 1 - a_fifth.sum(-1)
    np.testing.assert_allclose(a_fifth[1:, 0], 0.2)
    for attention, expected in ((a_fifth_more, 0.99), (a_fifth, 0.97)):
        onto_bos = of_32_layers(attention, visible, regions).sel(query_region="answer", key_region="bos")
        assert round(float(onto_bos["rollout"]), 2) == expected
        assert float(onto_bos["fair"]) < 1.4, "little more than even attention gives"


def test_even_attention_to_everything_rolls_out_to_the_lengths_of_regions() -> None:
    regions, length = passages()
    everything = np.ones((length, length), bool)
    found = of_32_layers(everything / length, everything, regions)
    expected = np.array([len(keys) for keys in regions.values()]) / length
    np.testing.assert_allclose(found["rollout"], np.broadcast_to(expected, (13, 13)), atol=1e-9)
    np.testing.assert_allclose(found["fair"], 1)


def test_a_region_whose_rows_were_not_computed_is_nan_and_so_is_what_looks_through_it() -> None:
    computed = np.ones((2, 10), bool)
    computed[1, 1:3] = False  # the second step has the query in its cache
    found = rollout(with_flow(noise(14, CAUSAL), CAUSAL, computed=computed), cumulative=True)
    assert found["rollout"].isel(step=0).notnull().all()
    second = found["rollout"].isel(step=1)
    assert second.sel(query_region="query").isnull().all()
    assert second.sel(query_region="bos").notnull().all(), "the first token does not look at the query"
    assert second.sel(query_region=["doc_1", "answer"]).isel(layer=0).notnull().all(), "the first layer looks at the input itself"
    assert second.sel(query_region=["doc_1", "answer"]).isel(layer=slice(1, None)).isnull().all()
    reason = found["reason"].isel(step=1)
    assert "layer" not in reason.dims
    assert (reason.sel(query_region="query") == "no row of the region was computed here that looks at a region").all()
    assert (reason.sel(query_region="answer") == "it looks through a region of which no row was computed here").all()
    assert reason.sel(query_region="bos").values.tolist() == ["", *["even attention does not reach the region from here"] * 3]


def test_a_region_that_a_sample_does_not_have_harms_no_other() -> None:
    weights = noise(15, CAUSAL)
    found = rollout(with_flow(weights, CAUSAL, {**REGIONS, "doc_2": []}))
    xr.testing.assert_allclose(
        found.sel(query_region=list(REGIONS), key_region=list(REGIONS)).drop_vars("reason"),
        rollout(with_flow(weights, CAUSAL)).drop_vars("reason"),
    )
    assert found["rollout"].sel(query_region="doc_2").isnull().all()
    assert found["rollout"].sel(key_region="doc_2").isnull().all()
    assert (found["reason"].sel(query_region="answer", key_region="doc_2") == "no row may see the region here").all()


def test_pooled_steps_are_the_published_rollout_of_a_text_whose_rows_were_computed_one_by_one() -> None:
    weights = noise(16, CAUSAL, steps=1).repeat(4, axis=0)
    computed = np.zeros((4, 10), bool)
    computed[0, :7] = computed[1, 7] = computed[2, 8] = computed[3, 9] = True
    data = with_flow(weights, CAUSAL, computed=computed)
    pooled = rollout(data, pooled=True)
    assert pooled["rollout"].dims == ("query_region", "key_region")
    np.testing.assert_allclose(pooled["rollout"], published(list(weights[0].mean(1)), REGIONS), atol=1e-14)
    np.testing.assert_allclose(pooled["null"], published(list(even(CAUSAL, 3)), REGIONS), atol=1e-14)
    assert rollout(data)["rollout"].sel(query_region="answer").isnull().all()


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.permutations(range(4)))
def test_rows_of_a_rollout_add_up_to_1_in_any_order_of_heads_and_regions(seed: int, order: list[int]) -> None:
    data = with_flow(noise(seed, CAUSAL, heads=4), CAUSAL)
    found = rollout(data)
    for name in ("rollout", "null"):
        np.testing.assert_allclose(found[name].sum("key_region"), 1)
        assert float(found[name].min()) >= 0
    xr.testing.assert_allclose(rollout(data.isel(head=order)), found)
    turned = rollout(data.isel(query_region=order, key_region=order))
    xr.testing.assert_allclose(turned, found.isel(query_region=order, key_region=order))
    xr.testing.assert_allclose(rollout(data.assign(flow=data["flow"].mean("head"))), found)


def test_steps_that_a_sample_does_not_have_are_nan_and_samples_roll_out_by_themselves() -> None:
    own = [with_flow(noise(seed, CAUSAL, steps=steps), CAUSAL) for seed, steps in ((17, 2), (18, 1))]
    both = xr.concat([own[0], own[1].pad(step=(0, 1))], "sample", coords="minimal")
    found = rollout(both)
    xr.testing.assert_allclose(found.isel(sample=0), rollout(own[0]))
    xr.testing.assert_allclose(found.isel(sample=1, step=[0]), rollout(own[1]))
    assert found["rollout"].isel(sample=1, step=1).isnull().all()
    xr.testing.assert_allclose(rollout(both, pooled=True).isel(sample=1), rollout(own[1]).isel(step=0))


def regions_of(sample: xr.Dataset) -> Regions:
    return {
        str(name): np.flatnonzero(inside).tolist() for name, inside in zip(sample["region"].values, sample["in_region"].values, strict=True)
    }


def test_a_diffusion_trace_flows_as_eager_attention_does() -> None:
    lm = diffusion_model("llada")
    sample = lm.trace([[5, 6, 7, 8, 9]], gen_length=4, steps=2, detail={"flow": "layer"}, progress=False).sample(0)
    direct, rolled, regions = direct_flow(sample), rollout(sample), regions_of(sample)
    for step in range(2):
        calls = eager_calls(lm.module, input_ids=torch.tensor(sample["canvas"].values[None, step].astype(int)), use_cache=False)
        attention = [call.weights[0].mean(0) for call in calls]
        rows = np.flatnonzero(sample["state"].values[step] == 3)
        for layer, weights in enumerate(attention):
            for name, keys in regions.items():
                here = direct.sel(region=name).isel(step=step, layer=layer)
                np.testing.assert_allclose(here["direct"], into(weights, rows, keys), rtol=1e-4)
                np.testing.assert_allclose(here["null"], len(keys) / 9, rtol=1e-5)
        np.testing.assert_allclose(rolled["rollout"][step], published(attention, regions), rtol=1e-4)


def test_an_autoregressive_trace_rolls_out_over_its_finished_text() -> None:
    lm = autoregressive_model()
    sample = lm.trace([[5, 6, 7, 8, 9]], gen_length=4, detail={"flow": "head"}, progress=False).sample(0)
    text = sample["final"].values[:-1].astype(int)  # the last token is written and never read
    calls = eager_calls(lm.module, input_ids=torch.tensor(text[None]), use_cache=False)
    regions = {name: [key for key in keys if key < len(text)] for name, keys in regions_of(sample).items()}
    found = rollout(sample, pooled=True)
    np.testing.assert_allclose(found["rollout"], published([call.weights[0].mean(0) for call in calls], regions), rtol=1e-4, atol=1e-6)
    direct = direct_flow(sample)
    for step in range(4):
        expected = into(calls[1].weights[0].mean(0), [4 + step], regions["prompt"])
        np.testing.assert_allclose(direct["direct"].sel(region="prompt").isel(step=step, layer=1), expected, rtol=1e-4)
    assert (direct["reason"].sel(region="answer").isel(step=0) == "no key of the region exists here").all()

"""Geometry of anchors against loops over queries, keys and values; the split of their advantage against all pairs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import dense
import floatlens as fl
from floatlens.measures import find_anchors, from_attention, received
from floatlens.measures.geometry import (
    GEOMETRY,
    advantage_split,
    anchor_geometry,
    contribution_of_anchors,
    effective_contribution,
    value_contrast,
)
from writers import PROMPTS, diffusion_model
from zoo import eager_calls

KEYS = ("step", "layer", "head", "group", "key")
MEMBERS = {"first": np.arange(20) < 18, "later": np.arange(20) >= 2}


@dataclass(frozen=True)
class Vectors:
    """Queries, keys and values, each (step, layer, head, position, depth), and who sees whom."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    visible: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        scores = np.where(self.visible, self.query @ self.key.swapaxes(-1, -2), -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)


def drawn(seed: int, shape: tuple[int, int, int] = (2, 2, 3), causal: bool = False) -> Vectors:
    draw = np.random.default_rng(seed)
    query, key, value = (draw.normal(size=(*shape, 20, 6)) * draw.gamma(2, size=(*shape, 20, 1)) for _ in range(3))
    return Vectors(query, key, value, np.tril(np.ones((20, 20), bool)) if causal else np.ones((20, 20), bool))


def as_traced(vectors: Vectors) -> xr.Dataset:
    """What a trace keeps of these vectors, per head."""
    data = from_attention(vectors.weights, visible=vectors.visible, groups=MEMBERS)
    geometry = {name: np.full(data["mass"].shape, np.nan) for name in ("score", "cosine", "norm_product")}
    for step, layer, (group, rows) in (
        (s, la, g) for s, la, _ in np.ndindex(*data["mass"].shape[:2], 1) for g in enumerate(MEMBERS.values())
    ):
        straight = dense.geometry(vectors.query[step, layer], vectors.key[step, layer], vectors.visible, rows)
        for name, values in straight.items():
            geometry[name][step, layer, :, group] = values
    norms = {"key_norm": np.linalg.norm(vectors.key, axis=-1), "value_norm": np.linalg.norm(vectors.value, axis=-1)}
    return data.assign({name: (KEYS, values) for name, values in geometry.items()}).assign(
        {name: (("step", "layer", "head", "key"), values) for name, values in norms.items()}
    )


def sets_of_keys(data: xr.Dataset, seed: int, per_head: bool = True) -> xr.Dataset:
    """Random measured keys in the place of anchors."""
    mass = data["mass"] if per_head else data["mass"].mean("head")
    known = data["visible"] >= 5
    chance = np.random.default_rng(seed).random(mass.shape) < 0.3
    return xr.Dataset({"anchor": mass.copy(data=chance) & known, "measured": known}).transpose("step", "layer", ..., "key")


def by_layer(data: xr.Dataset, *names: str) -> xr.Dataset:
    return data.assign({name: data[name].mean("head") for name in names})


def keys_of(anchors: xr.Dataset, at: dict[str, int]) -> tuple[list[int], list[int]]:
    """Anchors and the rest at one place."""
    anchor = anchors["anchor"].isel(at, missing_dims="ignore").values
    known = anchors["measured"].isel(at, missing_dims="ignore").values
    return np.flatnonzero(anchor).tolist(), np.flatnonzero(known & ~anchor).tolist()


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_means_are_over_the_anchors_and_over_the_other_measured_keys(per_head: bool, causal: bool) -> None:
    data = as_traced(drawn(0, causal=causal))
    data = data if per_head else by_layer(data, *GEOMETRY)
    anchors = sets_of_keys(data, 1, per_head)
    found, contrast = anchor_geometry(data, anchors), value_contrast(data, anchors)
    assert ("head" in found["score"].dims) == per_head
    assert causal == bool((~anchors["measured"]).any())
    for step, layer, head, group in np.ndindex(2, 2, 3 if per_head else 1, 2):
        at = {"step": step, "layer": layer, "head": head, "group": group}
        kinds = dict(zip(("anchor", "rest"), keys_of(anchors, at), strict=True))
        for kind, members in kinds.items():
            here = found.isel(at, missing_dims="ignore").sel(kind=kind)
            assert int(here["keys"]) == len(members)
            for name in GEOMETRY:
                values = data[name].isel(at, missing_dims="ignore").values
                assert float(here[name]) == pytest.approx(np.mean([values[key] for key in members]) if members else np.nan, nan_ok=True)
        here = contrast.isel(at, missing_dims="ignore")
        assert float(here["anchor_norm"]) == pytest.approx(
            float(found["value_norm"].isel(at, missing_dims="ignore").sel(kind="anchor")), nan_ok=True
        )
        assert float(here["ratio"]) == pytest.approx(float(here["anchor_norm"]) / float(here["rest_norm"]), nan_ok=True)


@pytest.mark.parametrize("causal", [False, True])
def test_the_split_is_the_mean_over_all_pairs_of_an_anchor_and_another_key(causal: bool) -> None:
    data = as_traced(drawn(2, causal=causal))
    anchors = sets_of_keys(data, 3)
    found = advantage_split(data, anchors)
    assert found["advantage"].dims == ("step", "layer", "group")
    assert set(np.sign(found["advantage"].values.ravel())) == {-1, 1}, "one sign only shows too little"
    for step, layer, group in np.ndindex(2, 2, 2):
        parts: list[tuple[float, float, float]] = []
        for head in range(3):
            at = {"step": step, "layer": layer, "head": head, "group": group}
            score = data["score"].isel(at).values
            length = np.linalg.norm(drawn(2, causal=causal).key[step, layer, head], axis=-1)
            pairs = [
                (
                    score[a] - score[r],
                    (length[a] + length[r]) / 2 * (score[a] / length[a] - score[r] / length[r]),
                    (score[a] / length[a] + score[r] / length[r]) / 2 * (length[a] - length[r]),
                )
                for a, r in ((a, r) for a in keys_of(anchors, at)[0] for r in keys_of(anchors, at)[1])
            ]
            if pairs:
                parts.append(tuple(np.mean(pairs, axis=0)))
        here = found.isel(step=step, layer=layer, group=group)
        assert int(here["heads"]) == len(parts)
        expected = np.mean(parts, axis=0)
        assert [float(here[name]) for name in ("advantage", "direction", "norm")] == pytest.approx(expected.tolist())
        assert float(here["direction"] + here["norm"]) == pytest.approx(float(here["advantage"]), abs=1e-12)


def hand_made(score: list[float], length: list[float], anchor: list[bool], heads: int = 1) -> tuple[xr.Dataset, xr.Dataset]:
    """One place with these keys, the same in every head."""
    shape = (1, 1, heads, 1, len(score))
    scores, chosen = (xr.DataArray(np.broadcast_to(values, shape), dims=KEYS) for values in (np.array(score), np.array(anchor)))
    lengths = xr.DataArray(np.broadcast_to(length, shape), dims=KEYS).isel(group=0)
    return xr.Dataset({"score": scores, "key_norm": lengths}), xr.Dataset({"anchor": chosen, "measured": scores.notnull().isel(head=0)})


@pytest.mark.parametrize(
    ("score", "length", "direction", "norm"),
    [
        ([6.0, 2.0, 4.0], [1.0, 1.0, 1.0], 3.0, 0.0),  # as long as the others
        ([-6.0, -2.0, -4.0], [1.0, 1.0, 1.0], -3.0, 0.0),
        ([6.0, 2.0, 4.0], [3.0, 1.0, 2.0], 0.0, 3.0),  # points as the others do
        ([-6.0, -2.0, -4.0], [3.0, 1.0, 2.0], 0.0, -3.0),
        ([2.0, -1.0, -1.0], [1.0, 2.0, 2.0], 3.75, -0.75),  # direction against the norm
    ],
)
def test_what_is_planted_in_direction_or_norm_alone_is_found_there(
    score: list[float], length: list[float], direction: float, norm: float
) -> None:
    split = advantage_split(*hand_made(score, length, [True, False, False]))
    assert [split[name].item() for name in ("advantage", "direction", "norm")] == pytest.approx([direction + norm, direction, norm])


def test_heads_without_anchors_and_keys_without_length_are_left_out() -> None:
    data, anchors = hand_made([6.0, 2.0, 0.0, 9.0], [1.0, 1.0, 0.0, 1.0], [True, False, False, False], heads=2)
    one_head = anchors.assign(anchor=anchors["anchor"] & (xr.DataArray([0, 1], dims="head") == 1)).transpose(*KEYS)
    for chosen, heads in ((anchors, 2), (one_head, 1)):
        split = advantage_split(data, chosen)
        assert split["heads"].item() == heads
        assert split["advantage"].item() == pytest.approx(6 - (2 + 9) / 2)
    nowhere = advantage_split(data, anchors.assign(anchor=anchors["anchor"] & False))
    assert nowhere["heads"].item() == 0
    assert all(nowhere[name].isnull().all() for name in ("advantage", "direction", "norm"))


def test_a_key_without_a_value_is_left_out_of_that_mean_alone() -> None:
    data = as_traced(drawn(13))
    anchors = sets_of_keys(data, 14)
    pointless = data.assign(cosine=data["cosine"].where(data["cosine"]["key"] != 4))
    found, complete = anchor_geometry(pointless, anchors), anchor_geometry(data, anchors)
    xr.testing.assert_allclose(found.drop_vars("cosine"), complete.drop_vars("cosine"))
    for step, layer, head, group in np.ndindex(2, 2, 3, 2):
        at = {"step": step, "layer": layer, "head": head, "group": group}
        for kind, members in zip(("anchor", "rest"), keys_of(anchors, at), strict=True):
            expected = np.mean([data["cosine"].isel(at).values[key] for key in members if key != 4])
            assert float(found["cosine"].isel(at).sel(kind=kind)) == pytest.approx(expected)


def test_no_anchors_have_no_geometry_and_the_count_says_so() -> None:
    data = as_traced(drawn(4))
    none = sets_of_keys(data, 0).map(lambda values: values & (values.name == "measured"))
    found, contrast = anchor_geometry(data, none), value_contrast(data, none)
    assert (found["keys"].sel(kind="anchor") == 0).all()
    for name in GEOMETRY:
        assert found[name].sel(kind="anchor").isnull().all()
        assert found[name].sel(kind="rest").notnull().all()
    assert contrast["ratio"].isnull().all()
    handed_on = contribution_of_anchors(data, none)
    assert (handed_on["share"] == 0).all()
    assert (handed_on["null"] == 0).all()
    unknown = contribution_of_anchors(data, none.map(lambda values: values & False))
    assert unknown[["share", "null", "mass_share", "mass_null"]].isnull().all().to_array().all()
    assert (unknown["reason"] == "too few rows see any key").all()


def test_keys_drawn_from_noise_are_like_the_rest_in_every_respect() -> None:
    data = as_traced(drawn(5, shape=(1, 2, 150)))
    anchors = sets_of_keys(data, 6)
    found, split = anchor_geometry(data, anchors), advantage_split(data, anchors)
    for name in GEOMETRY:
        beyond = (found[name].sel(kind="anchor") - found[name].sel(kind="rest")).values.ravel()
        beyond = beyond[~np.isnan(beyond)]
        assert abs(beyond.mean()) < 3 * beyond.std() / np.sqrt(len(beyond) / 2), f"{name}: two groups share their keys"
    assert (abs(split[["direction", "norm"]]) < 0.2 * data["score"].std()).all()
    shares = contribution_of_anchors(data, anchors)
    beyond = (shares["null"] - shares["mass_null"]).values
    assert abs(beyond.mean()) < 3 * beyond.std() / np.sqrt(beyond.size / 2)


def test_contribution_is_attention_times_length_from_dense_weights() -> None:
    vectors = drawn(7, causal=True)
    data, weights, lengths = as_traced(vectors), vectors.weights, np.linalg.norm(vectors.value, axis=-1)
    anchors = sets_of_keys(data, 8)
    by_key, shares = effective_contribution(data), contribution_of_anchors(data, anchors)
    assert by_key.dims == KEYS
    for step, layer, head, group in np.ndindex(2, 2, 3, 2):
        at = {"step": step, "layer": layer, "head": head, "group": group}
        rows = np.flatnonzero(list(MEMBERS.values())[group]).tolist()
        looks, length = weights[step, layer, head], lengths[step, layer, head]
        evenly = vectors.visible / vectors.visible.sum(-1, keepdims=True)
        for key in range(20):
            seeing = [row for row in rows if vectors.visible[row, key]]
            expected = np.mean([looks[row, key] * length[key] for row in seeing]) if seeing else np.nan
            assert float(by_key.isel(at)[key]) == pytest.approx(expected, nan_ok=True)
        here, chosen = shares.isel(at, missing_dims="ignore"), keys_of(anchors, at)[0]
        for names, attention in ((("share", "mass_share"), looks), (("null", "mass_null"), evenly)):
            for name, values in zip(names, (length, np.ones(20)), strict=True):
                handed_on = [[attention[row, key] * values[key] for key in range(20)] for row in rows]
                expected = 100 * sum(one[key] for one in handed_on for key in chosen) / sum(map(sum, handed_on))
                assert float(here[name]) == pytest.approx(expected)


def test_where_all_values_are_as_long_contribution_is_attention() -> None:
    data = as_traced(drawn(9))
    data = data.assign(value_norm=xr.full_like(data["value_norm"], 3.0))
    anchors = find_anchors(data, eps=0.5)
    shares = contribution_of_anchors(data, anchors)
    np.testing.assert_allclose(shares["share"].values, shares["mass_share"].values)
    np.testing.assert_allclose(shares["null"].values, shares["mass_null"].values)
    xr.testing.assert_allclose(effective_contribution(data), 3 * received(data))
    assert (value_contrast(data, anchors)["ratio"].dropna("step") == 1).all()


def test_a_sink_with_small_values_draws_much_and_hands_on_little() -> None:
    weights = np.full((1, 1, 2, 20, 20), 0.2 / 19)
    weights[..., 0] = 0.8
    values = np.full((1, 1, 2, 20), 8.0)
    values[..., 0] = 0.1
    data = from_attention(weights).assign(value_norm=(("step", "layer", "head", "key"), values))
    anchors = find_anchors(data)
    np.testing.assert_allclose(value_contrast(data, anchors)["ratio"].values, 0.1 / 8)
    shares = contribution_of_anchors(data, anchors)
    np.testing.assert_allclose(shares["mass_share"].values, 80)
    np.testing.assert_allclose(shares["share"].values, 100 * 0.8 * 0.1 / (0.8 * 0.1 + 0.2 * 8))
    np.testing.assert_allclose(shares["null"].values, 100 * 0.1 / (0.1 + 19 * 8))


@settings(max_examples=4)
@given(st.permutations(range(3)), st.integers(0, 99))
def test_heads_are_measured_each_for_itself_and_the_split_is_even_in_its_parts(heads: list[int], seed: int) -> None:
    data = as_traced(drawn(seed, shape=(1, 1, 3)))
    anchors = sets_of_keys(data, seed)
    shuffled, shuffled_anchors = data.isel(head=heads), anchors.isel(head=heads)
    for measure in (anchor_geometry, value_contrast, contribution_of_anchors):
        xr.testing.assert_allclose(measure(shuffled, shuffled_anchors), measure(data, anchors).isel(head=heads))
    xr.testing.assert_allclose(effective_contribution(shuffled), effective_contribution(data).isel(head=heads))
    split = advantage_split(data, anchors)
    xr.testing.assert_allclose(advantage_split(shuffled, shuffled_anchors), split)
    parts = split[["advantage", "direction", "norm"]]
    longer = advantage_split(data.assign(score=2 * data["score"], key_norm=2 * data["key_norm"]), anchors)
    xr.testing.assert_allclose(longer[list(parts)], 2 * parts)
    swapped = anchors.assign(anchor=(anchors["measured"] & ~anchors["anchor"]).transpose(*KEYS))
    xr.testing.assert_allclose(advantage_split(data, swapped)[list(parts)], -parts)


def test_padding_changes_nothing() -> None:
    short, long = as_traced(drawn(10)), as_traced(drawn(11, shape=(4, 2, 3)))
    kept = [name for name in short.data_vars if name != "pattern"]
    short, long = short[kept].isel(key=slice(0, 17)), long[kept]
    together = xr.concat([short.pad(step=(0, 2), key=(0, 3)), long], "sample")
    for measure in (
        anchor_geometry,
        advantage_split,
        value_contrast,
        contribution_of_anchors,
        lambda data, _: effective_contribution(data),
    ):
        padded = measure(together, find_anchors(together, eps=0.5))
        padded = padded.to_dataset() if isinstance(padded, xr.DataArray) else padded
        for number, alone in enumerate((short, long)):
            expected = measure(alone, find_anchors(alone, eps=0.5))
            expected = expected.to_dataset() if isinstance(expected, xr.DataArray) else expected
            own = padded.isel(sample=number, step=slice(0, alone.sizes["step"]))
            own = own.isel(key=slice(0, alone.sizes["key"])) if "key" in own.dims else own
            xr.testing.assert_allclose(own, expected)
        beyond = padded.isel(sample=0, step=slice(2, None))
        for name in beyond.data_vars:
            assert (beyond[name] == 0).all() if name in ("keys", "heads") else name == "reason" or beyond[name].isnull().all()


def test_what_would_be_wrong_is_refused_with_the_remedy() -> None:
    data = as_traced(drawn(12))
    per_head, common = find_anchors(data), find_anchors(data, per_head=False)
    for measure, names in (
        (anchor_geometry, GEOMETRY),
        (advantage_split, ("score", "key_norm")),
        (value_contrast, ("value_norm",)),
        (contribution_of_anchors, ("mass", "value_norm")),
        (lambda data, _: effective_contribution(data), ("mass", "value_norm")),
    ):
        for name in names:
            with pytest.raises(fl.Refusal, match=f"needs {name}, which this trace does not hold. Record it with detail="):
                measure(data.drop_vars(name), per_head)
    for name in GEOMETRY:
        with pytest.raises(fl.Refusal, match=rf"per head and {name} is per layer; .* find_anchors\(data, per_head=False\)"):
            anchor_geometry(by_layer(data, name), per_head)
        assert "head" not in anchor_geometry(by_layer(data, name), common)[name].dims
    with pytest.raises(fl.Refusal, match="per head and value_norm is per layer"):
        value_contrast(by_layer(data, "value_norm"), per_head)
    for measure, names in (
        (advantage_split, ("score", "key_norm")),
        (contribution_of_anchors, ("mass", "value_norm")),
        (lambda data, _: effective_contribution(data), ("mass", "value_norm")),
    ):
        for name in names:
            with pytest.raises(fl.Refusal, match=f"needs {name} per head, .*which cannot be split. Record it with detail="):
                measure(by_layer(data, name), common)
    with pytest.raises(fl.Refusal, match="differ in group"):
        advantage_split(data, common.isel(group=0))
    with pytest.raises(fl.Refusal, match="differ in layer"):
        value_contrast(data, common.isel(layer=[0]))


def test_a_diffusion_models_split_is_that_of_its_queries_and_keys() -> None:
    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS[:2], gen_length=6, steps=2, detail={"geometry": "head", "norms": "head"}, progress=False)
    anchors = find_anchors(trace, rule="top", eps=2)
    means, split = anchor_geometry(trace, anchors), advantage_split(trace, anchors)
    contrast, shares = value_contrast(trace, anchors), contribution_of_anchors(trace, anchors)
    for number in range(2):
        sample = trace.sample(number)
        for step in range(sample.sizes["step"]):
            canvas, state = sample["canvas"].values[step], sample["state"].values[step]
            groups = {"masked": np.isin(state, (2, 3)), "unmasked": np.isin(state, (1, 4)), "predicting": state == 3}
            calls = eager_calls(lm.module, input_ids=torch.tensor(canvas[None]), use_cache=False)
            for layer, (name, members) in ((layer, group) for layer in range(3) for group in groups.items()):
                rows, by_head = np.flatnonzero(members), []
                for head in range(4):
                    query, key, value = (getattr(calls[layer], part)[0, head] for part in ("query", "key", "value"))
                    looks = calls[layer].weights[0, head][rows]
                    strongest = sorted(range(len(canvas)), key=lambda one: -looks[:, one].sum())[:2]
                    others = [one for one in range(len(canvas)) if one not in strongest]
                    scores = [np.mean([query[row] @ one for row in rows]) for one in key]
                    lengths, values = np.sqrt((key**2).sum(-1)), np.sqrt((value**2).sum(-1))
                    at = {"sample": number, "step": step, "layer": layer, "head": head}
                    here = means.isel(at).sel(group=name)
                    for kind, chosen in (("anchor", strongest), ("rest", others)):
                        assert float(here["score"].sel(kind=kind)) == pytest.approx(np.mean([scores[one] for one in chosen]), abs=1e-4)
                        assert float(here["key_norm"].sel(kind=kind)) == pytest.approx(np.mean(lengths[chosen]), rel=1e-4)
                    ratio = np.mean(values[strongest]) / np.mean(values[others])
                    assert float(contrast["ratio"].isel(at).sel(group=name)) == pytest.approx(ratio, rel=1e-4)
                    handed_on = looks.sum(0) * values
                    expected = 100 * handed_on[strongest].sum() / handed_on.sum()
                    assert float(shares["share"].isel(at).sel(group=name)) == pytest.approx(expected, abs=1e-2)
                    pairs = [(a, r) for a in strongest for r in others if lengths[a] > 0 and lengths[r] > 0]
                    direction = [(lengths[a] + lengths[r]) / 2 * (scores[a] / lengths[a] - scores[r] / lengths[r]) for a, r in pairs]
                    norm = [(scores[a] / lengths[a] + scores[r] / lengths[r]) / 2 * (lengths[a] - lengths[r]) for a, r in pairs]
                    by_head.append((np.mean(direction) + np.mean(norm), np.mean(direction), np.mean(norm)))
                here = split.isel(sample=number, step=step, layer=layer).sel(group=name)
                assert int(here["heads"]) == 4
                found = [float(here[part]) for part in ("advantage", "direction", "norm")]
                assert found == pytest.approx(np.mean(by_head, axis=0).tolist(), abs=1e-4)

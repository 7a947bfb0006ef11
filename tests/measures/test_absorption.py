"""Shares of attention on sets of keys, against loops over dense weights; at their null where there is nothing to find."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key
from writers import PROMPTS, autoregressive_model, diffusion_model
from zoo import eager_calls

Weights = np.ndarray  # (step, layer, head, query, key)


def noise(seed: int, shape: tuple[int, ...], visible: np.ndarray | None = None) -> Weights:
    """Rows without structure: independent, and no key preferred among those that a row sees."""
    draws = np.random.default_rng(seed).gamma(0.5, size=shape) + 1e-9
    draws = draws if visible is None else draws * visible
    return draws / draws.sum(-1, keepdims=True)


def sets_of_keys(data: xr.Dataset, seed: int) -> xr.Dataset:
    """Random keys in the place of anchors, some of them in no head."""
    drawn = np.random.default_rng(seed).random(data["mass"].shape) < 0.2
    return xr.Dataset({"anchor": data["mass"].copy(data=drawn), "measured": data["visible"] > 0})


def straight_shares(weights: np.ndarray, visible: np.ndarray, rows: list[int], keys: list[int]) -> tuple[float, float]:
    """Percentage of what the rows of one head give to the keys, and that of rows that spread evenly."""
    held = sum(weights[row, key] for row in rows for key in keys)
    evenly = sum(1 / visible[row].sum() for row in rows for key in keys if visible[row, key])
    return 100 * held / len(rows), 100 * evenly / len(rows)


def favourite(weights: np.ndarray, visible: np.ndarray, rows: list[int], candidates: list[int]) -> int:
    """The candidate with the largest mean weight over the rows that see it."""
    means = {key: np.mean([weights[row, key] for row in rows if visible[row, key]]) for key in candidates if visible[rows, key].any()}
    return max(means, key=lambda key: means[key])


def straight_strongest(weights: np.ndarray, visible: np.ndarray, rows: list[int]) -> dict[str, float]:
    """Chosen on one half and measured on the other, both ways; and chosen and measured on all rows."""
    needed = min(len(rows), max(16, len(rows) / 4))
    candidates = [key for key in range(weights.shape[-1]) if visible[rows, key].sum() >= needed]
    even, odd = [row for row in rows if row % 2 == 0], [row for row in rows if row % 2]
    on_odd = straight_shares(weights, visible, odd, [favourite(weights, visible, even, candidates)])
    on_even = straight_shares(weights, visible, even, [favourite(weights, visible, odd, candidates)])
    share, null = ((len(odd) * a + len(even) * b) / len(rows) for a, b in zip(on_odd, on_even, strict=True))
    same = straight_shares(weights, visible, rows, [favourite(weights, visible, rows, candidates)])
    return {"share": share, "null": null, "same_rows": same[0], "same_rows_null": same[1]}


CAUSAL = np.tril(np.ones((24, 24), bool))
MASKS = {"bidirectional": np.ones((24, 24), bool), "causal": CAUSAL, "window": CAUSAL & ~np.tril(CAUSAL, -20)}


@pytest.mark.parametrize("mask", MASKS)
def test_shares_are_those_of_dense_attention(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floatlens.measures.inputs.BYTES_AT_ONCE", 5_000)  # two of the five layers at a time
    visible, layers = MASKS[mask], 5
    weights = noise(0, (3, layers, 2, 24, 24), visible)
    members = {"first": np.arange(24) < 17, "later": np.arange(24) >= 5}
    data = from_attention(weights, visible=visible, groups=members)
    chosen = sets_of_keys(data, 1)
    found = {
        "anchors": absorption_of_anchors(data, chosen),
        "first": absorption_of_first_token(data),
        "strongest": absorption_of_strongest_key(data),
    }
    assert found["anchors"]["share"].dims == ("step", "layer", "head", "group")
    for step, layer, head, group in np.ndindex(3, layers, 2, 2):
        at = {"step": step, "layer": layer, "head": head, "group": group}
        rows = np.flatnonzero(list(members.values())[group]).tolist()
        looks = weights[step, layer, head]
        keys = np.flatnonzero(chosen["anchor"].isel(at).values).tolist()
        for kind, expected in (
            ("anchors", straight_shares(looks, visible, rows, keys)),
            ("first", straight_shares(looks, visible, rows, [0])),
        ):
            here = found[kind].isel(at, missing_dims="ignore")
            assert [float(here[name].isel(at, missing_dims="ignore")) for name in ("share", "null")] == pytest.approx(expected)
        if (data["visible"].isel(step=0, group=group) >= 16).any():
            strongest = straight_strongest(looks, visible, rows)
            assert {name: float(found["strongest"][name].isel(at)) for name in strongest} == pytest.approx(strongest)


@pytest.mark.parametrize("mask", ["bidirectional", "causal"])
def test_noise_absorbs_its_null_though_choosing_on_the_same_rows_makes_it_look_strong(mask: str) -> None:
    visible = MASKS[mask]
    data = from_attention(noise(2, (2, 2, 400, 24, 24), visible), visible=visible)
    for given_data in (data, pool_steps(data)):
        found = absorption_of_strongest_key(given_data)
        beyond = (found["share"] - found["null"]).values.ravel()
        inflated = (found["same_rows"] - found["same_rows_null"]).values.ravel()
        error = beyond.std() / np.sqrt(len(beyond))
        assert abs(beyond.mean()) < 3 * error
        assert inflated.mean() > 10 * error
    found = absorption_of_anchors(data, find_anchors(data))
    assert (found["share"] == 0).mean() > 0.99
    assert (found["share"] == 0).equals(found["null"] == 0)


def test_uniform_causal_attention_gives_the_first_token_a_harmonic_share_and_that_is_its_null() -> None:
    rows = 50
    data = from_attention(np.tril(np.ones((rows, rows))) / np.arange(1, rows + 1)[:, None], visible=np.tril(np.ones((rows, rows))))
    found = absorption_of_first_token(data)
    harmonic = 100 * sum(1 / row for row in range(1, rows + 1)) / rows
    assert harmonic == pytest.approx(9, abs=0.1)
    assert found["share"].item() == pytest.approx(harmonic)
    assert found["null"].item() == pytest.approx(harmonic)


def test_a_planted_anchor_absorbs_what_was_planted_by_every_way_of_choosing_it() -> None:
    weights = np.full((2, 1, 3, 20, 40), 0.4 / 39)
    weights[..., 0] = 0.6
    weights[1, :, 2] = 0.4 / 39
    weights[1, :, 2, :, 31] = 0.6  # moves in one head
    data = from_attention(weights)
    for found in (absorption_of_anchors(data, find_anchors(data)), absorption_of_strongest_key(data)):
        np.testing.assert_allclose(found["share"].values, 60)
        np.testing.assert_allclose(found["null"].values, 2.5)
        assert (found["reason"] == "").all()
    np.testing.assert_allclose(absorption_of_first_token(data)["share"].squeeze().values, [[60, 60, 60], [60, 60, 40 / 39]])


def test_no_anchors_absorb_nothing_and_what_was_not_measured_is_not_a_number() -> None:
    window = np.tril(np.ones((60, 60), bool)) & ~np.tril(np.ones((60, 60), bool), -5)
    evenly = window / window.sum(-1, keepdims=True)
    members = {"few": np.arange(60) == 59, "none": np.zeros(60, bool), "everyone": np.ones(60, bool)}
    data = from_attention(evenly, visible=window, groups=members)
    found = absorption_of_anchors(data, find_anchors(data)).squeeze()
    assert found["reason"].values.tolist() == ["", "the group has no rows here", "too few rows see any key"]
    for name in ("share", "null"):
        np.testing.assert_array_equal(found[name].values, [0, np.nan, np.nan])
    first = absorption_of_first_token(data).squeeze()
    np.testing.assert_allclose(first["share"].values, [0, np.nan, 100 * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 60])
    assert first["reason"].values.tolist() == ["", "the group has no rows here", ""]
    strongest = absorption_of_strongest_key(data).squeeze()
    assert [reason.split(":")[0] for reason in strongest["reason"].values.tolist()] == [
        "only one half of the positions, even or odd, has rows of the group",
        "the group has no rows here",
        "too few rows see any key",
    ]
    assert strongest["share"].isnull().all()


def test_one_row_per_step_has_no_halves_until_steps_are_pooled() -> None:
    steps = 40
    weights = np.full((steps, 1, 2, steps, steps), np.nan)
    looks = noise(3, (2, steps, steps), np.tril(np.ones((steps, steps))))
    for step in range(steps):
        weights[step, 0, :, step] = looks[:, step]
    visible = np.tril(np.ones((steps, steps), bool))
    data = from_attention(weights, visible=visible)
    by_step = absorption_of_strongest_key(data)
    assert by_step["share"].isnull().all()
    assert by_step["null"].isnull().all()
    assert all("pool_steps(data)" in reason for reason in by_step["reason"].values.ravel())
    np.testing.assert_allclose(by_step["same_rows"].values[:, 0, :, 0], 100 * looks.max(-1).T)
    pooled = absorption_of_strongest_key(pool_steps(data))
    assert pooled["share"].dims == ("layer", "head", "group")
    for head in range(2):
        expected = straight_strongest(looks[head], visible, list(range(steps)))
        assert {name: float(pooled[name].isel(head=head).squeeze()) for name in expected} == pytest.approx(expected)


def test_padding_changes_nothing() -> None:
    short = from_attention(noise(4, (2, 2, 2, 18, 18)), groups={"some": np.arange(18) < 17, "others": np.arange(18) > 16})
    long = from_attention(noise(5, (4, 2, 2, 23, 23)), groups={"some": np.arange(23) < 20, "others": np.arange(23) > 19})
    received = [name for name in short.data_vars if str(name).startswith(("mass", "visible", "null", "rows"))]
    short, long = short[received], long[received]
    together = xr.concat([short.pad(step=(0, 2), key=(0, 5)), long], "sample")
    for measure in (
        absorption_of_first_token,
        absorption_of_strongest_key,
        lambda data: absorption_of_anchors(data, find_anchors(data, eps=0.2)),
        lambda data: absorption_of_strongest_key(pool_steps(data)),
    ):
        padded, alone, full = measure(together), measure(short), measure(long)
        if "step" in padded.dims:
            assert padded.isel(sample=0, step=slice(2, None))["share"].isnull().all()
            assert (padded.isel(sample=0, step=slice(2, None))["reason"] == "the group has no rows here").all()
            xr.testing.assert_allclose(padded.isel(sample=0, step=slice(0, 2)), alone)
        else:
            xr.testing.assert_allclose(padded.isel(sample=0), alone)
        xr.testing.assert_allclose(padded.isel(sample=1), full)


@settings(max_examples=3)
@given(st.permutations(range(4)), st.permutations(range(2)), st.integers(0, 99))
def test_heads_and_samples_are_measured_each_for_itself_within_bounds(heads: list[int], samples: list[int], seed: int) -> None:
    data = xr.concat([from_attention(noise(seed + number, (1, 1, 4, 6, 7))) for number in range(2)], "sample")
    shuffled = data.isel(head=heads, sample=samples)
    for measure in (
        absorption_of_first_token,
        absorption_of_strongest_key,
        lambda data: absorption_of_anchors(data, find_anchors(data, eps=0.5)),
    ):
        plain = measure(data)
        by_head = plain[[name for name in plain.data_vars if "head" in plain[name].dims]]
        xr.testing.assert_allclose(measure(shuffled)[list(by_head)], by_head.isel(head=heads, sample=samples))
        assert ((plain["share"] >= 0) & (plain["share"] <= 100 + 1e-9) & (plain["null"] >= 0) & (plain["null"] <= 100 + 1e-9)).all()
        if "same_rows" in plain:
            assert (plain["same_rows"] >= plain["share"] - 1e-9).all(), (
                "where all keys are seen, choosing on the same rows can only flatter"
            )


def test_anchors_of_averaged_heads_hold_for_every_head_and_for_their_mean() -> None:
    weights = noise(6, (2, 2, 3, 20, 20))
    weights[..., 4] += 1
    data = from_attention(weights / weights.sum(-1, keepdims=True))
    common = find_anchors(data, per_head=False)
    assert common["anchor"].any()
    by_head = absorption_of_anchors(data, common)
    assert "head" in by_head["share"].dims
    layers_only = data.assign({name: data[name].mean("head") for name in ("mass", "mass_even")})
    by_layer = absorption_of_anchors(layers_only, common)
    assert "head" not in by_layer["share"].dims
    xr.testing.assert_allclose(by_head["share"].mean("head"), by_layer["share"])
    halves_by_layer = data.assign(mass_even=layers_only["mass_even"])
    xr.testing.assert_allclose(absorption_of_strongest_key(halves_by_layer), absorption_of_strongest_key(layers_only))


def test_one_layer_and_one_group_can_be_measured_alone() -> None:
    data = from_attention(noise(7, (2, 3, 2, 18, 18)), groups={"some": np.arange(18) < 17, "others": np.arange(18) > 16})
    part = data.isel(layer=1).sel(group="some")
    for measure in (absorption_of_first_token, absorption_of_strongest_key, lambda data: absorption_of_anchors(data, find_anchors(data))):
        xr.testing.assert_allclose(measure(part), measure(data).isel(layer=1).sel(group="some"))


def test_what_cannot_be_measured_is_refused_with_the_remedy() -> None:
    data = from_attention(noise(8, (2, 2, 2, 18, 18)))
    found = find_anchors(data)
    with pytest.raises(fl.Refusal, match=r"needs mass_even, .* Record it with detail=\{'halves': 'head'\}"):
        absorption_of_strongest_key(data.drop_vars("mass_even"))
    for measure in (absorption_of_first_token, lambda data: absorption_of_anchors(data, found)):
        with pytest.raises(fl.Refusal, match="Absorption needs mass"):
            measure(data.drop_vars("mass"))
    with pytest.raises(fl.Refusal, match=r"per head and mass is per layer; .* find_anchors\(data, per_head=False\)"):
        absorption_of_anchors(data.assign(mass=data["mass"].mean("head")), found)
    with pytest.raises(fl.Refusal, match="anchors and mass differ in layer"):
        absorption_of_anchors(data, found.isel(layer=[1, 0]))
    with pytest.raises(fl.Refusal, match="anchors and mass differ in step"):
        absorption_of_anchors(pool_steps(data), found)
    with pytest.raises(fl.Refusal, match="anchors and mass differ in group"):
        absorption_of_anchors(data, found.isel(group=0, drop=True))
    with pytest.raises(fl.Refusal, match="anchors and mass differ in sample"):
        absorption_of_anchors(data.assign_coords(sample=0), found.assign_coords(sample=1))
    with pytest.raises(fl.Refusal, match="must be anchors: the dataset that find_anchors"):
        absorption_of_anchors(data, data)


def test_a_diffusion_model_absorbs_what_eager_attention_shows_at_each_step() -> None:
    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS[:2], gen_length=6, steps=2, progress=False)
    anchors = find_anchors(trace, eps=0.5)
    found: dict[str, Any] = {
        "anchors": absorption_of_anchors(trace, anchors),
        "first": absorption_of_first_token(trace),
        "strongest": absorption_of_strongest_key(trace),
    }
    for number in range(2):
        sample = trace.sample(number)
        for step in range(sample.sizes["step"]):
            canvas, state = sample["canvas"].values[step], sample["state"].values[step]
            keys = len(canvas)
            groups = {"masked": np.isin(state, (2, 3)), "unmasked": np.isin(state, (1, 4)), "predicting": state == 3}
            for layer, call in enumerate(eager_calls(lm.module, input_ids=torch.tensor(canvas[None]), use_cache=False)):
                for (name, members), head in ((group, head) for group in groups.items() for head in range(4)):
                    rows, looks, visible = np.flatnonzero(members).tolist(), call.weights[0, head], call.visible[0]
                    at = {"sample": number, "step": step, "layer": layer, "head": head}
                    chosen = np.flatnonzero(anchors["anchor"].isel(at).sel(group=name).values).tolist()
                    expected = {
                        "anchors": straight_shares(looks, visible, rows, chosen),
                        "first": straight_shares(looks, visible, rows, [0]),
                    }
                    for kind, shares in expected.items():
                        here = found[kind].isel(at).sel(group=name)
                        assert (float(here["share"]), float(here["null"])) == pytest.approx(shares, abs=2e-3)
                    here = found["strongest"].isel(at).sel(group=name)
                    if len({row % 2 for row in rows}) == 2:
                        strongest = straight_strongest(looks[:, :keys], visible, rows)
                        assert {kind: float(here[kind]) for kind in strongest} == pytest.approx(strongest, abs=2e-3)
                    else:
                        assert np.isnan(here["share"])
                        assert str(here["reason"].values)


def test_an_autoregressive_models_rows_are_halved_over_all_its_steps() -> None:
    lm, length = autoregressive_model(), 20
    trace = lm.trace(PROMPTS[:1], gen_length=length, progress=False)
    found = absorption_of_strongest_key(pool_steps(trace.sample(0))).sel(group="predicting")
    final = trace.sample(0)["final"].values
    rows = list(range(len(PROMPTS[0]) - 1, len(PROMPTS[0]) - 1 + length))
    for layer, call in enumerate(eager_calls(lm.module, input_ids=torch.tensor(final[None]), use_cache=False)):
        for head in range(4):
            expected = straight_strongest(call.weights[0, head], call.visible[0], rows)
            assert {name: float(found[name].isel(layer=layer, head=head, missing_dims="ignore")) for name in expected} == pytest.approx(
                expected, abs=2e-3
            )

"""What stands on a canvas by role, and what attention goes to each, against sums over dense attention, one weight at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures import find_anchors, from_attention
from floatlens.measures.roles import KINDS, ROLES, role_shares, roles_of_tokens, structural_slope, token_roles
from zoo import eager_calls

# a text of 8 tokens: one of each role that a finished token can have, and a second content word
TEXTS = ["<s>", "user", "\n", " Anna", " saw", " the", " 3", "."]
FINISHED = ["special", "template", "layout", "content", "content", "function", "number", "punctuation"]
SPECIAL, TEMPLATE = np.arange(8) == 0, np.arange(8) < 3


def on_canvas(data: xr.Dataset, state: Any, **changes: Any) -> xr.Dataset:
    """The attention in `data` over the text above, whose tokens are in these states (step, position)."""
    state = np.asarray(state)
    final = np.arange(10, 18)
    canvas = np.where(np.isin(state, (1, 4)), final, np.where(state == 0, -1, 99))
    variables = {
        "state": (("step", "position"), state),
        "canvas": (("step", "position"), canvas),
        "final": ("position", final),
        "special": ("position", SPECIAL),
        "template": ("position", TEMPLATE),
    }
    return data.assign({**variables, **changes}).assign_coords(token=("position", TEXTS))


def names(roles: xr.DataArray) -> list[Any]:
    return np.array(ROLES)[roles.values].tolist()


def test_what_is_committed_in_a_step_is_still_a_mask_in_it() -> None:
    roles = token_roles(on_canvas(xr.Dataset(), [[1, 1, 1, 1, 2, 3, 2, 2], [1, 1, 1, 1, 3, 4, 2, 3]]))
    assert roles.dims == ("step", "position")
    assert roles.attrs["flag_meanings"] == list(ROLES)
    assert names(roles) == [
        [*FINISHED[:4], "mask", "mask", "mask", "mask"],
        [*FINISHED[:4], "mask", "function", "mask", "mask"],
    ]


def test_what_does_not_stand_on_the_canvas_has_no_role() -> None:
    data = on_canvas(xr.Dataset(), [[1, 1, 1, 1, 3, 0, 0, 0], [1, 1, 1, 1, 4, 4, 0, 0]])
    canvas = data["canvas"].values.copy()
    canvas[0, 4] = -1  # an autoregressive canvas is empty where the step writes
    canvas[1, 5] = 55  # another token than the final one: it was taken back later
    roles = token_roles(data.assign(canvas=(("step", "position"), canvas)))
    assert names(roles) == [[*FINISHED[:4], *["none"] * 4], [*FINISHED[:5], *["none"] * 3]]


def test_a_canvas_without_steps_has_roles_too() -> None:
    data = on_canvas(xr.Dataset(), [[1] * 8]).isel(step=0)
    assert names(token_roles(data)) == FINISHED


def test_a_trace_that_does_not_say_what_is_special_is_refused() -> None:
    with pytest.raises(fl.Refusal, match=r"which tokens are special\. Record the trace anew\."):
        token_roles(on_canvas(xr.Dataset(), [[1] * 8]).drop_vars("special"))


@pytest.mark.parametrize("name", ["state", "canvas", "final", "template", "token"])
def test_what_roles_need_is_named(name: str) -> None:
    with pytest.raises(fl.Refusal, match=f"Token roles needs? {name}"):
        token_roles(on_canvas(xr.Dataset(), [[1] * 8]).drop_vars(name))


def test_tokens_of_a_model_without_a_tokenizer_are_refused() -> None:
    data = on_canvas(xr.Dataset(), [[1] * 8]).assign_coords(token=("position", [f"⟨{token}⟩" for token in range(8)]))
    with pytest.raises(fl.Refusal, match="no tokenizer"):
        token_roles(data)


STATE = np.array([[1, 1, 1, 1, 2, 3, 2, 2], [1, 1, 1, 1, 2, 4, 2, 3], [1, 1, 1, 1, 3, 4, 3, 4]])
STANDING = [
    [*FINISHED[:4], "mask", "mask", "mask", "mask"],
    [*FINISHED[:4], "mask", FINISHED[5], "mask", "mask"],
    [*FINISHED[:4], "mask", FINISHED[5], "mask", FINISHED[7]],
]
CAUSAL = np.tril(np.ones((8, 8), bool))
GROUPS = {"masked": np.isin(STATE, (2, 3)), "unmasked": np.isin(STATE, (1, 4))}


def noise(seed: int, visible: np.ndarray, layers: int = 2, heads: int = 3, sharp: float = 2.0) -> np.ndarray:
    """(step, layer, head, query, key)."""
    scores = np.random.default_rng(seed).normal(size=(3, layers, heads, 8, 8)) * sharp
    weights = np.exp(scores) * visible
    return weights / weights.sum(-1, keepdims=True)


def summed(weights: np.ndarray, group: str, layer: int, roles: tuple[str, ...], chosen: np.ndarray | None = None) -> float:
    """Mass of a group's rows on the keys with these roles, weight by weight; `chosen` (step, head, key)."""
    total = 0.0
    for step in range(3):
        for head in range(weights.shape[2]):
            for query in np.flatnonzero(GROUPS[group][step]):
                for key in range(8):
                    if STANDING[step][key] in roles and (chosen is None or chosen[step, head, key]):
                        total += weights[step, layer, head, query, key]
    return total


@pytest.mark.parametrize("visible", [np.ones((8, 8), bool), CAUSAL], ids=["bidirectional", "causal"])
def test_shares_are_those_of_dense_attention(visible: np.ndarray) -> None:
    weights = noise(0, visible)
    even = np.broadcast_to(visible / visible.sum(-1, keepdims=True), weights.shape)
    shares = role_shares(on_canvas(from_attention(weights, visible=visible, groups=GROUPS), STATE))
    for group in GROUPS:
        for layer in range(2):
            everything = summed(weights, group, layer, ROLES)
            for role in (*ROLES[1:], *KINDS):
                of_role = KINDS.get(role, (role,))
                share = summed(weights, group, layer, of_role) / everything
                null = summed(even, group, layer, of_role) / summed(even, group, layer, ROLES)
                found = shares.sel(group=group, role=role).isel(layer=layer)
                np.testing.assert_allclose(found["share"], share, atol=1e-12)
                np.testing.assert_allclose(found["null"], null, atol=1e-12)
                np.testing.assert_allclose(found["enrichment"], share / null if null else np.nan)


def test_shares_on_anchors_are_those_of_dense_attention() -> None:
    weights = noise(1, np.ones((8, 8), bool), sharp=3.0)
    data = on_canvas(from_attention(weights, groups=GROUPS), STATE)
    shares = role_shares(data, find_anchors(data, eps=0.5))
    for number, group in enumerate(GROUPS):
        for layer in range(2):
            mass = np.stack([weights[step, layer][:, GROUPS[group][step]].sum(1) for step in range(3)])  # (step, head, key)
            chosen = mass > 1.5 * GROUPS[group].sum(1)[:, None, None] / 8
            assert chosen.any()
            everything = summed(weights, group, layer, ROLES, chosen)
            for role in ROLES[1:]:
                share = summed(weights, group, layer, (role,), chosen) / everything
                np.testing.assert_allclose(shares["share"].sel(role=role).values[layer, number], share, atol=1e-12)
    everything = role_shares(data)
    np.testing.assert_allclose(
        shares["null"], everything["null"].broadcast_like(shares["null"])
    )  # every row sees every key: all are measured


def test_the_null_of_anchors_counts_only_keys_that_could_be_anchors() -> None:
    visible = np.ones((8, 8), bool)
    visible[:7, 7] = False  # one row of eight sees the full stop: not measured
    weights = np.broadcast_to(visible / visible.sum(-1, keepdims=True), (1, 1, 1, 8, 8))
    data = on_canvas(from_attention(weights, visible=visible), [[1] * 8])
    found = role_shares(data, find_anchors(data, rule="top", eps=7)).isel(layer=0, group=0)
    assert found["null"].sel(role="punctuation") == 0
    np.testing.assert_allclose(found["enrichment"].sel(role=["special", "content", "structural", "lexical"]), 1)


@pytest.mark.parametrize("visible", [np.ones((8, 8), bool), CAUSAL], ids=["bidirectional", "causal"])
def test_even_attention_enriches_nothing(visible: np.ndarray) -> None:
    even = np.broadcast_to(visible / visible.sum(-1, keepdims=True), (3, 4, 2, 8, 8))
    shares = role_shares(on_canvas(from_attention(even, visible=visible, groups=GROUPS), STATE))
    # "3" is masked to the end; no masked row of a causal model sees the full stop
    unseen = [("number", "masked"), ("number", "unmasked"), *([("punctuation", "masked")] if visible is CAUSAL else [])]
    for role in shares["role"].values:
        for group in GROUPS:
            found = shares.sel(role=role, group=group)
            np.testing.assert_allclose(found["enrichment"], np.nan if (role, group) in unseen else 1, rtol=1e-12)
            assert (found["reason"] == ("the group sees nothing that has this role" if (role, group) in unseen else "")).all()
    np.testing.assert_allclose(structural_slope(shares)["slope"], 0, atol=1e-12)


def test_noise_without_structure_enriches_nothing_on_average() -> None:
    found = [
        role_shares(on_canvas(from_attention(noise(seed, CAUSAL, heads=8, sharp=1.0), visible=CAUSAL), STATE))["enrichment"].sel(
            role=["mask", "structural", "lexical"]
        )
        for seed in range(20)
    ]
    mean, error = np.mean(found, axis=(0, 1, 2)), np.std(found, axis=(0, 1, 2)) / np.sqrt(40)
    assert (np.abs(mean - 1) < 4 * error).all(), (mean, error)
    assert (error < 0.03).all()


def test_planted_structure_is_found_exactly() -> None:
    looks = np.full((2, 8, 8), 0.0)  # layer 0 looks at the newline, layer 1 at Anna, with .65 and .05 for each of the others
    for layer, favourite in enumerate((2, 3)):
        looks[layer], looks[layer, :, favourite] = 0.05, 0.65
    data = on_canvas(from_attention(looks[None, :, None]), [[1] * 8])
    shares = role_shares(data)["share"].isel(group=0)
    np.testing.assert_allclose(shares.sel(role="layout"), [0.65, 0.05])
    np.testing.assert_allclose(shares.sel(role="content"), [0.1, 0.7])
    np.testing.assert_allclose(shares.sel(role="structural"), [0.8, 0.2])
    on_anchors = role_shares(data, find_anchors(data))
    np.testing.assert_allclose(on_anchors["share"].isel(group=0).sel(role=["layout", "content"]), [[1, 0], [0, 1]])
    np.testing.assert_allclose(on_anchors["enrichment"].isel(group=0).sel(role=["layout", "content"]), [[8, 0], [0, 4]])
    np.testing.assert_allclose(structural_slope(on_anchors)["slope"], -2)


@settings(max_examples=5)
@given(st.integers(0, 10_000), st.permutations(range(3)))
def test_shares_lie_between_0_and_1_add_up_to_1_and_do_not_depend_on_the_order_of_heads(seed: int, order: list[int]) -> None:
    weights = noise(seed, CAUSAL)
    data = on_canvas(from_attention(weights, visible=CAUSAL, groups=GROUPS), STATE)
    for anchors in (None, find_anchors(data, eps=0.5)):
        shares = role_shares(data, anchors)
        for name in ("share", "null"):
            values = shares[name]
            assert float(values.min()) >= 0
            assert float(values.max()) <= 1 + 1e-12
            together = values.sel(role=list(ROLES[1:])).sum("role", skipna=False)
            nothing = (shares["reason"] == "there are no anchors").all("role") if name == "share" else xr.zeros_like(together, bool)
            np.testing.assert_allclose(together, xr.where(nothing, np.nan, 1.0))
            for kind, roles in KINDS.items():
                np.testing.assert_allclose(values.sel(role=kind), values.sel(role=list(roles)).sum("role", skipna=False), atol=1e-12)
        turned = data.isel(head=order)
        xr.testing.assert_allclose(shares, role_shares(turned, None if anchors is None else anchors.isel(head=order)))


def test_attention_kept_per_layer_gives_the_same_shares() -> None:
    data = on_canvas(from_attention(noise(2, CAUSAL), visible=CAUSAL, groups=GROUPS), STATE)
    averaged = data.assign(mass=data["mass"].mean("head"))
    xr.testing.assert_allclose(role_shares(averaged), role_shares(data))
    anchors = find_anchors(data, eps=0.5, per_head=False)
    xr.testing.assert_allclose(role_shares(averaged, anchors), role_shares(data, anchors))


def test_counts_per_layer_and_head_give_the_same_shares() -> None:
    data = on_canvas(from_attention(noise(3, CAUSAL), visible=CAUSAL, groups=GROUPS), STATE)
    repeated = data.assign({name: data[name].broadcast_like(data["mass"]) for name in ("visible", "null")})
    repeated["rows"] = data["rows"].broadcast_like(data["mass"].isel(key=0))
    for name in ("share", "enrichment"):
        xr.testing.assert_allclose(role_shares(repeated)[name], role_shares(data)[name].transpose("layer", "group", "role"))


def padded(data: xr.Dataset, steps: int, positions: int) -> xr.Dataset:
    """As a shorter sample looks among longer ones."""
    fill = {"state": 0, "canvas": -1, "final": -1, "special": False, "template": False, "token": ""}
    wider = data.drop_vars(["pattern", "chosen_layer", "chosen_head", *fill]).pad(step=(0, steps), key=(0, positions))
    assert wider["visible"].isel(key=-1).isnull().all()
    longer = {"step": (0, steps), "position": (0, positions)}
    canvas = {
        name: data[name].pad({axis: longer[str(axis)] for axis in data[name].dims}, constant_values=value) for name, value in fill.items()
    }
    return wider.assign({name: values.drop_vars("token") for name, values in canvas.items() if name != "token"}).assign_coords(
        token=("position", canvas["token"].values)
    )


def test_padding_changes_nothing() -> None:
    data = on_canvas(from_attention(noise(4, CAUSAL), visible=CAUSAL, groups=GROUPS), STATE)
    wider = padded(data, 2, 5)
    assert (token_roles(wider).isel(position=slice(8, None)) == 0).all()
    assert (token_roles(wider).isel(step=slice(3, None)) == 0).all()
    xr.testing.assert_allclose(role_shares(wider), role_shares(data))
    xr.testing.assert_allclose(role_shares(wider, find_anchors(wider, eps=0.5)), role_shares(data, find_anchors(data, eps=0.5)))


def test_every_sample_is_measured_by_itself() -> None:
    own = [on_canvas(from_attention(noise(seed, CAUSAL), visible=CAUSAL, groups=GROUPS), STATE) for seed in (5, 6)]
    own[1]["template"] = ("position", np.zeros(8, bool))
    for order in ([0, 1], [1, 0]):
        both = xr.concat([own[number] for number in order], "sample", coords="minimal")
        anchors = find_anchors(both, eps=0.5)
        shares, on_anchors = role_shares(both), role_shares(both, anchors)
        for at, number in enumerate(order):
            xr.testing.assert_allclose(shares.isel(sample=at), role_shares(own[number]))
            xr.testing.assert_allclose(on_anchors.isel(sample=at), role_shares(own[number], find_anchors(own[number], eps=0.5)))
            xr.testing.assert_allclose(structural_slope(shares).isel(sample=at), structural_slope(role_shares(own[number])))


def test_a_group_without_rows_and_a_layer_without_anchors_say_so() -> None:
    groups = {"everyone": np.ones((1, 8), bool), "nobody": np.zeros((1, 8), bool)}
    data = on_canvas(from_attention(np.full((1, 1, 1, 8, 8), 1 / 8), groups=groups), [[1] * 8])
    shares, on_anchors = role_shares(data), role_shares(data, find_anchors(data))
    assert shares["share"].sel(group="nobody").isnull().all()
    assert (shares["reason"].sel(group="nobody") == "the group has no rows here").all()
    assert on_anchors["share"].isnull().all()
    assert (on_anchors["reason"].sel(group="everyone") == "there are no anchors").all()
    assert (on_anchors["reason"].sel(group="nobody") == "the group has no rows here").all()
    np.testing.assert_allclose(on_anchors["null"].sel(group="everyone", role="content"), 2 / 8)


def test_one_step_is_enough() -> None:
    data = on_canvas(from_attention(noise(7, CAUSAL)[:1], visible=CAUSAL), STATE[:1])
    np.testing.assert_allclose(role_shares(data)["share"].sel(role=list(ROLES[1:])).sum("role"), 1)


def test_anchors_of_other_data_are_refused() -> None:
    data = on_canvas(from_attention(noise(8, CAUSAL), visible=CAUSAL), STATE)
    with pytest.raises(fl.Refusal, match="differ in layer"):
        role_shares(data, find_anchors(data.isel(layer=[0])))
    with pytest.raises(fl.Refusal, match="must be anchors"):
        role_shares(data, data)


def test_shares_without_mass_are_refused() -> None:
    with pytest.raises(fl.Refusal, match="Shares of roles needs mass"):
        role_shares(on_canvas(xr.Dataset(), STATE))


def enriched(values: Any, layers: list[int] | None = None) -> xr.Dataset:
    """Structural enrichment by layer and group."""
    array = np.asarray(values, dtype=float)
    coordinates = {"role": ["structural"], "layer": layers or list(range(len(array)))}
    return xr.Dataset({"enrichment": (("layer", "group", "role"), array[..., None])}, coords=coordinates)


def test_the_slope_is_that_of_a_least_squares_line_over_relative_depth() -> None:
    values = np.exp(np.random.default_rng(0).normal(size=(6, 2)))
    values[3, 1] = np.nan
    layers = [2, 3, 5, 8, 9, 12]
    found = structural_slope(enriched(values, layers))
    for group in range(2):
        there = ~np.isnan(values[:, group])
        depth = (np.array(layers)[there] - 2) / 10
        np.testing.assert_allclose(found["slope"].values[group], np.polyfit(depth, values[there, group], 1)[0])
        np.testing.assert_allclose(found["log_slope"].values[group], np.polyfit(depth, np.log(values[there, group]), 1)[0])
    assert (found["reason"] == "").all()


def test_fewer_than_two_layers_have_no_slope_and_say_so() -> None:
    found = structural_slope(enriched([[1.0, np.nan, 2.0, 0.0], [np.nan, np.nan, 0.0, 3.0], [np.nan, np.nan, 1.0, 6.0]]))
    np.testing.assert_allclose(found["slope"], [np.nan, np.nan, -1, 6])
    np.testing.assert_allclose(found["log_slope"], [np.nan, np.nan, -np.log(2), 2 * np.log(2)])
    assert found["reason"].values.tolist() == ["fewer than two layers have an enrichment"] * 2 + ["", ""]
    assert np.isnan(structural_slope(enriched([[2.0]]))["slope"]).all()
    none_positive = structural_slope(enriched([[0.0], [3.0]]))
    assert none_positive["slope"].item() == 3
    assert none_positive["log_reason"].item() == "fewer than two layers have an enrichment above 0"


def test_a_slope_of_something_else_is_refused() -> None:
    with pytest.raises(fl.Refusal, match="what role_shares"):
        structural_slope(xr.Dataset({"mass": ("layer", [1.0])}))


def test_a_real_trace_has_the_shares_of_eager_attention() -> None:
    lm = fl.load(str(Path(__file__).parents[1] / "data" / "stories260K.bin"))
    trace = lm.trace(["Once upon a time, 3 dogs"], gen_length=6, progress=False)
    texts = trace.tokens(0)
    assert [text.strip() for text in texts[:6]] == ["<s>", "Once", "upon", "a", "time", ","]
    start = texts.index("3")
    assert names(token_roles(trace)[0])[0][: start + 1] == [
        *("special", "function", "function", "function", "content", "punctuation"),
        *(["layout", "number"] if start == 7 else ["number"]),
    ]
    final = trace.sample(0)["final"].values
    calls = eager_calls(lm.module, input_ids=torch.tensor(final[None, :-1].astype(int)), use_cache=False)
    finished = roles_of_tokens(texts, [text == "<s>" for text in texts], [False] * len(texts))
    shares = role_shares(trace).isel(sample=0, group=0)
    rows = range(len(final) - 7, len(final) - 1)
    for layer, call in enumerate(calls):
        for role in set(finished[:-1]):
            share = sum(call.weights[0, :, row, key].mean() for row in rows for key in range(row + 1) if finished[key] == role) / len(rows)
            null = sum(1 / (row + 1) for row in rows for key in range(row + 1) if finished[key] == role) / len(rows)
            np.testing.assert_allclose(shares["share"].sel(role=role)[layer], share, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(shares["null"].sel(role=role), null, rtol=1e-5)

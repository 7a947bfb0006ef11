"""Geometry, roles, retrieval heads, region flow and masking show what was measured, and what stands beside it."""

import numpy as np
import pytest
import xarray as xr
from made_up_trace import (
    HEADS,
    LAYERS,
    LENGTH,
    PROMPT,
    SAMPLES,
    STEPS,
    Draw,
    footer,
    heights,
    images,
    legend,
    line,
    made_up_weights,
    written_order,
)
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import floatlens as fl
from floatlens.report import figures


def test_geometry_of_anchors_and_of_the_rest(drawn: dict[Draw, Figure]) -> None:
    figure = drawn[figures.qk_geometry]
    score, cosine, norms, split = figure.axes
    for axes, anchor, rest in ((score, 3.0, 1.0), (cosine, 0.3, 0.1), (norms, 30.0, 10.0)):
        np.testing.assert_allclose(heights(axes, "anchors")[[0, 2]], anchor)
        np.testing.assert_allclose(heights(axes, "all other keys")[[0, 2]], rest, rtol=1e-2)
    bars = {
        container.get_label(): [bar.get_height() for bar in container if isinstance(bar, Rectangle)] for container in split.containers[:2]
    }
    assert set(bars) == {"direction", "norm"}
    whole = heights(split, "advantage: sum of both")[[0, 2]]
    np.testing.assert_allclose(whole, 2.0, rtol=1e-2)
    np.testing.assert_allclose(np.sum([bars["direction"], bars["norm"]], axis=0)[[0, 2]], whole)
    hatches = {bar.get_hatch() for container in split.containers[:2] for bar in container}
    assert len(hatches) == 2, "parts are told apart without colour"


def test_geometry_kept_per_layer_has_no_split_and_says_why(made_up: xr.Dataset) -> None:
    names = ("score", "cosine", "norm_product", "key_norm", "value_norm")
    figure = figures.qk_geometry(made_up.assign({name: made_up[name].mean("head") for name in names}))
    assert len(figure.axes) == 3
    assert "needs score per head" in footer(figure)
    assert "anchors of head-averaged attention" in footer(figure)


def test_roles_show_enrichment_the_fair_share_and_the_slope(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    from floatlens.measures import find_anchors
    from floatlens.measures.roles import role_shares, structural_slope
    from floatlens.statistics.resampling import bootstrap

    (axes,) = figures.roles_by_depth(made_up, eps=0.2).axes
    own = made_up.sel(group="masked")
    shares = xr.concat(
        [role_shares(own.isel(sample=[one]), find_anchors(own.isel(sample=[one]), eps=0.2)) for one in range(SAMPLES)], "sample"
    )
    for role in ("structural", "lexical", "mask"):
        expected = shares["enrichment"].sel(role=role).mean("sample")
        np.testing.assert_allclose(heights(axes, role), expected.where(expected > 0), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(line(axes, "mask").get_xdata(), float), [0, 0.5, 1])
    assert axes.get_yscale() == "log"
    assert any(np.asarray(one.get_ydata()).tolist() == [1, 1] for one in axes.lines), "the fair share"
    widths = {role: line(axes, role).get_linewidth() for role in ("structural", "lexical", "mask")}
    assert min(widths["structural"], widths["lexical"]) > widths["mask"]
    slope = bootstrap(structural_slope(shares)["slope"])
    said = axes.get_title(loc="left")
    assert f"{slope['estimate'].item():+.2f} [{slope['low'].item():+.2f}, {slope['high'].item():+.2f}]" in said
    assert "lexical" not in legend(drawn[figures.roles_by_depth])
    assert "never an anchor: lexical" in footer(drawn[figures.roles_by_depth])
    assert "one prompt, so no interval" in figures.roles_by_depth(made_up.isel(sample=[1])).axes[0].get_title(loc="left")


def test_retrieval_map_holds_the_scores_and_says_when_it_is_normalised(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    expected = np.zeros((LAYERS, HEADS))
    expected[1, 1] = 0.75
    plain, normalised = drawn[figures.retrieval_heads], figures.retrieval_heads(made_up, normalised=True)
    np.testing.assert_array_equal(images(plain)[0], expected)
    np.testing.assert_array_equal(images(normalised)[0], expected / 0.75)
    said = [text for axes in normalised.axes for text in (axes.get_title(), axes.get_ylabel())]
    assert any("max-normalised" in text for text in said)
    assert "max-normalised: not comparable between maps" in footer(normalised)
    assert "max-normalised" not in footer(plain)
    bars = [bar.get_width() for bar in plain.axes[1].patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(bars, [100 / 6, 0, 50, 0])
    assert [label.get_text() for label in plain.axes[1].get_yticklabels()] == ["all", "shallow", "middle", "deep"]
    assert "mean over 3 of 3 prompts" in footer(plain)


def test_retrieval_without_a_run_that_recalls_is_refused(made_up: xr.Dataset) -> None:
    with pytest.raises(fl.Refusal, match="no run recalls more than half of its needle"):
        figures.retrieval_heads(made_up.assign(final=made_up["final"] * 0 + np.arange(LENGTH)))
    with pytest.raises(fl.Refusal, match="no region 'needle'"):
        figures.retrieval_heads(made_up, "needle")


def test_flow_maps_are_shares_by_region_and_the_rollout_stands_beside_its_null(made_up: xr.Dataset, drawn: dict[Draw, Figure]) -> None:
    figure = drawn[figures.region_flow]
    direct, fair = images(figure)[:2]
    regions = [range(1), range(1, 4), range(4, PROMPT), range(PROMPT, LENGTH)]
    expected = np.zeros((4, LAYERS))
    for sample in range(SAMPLES):
        for step, now in enumerate(written_order(sample)):
            rows = made_up_weights(sample)[step][..., now, :].mean(axis=(1, 2))  # (layer, key)
            expected += np.stack([rows[:, list(region)].sum(-1) for region in regions]) / (SAMPLES * STEPS)
    np.testing.assert_allclose(direct, 100 * expected, rtol=1e-6)
    even = np.array([len(region) for region in regions]) / LENGTH
    np.testing.assert_allclose(fair, expected / even[:, None], rtol=1e-6)
    rolled = {
        str(one.get_label()): [bar.get_width() for bar in one]
        for one in figure.axes[2].containers
        if one.get_label() in ("rollout", "null")
    }
    np.testing.assert_allclose(rolled["null"], 100 * _rolled_out([np.outer(even, even) * LENGTH] * LAYERS)[3])
    by_sample = []
    for sample in range(SAMPLES):
        looks = made_up_weights(sample).sum(axis=(0, 2))  # (layer, query, key)
        pieces = [np.array([[looks[layer][np.ix_(list(a), list(b))].sum() for b in regions] for a in regions]) for layer in range(LAYERS)]
        by_sample.append(100 * _rolled_out(pieces)[3])
    np.testing.assert_allclose(rolled["rollout"], np.mean(by_sample, axis=0), rtol=1e-6)
    assert legend(figure) == ["rollout", "its null: every row looks evenly"]


def _rolled_out(flow: list[np.ndarray]) -> np.ndarray:
    rolled = np.eye(len(flow[0]))
    for layer in flow:
        mixed = layer / layer.sum(-1, keepdims=True) + np.eye(len(layer))
        rolled = mixed / mixed.sum(-1, keepdims=True) @ rolled
    return rolled


def test_flow_without_a_recorded_rollout_says_so_and_an_empty_region_is_named(made_up: xr.Dataset) -> None:
    nothing = made_up["in_region"].copy()
    nothing.loc[{"region": "query"}] = False
    figure = figures.region_flow(made_up.drop_vars("flow").assign(in_region=nothing))
    assert len([axes for axes in figure.axes if axes.images]) == 2
    assert "left out: Rollout needs flow" in footer(figure)
    assert "query: incomplete in 3 of 3 samples (no key of the region exists here)" in footer(figure)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["bos", "gold", "answer", "elsewhere"]


def made_up_table() -> xr.Dataset:
    random = np.random.default_rng(0)
    axes = ("sample", "kind", "k")
    return xr.Dataset(
        {
            "outcome": (axes, random.random((12, 3, 2))),
            "removed": (axes, random.uniform(0.2, 0.6, (12, 3, 2))),
            "unedited": ("sample", random.uniform(1, 2, 12)),
        },
        coords={"kind": ["mass", "anchors", "count"], "k": [1, 10]},
        attrs={"outcome": "log-likelihood", "model": "twin"},
    )


def test_masking_shows_outcomes_damage_and_damage_per_removed_mass() -> None:
    table = made_up_table()
    figure = figures.masking_against_controls(table)
    first, second, third = figure.axes
    labels = {"anchors": "anchors masked", "count": "control: as many random keys", "mass": "control: random keys of equal mass"}
    for kind, label in labels.items():
        own = table.sel(kind=kind)
        damage = own["unedited"].mean() - own["outcome"].mean("sample")
        np.testing.assert_allclose(heights(first, label), own["outcome"].mean("sample"))
        np.testing.assert_allclose(heights(second, label), damage)
        np.testing.assert_allclose(np.asarray(line(second, label).get_xdata(), float), 100 * own["removed"].mean("sample"))
        np.testing.assert_allclose(heights(third, label), 0.1 * damage / own["removed"].mean("sample"))
    assert first.get_ylabel() == "log-likelihood"
    assert "12 prompts" in footer(figure)
    assert "paired differences" in footer(figure)
    assert "twin" in footer(figure)
    assert len({str(line(first, label).get_marker()) for label in labels.values()}) == 3, "kinds are told apart without colour"


def test_masking_one_prompt_has_no_intervals_and_other_tables_are_refused() -> None:
    table = made_up_table()
    assert "1 prompt, so no interval" in footer(figures.masking_against_controls(table.isel(sample=[0])))
    same = table.assign_coords(prompt=("sample", ["a"] * 12))
    assert "1 prompt, so no interval" in footer(figures.masking_against_controls(same))
    with pytest.raises(fl.Refusal, match="needs removed, which this table does not hold"):
        figures.masking_against_controls(table.drop_vars("removed"))
    with pytest.raises(fl.Refusal, match="lacks the kind 'mass'"):
        figures.masking_against_controls(table.sel(kind=["anchors", "count"]))
    with pytest.raises(fl.Refusal, match=r"unedited has the axes \('sample', 'k'\)"):
        figures.masking_against_controls(table.assign(unedited=table["unedited"].expand_dims(k=2, axis=1)))
    with pytest.raises(fl.Refusal, match="how many anchors"):
        figures.masking_against_controls(table.drop_vars("k"))

"""Received attention, anchors, what they absorb, where they come from and what they are, on traces of tiny models.

The numbers are compared with loops over transformers' eager attention on the canvas of each step.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from math import exp, log
from typing import Any

import numpy as np
import pytest
import xarray as xr
from straight_line import (
    CLEAR,
    HEADS,
    LAYERS,
    NAN,
    RULES,
    WRITERS,
    Found,
    Rows,
    Run,
    Sample,
    anchors,
    anchors_of,
    assert_everywhere,
    assert_of_rows,
    clear_eps,
    fair,
    lead,
    margins,
    mass,
    mean,
    measured,
    received,
    run_of,
    strongest,
    threshold,
    witnesses,
)

from floatlens import measures

WORDS = [  # text, special, put there by the template, role
    ("<s>", True, True, "special"),
    ("user", False, True, "template"),
    ("\n", False, True, "layout"),
    (" the", False, False, "function"),
    (" Anna", False, False, "content"),
    (" 42", False, False, "number"),
    (".", False, False, "punctuation"),
    (" rose", False, False, "content"),
]
KINDS = {"structural": ("special", "layout", "punctuation", "template"), "lexical": ("function", "content", "number")}
ROLES: tuple[str, ...] = ("mask", *KINDS["structural"], *KINDS["lexical"])


@pytest.fixture(params=WRITERS)
def run(request: pytest.FixtureRequest) -> Run:
    return run_of(request.param)


@pytest.fixture
def found(run: Run) -> Found:
    return anchors_of(run)


# -- anchors --------------------------------------------------------------------------------------------------------------------------


def test_received_attention_and_lift_are_those_of_dense_rows(run: Run) -> None:
    assert_of_rows(measures.received(run.data), run, received)
    assert_of_rows(measures.lift(run.data), run, lambda rows: np.divide(mass(rows), [one or NAN for one in fair(rows)]))


@pytest.mark.parametrize("per_head", [True, False], ids=["per head", "head-averaged"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_anchors_of_dense_rows(run: Run, rule: str, per_head: bool) -> None:
    eps, every = threshold(run, rule, per_head), run.every_rows(per_head)
    if rule == "top":
        assert np.nanmin([lead(rows, int(eps)) for rows in every]) > CLEAR
    else:
        assert np.nanmin([abs(margin - eps) for rows in every for margin in margins(rows, rule)]) > CLEAR
    found = measures.find_anchors(run.data, rule=rule, eps=eps, per_head=per_head)
    averaged = {} if per_head else {"head": None}
    assert_of_rows(found["anchor"], run, lambda rows: [key in anchors(rows, rule, eps) for key in rows.keys], **averaged)
    assert_of_rows(found["measured"], run, lambda rows: [key in measured(rows) for key in rows.keys])
    assert 10 < found["anchor"].sum() < found["measured"].broadcast_like(found["anchor"]).sum() / 2, "too few or too many to tell apart"


@pytest.mark.parametrize("rule", RULES)
def test_the_threshold_sweep_counts_anchors_and_what_they_draw(run: Run, rule: str) -> None:
    def share(drawn: bool, sample: Sample, eps: float, layer: int, group: str) -> float:
        every = [rows for head in range(HEADS) for rows in sample.over_steps(group, layer, head)]
        part = sum(mass(rows)[key] if drawn else 1 for rows in every for key in anchors(rows, rule, eps))
        return part / sum(sum(mass(rows)) if drawn else len(measured(rows)) for rows in every)

    grid = [1.0, 4.0] if rule == "top" else [clear_eps(run, rule, times * RULES[rule]) for times in (1, 2, 3)]
    swept = measures.threshold_sweep(run.data, rule=rule, eps=grid)
    assert_everywhere(swept["kept"], run, lambda sample, **at: share(False, sample, **at))
    assert_everywhere(swept["absorbed"], run, lambda sample, **at: share(True, sample, **at))


# -- absorption, dispersion, agreement ------------------------------------------------------------------------------------------------


def percent(amounts: list[float], keys: frozenset[int]) -> float:
    return 100 * sum(amounts[key] for key in keys) / sum(amounts) if sum(amounts) else NAN


def test_absorption_is_the_share_of_dense_rows_on_anchors_and_on_the_first_token(run: Run, found: Found) -> None:
    on_anchors, on_first = measures.absorption_of_anchors(run.data, found.by_floatlens), measures.absorption_of_first_token(run.data)
    assert_of_rows(on_anchors["share"], run, lambda rows: percent(mass(rows), found.of(rows)))
    assert_of_rows(on_anchors["null"], run, lambda rows: percent(fair(rows), found.of(rows)))
    assert_of_rows(on_first["share"], run, lambda rows: percent(mass(rows), frozenset({0})))
    assert_of_rows(on_first["null"], run, lambda rows: percent(fair(rows), frozenset({0})))


@pytest.mark.parametrize("pooled", [False, True], ids=["by step", "pooled"])
def test_absorption_of_the_strongest_key_is_of_rows_that_did_not_choose_it(run: Run, pooled: bool) -> None:
    def by_halves(rows: Rows, amount: Callable[[Rows], list[float]]) -> float:
        even, odd = rows.half(0), rows.half(1)
        candidates = [[key for key in measured(rows) if witnesses(half)[key]] for half in (even, odd)]
        if not all(candidates):
            return NAN
        of_even, of_odd = strongest(even, candidates[0]), strongest(odd, candidates[1])
        return 100 * (amount(odd)[of_even] + amount(even)[of_odd]) / sum(amount(rows))

    def published(rows: Rows, amount: Callable[[Rows], list[float]]) -> float:
        return percent(amount(rows), frozenset({strongest(rows, measured(rows))})) if measured(rows) else NAN

    assert np.nanmin([lead(part) for rows in run.every_rows() for part in (rows, rows.half(0), rows.half(1))]) > CLEAR
    absorbed = measures.absorption_of_strongest_key(measures.pool_steps(run.data) if pooled else run.data)
    if pooled or run.writer != "autoregressive":  # whose only row of a step has no halves
        assert_of_rows(absorbed["share"], run, lambda rows: by_halves(rows, mass))
        assert_of_rows(absorbed["null"], run, lambda rows: by_halves(rows, fair))
    assert_of_rows(absorbed["same_rows"], run, lambda rows: published(rows, mass))
    assert_of_rows(absorbed["same_rows_null"], run, lambda rows: published(rows, fair))


def test_dispersion_is_that_of_what_measured_keys_receive(run: Run, found: Found) -> None:
    def effective_number(heights: list[float]) -> float:
        shares = [height / sum(heights) for height in heights]
        return exp(-sum(share * log(share) for share in shares)) if heights else NAN

    def gini(heights: list[float]) -> float:
        apart = sum(abs(one - other) for one in heights for other in heights)
        return apart / (2 * len(heights) * sum(heights)) if heights else NAN

    def profile(rows: Rows) -> list[float]:
        return [received(rows)[key] for key in measured(rows)]

    def even(rows: Rows) -> list[float]:
        return [fair(rows)[key] / witnesses(rows)[key] for key in measured(rows)]

    spread = measures.dispersion(run.data, found.by_floatlens)
    assert_of_rows(spread["anchors"], run, lambda rows: len(found.of(rows)) if measured(rows) else NAN)
    assert_of_rows(spread["effective_keys"], run, lambda rows: effective_number(profile(rows)))
    assert_of_rows(spread["gini"], run, lambda rows: gini(profile(rows)))
    assert_of_rows(spread["null_effective_keys"], run, lambda rows: effective_number(even(rows)))
    assert_of_rows(spread["null_gini"], run, lambda rows: gini(even(rows)))
    assert_of_rows(spread["keys"], run, lambda rows: len(measured(rows)))


def test_consensus_counts_heads_with_the_same_strongest_key(run: Run) -> None:
    @cache
    def by_chance(keys: int) -> float:
        """Over all choices of the heads.

        The first may as well choose key 0, and the second choose the same or, as well as any other, key 1.
        """
        if not keys:
            return NAN
        alike, unlike = ([Counter((0, second, *others)) for others in product(range(keys), repeat=HEADS - 2)] for second in (0, 1))
        most = [mean(max(votes.values()) for votes in every) for every in (alike, unlike)]
        return (most[0] + (keys - 1) * most[1]) / keys / HEADS

    def shared(sample: Sample, **at: Any) -> float:
        every = [sample.rows(**at, head=head) for head in range(HEADS)]
        votes = Counter(strongest(rows, measured(rows)) for rows in every if measured(rows))
        return max(votes.values()) / HEADS if votes else NAN

    agreed = measures.head_consensus(run.data)
    assert_everywhere(agreed["consensus"], run, shared)
    assert_of_rows(agreed["null"], run, lambda rows: by_chance(len(measured(rows))))


def test_split_sinks_compare_the_anchors_of_two_groups(run: Run, found: Found) -> None:
    first, second = ("predicting", "prompt") if run.writer == "autoregressive" else ("masked", "unmasked")
    split = measures.split_sinks(found.by_floatlens, first, second)
    for name, of_both in (("jaccard", found.jaccard), ("no_memory", found.jaccard_by_chance)):
        assert_everywhere(
            split[name], run, lambda sample, of_both=of_both, **at: of_both(sample.rows(**at, group=first), sample.rows(**at, group=second))
        )


# -- geometry -------------------------------------------------------------------------------------------------------------------------


@cache
def vectors(sample: Sample, step: int, group: str, layer: int, head: int) -> dict[str, list[float]]:
    """What geometry says of each key, straight from q, k and v."""
    seen, rows = sample.steps[step], sample.rows(step, group, layer, head)
    query, key, value = (part[layer, head] for part in (seen.query, seen.key, seen.value))
    products = (query @ key.T).tolist()
    query_norm, key_norm, value_norm = (np.sqrt((part**2).sum(-1)).tolist() for part in (query, key, value))
    said: dict[str, list[float]] = {name: [] for name in ("score", "cosine", "norm_product", "key_norm", "value_norm")}
    for at in rows.keys:
        seeing = [row for row, sees in zip(rows.positions, rows.sees, strict=True) if sees[at]]
        said["score"].append(mean(products[row][at] for row in seeing))
        said["cosine"].append(mean(products[row][at] / query_norm[row] / key_norm[at] for row in seeing))
        said["norm_product"].append(mean(query_norm[row] for row in seeing) * key_norm[at])
        said["key_norm"].append(key_norm[at])
        said["value_norm"].append(value_norm[at])
    return said


def of_kind(found: Found, rows: Rows, kind: str) -> frozenset[int]:
    return found.of(rows) if kind == "anchor" else measured(rows) - found.of(rows)


def test_geometry_is_the_mean_over_queries_and_keys_of_anchors_and_of_the_rest(run: Run, found: Found) -> None:
    means = measures.anchor_geometry(run.data, found.by_floatlens)
    for name in ("score", "cosine", "norm_product", "key_norm", "value_norm"):
        assert_everywhere(
            means[name],
            run,
            lambda sample, kind, name=name, **at: mean(vectors(sample, **at)[name][key] for key in of_kind(found, sample.rows(**at), kind)),
        )
    assert_everywhere(means["keys"], run, lambda sample, kind, **at: len(of_kind(found, sample.rows(**at), kind)))


def test_the_advantage_is_split_pair_by_pair(run: Run, found: Found) -> None:
    @cache
    def in_head(sample: Sample, **at: Any) -> dict[str, float]:
        rows, said = sample.rows(**at), vectors(sample, **at)
        score, norm, parts = said["score"], said["key_norm"], {"advantage": [], "direction": [], "norm": []}
        for a, r in product(of_kind(found, rows, "anchor"), of_kind(found, rows, "rest")):
            parts["advantage"].append(score[a] - score[r])
            parts["direction"].append((norm[a] + norm[r]) / 2 * (score[a] / norm[a] - score[r] / norm[r]))
            parts["norm"].append((score[a] / norm[a] + score[r] / norm[r]) / 2 * (norm[a] - norm[r]))
        return {name: mean(pairs) for name, pairs in parts.items()}

    def by_head(name: str, sample: Sample, **at: Any) -> list[float]:
        return [in_head(sample, **at, head=head)[name] for head in range(HEADS)]

    split = measures.advantage_split(run.data, found.by_floatlens)
    for name in ("advantage", "direction", "norm"):
        assert_everywhere(split[name], run, lambda sample, name=name, **at: mean(by_head(name, sample, **at)))
    assert_everywhere(split["heads"], run, lambda sample, **at: np.isfinite(by_head("advantage", sample, **at)).sum())


def test_contributions_are_attention_times_the_length_of_values(run: Run, found: Found) -> None:
    def lengths(sample: Sample, kind: str, **at: Any) -> float:
        return mean(vectors(sample, **at)["value_norm"][key] for key in of_kind(found, sample.rows(**at), kind))

    def handed_on(sample: Sample, amount: Callable[[Rows], list[float]], **at: Any) -> list[float]:
        return [one * length for one, length in zip(amount(sample.rows(**at)), vectors(sample, **at)["value_norm"], strict=True)]

    def from_anchors(sample: Sample, amount: Callable[[Rows], list[float]], **at: Any) -> float:
        return percent(handed_on(sample, amount, **at), found.of(sample.rows(**at)))

    contrast = measures.value_contrast(run.data, found.by_floatlens)
    assert_everywhere(contrast["ratio"], run, lambda sample, **at: lengths(sample, "anchor", **at) / lengths(sample, "rest", **at))
    assert_everywhere(measures.effective_contribution(run.data), run, lambda sample, **at: handed_on(sample, received, **at))
    shares = measures.contribution_of_anchors(run.data, found.by_floatlens)
    assert_everywhere(shares["share"], run, lambda sample, **at: from_anchors(sample, mass, **at))
    assert_everywhere(shares["null"], run, lambda sample, **at: from_anchors(sample, fair, **at))
    assert_of_rows(shares["mass_share"], run, lambda rows: percent(mass(rows), found.of(rows)))
    assert_of_rows(shares["mass_null"].broadcast_like(shares["mass_share"]), run, lambda rows: percent(fair(rows), found.of(rows)))


# -- roles ----------------------------------------------------------------------------------------------------------------------------


def with_words(data: xr.Dataset) -> xr.Dataset:
    """The words in turn, for the finished texts."""
    there = data["final"].values >= 0
    texts, special, template = (np.array([WORDS[at % len(WORDS)][part] for at in range(there.shape[1])]) for part in range(3))
    axes = ("sample", "position")
    named = data.drop_vars(["char_start", "char_stop"]).assign_coords(token=(axes, np.where(there, texts, "")))
    return named.assign(special=(axes, there & special), template=(axes, there & template))


def role_of(sample: Sample, step: int, key: int) -> str:
    """What stands at a position before the step's forward pass."""
    return WORDS[key % len(WORDS)][3] if sample.steps[step].state[key] in (1, 4) else "mask"


@pytest.mark.parametrize("of", ["anchors", "all keys"])
def test_roles_share_what_stands_on_the_canvas_of_each_step(run: Run, found: Found, of: str) -> None:
    @cache
    def by_role(sample: Sample, layer: int, group: str) -> tuple[dict[str, float], dict[str, float]]:
        drawn, deserved = dict.fromkeys(ROLES, 0.0), dict.fromkeys(ROLES, 0.0)
        for step, head in product(range(len(sample.steps)), range(HEADS)):
            rows = sample.rows(step, group, layer, head)
            for key in rows.keys:
                role = role_of(sample, step, key)
                drawn[role] += mass(rows)[key] if of == "all keys" or key in found.of(rows) else 0
                deserved[role] += fair(rows)[key] if of == "all keys" or key in measured(rows) else 0
        return drawn, deserved

    def share(sample: Sample, role: str, layer: int = 0, **at: Any) -> tuple[float, float]:
        drawn, deserved = (
            sum(amounts[one] for one in KINDS.get(role, (role,))) / sum(amounts.values()) if any(amounts.values()) else NAN
            for amounts in by_role(sample, layer, **at)
        )
        return drawn, deserved

    def enrichment(sample: Sample, **at: Any) -> float:
        drawn, deserved = share(sample, **at)
        return drawn / deserved if deserved else NAN

    def slope(sample: Sample, group: str) -> float:
        heights = [enrichment(sample, layer=layer, group=group, role="structural") for layer in range(LAYERS)]
        depths = [layer / (LAYERS - 1) for layer in range(LAYERS)]
        middle = mean(depths)
        return sum((x - middle) * (y - mean(heights)) for x, y in zip(depths, heights, strict=True)) / sum(
            (x - middle) ** 2 for x in depths
        )

    named = with_words(run.data)
    shares = measures.role_shares(named, found.by_floatlens) if of == "anchors" else measures.role_shares(named)
    assert_everywhere(shares["share"], run, lambda sample, **at: share(sample, **at)[0])
    assert_everywhere(shares["null"], run, lambda sample, **at: share(sample, **at)[1])
    assert_everywhere(shares["enrichment"], run, enrichment)
    assert_everywhere(measures.structural_slope(shares)["slope"], run, slope)

"""How anchors drift along steps and layers, where attention flows and what heads retrieve, on traces of tiny models.

The numbers are compared with loops over transformers' eager attention on the canvas of each step.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, groupby, pairwise, product
from math import isnan, prod, sqrt
from typing import Any

import numpy as np
import pytest
import xarray as xr
from straight_line import (
    LAYERS,
    NAN,
    WRITERS,
    Found,
    Rows,
    Run,
    Sample,
    Step,
    anchors_of,
    assert_everywhere,
    assert_over_steps,
    fair,
    jaccard,
    mass,
    mean,
    measured,
    run_of,
    variance,
)

from floatlens import measures

KINDS: tuple[str, ...] = ("static", "moving", "transient")


@pytest.fixture(params=WRITERS)
def run(request: pytest.FixtureRequest) -> Run:
    return run_of(request.param)


@pytest.fixture
def found(run: Run) -> Found:
    return anchors_of(run)


def can_drift(found: Found, steps: list[Rows]) -> bool:
    """Something can be said of drift: there are anchors, and two steps at which keys are measured."""
    return sum(bool(measured(rows)) for rows in steps) > 1 and any(found.of(rows) for rows in steps)


# -- sets ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["step", "layer"])
def test_neighbouring_steps_and_layers_are_compared_set_by_set(run: Run, found: Found, axis: str) -> None:
    along = measures.jaccard_along(found.by_floatlens, axis)
    for name, of_both in (("jaccard", found.jaccard), ("no_memory", found.jaccard_by_chance)):
        assert_everywhere(
            along[name],
            run,
            lambda sample, of_both=of_both, **at: of_both(sample.rows(**at), sample.rows(**{**at, axis: at[axis] + 1})),
        )


def test_recall_is_of_the_first_step_at_which_a_group_is_measured(run: Run, found: Found) -> None:
    def recalled(sample: Sample, step: int, **at: Any) -> tuple[float, float]:
        steps = sample.over_steps(**at)
        first = next((rows for rows in steps if measured(rows)), steps[0])
        both = measured(first) & measured(steps[step])
        start, now = found.of(first) & both, found.of(steps[step]) & both
        return (len(start & now) / len(start), len(now) / len(both)) if start else (NAN, NAN)

    recall = measures.recall_of_first(found.by_floatlens)
    assert_everywhere(recall["recall"], run, lambda sample, **at: recalled(sample, **at)[0])
    assert_everywhere(recall["no_memory"], run, lambda sample, **at: recalled(sample, **at)[1])


def test_lifetimes_are_unbroken_runs_of_steps(run: Run, found: Found) -> None:
    @cache
    def runs(sample: Sample, **at: Any) -> list[tuple[int, bool]]:
        """The length of every unbroken run, and whether it may have been longer."""
        steps, lasted = sample.over_steps(**at), []
        for key in range(sample.keys):
            for is_anchor, numbers in groupby(range(len(steps)), key=lambda step: key in found.of(steps[step])):
                run_of_steps = list(numbers)
                around = (run_of_steps[0] - 1, run_of_steps[-1] + 1)
                if is_anchor:
                    lasted.append((len(run_of_steps), not all(0 <= step < len(steps) and key in measured(steps[step]) for step in around)))
        return lasted if can_drift(found, steps) else []

    def by_chance(steps: list[Rows]) -> float:
        """Anchors over the runs that begin: each anchor begins one unless it was an anchor at the step before."""
        number = sum(len(found.of(rows)) for rows in steps)
        expected = float(number)
        for before, now in pairwise(steps):
            both = measured(before) & measured(now)
            expected -= len(found.of(now) & both) * len(found.of(before) & both) / len(both) if both else 0
        return number / expected if can_drift(found, steps) and expected > 0 else NAN

    lasted = measures.lifetimes(found.by_floatlens)
    assert_everywhere(lasted["mean"], run, lambda sample, **at: mean(length for length, _ in runs(sample, **at)))
    assert_everywhere(lasted["longest"], run, lambda sample, **at: max((length for length, _ in runs(sample, **at)), default=NAN))
    assert_everywhere(lasted["cut_off"], run, lambda sample, **at: mean(cut for _, cut in runs(sample, **at)))
    assert_over_steps(lasted["no_memory"], run, by_chance)
    # an autoregressive model's prompt rows have one step: their runs are counted, and nothing is said of them
    several = lasted["runs"].sel(group=[group for group in run.groups if group != "prompt"])
    assert_everywhere(several, run, lambda sample, length, **at: sum(lasting == length for lasting, _ in runs(sample, **at)))


def kind_of(times: int, chances: int) -> str:
    if chances == 1:
        return "undecided"
    return "transient" if times == 1 else "static" if times >= 0.9 * chances else "moving"


def test_kinds_of_anchors_go_by_the_steps_at_which_they_could_be(run: Run, found: Found) -> None:
    def count(sample: Sample, kind: str, **at: Any) -> float:
        steps = sample.over_steps(**at)
        times, chances = ([sum(key in of(rows) for rows in steps) for key in range(sample.keys)] for of in (found.of, measured))
        kinds = [kind_of(*both) for both in zip(times, chances, strict=True) if both[0]]
        return kinds.count(kind) if can_drift(found, steps) else NAN

    def share(sample: Sample, kind: str, **at: Any) -> float:
        counts = sum(count(sample, one, **at) for one in KINDS)
        return count(sample, kind, **at) / counts if counts else NAN

    said = measures.anchor_kinds(found.by_floatlens)
    assert_everywhere(said["count"], run, count)
    assert_everywhere(said["share"], run, share)
    assert_everywhere(said["undecided"], run, lambda sample, **at: count(sample, "undecided", **at))


def test_kinds_by_chance_of_as_many_anchors_at_each_step(run: Run, found: Found) -> None:
    @cache
    def likely(chances: tuple[float, ...]) -> dict[str, float]:
        """How likely a key is to be of each kind, over all ways in which it can be an anchor at these steps."""
        each = dict.fromkeys(KINDS, 0.0)
        for ways in product((True, False), repeat=len(chances)):
            if any(ways):
                each[kind_of(sum(ways), len(ways))] += prod(one if way else 1 - one for one, way in zip(chances, ways, strict=True))
        return each

    def by_chance(sample: Sample, kind: str, **at: Any) -> float:
        steps = sample.over_steps(**at)
        chances = [[len(found.of(rows)) / len(measured(rows)) for rows in steps if key in measured(rows)] for key in range(sample.keys)]
        expected = {name: sum(likely(tuple(of_key))[name] for of_key in chances if len(of_key) > 1) for name in KINDS}
        return expected[kind] / sum(expected.values()) if can_drift(found, steps) else NAN

    assert_everywhere(measures.anchor_kinds(found.by_floatlens)["no_memory"], run, by_chance)


# -- positions ----------------------------------------------------------------------------------------------------------------------------


def place(found: Found, rows: Rows, keys: int) -> float:
    chosen = found.of(rows)
    return sum(mass(rows)[key] * key for key in chosen) / sum(mass(rows)[key] for key in chosen) / keys if chosen else NAN


def test_the_centroid_is_weighted_by_mass(run: Run, found: Found) -> None:
    where = measures.centroid(run.data, found.by_floatlens)
    assert_everywhere(where["centroid"], run, lambda sample, **at: place(found, sample.rows(**at), sample.keys))
    assert_everywhere(where["no_memory"], run, lambda sample, **at: mean(key / sample.keys for key in measured(sample.rows(**at))))


def test_variance_of_the_centroid_over_steps_and_of_the_mean_profile_over_keys(run: Run, found: Found) -> None:
    def temporal(sample: Sample, **at: Any) -> float:
        places = [place(found, rows, sample.keys) for rows in sample.over_steps(**at) if found.of(rows)]
        return variance(places) if len(places) > 1 else NAN

    @cache
    def alone_and_together(keys: frozenset[int]) -> tuple[float, float]:
        """Variance of the position of a key drawn from these, and covariance with another drawn from those that are left."""
        middle = mean(keys)
        others = [(one - middle) * (other - middle) for one, other in product(keys, keys) if one != other]
        return mean((one - middle) ** 2 for one in keys), mean(others) if others else 0.0

    def by_chance(sample: Sample, **at: Any) -> float:
        """Expected variance over steps: that of the expected centroids, and what each step varies by itself around the mean of all."""
        steps = [rows for rows in sample.over_steps(**at) if found.of(rows)]
        own = []
        for rows in steps:
            weights = [mass(rows)[key] for key in found.of(rows)]
            alone, together = alone_and_together(measured(rows))
            products = sum(one * other for (at_one, one), (at_other, other) in product(enumerate(weights), repeat=2) if at_one != at_other)
            own.append((sum(weight**2 for weight in weights) * alone + products * together) / sum(weights) ** 2)
        if len(steps) < 2:
            return NAN
        return (variance([mean(measured(rows)) for rows in steps]) + (1 - 1 / len(steps)) * mean(own)) / sample.keys**2

    def spatial(sample: Sample, amount: Callable[[Rows], list[float]], **at: Any) -> float:
        steps = [rows for rows in sample.over_steps(**at) if rows.positions]
        drawn = [[*amount(rows), *[0.0] * (sample.keys - len(rows.keys))] for rows in steps]
        profile = [mean(one[key] / len(rows.positions) for one, rows in zip(drawn, steps, strict=True)) for key in range(sample.keys)]
        return variance([sample.keys * height for height in profile])

    spread = measures.position_variance(run.data, found.by_floatlens)
    assert_everywhere(spread["temporal"], run, temporal)
    assert_everywhere(spread["temporal_no_memory"], run, by_chance)
    assert_everywhere(spread["spatial"], run, lambda sample, **at: spatial(sample, mass, **at))
    assert_everywhere(spread["spatial_null"], run, lambda sample, **at: spatial(sample, fair, **at))


# -- floating -----------------------------------------------------------------------------------------------------------------------------


def floating(found: Found, steps: list[Rows]) -> dict[str, float]:
    """The index and its nulls, as section 5 says, halves of rows for those with several a step."""
    near = [(found.jaccard(*two), found.jaccard_by_chance(*two)) for two in pairwise(steps)]
    said = {"float_index": 1 - mean(one for one, _ in near), "no_memory": 1 - mean(one for true, one in near if not isnan(true))}
    said["pairs"] = sum(not isnan(one) for one, _ in near)
    if not said["pairs"]:
        return {**dict.fromkeys(("float_index", "no_memory", "no_movement", "compared", "movement"), NAN), "pairs": 0}
    if all(len(rows.positions) < 2 for rows in steps):
        known = [rows for rows in steps if measured(rows)]
        shared = frozenset.intersection(*(measured(rows) for rows in known))
        sets = [found.of(rows) & shared for rows in known]
        said["no_movement"] = 1 - mean(jaccard(one, other) for one, other in combinations(sets, 2))
        said["compared"] = 1 - mean(jaccard(one, other) for one, other in pairwise(sets))
        return {**said, "movement": NAN}
    within, across = [], []
    for now, then in pairwise(steps):
        (even, odd), (even_then, odd_then) = ((rows.half(0), rows.half(1)) for rows in (now, then))
        if all(half.positions for half in (even, odd, even_then, odd_then)):
            within += [found.jaccard(even, odd), found.jaccard(even_then, odd_then)]
            across += [found.jaccard(even, odd_then), found.jaccard(odd, even_then)]
    said |= {"no_movement": 1 - mean(within), "compared": 1 - mean(across)}
    return {**said, "movement": said["compared"] - said["no_movement"]}


def test_the_float_index_stands_beside_what_chance_and_noise_replace(run: Run, found: Found) -> None:
    index = measures.float_index(run.data, eps=found.eps)
    method = index["method"].isel(sample=0).values.tolist()
    assert method == (["order", "halves"] if run.writer == "autoregressive" else ["halves"] * 3)
    for name in ("float_index", "no_memory", "no_movement", "compared", "pairs"):
        assert_over_steps(index[name], run, lambda steps, name=name: floating(found, steps)[name])
    if run.writer == "autoregressive":
        assert index["movement"].isnull().all()
    else:
        assert_over_steps(index["movement"], run, lambda steps: floating(found, steps)["movement"])


def test_rows_that_are_dealt_out_again_float_as_shuffled_dense_rows_do() -> None:
    run, deals = run_of("llada"), 400
    found = anchors_of(run)
    generator = np.random.default_rng(5)
    for number, sample in enumerate(run.samples):
        steps = sample.over_steps("unmasked", layer=1, head=2)
        masks = np.stack([np.isin(np.arange(run.data.sizes["query"]), rows.positions) for rows in steps])
        pattern = run.data["pattern"].isel(sample=number, chosen=0)
        again = measures.float_index_of_rows(pattern.where(xr.DataArray(masks, dims=("step", "query"))), eps=found.eps, draws=deals, seed=7)
        expected = floating(found, steps)
        assert [float(again[name]) for name in ("float_index", "no_memory", "pairs")] == pytest.approx(
            [expected[name] for name in ("float_index", "no_memory", "pairs")]
        )
        pool, borders = np.concatenate([rows.weights for rows in steps]), np.cumsum([len(rows.positions) for rows in steps])[:-1]
        dealt = []
        for _ in range(deals):
            received = [some.mean(0) * sample.keys for some in np.split(generator.permutation(pool), borders)]
            sets = [frozenset(np.flatnonzero(one > 1 + found.eps).tolist()) for one in received]
            dealt.append(1 - mean(jaccard(*two) for two in pairwise(sets)))
        assert float(again["no_movement"]) == pytest.approx(mean(dealt), abs=4 * sqrt(2 * variance(dealt) / deals))


def test_following_the_frontier_correlates_moves_and_turns_them_round(run: Run, found: Found) -> None:
    def correlation(first: list[float], second: list[float]) -> float:
        both = [(x, y) for x, y in zip(first, second, strict=True) if not isnan(x + y)]
        xs, ys = [x for x, _ in both], [y for _, y in both]
        if len(both) < 3 or variance(xs) < 1e-12 or variance(ys) < 1e-12:
            return NAN
        return mean((x - mean(xs)) * (y - mean(ys)) for x, y in both) / sqrt(variance(xs) * variance(ys))

    @cache
    def followed(sample: Sample, **at: Any) -> dict[str, float]:
        places = [place(found, rows, sample.keys) for rows in sample.over_steps(**at)]
        frontier = [mean(np.flatnonzero(step.state == 3) / sample.keys) for step in sample.steps]
        moves, travelled = ([after - before for before, after in pairwise(series)] for series in (places, frontier))
        turned = [correlation(moves, travelled[-shift:] + travelled[:-shift]) for shift in range(len(moves))]
        known = [one for one in turned if not isnan(one)]
        if isnan(turned[0]):
            return {"correlation": NAN, "null": NAN, "p": NAN}
        return {"correlation": turned[0], "null": mean(turned[1:]), "p": sum(one > turned[0] - 1e-6 for one in known) / len(known)}

    follows = measures.frontier_following(run.data, found.by_floatlens)
    if run.writer == "autoregressive":
        assert follows["correlation"].isnull().all()
        assert (follows["reason"].sel(group="predicting") == "the frontier moves by the same amount at every step").any()
        return
    for name in ("correlation", "null", "p"):
        assert_everywhere(follows[name], run, lambda sample, name=name, **at: followed(sample, **at)[name])


# -- flow and retrieval -------------------------------------------------------------------------------------------------------------------


def share_of(keys: Sequence[int], looks: np.ndarray) -> float:
    """Mean over rows of what each puts on these keys, those that exist; NaN without rows or keys."""
    there = [key for key in keys if key < looks.shape[1]]
    return float(looks[:, there].sum(1).mean()) if len(looks) and there else NAN


def even_looks(rows: Rows) -> np.ndarray:
    return rows.sees / rows.sees.sum(1, keepdims=True)


@pytest.mark.parametrize("per_head", [False, True], ids=["head-averaged", "per head"])
def test_direct_flow_is_what_predicting_rows_put_into_a_region(run: Run, per_head: bool) -> None:
    averaged: dict[str, Any] = {} if per_head else {"head": None}

    def keys_of(sample: Sample, region: str) -> list[int]:
        inside = {key for keys in sample.regions.values() for key in keys}
        return sample.regions[region] if region != "elsewhere" else [key for key in range(sample.keys) if key not in inside]

    def direct(sample: Sample, region: str, **at: Any) -> float:
        return share_of(keys_of(sample, region), sample.rows(**at, **averaged, group="predicting").weights)

    def evenly(sample: Sample, region: str, **at: Any) -> float:
        return share_of(keys_of(sample, region), even_looks(sample.rows(**at, group="predicting")))

    flow = measures.direct_flow(run.data, per_head=per_head)
    assert_everywhere(flow["direct"], run, direct)
    assert_everywhere(flow["null"], run, evenly)
    assert_everywhere(flow["fair"], run, lambda sample, **at: direct(sample, **at) / evenly(sample, **at))


def rolled_out(sample: Sample, steps: Sequence[Step], evenly: bool) -> np.ndarray:
    """As published: region sums of head-averaged attention, each row normalised, with the residual stream, layer by layer."""
    regions, rolled = list(sample.regions.values()), np.eye(3)
    for layer in range(LAYERS):
        sums = np.zeros((3, 3))
        for step in steps:
            looks = step.sees / step.sees.sum(1, keepdims=True) if evenly else step.weights[layer].mean(0)
            for (a, rows), (b, keys) in product(enumerate(regions), enumerate(regions)):
                sums[a, b] += sum(looks[row, key] for row in rows for key in keys if row in step.computed and key < looks.shape[1])
        mixed = sums / sums.sum(1, keepdims=True) + np.eye(3)
        rolled = mixed / mixed.sum(1, keepdims=True) @ rolled
    return rolled


def test_rollout_is_the_published_product_over_layers(run: Run) -> None:
    pooled = run.writer == "autoregressive"  # no step has the rows of all regions

    @cache
    def expected(sample: Sample, evenly: bool, step: int | None = None) -> np.ndarray:
        return rolled_out(sample, sample.steps if step is None else [sample.steps[step]], evenly)

    def of_regions(evenly: bool, sample: Sample, query_region: str, key_region: str, **at: Any) -> float:
        names = list(sample.regions)
        return expected(sample, evenly, **at)[names.index(query_region), names.index(key_region)]

    rolled = measures.rollout(run.data, pooled=pooled)
    assert_everywhere(rolled["rollout"], run, lambda sample, **at: of_regions(False, sample, **at))
    assert_everywhere(rolled["null"], run, lambda sample, **at: of_regions(True, sample, **at))


def test_retrieval_and_attention_on_the_gold_span(run: Run) -> None:
    gold = run.data["state"].isel(step=0) == 1  # all that the model was given

    def needle(sample: Sample) -> list[int]:
        return np.flatnonzero(sample.steps[0].state == 1).tolist()

    def score(sample: Sample, layer: int, head: int) -> float:
        copied = set()
        for step in sample.steps:
            for position, row in zip(np.flatnonzero(step.state == 3), step.groups["predicting"], strict=True):
                favourite = int(np.argmax(step.weights[layer, head, row]))
                if favourite in needle(sample) and sample.final[favourite] == sample.final[position]:
                    copied.add(favourite)
        return len(copied) / len(needle(sample))

    def on_gold(sample: Sample, **at: Any) -> float:
        return share_of(needle(sample), sample.rows(**at, group="predicting").weights)

    def evenly(sample: Sample, **at: Any) -> float:
        return share_of(needle(sample), even_looks(sample.rows(**at, group="predicting")))

    scores, attention = measures.retrieval_scores(run.data, gold), measures.gold_attention(run.data, gold)
    assert (scores["score"] > 0).any(), "no head copies anything"
    assert_everywhere(scores["score"], run, score)
    assert_everywhere(attention["mass"], run, on_gold)
    assert_everywhere(attention["lift"], run, lambda sample, **at: on_gold(sample, **at) / evenly(sample, **at))

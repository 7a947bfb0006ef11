"""Summaries of made-up tables against means and differences taken by hand."""

from typing import Any

import numpy as np
import polars as pl
import pytest
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.effects import interaction
from floatlens.statistics.proportions import bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap
from floatlens.study.outcomes import Outcome, as_table, summarise

RANDOM = np.random.default_rng(5)
SAMPLES = [f"s-{number:02d}" for number in range(20)]


def rows(model: str, context: str, right: np.ndarray, **about: Any) -> list[dict[str, Any]]:
    kind = about.pop("kind", context)
    removed = about.pop("removed", [None] * len(right))
    fixed = {"level": None, "intervention": "", "control": "", **about}
    return [
        {
            "model": model,
            "sample": sample,
            "context": context,
            "kind": kind,
            **fixed,
            "accuracy": float(one),
            "exact_match": float(one),
            "f1": None,
            "log_likelihood": float(one) - 3,
            "removed": share,
            "likelihood_removed": None if share is None else 2 * share,
        }
        for sample, one, share in zip(SAMPLES, right, removed, strict=False)
    ]


def table(*groups: list[dict[str, Any]]) -> pl.DataFrame:
    floats: dict[str, Any] = {"level": pl.Float64, "f1": pl.Float64, "removed": pl.Float64, "likelihood_removed": pl.Float64}
    return pl.DataFrame([row for group in groups for row in group], schema_overrides=floats)


def drawn(chance: float) -> np.ndarray:
    return (RANDOM.random(20) < chance).astype(float)


def along(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims="sample")


def only(found: list[Outcome], quantity: str, **about: Any) -> Outcome:
    chosen = [one for one in found if one.quantity == quantity and all(getattr(one, name) == value for name, value in about.items())]
    assert len(chosen) == 1, (quantity, about, len(chosen))
    return chosen[0]


CLOSED, GOLD, MASKED, COUNT, MASS = (drawn(chance) for chance in (0.2, 0.8, 0.4, 0.7, 0.6))
OTHER_CLOSED, OTHER_GOLD = drawn(0.3), drawn(0.6)
REMOVED = RANDOM.uniform(0.1, 0.4, 20)
EDITED: dict[str, Any] = {"intervention": "mask-anchors:1"}
TABLE = table(
    rows("mdm", "closed-book", CLOSED),
    rows("mdm", "gold", GOLD),
    rows("mdm", "gold", MASKED, removed=REMOVED.tolist(), **EDITED),
    rows("mdm", "gold", COUNT, removed=(REMOVED / 4).tolist(), control="count", **EDITED),
    rows("mdm", "gold", MASS, removed=REMOVED.tolist(), control="mass", **EDITED),
    rows("arm", "closed-book", OTHER_CLOSED)[::-1],
    rows("arm", "gold", OTHER_GOLD),
)
FOUND = summarise(TABLE, outcomes=["accuracy"])


def test_means_are_those_of_the_conditions_with_their_intervals() -> None:
    for values, about in (
        (CLOSED, {"model": "mdm", "context": "closed-book", "intervention": ""}),
        (COUNT, {"model": "mdm", "context": "gold", "control": "count"}),
        (OTHER_GOLD, {"model": "arm", "context": "gold"}),
    ):
        one = only(FOUND, "mean", **about)
        assert one.estimate == pytest.approx(values.mean())
        interval = bounded_mean(along(values))
        assert (one.low, one.high) == (float(interval.low), float(interval.high))
        assert one.samples == 20


def test_gains_are_paired_and_unedited() -> None:
    gain = only(FOUND, "gain", model="mdm")
    assert (gain.context, gain.reference, gain.intervention) == ("gold", "closed-book", "")
    assert gain.estimate == pytest.approx((GOLD - CLOSED).mean())
    assert gain.low == pytest.approx(float(bounded_difference(along(GOLD), along(CLOSED)).low))
    assert only(FOUND, "gain", model="arm").estimate == pytest.approx((OTHER_GOLD - OTHER_CLOSED).mean())  # whatever the order of the rows


def test_damage_is_set_against_what_was_removed_and_against_each_control() -> None:
    for values, removed, control in ((MASKED, REMOVED, ""), (COUNT, REMOVED / 4, "count"), (MASS, REMOVED, "mass")):
        assert only(FOUND, "damage", control=control).estimate == pytest.approx((GOLD - values).mean())
        ratio = only(FOUND, "damage per removed", control=control)
        assert ratio.estimate == pytest.approx((GOLD - values).mean() / removed.mean())
        assert ratio.high == pytest.approx(float(bounded_ratio(along(GOLD - values), along(removed), within=(-1, 1)).high))
    assert only(FOUND, "damage beyond control", control="count").estimate == pytest.approx((COUNT - MASKED).mean())
    assert only(FOUND, "damage beyond control", control="mass").estimate == pytest.approx((MASS - MASKED).mean())


def test_likelihoods_are_set_against_what_was_removed_while_they_were_taken() -> None:
    found = summarise(TABLE, outcomes=["log_likelihood"])
    assert only(found, "damage per removed", control="").estimate == pytest.approx((GOLD - MASKED).mean() / (2 * REMOVED).mean())
    assert only(found, "mean", model="arm", context="gold").estimate == pytest.approx(OTHER_GOLD.mean() - 3)


def test_an_interval_of_likelihoods_ends_where_likelihoods_end() -> None:
    few = summarise(table(rows("m", "gold", np.array([0.0, 2.9, 3.0]))), outcomes=["log_likelihood"])  # -3, -.1 and 0
    one = only(few, "mean", model="m")
    assert float(bootstrap(along(np.array([-3.0, -0.1, 0.0]))).high) > 0, "the bootstrap of three samples knows no end"
    assert one.high == 0.0
    assert one.low < -3.0 < one.estimate < 0.0


def test_the_interaction_is_the_difference_of_what_two_models_gain() -> None:
    one = only(FOUND, "interaction")
    assert (one.model, one.other, one.context) == ("mdm", "arm", "gold")
    assert one.estimate == pytest.approx((GOLD - CLOSED).mean() - (OTHER_GOLD - OTHER_CLOSED).mean())
    by_hand = interaction(along(GOLD), along(CLOSED), along(OTHER_GOLD), along(OTHER_CLOSED), within=(0, 1))
    assert (one.low, one.high, one.p_value) == pytest.approx((float(by_hand.low), float(by_hand.high), float(by_hand.p_value)))


def test_slopes_go_over_the_levels_of_one_series() -> None:
    levels = (0.0, 0.4, 0.8)
    values = {model: {level: drawn(0.9 - level / 2) for level in levels} for model in ("mdm", "arm")}
    noise = [
        rows(model, f"noise:{level:g}", of_level, kind="noise", level=level)
        for model, own in values.items()
        for level, of_level in own.items()
    ]
    slots = [rows("mdm", f"position:{slot}/{of}", drawn(0.5), kind="position", level=float(slot)) for slot, of in ((1, 6), (6, 6), (1, 9))]
    masks = [rows("mdm", f"gold,masks={count}", drawn(0.5), kind="masks", level=float(count)) for count in (8, 64)]
    found = summarise(table(*noise, *slots, *masks), outcomes=["accuracy"])
    slopes = {
        model: np.array([np.polyfit(levels, [own[level][at] for level in levels], 1)[0] for at in range(20)])
        for model, own in values.items()
    }
    for model, by_hand in slopes.items():
        assert only(found, "slope", model=model, context="noise").estimate == pytest.approx(by_hand.mean())
    assert only(found, "slope difference").estimate == pytest.approx((slopes["mdm"] - slopes["arm"]).mean())
    assert {one.context for one in found if one.quantity == "slope"} == {"noise", "position/6", "gold,masks"}  # one slot of 9 is no series


def test_agreement_of_all_samples_leaves_scores_an_interval_and_is_said_of_likelihoods() -> None:
    one = only(summarise(table(rows("m", "gold", np.ones(20))), outcomes=["accuracy"]), "mean")
    assert (one.estimate, one.high, one.reason) == (1.0, 1.0, "")
    assert one.low == pytest.approx(0.05 ** (1 / 20)), "half the chance of 20 right answers in a row is then 2.5 %"
    likely = only(summarise(table(rows("m", "gold", np.ones(20))), outcomes=["log_likelihood"]), "mean")
    assert (likely.estimate, likely.low, likely.high) == (-2.0, -2.0, -2.0)
    assert likely.reason.startswith("all samples agree")


def test_what_cannot_be_computed_is_nan_with_its_reason() -> None:
    nothing = rows("m", "gold", CLOSED, removed=[0.0] * 20, **EDITED)
    found = summarise(table(rows("m", "gold", GOLD), nothing), outcomes=["accuracy"])
    ratio = only(found, "damage per removed")
    assert np.isnan(ratio.estimate)
    assert ratio.reason == "the denominator is 0"
    one = only(summarise(table(rows("m", "gold", GOLD[:1])), outcomes=["accuracy"]), "mean")
    assert np.isnan(one.low)
    assert one.reason == "one prompt, so no interval"


def test_an_outcome_that_was_not_taken_is_left_out() -> None:
    assert {one.outcome for one in summarise(TABLE)} == {"accuracy", "exact_match", "log_likelihood"}


def test_several_tables_are_one_and_make_a_table() -> None:
    parts = [TABLE.filter(pl.col("model") == model) for model in ("mdm", "arm")]
    assert summarise(parts, outcomes=["accuracy"]) == FOUND
    assert as_table(FOUND)["estimate"].to_list() == [one.estimate for one in FOUND]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (TABLE.clear(), "nothing to summarise"),
        ([], "nothing to summarise"),
        (pl.concat([TABLE, TABLE.head(1)]), "Sample s-00 stands 2 times under closed-book for mdm"),
        (TABLE.slice(1), "mdm was asked 19 samples under closed-book and 20, or others, under gold"),
        (TABLE.filter((pl.col("model") == "mdm") | (pl.col("sample") != "s-03")), "mdm and arm were asked different samples"),
        (TABLE.drop("accuracy"), "There is no column 'accuracy'"),
    ],
)
def test_tables_that_cannot_be_paired_are_refused(broken: Any, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        summarise(broken)
    assert sentence in str(refused.value)


def test_draws_of_a_control_are_averaged_per_sample_before_anything_is_resampled() -> None:
    draws = RANDOM.integers(0, 2, (20, 5)).astype(float)
    removed = RANDOM.uniform(0.1, 0.4, (20, 5))
    edited = [
        rows("mdm", "gold", draws[:, draw], removed=removed[:, draw].tolist(), control="mass", draw=draw, **EDITED) for draw in range(5)
    ]
    unedited = [rows("mdm", "gold", GOLD, draw=None), rows("mdm", "gold", MASKED, removed=REMOVED.tolist(), draw=None, **EDITED)]
    given = table(*unedited, *edited).sample(fraction=1.0, shuffle=True, seed=3).cast({"draw": pl.Int64})
    found = summarise(given)
    mean, mean_removed = np.zeros(20), np.zeros(20)
    for sample in range(20):
        for draw in range(5):
            mean[sample] += draws[sample, draw] / 5
            mean_removed[sample] += removed[sample, draw] / 5
    by_hand = {
        "mean": bounded_mean(along(mean)),
        "damage": bounded_difference(along(GOLD), along(mean)),
        "damage per removed": bounded_ratio(along(GOLD - mean), along(mean_removed), within=(-1, 1)),
        "damage beyond control": bounded_difference(along(mean), along(MASKED)),
    }
    for quantity, interval in by_hand.items():
        one = only(found, quantity, outcome="accuracy", control="mass")
        assert one.samples == 20, "samples are counted, not draws"
        for name in ("estimate", "low", "high"):
            assert getattr(one, name) == pytest.approx(float(interval[name]), abs=1e-9), (quantity, name)
    nats = bootstrap(along(mean - 3))
    likely = only(found, "mean", outcome="log_likelihood", control="mass")
    assert (likely.low, likely.high) == pytest.approx((float(nats.low), float(nats.high)))


def test_a_table_of_an_earlier_version_is_one_draw_and_stands_beside_a_new_one() -> None:
    new = TABLE.filter(pl.col("model") == "arm").with_columns(draw=pl.lit(None, dtype=pl.Int64))
    found = summarise([TABLE.filter(pl.col("model") == "mdm"), new], outcomes=["accuracy"])
    assert found == FOUND


def test_the_same_draw_twice_is_refused() -> None:
    one = rows("mdm", "gold", COUNT, control="count", draw=1, **EDITED)
    with pytest.raises(Refusal, match="stands 2 times under gold"):
        summarise(table(rows("mdm", "gold", GOLD, draw=None), one, one), outcomes=["accuracy"])

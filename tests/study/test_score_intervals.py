"""Whatever answers come in, summaries print no accuracy outside of what is possible, no interval without width, and no interval that
contradicts the p-value beside it.
"""

from typing import Any

import numpy as np
import polars as pl
import pytest

from floatlens.study.outcomes import Outcome, summarise

POSSIBLE = {
    "mean": (0.0, 1.0),
    "gain": (-1.0, 1.0),
    "damage": (-1.0, 1.0),
    "damage beyond control": (-1.0, 1.0),
    "interaction": (-2.0, 2.0),
    "slope": (-2.0, 2.0),  # two levels, half apart
    "slope difference": (-4.0, 4.0),
}


def answers(samples: int, draw: np.random.Generator) -> pl.DataFrame:
    """Two models, right or wrong at chances of their own, under every kind of condition."""
    conditions: list[tuple[str, str, float | None, str, str]] = [
        ("closed-book", "closed-book", None, "", ""),
        ("gold", "gold", None, "", ""),
        ("noise:0", "noise", 0.0, "", ""),
        ("noise:0.5", "noise", 0.5, "", ""),
        *(("gold", "gold", None, "mask-anchors:1", control) for control in ("", "count")),
    ]
    rows: list[dict[str, Any]] = []
    for model in ("mdm", "arm"):
        for context, kind, level, intervention, control in conditions:
            chance = draw.choice([0.0, 0.05, 0.5, 0.9, 1.0])
            for sample in range(samples):
                score = float(draw.random() < chance)
                removed = draw.uniform(0.1, 0.4) if intervention else None
                about = {"context": context, "kind": kind, "level": level, "intervention": intervention, "control": control}
                scores = {"accuracy": score, "f1": score * draw.integers(1, 5) / 4, "log_likelihood": -draw.exponential() - 3 * (1 - score)}
                rows.append(
                    {"model": model, "sample": f"{sample:03}", **about, **scores, "removed": removed, "likelihood_removed": removed}
                )
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(("level", "removed", "likelihood_removed"), pl.Float64))


def summaries(samples: int, outcomes: list[str]) -> list[Outcome]:
    draw = np.random.default_rng(samples)
    return [one for _ in range(4) for one in summarise(answers(samples, draw), outcomes=outcomes, draws=400)]


@pytest.mark.parametrize("samples", [4, 12, 20])
def test_scores_have_intervals_with_width_inside_what_is_possible(samples: int) -> None:
    for one in summaries(samples, ["accuracy", "f1"]):
        if one.quantity in POSSIBLE:
            least, most = POSSIBLE[one.quantity]
            assert least <= one.low <= one.estimate + 1e-9, one
            assert one.estimate - 1e-9 <= one.high <= most, one
            assert one.high - one.low > 1 / (4 * samples), one
            assert one.reason == ""


@pytest.mark.parametrize("samples", [4, 12, 20])
def test_no_interval_contradicts_the_p_value_beside_it(samples: int) -> None:
    interactions = [one for one in summaries(samples, ["accuracy", "f1", "log_likelihood"]) if one.quantity == "interaction"]
    assert interactions
    for one in interactions:
        assert one.p_value is not None
        assert (one.low > 0 or one.high < 0) == (one.p_value < 0.05), one

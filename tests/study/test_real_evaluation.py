"""SmolLM2-135M on a hundred questions of Natural Questions: passages, where the gold one stands, and what masking costs. Run by
`make test-real`; more than an hour on two cores.

The tables that this prints are those of docs/results/context-smollm2.md, from the same questions and passages.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import floatlens as fl
from floatlens.report.evaluation import print_evaluation
from floatlens.study.one_model import evaluate_model
from floatlens.study.outcomes import Outcome, summarise
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.registry import load_task

pytestmark = pytest.mark.real

QUESTIONS = Path(__file__).parents[1] / "data" / "nq-100-questions.jsonl.gz"
MASKING = ["mask-anchors:1", "mask-anchors:5", "mask-anchors:10"]


def asked(contexts: Sequence[str], into: Path, interventions: Sequence[str] = (), **options: Any) -> tuple[pl.DataFrame, list[Outcome]]:
    """A hundred questions in these contexts, printed as `floatlens eval` prints them; the table is left in a folder."""
    task = load_task("nq", QUESTIONS, conditions=[condition_of(text) for text in contexts])
    assert len(task.samples) == 100
    table = evaluate_model(fl.load("smollm2-135m"), task.samples, contexts, interventions=interventions, **options)
    table.write_parquet(into / "results.parquet")
    summary = summarise(table)
    print_evaluation(Console(width=120, emoji=False), table, summary)
    return table, summary


def only(summary: Sequence[Outcome], quantity: str, outcome: str, context: str, intervention: str = "", control: str = "") -> Outcome:
    wanted = (quantity, outcome, context, intervention, control)
    [found] = [one for one in summary if (one.quantity, one.outcome, one.context, one.intervention, one.control) == wanted]
    return found


def test_the_gold_passage_helps_and_distractors_around_it_cost(tmp_path: Path) -> None:
    positions = [f"position:{slot}/10" for slot in (1, 5, 10)]
    check_positions(*asked(positions, tmp_path, batch_size=1), positions)  # long prompts: a batch would be padded, and no quicker


def check_positions(table: pl.DataFrame, summary: Sequence[Outcome], positions: Sequence[str]) -> None:
    assert table["gold_cut"].sum() == table["passages_cut"].sum() == 0
    assert only(summary, "gain", "accuracy", "gold").low > 0.1, "the gold passage alone helps a lot"
    alone, without = (only(summary, "mean", "accuracy", context).estimate for context in ("gold", "closed-book"))
    for context in positions:
        assert without <= only(summary, "mean", "accuracy", context).estimate < alone, "nine distractors cost something, wherever it stands"


def test_masking_the_sink_costs_more_than_random_keys(tmp_path: Path) -> None:
    check_masking(*asked(["gold"], tmp_path, MASKING, likelihood=True))


def check_masking(table: pl.DataFrame, summary: Sequence[Outcome]) -> None:
    removed = {key: float(str(rows["removed"].mean())) for key, rows in table.drop_nulls("removed").group_by("intervention", "control")}
    for name in MASKING:
        assert removed[name, ""] > 0.3 > 4 * removed[name, "count"], "the strongest keys hold far more than random ones"
        for outcome in ("accuracy", "log_likelihood"):
            assert only(summary, "damage", outcome, "gold", name).low > 0
            assert only(summary, "damage beyond control", outcome, "gold", name, "count").low > 0
    losses = [only(summary, "damage", "log_likelihood", "gold", name).estimate for name in MASKING]
    assert losses == sorted(losses), "more keys, more damage"

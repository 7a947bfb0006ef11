"""What the demo asks of the world, and what it measures: contexts in which a model can fail, and the numbers that claims read."""

import pytest

from floatlens.claims.design import CLOSED_BOOK, WORLD
from floatlens.claims.evidence import Evidence
from floatlens.claims.findings import findings_of
from floatlens.lab.asked_world import WORLD_TASK
from floatlens.lab.experiments import COMPARED, LEFT_TO_RIGHT, RECORDED
from floatlens.lab.units import EXPERIMENTS
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.contexts import arrange
from floatlens.tasks.world import shortcut
from made_up_evidence import as_published

COUNTED_FROM = WORLD.noise[0]
"""What noise costs is counted from the gold passage alone, from which everybody can copy."""


@pytest.mark.parametrize("experiment", WORLD_TASK.asks)
def test_a_reader_who_ignores_the_person_fails_at_least_every_second_time(experiment: str) -> None:
    asks = WORLD_TASK.asks[experiment]
    for context in asks.contexts:
        for sample in asks.samples(8, 0):
            passages = arrange(sample, condition_of(context).context)
            if context == COUNTED_FROM:
                assert len(passages) == 1
            else:
                assert shortcut(sample, passages) <= 0.5, context


def test_every_context_of_the_claims_is_asked_and_every_experiment_has_its_questions() -> None:
    asked = {name: asks.contexts for name, asks in WORLD_TASK.asks.items()}
    assert asked["noise"] == (CLOSED_BOOK, *WORLD.noise)
    assert (asked["position"], asked["layout"]) == (WORLD.positions, WORLD.layouts)
    assert {"trace", *asked} == set(EXPERIMENTS)


def test_what_claims_read_is_measured_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[tuple[str, str]] = set()
    measured = Evidence.measured

    def noted(self: Evidence, role: str, measure: str, **where: str) -> object:
        read.add((where.get("rows", "recorded"), measure))
        return measured(self, role, measure, **where)

    monkeypatch.setattr(Evidence, "measured", noted)
    findings_of(as_published().evidence())
    lines = {"recorded": RECORDED, "rectangle": COMPARED, "left to right": LEFT_TO_RIGHT}
    assert {(rows, line.name) for rows, of_rows in lines.items() for line in of_rows} == read

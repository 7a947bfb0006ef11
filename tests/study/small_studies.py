"""Small studies of the twins, and an engine that runs them in this process."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from floatlens.study.engine import Job, Outcome, ReportOf, failure_of
from floatlens.study.in_process import InProcessEngine
from floatlens.study.planning import Plan, make_plan
from floatlens.study.store import Store, open_store
from floatlens.study.study_file import parse_study
from floatlens.study.worker import Worker

STUDY = """
name = "small"
contexts = ["closed-book", "position:1/2"]
interventions = ["mask-anchors:1"]
draws = 1
brackets = false
likelihood = false

[[models]]
name = "twin-arm"

[[tasks]]
task = "world"
samples = 3

[run]
shard = 2
device = "cpu"
"""
TWO_MODELS = STUDY.replace('name = "twin-arm"', 'name = "twin-arm"\n\n[[models]]\nname = "twin-mdm"')
UNITS = 16  # two contexts; unedited, edited and under two controls; shards of two samples and of one


@cache
def _worker() -> Worker:
    """One for all tests, so that a model is loaded once."""
    return Worker("cpu")


class InlineEngine(InProcessEngine):
    """Runs jobs in this process; `before` is called with each job, and may raise or interrupt."""

    def __init__(self, before: Callable[[Any], object] = lambda job: None) -> None:
        super().__init__(_worker())
        self.before, self.ran = before, list[str]()

    def _outcome(self, job: Job, report: ReportOf) -> Outcome:
        try:
            self.before(job)
        except Exception as error:
            return Outcome(job, failure=failure_of(error))
        outcome = super()._outcome(job, report)
        self.ran += [job.id] if outcome.failure is None else []
        return outcome


def plan_of(text: str = STUDY, folder: Path = Path()) -> Plan:
    return make_plan(parse_study(text, "small.toml"), text, folder, progress=False)


def tables_of(place: "str | Path | Store") -> dict[str, bytes]:
    """The Parquet files of a study's tables but that of its units, which says when and where they ran."""
    store = open_store(place) if isinstance(place, str | Path) else place
    files = {name: store.read(f"tables/{name}") for name in store.names("tables") if name != "units.parquet"}
    assert files
    return {name: content for name, content in files.items() if content is not None}

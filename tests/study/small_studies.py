"""Small studies of the twins, and an engine that runs them in this process."""

from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

from floatlens.study.engine import GO_ON, Outcome, Queue, failure_of
from floatlens.study.planning import Plan, make_plan
from floatlens.study.store import Store, open_store
from floatlens.study.study_file import parse_study
from floatlens.study.units import Job
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
UNITS = 16  # two contexts; unedited, edited and under two controls; shards of two samples and of one


@cache
def _worker() -> Worker:
    """One for all tests, so that a model is loaded once."""
    return Worker("cpu")


class InlineEngine:
    """Runs jobs one after the other in this process; `before` is called with each job, and may raise or interrupt."""

    workers, title = 1, "this process"

    def __init__(self, before: Callable[[Job], object] = lambda job: None) -> None:
        self.before, self.ran = before, list[str]()
        self._worker = _worker()

    def outcomes(self, queue: Queue, told: Callable[[], int]) -> Generator[Outcome, None, None]:
        model = None
        while told() == GO_ON and (job := queue.take(model)) is not None:
            model = job.model.label
            try:
                self.before(job)
                content = self._worker.run(job)
            except Exception as error:
                yield Outcome(job, failure=failure_of(error))
                continue
            self.ran.append(job.unit.id)
            yield Outcome(job, content)


def plan_of(text: str = STUDY, folder: Path = Path()) -> Plan:
    return make_plan(parse_study(text, "small.toml"), text, folder, progress=False)


def tables_of(place: "str | Path | Store") -> dict[str, bytes]:
    """The Parquet files of a study's tables but that of its units, which says when and where they ran."""
    store = open_store(place) if isinstance(place, str | Path) else place
    files = {name: store.read(f"tables/{name}") for name in store.names("tables") if name != "units.parquet"}
    assert files
    return {name: content for name, content in files.items() if content is not None}

"""Run units in this very process, one after the other: models that are loaded already, and tasks that hold functions of a script.

Decided here: no threads, no signals. Ctrl-C stops at once, as in any function; what was finished before is stored.
"""

from collections.abc import Callable, Generator
from dataclasses import replace

from floatlens.errors import is_failure
from floatlens.study.engine import GO_ON, Job, Outcome, Queue, ReportOf, failure_of, unheard
from floatlens.study.worker import Worker


class InProcessEngine:
    """Runs jobs with a worker of this process."""

    workers, title = 1, "this process"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def outcomes(self, queue: Queue, told: Callable[[], int], report: ReportOf = unheard) -> Generator[Outcome, None, None]:
        """Each job as it ends."""
        held: str | None = None
        while told() == GO_ON and (job := queue.take(held)) is not None:
            held = job.holds
            yield self._outcome(job, report)

    def _outcome(self, job: Job, report: ReportOf) -> Outcome:
        try:
            return Outcome(job, job.run(self._worker, lambda count, what: report(job, count, what)))
        except BaseException as error:
            if not is_failure(error):
                raise
            return Outcome(job, failure=replace(failure_of(error), cause=error))

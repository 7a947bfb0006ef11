"""A study on a Ray cluster of this machine: a node is killed half-way, another one joins, and the tables are those of the local engine."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_studies import TWO_MODELS, UNITS, InlineEngine, plan_of, tables_of

from floatlens.study.engine import Outcome, Queue, ReportOf, unheard
from floatlens.study.running import run_study
from floatlens.study.store import open_store

pytestmark = pytest.mark.ray


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without processors, and two nodes with one each."""
    ray = pytest.importorskip("ray")
    make_cluster = pytest.importorskip("ray.cluster_utils").Cluster
    how = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "10", "RAY_worker_niceness": "0"}
    for name, value in how.items():
        monkeypatch.setenv(name, value)
    made = make_cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [join(made), join(made)]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made, nodes
    ray.shutdown()
    made.shutdown()


def join(cluster: Any, tries: int = 5) -> Any:
    """Add a node; on a machine that is very busy, Ray gives up on a node that has not started after 30 seconds, and it is tried again."""
    try:
        return cluster.add_node(num_cpus=1)
    except Exception as error:
        if tries == 1 or "timed out during startup" not in str(error):
            raise
        return join(cluster, tries - 1)


def kill(cluster: Any, node: Any) -> None:
    """Kill a node with all that runs on it."""
    pids = [info.process.pid for info in node.all_processes["raylet"]]
    below = [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]
    cluster.remove_node(node, allow_graceful=False)
    for child in below:
        if child.is_running():
            os.kill(child.pid, signal.SIGKILL)


def test_a_cluster_that_loses_a_node_and_gains_one_gives_the_tables_of_one_process(cluster: Any, tmp_path: Path) -> None:
    from floatlens.study.ray_engine import RayEngine

    made, nodes = cluster
    plan = plan_of(TWO_MODELS)
    store = open_store(tmp_path / "ray", new=True)
    engine = RayEngine(plan, store)
    assert engine.workers == 2
    seen: list[Outcome] = []

    class Watched:
        """The engine; after a third of the units a node dies, after two thirds another one joins."""

        workers, title = engine.workers, engine.title

        def outcomes(self, queue: Queue, told: Any, report: ReportOf = unheard) -> Generator[Outcome, None, None]:
            for outcome in engine.outcomes(queue, told, report):
                seen.append(outcome)
                if len(seen) == 2 * UNITS // 3:
                    kill(made, nodes[0])
                if len(seen) == 4 * UNITS // 3:
                    join(made)
                yield outcome

    report = run_study(plan, store, Watched(), progress=False)
    assert (report.ran, report.failed) == (2 * UNITS, [])
    finished = [outcome.job.unit.id for outcome in seen if outcome.failure is None]
    assert sorted(finished) == sorted(unit.id for unit in plan.units), "every unit ended once"
    run_study(plan, open_store(tmp_path / "local", new=True), InlineEngine(), progress=False)
    assert tables_of(tmp_path / "ray") == tables_of(tmp_path / "local")

"""A study on a Ray cluster of this machine: a node is killed half-way, another one joins, and the tables are those of the local engine."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_studies import TWO_MODELS, UNITS, InlineEngine, plan_of, tables_of

from floatlens.study.engine import Outcome, Queue, ReportOf, unheard
from floatlens.study.running import run_study
from floatlens.study.store import open_store

pytestmark = pytest.mark.ray


PATIENCE = 900  # seconds that something may take to start on a machine that is very busy
SETTINGS = {
    "RAY_gcs_server_port_wait_time_s": PATIENCE,
    "RAY_raylet_start_wait_time_s": PATIENCE,
    "RAY_agent_register_timeout_ms": 1000 * PATIENCE,
    "RAY_worker_register_timeout_seconds": PATIENCE,
    "RAY_health_check_period_ms": 1000,
    "RAY_health_check_timeout_ms": 1000 * PATIENCE,  # a node that answers late lives; one that was killed refuses the connection
    "RAY_health_check_failure_threshold": 20,
    "RAY_worker_niceness": 0,
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without processors, and two nodes with one each."""
    ray = pytest.importorskip("ray")
    utils, starting = pytest.importorskip("ray.cluster_utils"), pytest.importorskip("ray._private.node")
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, str(value))
    for module in (utils, starting):  # they give up after 30 seconds by their own clock
        monkeypatch.setattr(module, "time", Patient())
    services = pytest.importorskip("ray._private.services")
    monkeypatch.setattr(services, "start_ray_process", told_the_port(services.start_ray_process))
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **ports()})
    nodes = [made.add_node(num_cpus=1, **ports()), made.add_node(num_cpus=1, **ports())]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made, nodes
    ray.shutdown()
    made.shutdown()


def ports() -> dict[str, int]:
    """Free ports for the agents of a node. A node that is to find some itself gives up if its agents have not told it within 15 seconds."""
    names = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    numbers = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return dict(zip(names, numbers, strict=True))


def told_the_port(start: Callable[..., Any]) -> Callable[..., Any]:
    """A function that starts a process of Ray, and tells a raylet the port on which its agent listens, which Ray itself forgets to."""

    def started(command: list[str], kind: str, *given: Any, **more: Any) -> Any:
        port = re.search(r"--listen-port=([1-9]\d*)", " ".join(command)) if kind == "raylet" else None
        return start([*command, f"--dashboard_agent_listen_port={port[1]}"] if port else command, kind, *given, **more)

    return started


class Patient:
    """The module `time` with clocks that run slowly, so that 30 of their seconds are our patience."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(time, name)
        return (lambda: real() * 30 / PATIENCE) if name in ("time", "monotonic", "perf_counter") else real


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
                    made.add_node(num_cpus=1, **ports())
                yield outcome

    report = run_study(plan, store, Watched(), progress=False)
    assert (report.ran, report.failed) == (2 * UNITS, [])
    finished = [outcome.job.unit.id for outcome in seen if outcome.failure is None]
    assert sorted(finished) == sorted(unit.id for unit in plan.units), "every unit ended once"
    run_study(plan, open_store(tmp_path / "local", new=True), InlineEngine(), progress=False)
    assert tables_of(tmp_path / "ray") == tables_of(tmp_path / "local")

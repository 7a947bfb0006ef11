"""A study whose results are kept in S3, on a server of this machine: the tables of a folder, each unit stored once."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_studies import STUDY, InlineEngine, plan_of, tables_of

from floatlens.errors import Refusal
from floatlens.study.jobs import ModelJob
from floatlens.study.running import Report, run_study
from floatlens.study.store import open_store
from floatlens.study.units import unit_file
from floatlens.study.verifying import verify_study

moto = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")
FEW = STUDY.replace('interventions = ["mask-anchors:1"]', "")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"studies-{uuid.uuid4().hex}"  # all servers of a process share their buckets
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}"
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()


def test_two_runners_share_a_bucket_and_each_unit_is_stored_once(bucket: str, tmp_path: Path) -> None:
    plan, address = plan_of(FEW), f"{bucket}/few"
    joined: list[Report] = []

    def join(job: ModelJob) -> None:
        if len(first.ran) == 1 and not joined:
            joined.append(run_study(plan, open_store(address, new=True), InlineEngine(), progress=False))

    first = InlineEngine(join)
    report = run_study(plan, open_store(address, new=True), first, progress=False)
    assert (report.ran, report.elsewhere) == (2, 2)
    assert joined[0].ran == 3
    store = open_store(address)
    assert sorted(store.names("units")) == sorted(f"{unit.id}.zip" for unit in plan.units)
    assert store.names("runners") == []
    run_study(plan, open_store(tmp_path / "out", new=True), InlineEngine(), progress=False)
    assert tables_of(store) == tables_of(tmp_path / "out")
    assert verify_study(store, progress=False).faults == ()


def test_a_result_that_is_there_is_not_overwritten_and_a_damaged_one_is_run_again(bucket: str) -> None:
    plan = plan_of(FEW)
    store = open_store(f"{bucket}/few", new=True)
    run_study(plan, store, InlineEngine(), progress=False)
    name = unit_file(plan.units[1].id)
    before = store.read(name)
    assert before is not None
    assert store.create(name, b"late") is False
    assert store.read(name) == before
    store.replace(name, before[:-5])
    assert len(verify_study(store, progress=False).faults) == 1
    engine = InlineEngine()
    run_study(plan, store, engine, progress=False)
    assert engine.ran == [plan.units[1].id]
    assert verify_study(store, progress=False).faults == ()


def test_a_bucket_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(Refusal, match=r"s3://nowhere/study cannot be read or written") as refused:
        open_store("s3://nowhere/study", new=True)
    assert "\n" not in str(refused.value)
    s3fs.S3FileSystem.clear_instance_cache()

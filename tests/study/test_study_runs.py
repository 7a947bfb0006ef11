"""A study runs every unit once, resumes, is amended, survives failures and damage, and gives the rows of an evaluation."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import polars as pl
import pytest
from small_studies import STUDY, UNITS, InlineEngine, plan_of, tables_of

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.study.jobs import ModelJob
from floatlens.study.outcomes import SCHEMA
from floatlens.study.planning import Plan
from floatlens.study.records import look_through, read_plan
from floatlens.study.running import Report, run_study
from floatlens.study.store import open_store
from floatlens.study.units import unit_file
from floatlens.study.verifying import verify_study

Ran = tuple[int, str, str]


def run(plan: Plan, place: Path | str, engine: InlineEngine | None = None, said: list[str] | None = None, retry: bool = False) -> Report:
    tell = (said if said is not None else []).append
    return run_study(plan, open_store(place, new=True), engine or InlineEngine(), tell=tell, progress=False, retry=retry)


def files_of(place: Path) -> dict[str, tuple[int, int]]:
    """The units that are stored, each with what tells whether its file was written again."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (place / "units").iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that ran to its end; tests copy it."""
    place = tmp_path_factory.mktemp("study") / "out"
    assert run(plan_of(), place).ran == UNITS
    return place


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def test_the_rows_of_a_study_are_those_of_an_evaluation(finished: Path) -> None:
    contexts = ["closed-book", "position:1/2"]
    how = {"brackets": False, "likelihood": False, "draws": 1, "progress": False}
    evaluation = fl.evaluate("twin-arm", "world", contexts, interventions=["mask-anchors:1"], samples=3, **how)
    rows = pl.read_parquet(finished / "tables" / "results.parquet")
    assert rows.columns == ["experiment", "task", "sampler", "seed", *SCHEMA]
    exact = [name for name in SCHEMA if name != "removed"]
    assert rows.select(exact).equals(evaluation.rows.select(exact)), "the same rows in the same order"
    assert rows["removed"].fill_null(0).to_list() == pytest.approx(evaluation.rows["removed"].fill_null(0).to_list(), abs=1e-6)
    summary = pl.read_parquet(finished / "tables" / "summary.parquet")
    assert summary.select("quantity", "outcome", "context", "intervention").equals(
        evaluation.summary.select("quantity", "outcome", "context", "intervention")
    )


def test_a_unit_alone_gives_the_very_bits_of_an_evaluation_of_its_samples(tmp_path: Path) -> None:
    one = STUDY.replace('contexts = ["closed-book", "position:1/2"]', 'contexts = ["position:1/2"]').replace("shard = 2", "shard = 3")
    one = one.replace('interventions = ["mask-anchors:1"]', "").replace("likelihood = false", "likelihood = true")
    run(plan_of(one), tmp_path / "out")
    evaluation = fl.evaluate("twin-arm", "world", ["position:1/2"], brackets=False, samples=3, progress=False)
    assert pl.read_parquet(tmp_path / "out" / "tables" / "results.parquet").select(*SCHEMA).equals(evaluation.rows)


def test_a_finished_study_is_not_run_again(study: Path) -> None:
    before, tables = files_of(study), tables_of(study)
    engine = InlineEngine()
    report = run(plan_of(), study, engine)
    assert (report.ran, report.before, engine.ran) == (0, UNITS, [])
    assert (files_of(study), tables_of(study)) == (before, tables)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("samples = 3", "samples = 6", 16),  # the last shard, of one sample, becomes stale; two of two are added
        ('"position:1/2"]', '"position:1/2", "position:2/2"]', 8),
        ('name = "twin-arm"', 'name = "twin-arm"\n\n[[models]]\nname = "twin-mdm"', UNITS),
        ("draws = 1", "draws = 2", 8),
        ('name = "small"', 'name = "small"\nseeds = [0, 1]', UNITS),
    ],
)
def test_what_is_added_amends_and_nothing_that_stays_runs_again(study: Path, old: str, new: str, more: int) -> None:
    before = files_of(study)
    engine = InlineEngine()
    report = run(plan_of(STUDY.replace(old, new)), study, engine)
    assert (report.ran, len(engine.ran)) == (more, more)
    assert files_of(study).items() >= before.items()
    fresh = study.with_name("fresh")
    run(plan_of(STUDY.replace(old, new)), fresh)
    assert tables_of(study) == tables_of(fresh), "amended is as run at once"


def test_a_change_names_what_becomes_stale_and_keeps_it(study: Path) -> None:
    before, said = files_of(study), list[str]()
    report = run(plan_of(STUDY.replace("samples = 3", "samples = 3\ngen_length = 2")), study, said=said)
    assert report.ran == UNITS
    assert [
        sentence
        for sentence in said
        if f"{UNITS} finished units are stale (settings.gen_length was 3, is 2): twin-arm, world, " in sentence
    ]
    assert files_of(study).items() >= before.items()
    assert len(pl.read_parquet(study / "tables" / "results.parquet").filter(gen_length=3)) == 0
    assert run(plan_of(), study).ran == 0, "back to what it was: nothing has to run"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("samples = 3", "samples = 3\nseed = 1"),
        ("samples = 3", "samples = 3\ngen_length = 2"),
        ('name = "small"', 'name = "small"\nseeds = [7]'),
        ('name = "small"', 'name = "small"\nmask_sets = 4\n'),
        ("likelihood = false", "likelihood = true"),
        ('name = "twin-arm"', 'name = "twin-arm"\ndtype = "bfloat16"'),
        ('name = "twin-arm"', 'name = "twin-causal-mdm"'),
        ("shard = 2", "shard = 2\nthreads = 2"),
        ("shard = 2", "shard = 2\nbatch_size = 1"),
        ("[run]", "[[samplers]]\noptions = { temperature = 1.0 }\n[run]"),
        ("[run]", "[[samplers]]\nname = 'other'\ngen_length = 2\n[run]"),
    ],
)
def test_an_id_changes_with_everything_that_its_result_depends_on(old: str, new: str) -> None:
    assert old in STUDY
    ids = {unit.id for unit in plan_of().units}
    changed = {unit.id for unit in plan_of(STUDY.replace(old, new)).units}
    if "mask_sets" in new:
        assert ids == changed, "no likelihood is taken"
    else:
        assert not ids & changed


def test_an_id_does_not_change_with_what_its_result_does_not_depend_on(tmp_path: Path) -> None:
    changed = STUDY.replace('name = "small"', 'name = "other"').replace("[run]", "[run]\nretries = 3").replace("samples = 3", "samples = 2")
    changed = changed.replace('contexts = ["closed-book", ', 'contexts = ["closed-book", "position:2/2", ')
    assert {unit.id for unit in plan_of(changed, tmp_path).units} >= {unit.id for unit in plan_of().units if unit.first < 2}


def failing_once_for(first: int, times: int, error: Exception) -> Callable[[ModelJob], None]:
    left = {"times": times}

    def fail(job: ModelJob) -> None:
        if job.unit.first == first and job.unit.context == "closed-book" and not job.unit.intervention and left["times"]:
            left["times"] -= 1
            raise error

    return fail


def test_a_unit_that_fails_is_recorded_retried_and_counted_and_the_rest_runs(tmp_path: Path, finished: Path) -> None:
    place = tmp_path / "out"
    report = run(plan_of(), place, InlineEngine(failing_once_for(2, 99, MemoryError("no room\x1b[2J"))))
    assert (report.ran, len(report.failed), report.interrupted) == (UNITS - 1, 1, False)
    records = [json.loads(file.read_text()) for file in sorted((place / "failures").iterdir())]
    assert [record["attempt"] for record in records] == [1, 2], "tried again as often as the file says"
    assert records[1]["error"] == "MemoryError: no room\\x1b[2J"
    assert "raise error" in records[1]["traceback"]
    assert "1 failed" in report.sentence
    summary = pl.read_parquet(place / "tables" / "summary.parquet")
    assert len(summary.filter((pl.col("context") == "closed-book") & (pl.col("intervention") == ""))) == 0, (
        "what is not whole is in no summary"
    )
    again = InlineEngine()
    assert run(plan_of(), place, again).failed == report.failed, "run alone does not try for ever"
    assert again.ran == []
    assert run(plan_of(), place, retry=True).ran == 1
    assert list((place / "failures").iterdir()) == []
    assert tables_of(place) == tables_of(finished)


def test_a_retry_that_succeeds_leaves_no_failure_in_the_tables(tmp_path: Path, finished: Path) -> None:
    report = run(plan_of(), tmp_path / "out", InlineEngine(failing_once_for(0, 1, RuntimeError("once"))))
    assert (report.ran, report.failed) == (UNITS, [])
    assert tables_of(tmp_path / "out") == tables_of(finished)


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    report = run(plan_of(), tmp_path / "out", InlineEngine(failing_once_for(2, 99, Refusal("It does not fit."))))
    assert len(report.failed) == 1
    assert len(list((tmp_path / "out" / "failures").iterdir())) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone", "exchanged"])
def test_a_damaged_result_is_found_by_verify_and_run_again(study: Path, damage: str) -> None:
    store, tables = open_store(study), tables_of(study)
    assert verify_study(store, progress=False).faults == ()
    names = sorted((study / "units").iterdir())
    content = bytearray(names[5].read_bytes())
    if damage == "gone":
        names[5].unlink()
    elif damage == "exchanged":
        names[5].write_bytes(names[6].read_bytes())
    else:
        content[len(content) // 2] ^= 4
        names[5].write_bytes(b"" if damage == "empty" else names[5].read_bytes()[:-9] if damage == "cut" else content)
    faults = verify_study(store, progress=False).faults
    assert len(faults) == 1
    assert faults[0].startswith(f"units/{names[5].name} is ")
    engine, said = InlineEngine(), list[str]()
    report = run(plan_of(), study, engine, said)
    assert (report.ran, engine.ran) == (1, [names[5].stem])
    assert any(names[5].stem in sentence or "1 finished unit of the index is gone" in sentence for sentence in said)
    assert verify_study(store, progress=False).faults == ()
    assert tables_of(study) == tables


def test_every_flipped_bit_of_a_plan_is_noticed(study: Path) -> None:
    """A number or a name that changes there would put whole results under another condition."""
    store, content = open_store(study), (study / "plan.json").read_bytes()
    for place in range(0, len(content), 23):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        (study / "plan.json").write_bytes(changed)
        with pytest.raises(Refusal, match=r"plan\.json is damaged|holds a study of format"):
            read_plan(store)
    assert len(content) > 23 * 100


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[]", b"\xff", b'{"units": 3}', b'{"folder": 3, "units": [[1, 2]]}'])
def test_a_file_beside_the_units_that_is_damaged_is_one_sentence(study: Path, content: bytes, floatlens: Callable[..., Ran]) -> None:
    for name, words, said in (
        ("plan.json", "status", "plan.json is damaged. Run the study into the same folder again"),
        ("index.json", "verify", "index.json is damaged, so units that were lost since it was written cannot be named"),
        ("failures/abc.1.json", "status", ""),
        ("runs/0001.json", "retry", "runs/0001.json is damaged, so it cannot be told to which folder the paths"),
        ("study.toml", "retry", "study.toml is damaged" if content == b"\xff" else ""),
    ):
        before = (study / name).read_bytes() if (study / name).exists() else None
        (study / name).parent.mkdir(exist_ok=True)
        (study / name).write_bytes(content)
        try:
            if name != "study.toml" or said:
                code, out, errors = floatlens("study", words, study)
                assert said in f"{out}{errors}".replace("\n", " "), (name, errors)
                assert code == (0 if not said else 1 if words == "verify" else 2)
        finally:
            (study / name).unlink() if before is None else (study / name).write_bytes(before)


def test_every_flipped_byte_of_a_unit_is_noticed(finished: Path) -> None:
    from floatlens.study.sealed import Damaged, unseal

    content = next((finished / "units").iterdir()).read_bytes()
    for place in range(0, len(content), 97):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(Damaged):
            unseal(bytes(changed))


def test_an_interrupted_run_stores_whole_units_and_goes_on(tmp_path: Path, finished: Path) -> None:
    import os
    import signal

    seen: list[str] = []

    def press(job: ModelJob) -> None:
        seen.append(job.unit.id)
        if len(seen) == 7:
            os.kill(os.getpid(), signal.SIGINT)

    said: list[str] = []
    report = run(plan_of(), tmp_path / "out", InlineEngine(press), said)
    assert (report.interrupted, report.ran) == (True, 7)
    assert any("the running units are finished first" in sentence for sentence in said)
    assert not (tmp_path / "out" / "tables").exists()
    before = files_of(tmp_path / "out")
    assert run(plan_of(), tmp_path / "out").ran == UNITS - 7
    assert files_of(tmp_path / "out").items() >= before.items()
    assert tables_of(tmp_path / "out") == tables_of(finished)


def test_a_second_runner_is_refused_and_the_first_goes_on(tmp_path: Path, finished: Path) -> None:
    refusals: list[str] = []

    def try_to_join(job: ModelJob) -> None:
        if not refusals:
            with pytest.raises(Refusal) as refused:
                run(plan_of(), tmp_path / "out")
            refusals.append(str(refused.value))

    assert run(plan_of(), tmp_path / "out", InlineEngine(try_to_join)).ran == UNITS
    assert "is writing" in refusals[0]
    assert tables_of(tmp_path / "out") == tables_of(finished)


def test_a_folder_that_vanishes_is_one_sentence_and_what_was_finished_is_kept(tmp_path: Path, finished: Path) -> None:
    place, moved, count = tmp_path / "out", tmp_path / "moved", list[int]()

    def move(job: ModelJob) -> None:
        count.append(1)
        if len(count) == 9:
            place.rename(moved)

    with pytest.raises(Refusal, match="has vanished while the study was running"):
        run(plan_of(), place, InlineEngine(move))
    assert len(list((moved / "units").iterdir())) == 8
    assert not place.exists(), "nothing is written into a new folder of that name"
    moved.rename(place)
    assert run(plan_of(), place).ran == UNITS - 8
    assert tables_of(place) == tables_of(finished)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Refusal, match=r"holds mine\.txt and no study"):
        run(plan_of(), tmp_path)


def test_an_object_store_gives_the_same_tables_and_stores_each_unit_once(finished: Path) -> None:
    address = "memory://studies/small"
    store = open_store(address, new=True)
    joined: list[Report] = []

    def join(job: ModelJob) -> None:
        """A second runner does everything while the first one is at its third unit."""
        if len(first.ran) == 2 and not joined:
            joined.append(run(plan_of(), address))

    first = InlineEngine(join)
    report = run(plan_of(), address, first)
    assert joined[0].ran == UNITS - 2, "what the first runner had stored was not run again"
    assert (report.ran, report.elsewhere) == (3, UNITS - 3), (
        "what the second one had stored was not run again, but for the unit that was running"
    )
    units = {unit.id for unit in plan_of().units}
    assert {name.removesuffix(".zip") for name in store.names("units")} == units
    assert tables_of(store) == tables_of(finished)
    stored = look_through(store, plan_of().units, progress=False)
    assert store.create(unit_file(next(iter(units))), b"late") is False
    assert look_through(store, plan_of().units, progress=False).finished == stored.finished
    fsspec.filesystem("memory").rm("/studies", recursive=True)


def test_an_option_of_one_model_leaves_the_tasks_of_others_as_they_are() -> None:
    two_tasks = '[[tasks]]\ntask = "world"\nmodels = ["twin-mdm"]\nsamples = 1\n\n[[tasks]]\nname = "other"\nmodels = ["twin-arm"]\n'
    text = STUDY.replace("[[models]]\n", '[[models]]\nname = "twin-mdm"\n\n[[models]]\n', 1).replace("[[tasks]]\n", two_tasks)
    samplers = '[[samplers]]\nname = "{0}"\noptions = {{ {0} = {1} }}\n'
    options = {(job.model.label, *job.settings.options) for job in plan_of(text + samplers.format("block_length", 1)).jobs}
    assert options == {("twin-mdm", "sampler", "block_length"), ("twin-arm", "sampler")}
    with pytest.raises(Refusal, match="has no option 'threshold'"):
        plan_of(STUDY + samplers.format("threshold", 0.5))


def test_two_samplers_that_are_one_for_a_model_run_once_and_stand_in_the_tables_twice(tmp_path: Path) -> None:
    two = STUDY.replace("[run]", '[[samplers]]\nname = "a"\n\n[[samplers]]\nname = "b"\noptions = { threshold = 0.9 }\n\n[run]')
    two = two.replace('name = "twin-arm"', 'name = "twin-arm"\n\n[[models]]\nname = "twin-mdm"')
    report = run(plan_of(two), tmp_path / "out")
    assert report.ran == 3 * UNITS
    rows = pl.read_parquet(tmp_path / "out" / "tables" / "results.parquet")
    assert rows.group_by("model", "sampler").len().sort("model", "sampler")["len"].to_list() == [24] * 4
    a, b = (rows.filter((pl.col("model") == "twin-arm") & (pl.col("sampler") == name)).select(*SCHEMA) for name in "ab")
    assert a.equals(b)
    assert rows["experiment"].unique(maintain_order=True).to_list() == ["world, a", "world, b"]


def test_traces_are_measured_as_a_trace_of_the_same_prompts(tmp_path: Path) -> None:
    traced = STUDY.replace('interventions = ["mask-anchors:1"]', "")
    traced = traced.replace(
        "[run]", '[traces]\nsamples = 3\ncontexts = ["position:1/2"]\nmeasures = ["on the first token"]\nkeep = true\n[run]'
    )
    run(plan_of(traced), tmp_path / "out")
    numbers = pl.read_parquet(tmp_path / "out" / "tables" / "measurements.parquet").filter(depth="all")
    assert numbers["sample"].to_list() == [f"world-open-{number:04d}" for number in range(3)]
    from floatlens.study.exporting import export_study

    written, _ = export_study(open_store(tmp_path / "out"), tmp_path / "exported", progress=False)
    assert "traces" in written
    paths = sorted((tmp_path / "exported" / "traces").rglob("*.zarr"))
    assert [path.name for path in paths] == ["position-1-2-default-seed-0-from-1.zarr", "position-1-2-default-seed-0-from-3.zarr"]
    values = []
    for path in paths:
        assert fl.verify(path) == []
        values += (
            fl.measure_trace(fl.open_trace(path), progress=False)
            .values["on the first token"]["value"]
            .mean("layer")
            .values.ravel()
            .tolist()
        )
    assert numbers["value"].to_list() == pytest.approx(values)


def test_questions_that_come_with_floatlens_are_found_by_their_name_unless_a_file_has_it(tmp_path: Path) -> None:
    text = STUDY.replace('task = "world"', 'task = "nq"\ndata = "nq-100"') + "\n"
    text = text.replace("likelihood = false", "likelihood = false\nallow_unknown = true").replace('"position:1/2"', '"gold"')
    (brought,) = plan_of(text, tmp_path).data
    assert Path(brought).name == "nq-100-questions.jsonl.gz"
    (tmp_path / "nq-100").write_bytes(Path(brought).read_bytes())
    assert list(plan_of(text, tmp_path).data) == [str(tmp_path / "nq-100")]

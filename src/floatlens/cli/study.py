"""`floatlens study check | run | status | retry | results | verify | export`: parse, call `floatlens.study`, print."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floatlens.errors import Refusal
from floatlens.terminal import counted, make_console, say

if TYPE_CHECKING:
    from floatlens.study.engine import Engine
    from floatlens.study.planning import Plan
    from floatlens.study.running import Report
    from floatlens.study.store import Store

HELP = """Run models x questions x conditions from a file, resume after any interruption, and read the tables.

Start with `floatlens study check examples/studies/quick.toml`."""
FAILED, INTERRUPTED, DAMAGED = 1, 130, 1
_FILE = typer.Argument(help="The study: a TOML file such as those in examples/studies.", metavar="STUDY")
_FOLDER = typer.Argument(help="The folder of a study, or its address.", metavar="FOLDER")
_INTO = typer.Option(..., "--into", "-o", help="Where results are kept: a folder, or an address such as s3://bucket/study.")
_WORKERS = typer.Option(None, min=1, max=4096, help="How many workers run at once; by default one per GPU, or as cores and memory allow.")
_ENGINE = typer.Option("local", help="What runs the units: local (processes of this machine) or ray.")
_ADDRESS = typer.Option(None, help="The Ray cluster, for --engine ray: auto, or HOST:PORT; by default one is started on this machine.")


def run(
    file: Path = _FILE,
    into: str = _INTO,
    workers: int = _WORKERS,
    engine: str = _ENGINE,
    address: str = _ADDRESS,
) -> None:
    """Run every unit of a study that is not finished yet, and write its tables.

    If it is interrupted, run the same command again to resume. After the file was changed, only what is new runs: units that the change
    makes stale are named, and their old results are kept. Exit code 1 if units failed.

    Examples:

      floatlens study run examples/studies/quick.toml -o quick

      floatlens study run study.toml -o s3://bucket/study --engine ray --address auto
    """
    from floatlens.study.store import open_store
    from floatlens.study.study_file import study_text

    store, text = open_store(into, new=True), study_text(file)
    _run(text, file, store, workers, engine, address, retry=False)


def retry(folder: str = _FOLDER, workers: int = _WORKERS, engine: str = _ENGINE, address: str = _ADDRESS) -> None:
    """Run those units of a study again that failed for good or are missing.

    Examples:

      floatlens study retry quick
    """
    from floatlens.study.store import open_store

    store = open_store(folder)
    text = store.read("study.toml")
    if text is None:
        raise Refusal(f"{folder} has no study.toml. Run the study there again: floatlens study run STUDY -o {folder}")
    try:
        written = text.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(
            f"{folder}/study.toml is damaged: it is not UTF-8. Run the study again: floatlens study run STUDY -o {folder}"
        ) from None
    _run(written, Path(_folder_of_paths(store)) / "study.toml", store, workers, engine, address, retry=True)


def _folder_of_paths(store: "Store") -> str:
    """The folder that paths in the study's file are relative to: that of the file as it was run last."""
    import json

    runs = [name for name in store.names("runs") if name.endswith(".json")]
    if not runs:
        return "."
    try:
        return str(Path(json.loads(store.read(f"runs/{runs[-1]}") or b"")["folder"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refusal(
            f"{store.address}/runs/{runs[-1]} is damaged, so it cannot be told to which folder the paths in the study are relative. "
            f"Run the study instead: floatlens study run STUDY -o {store.address}"
        ) from None


def _run(text: str, file: Path, store: "Store", workers: int | None, engine: str, address: str | None, *, retry: bool) -> None:
    from floatlens.study.running import refuse_plan, run_study

    console = make_console()
    plan = _plan(text, file)
    refuse_plan(plan)
    running = _engine(engine, plan, store, workers, address)
    say(console, f"{_counts(plan)}; {running.title}.")
    report = run_study(
        plan,
        store,
        running,
        command=sys.argv,
        retry=retry,
        tell=lambda sentence: say(console, sentence),
    )
    say(console, report.sentence)
    _say_failures(store, plan, report)
    if report.interrupted:
        say(console, "Run the same command again to resume.")
        raise typer.Exit(INTERRUPTED)
    say(console, f"Wrote the tables to {store.address}/tables. See them: floatlens study results {store.address}")
    if report.failed:
        raise typer.Exit(FAILED)


def _plan(text: str, file: Path, *, weights: bool = True) -> "Plan":
    from floatlens.study.engine import device_type
    from floatlens.study.planning import make_plan
    from floatlens.study.study_file import parse_study

    study = parse_study(text, str(file))
    console = make_console()
    folder = file.expanduser().resolve().parent
    device = device_type(study.run.device)
    return make_plan(study, text, folder, device=device, weights=weights, tell=lambda sentence: say(console, sentence))


def _engine(name: str, plan: "Plan", store: "Store", workers: int | None, address: str | None) -> "Engine":
    from floatlens.study.engine import local_devices
    from floatlens.study.local_engine import LocalEngine, default_workers

    if name == "local":
        if address is not None:
            raise Refusal("--address names a Ray cluster; add --engine ray.")
        devices = local_devices(plan.device, plan.study.run.devices_per_worker)
        largest = max(model.examined.weight_bytes for model in plan.models)
        return LocalEngine(devices, workers or default_workers(devices, plan.study.run.threads, largest))
    if name == "ray":
        from floatlens.study.ray_engine import RayEngine

        return RayEngine(plan, store, address, workers)
    raise Refusal(f"There is no engine {name!r}. There are: local, ray.")


def _counts(plan: "Plan") -> str:
    units = {unit.id for unit in plan.units}
    return f"{plan.study.name}: {counted(len(units), 'unit')}, {counted(len(plan.models), 'model')}"


def _say_failures(store: "Store", plan: "Plan", report: "Report") -> None:
    from floatlens.study.records import look_through

    if not report.failed:
        return
    console = make_console()
    found = look_through(store, plan.units)
    names = {unit.id: unit.name for unit in plan.units}
    for unit_id in report.failed[:10]:
        tries = found.failures.get(unit_id, ())
        say(console, f"  failed: {names[unit_id]}: {tries[-1]['error'] if tries else 'unknown'}")
    if len(report.failed) > 10:
        say(console, f"  ... and {len(report.failed) - 10} more: floatlens study status {store.address}")


def status(
    folder: str = _FOLDER,
    failures: bool = typer.Option(False, "--failures", help="Print the traceback of the last try of every unit that failed."),
) -> None:
    """Show how far a study is: units by model and state, failures, stale results, mixed versions.

    Examples:

      floatlens study status quick
    """
    from floatlens.report.tables import Column, print_fitting
    from floatlens.study.records import look_through, read_plan
    from floatlens.study.running import changes
    from floatlens.study.store import open_store
    from floatlens.study.tables import read_tables

    console, store = make_console(), open_store(folder)
    plan = read_plan(store)
    found = look_through(store, plan.units)
    units = read_tables(store, list(plan.by_id.values()), found)["units"]
    models = units["model"].unique(maintain_order=True).to_list()
    states = ("finished", "failed", "waiting")
    columns = [Column("model", models)]
    for state in states:
        counts = [len(units.filter((units["model"] == model) & (units["state"] == state))) for model in models]
        columns.append(Column(state, [str(count) for count in counts], right=True))
    seconds = [units.filter(units["model"] == model)["seconds"].sum() for model in models]
    columns.append(Column("seconds", [f"{value:.1f}" for value in seconds], right=True))
    print_fitting(console, [(f"{plan.name}: {len(found.finished) - len(found.stale)} of {len(plan.by_id)} units are finished", columns)])
    for row in units.filter(units["state"] == "failed").iter_rows(named=True):
        unit = plan.by_id[row["id"]]
        say(console, f"failed {counted(row['tries_failed'], 'time')}: {unit.name}: {row['error']}")
        if failures:
            say(console, found.failures[unit.id][-1]["traceback"])
    for unit_id, why in found.damaged.items():
        say(console, f"damaged: {unit_id}: {why}.")
    for sentence in changes(found, plan.units):
        say(console, sentence)
    for what in ("versions", "device"):
        kinds = [kind for kind in units[what].unique(maintain_order=True).to_list() if kind]
        if len({kind.partition(":")[0] for kind in kinds}) > 1:
            say(console, f"Units were run with different {what}, so their last bits may differ: {'; '.join(kinds)}.")


def results(
    folder: str = _FOLDER,
    depth: str = typer.Option("all", help="Of which layers measures are printed: all, shallow, middle or deep."),
) -> None:
    """Print the tables of a study, with paired intervals over questions and over traced texts.

    Examples:

      floatlens study results quick
    """
    from floatlens.report.evaluation import print_evaluation
    from floatlens.report.tables import Column, number, print_fitting, with_interval
    from floatlens.study.records import look_through, read_plan
    from floatlens.study.store import open_store
    from floatlens.study.tables import is_number, measures, read_tables, summaries

    if depth not in (depths := ("all", "shallow", "middle", "deep")):
        raise Refusal(f"--depth {depth!r} is not known; choose one of {', '.join(depths)}.")
    console, store = make_console(), open_store(folder)
    plan = read_plan(store)
    found = look_through(store, plan.units)
    tables = read_tables(store, plan.units, found)
    if len(tables) == 1:
        raise Refusal(f"No unit of {folder} is finished yet. Run the study first: floatlens study run {folder}/study.toml -o {folder}")
    for summary in summaries(tables["results"], plan.units) if "results" in tables else ():
        say(console, f"-- {summary.experiment} --")
        if summary.outcomes:
            print_evaluation(console, summary.rows, summary.outcomes)
        for sentence in summary.said:
            say(console, sentence)
    if "measurements" in tables:
        means = measures(tables["measurements"]).filter(depth=depth)
        for (experiment, context), own in means.group_by("experiment", "context", maintain_order=True):
            lines = own.select("measure", "group", "part").unique(maintain_order=True).rows()
            columns = [Column("measure", [" ".join(filter(None, line)) for line in lines])]
            for pair, of_pair in own.group_by("model", "other", maintain_order=True):
                by_line = {(row["measure"], row["group"], row["part"]): row for row in of_pair.iter_rows(named=True)}
                cells = [by_line.get(line) for line in lines]
                texts = [
                    ""
                    if cell is None or not is_number(cell["estimate"])
                    else with_interval(cell["estimate"], cell["low"], cell["high"])
                    if is_number(cell["low"])
                    else number(cell["estimate"])
                    for cell in cells
                ]
                columns.append(Column(" minus\n".join(filter(None, map(str, pair))), texts, optional=bool(pair[1])))
            title = ", ".join(filter(None, (str(experiment), str(context))))
            left_out = print_fitting(console, [(f"Measures of traced texts: {title}", columns)])
            if left_out:
                say(console, f"Not shown here, but in measures.parquet: {', '.join(left_out)}.")


def verify(folder: str = _FOLDER) -> None:
    """Check every finished unit: its checksum, its columns, and whether all are there. Exit code 1 if anything is wrong.

    What is damaged or missing runs again when the study is run again.

    Examples:

      floatlens study verify quick
    """
    from floatlens.study.store import open_store
    from floatlens.study.verifying import verify_study

    console, store = make_console(), open_store(folder)
    checked = verify_study(store)
    for fault in checked.faults:
        say(console, f"  {fault}")
    for sentence in checked.said:
        say(console, sentence)
    if checked.faults:
        say(console, f"{folder}: damaged. Run the study again: what is damaged or missing runs again.")
        raise typer.Exit(DAMAGED)
    say(console, f"{folder}: {counted(checked.whole, 'finished unit')}, all intact.")


def export(
    folder: str = _FOLDER,
    into: Path = typer.Option(None, "--into", "-o", help="A new folder to write; by default tables/ in the study's own."),
) -> None:
    """Write one Parquet file per table, and the traces that were kept.

    Examples:

      floatlens study export quick -o quick-tables
    """
    from floatlens.study.exporting import export_study
    from floatlens.study.store import open_store

    console, store = make_console(), open_store(folder)
    written, said = export_study(store, into)
    for sentence in said:
        say(console, sentence)
    say(console, f"Wrote {', '.join(written)} to {into or f'{store.address}/tables'}.")


def check(
    file: Path = _FILE,
    into: str = typer.Option(None, "--into", "-o", help="The folder of the study: also say what is finished there, and what is stale."),
    warm_up: bool = typer.Option(True, "--warm-up/--no-warm-up", help="Time two units of each model, to estimate how long the rest takes."),
    workers: int = _WORKERS,
    devices: int = typer.Option(None, min=1, help="Plan for this many accelerators of --tflops each, instead of this machine."),
    tflops: float = typer.Option(None, min=0.001, help="Peak speed of one accelerator, in 10^12 operations per second."),
    utilisation: float = typer.Option(0.3, min=0.001, max=1, help="The share of --tflops that is reached."),
    price: float = typer.Option(None, min=0, help="What an hour of one accelerator costs."),
) -> None:
    """Check a study, list its units, and estimate time, memory and disk, with the arithmetic shown. Nothing is written.

    Examples:

      floatlens study check examples/studies/quick.toml

      floatlens study check study.toml --no-warm-up --devices 8 --tflops 990 --utilisation .3 --price 2.5
    """
    from floatlens.study.estimate import Accelerators, estimate_lines
    from floatlens.study.records import look_through
    from floatlens.study.running import changes, refuse_plan
    from floatlens.study.store import open_store
    from floatlens.study.study_file import study_text

    if (devices is None) != (tflops is None):
        raise Refusal("--devices and --tflops belong together: how many accelerators, and how fast each is. Give both, or neither.")
    console = make_console()
    plan = _plan(study_text(file), file, weights=warm_up)
    refuse_plan(plan, weights=warm_up and devices is None)
    accelerators = None if devices is None else Accelerators(devices, tflops, utilisation, price)
    for line in estimate_lines(plan, workers=workers, warm_up=warm_up and accelerators is None, accelerators=accelerators):
        say(console, line)
    if into is not None:
        store = open_store(into, new=True)
        found = look_through(store, plan.units)
        done = len({unit.id for unit in plan.units} & set(found.finished))
        say(console, f"In {into}: {done} of {len({unit.id for unit in plan.units})} units are finished.")
        for sentence in changes(found, plan.units):
            say(console, sentence)

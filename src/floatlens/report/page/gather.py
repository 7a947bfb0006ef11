"""From what the user names to a page group: traces, and folders of evaluations, demos and curves of a training.

Decided here: names of runs are short and different; samples of all runs are kept unless the user chooses some; the manifest of a demo or
evaluation is compared with its files before they are read, and a trace checks its own data as it is read. `Room` says what is kept of each
head: everything in a folder, and what fits in a single file.

Refused: what is none of these, a damaged folder, a sample that does not exist.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import xarray as xr

from floatlens._version import __version__
from floatlens.anchor_rules import refuse_unknown_rule
from floatlens.errors import Refusal
from floatlens.folders import damage, read_manifest
from floatlens.measures.inputs import prompt_of
from floatlens.report.page.group import InMemory, Sink, write_array, write_group
from floatlens.report.page.quantise import PATTERN, WEIGHT, as_levels, fitting_way, weights_as_levels
from floatlens.report.page.sample import PARTS, SampleArrays, arrays_of, lift_by_head
from floatlens.report.page.schema import PAGE_VERSION, PageDocument, RunDocument, SampleDocument
from floatlens.report.page.studies import evaluations_of, read_answers, read_claims
from floatlens.report.page.training import CURVES, read_curves, write_training
from floatlens.terminal import counted, progress_bar
from floatlens.trace.trace import Trace, open_trace

IN_MEMORY = 1 << 29  # bytes: smaller samples are read once
DID_NOT_FIT = "Values per head and key did not fit into a single file. Use `floatlens view`, or `floatlens report --folder`."
PATTERN_DID_NOT_FIT = "The full patterns did not fit into a single file. Use `floatlens view`, or `floatlens report --folder`."
NO_HEADS = "The trace kept only means over heads. Record it with detail={'mass': 'head'} (--detail mass=head)."


Source = TypeVar("Source")


@dataclass(frozen=True, eq=False)
class Sources:
    """What was found at the places that the user named."""

    traces: dict[str, Trace] = field(default_factory=dict)
    claims: dict[str, Path] = field(default_factory=dict)
    """Files of claims."""
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    """Answers."""
    training: dict[str, pl.DataFrame] = field(default_factory=dict)
    """Curves."""
    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    """For files of claims: the name of the run in which each role can be seen."""


@dataclass(frozen=True)
class Choices:
    """What the user chose for all runs."""

    rule: str = "lift"
    eps: float | None = None
    samples: tuple[int, ...] = ()
    """None: all of them."""


def find_sources(paths: Sequence[str | os.PathLike[str]]) -> Sources:
    """Look at every place and open what is there."""
    traces: list[tuple[str, Trace]] = []
    claims: list[tuple[str, Path]] = []
    tables: list[tuple[str, pl.DataFrame]] = []
    training: list[tuple[str, pl.DataFrame]] = []
    of_demos: list[dict[str, int]] = []
    for path in paths:
        given = os.fspath(path)
        if not given:
            raise Refusal("The name of a run is empty. Pass traces, or folders that floatlens has written.")
        place = Path(given)
        if "://" not in given and (place / CURVES).is_file():
            _refuse_damaged(place)
            training.append((last_part(given), read_curves(place)))
        elif "://" not in given and (place / "claims.json").is_file():
            _refuse_damaged(place)
            claims.append((last_part(given), place / "claims.json"))
            if (place / "tables" / "answers.parquet").is_file():
                tables.append((last_part(given), read_answers(place / "tables" / "answers.parquet")))
            folders = sorted((place / "traces").glob("*.zarr"), key=_diffusion_first)
            of_demos.append({folder.stem: len(traces) + number for number, folder in enumerate(folders)})
            traces += [(folder.stem, open_trace(folder)) for folder in folders]
        elif "://" not in given and (place / "results.parquet").is_file():
            _refuse_damaged(place)
            tables.append((last_part(given), read_answers(place / "results.parquet")))
            inside = sorted((place / "traces").glob("*/*.zarr"))
            traces += [(f"{folder.parent.name}-{folder.stem}", open_trace(folder)) for folder in inside]
        elif "://" not in given and not place.is_dir():
            raise Refusal(
                f"There is nothing to show at {given}. Pass traces, or folders that `floatlens eval`, `floatlens demo` or "
                "`floatlens curves` wrote."
            )
        else:
            traces.append((last_part(given), open_trace(given)))
    named, demos = with_different_names(traces), with_different_names(claims)
    names = list(named)
    runs = {source: {role: names[number] for role, number in numbers.items()} for source, numbers in zip(demos, of_demos, strict=True)}
    return Sources(named, demos, with_different_names(tables), with_different_names(training), runs)


def _diffusion_first(folder: Path) -> tuple[int, str]:
    """The order of a demo's runs: the page opens with the first and puts the second beside it."""
    order = ("mdm", "arm", "causal-mdm")
    return (order.index(folder.stem) if folder.stem in order else len(order)), folder.stem


def last_part(path: str) -> str:
    """A short name for a run: the last part of a path, an address or a hub name.

    Examples
    --------
    >>> last_part("runs/mdm.zarr"), last_part("GSAI-ML/LLaDA-8B-Instruct")
    ('mdm', 'LLaDA-8B-Instruct')
    """
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return (Path(os.path.abspath(path)).name if last in ("", ".", "..") else last).removesuffix(".zarr")


def with_different_names(found: Sequence[tuple[str, Source]]) -> dict[str, Source]:
    """What was found, by name; what has the same name is numbered.

    Examples
    --------
    >>> with_different_names([("run", 1), ("run-2", 2), ("run", 3)])
    {'run-1': 1, 'run-2': 2, 'run-3': 3}
    """
    counts = Counter(name for name, _ in found)
    named: dict[str, Source] = {}
    for name, source in found:
        own, number = name, 0
        while counts[name] > 1 and (own in counts or own in named):
            number += 1
            own = f"{name}-{number}"
        named[own] = source
    return named


def _refuse_damaged(folder: Path) -> None:
    manifest = read_manifest(folder)
    listed = [] if manifest is None else [wrong for wrong in damage(folder) if wrong.startswith(tuple(manifest.files))]
    if listed:  # what the user has added beside them is no damage
        raise Refusal(
            f"{folder} is damaged: {listed[0]} `floatlens verify {folder}` lists everything; run the command again that wrote it."
        )


Room = Callable[[], float] | None
"""The bytes that are left for the values per head of one sample; None where everything is kept as it is."""


def write_page(sink: Sink, sources: Sources, choices: Choices, *, room: Room = None, progress: bool = True) -> PageDocument:
    """Write everything into a page group. What each head does comes last: it gets the room that the rest leaves."""
    eps = refuse_unknown_rule(choices.rule, choices.eps)
    wanted = {name: _chosen(name, trace, choices.samples) for name, trace in sources.traces.items()}
    total = sum(map(len, wanted.values()))
    page = PageDocument("page", PAGE_VERSION, __version__)
    with progress_bar(total * (len(PARTS) + 1) + len(sources.tables) + len(sources.training), "Making the page", show=progress) as advance:
        for place, (name, trace) in enumerate(sources.traces.items()):
            documents = []
            for number in wanted[name]:
                data = _loaded(trace.sample(number))
                path = f"runs/{place}/{number}"
                documents.append(
                    _write_sample(sink, path, trace, number, data, arrays_of(data, choices.rule, eps, advance), room is not None)
                )
            page.runs.append(_run(name, trace, choices.rule, eps, documents))
        page.claims.extend(read_claims(file, name, sources.runs.get(name)) for name, file in sources.claims.items())
        left_out: dict[str, str] = {}
        for name, table in sources.tables.items():
            documents, missing = evaluations_of(sink, table, name, len(page.evaluations))
            page.evaluations.extend(documents)
            left_out |= missing
            advance(1)
        for number, (name, table) in enumerate(sources.training.items()):
            page.training.append(write_training(sink, table, name, number))
            advance(1)
        left = total
        for run, (name, trace) in zip(page.runs, sources.traces.items(), strict=True):
            for place, number in enumerate(wanted[name]):
                data = _loaded(trace.sample(number))
                run.samples[place] = _write_heads(sink, run.samples[place], data, room() / left if room else None)
                left -= 1
                advance(1)
    write_group(sink, "", {"floatlens": asdict(page), "left_out": left_out})
    return page


def _chosen(name: str, trace: Trace, samples: Sequence[int]) -> list[int]:
    for number in samples:
        if not 0 <= number < len(trace):
            raise Refusal(f"{name} has {counted(len(trace), 'sample')}, counted from 0; there is no sample {number}.")
    return list(dict.fromkeys(samples)) or list(range(len(trace)))


def _loaded(data: xr.Dataset) -> xr.Dataset:
    """A small sample is read once; of a large one, measures read what they need, a few layers at a time."""
    return data.load() if data.nbytes < IN_MEMORY else data


def _write_sample(
    sink: Sink, path: str, trace: Trace, number: int, data: xr.Dataset, derived: SampleArrays, single_file: bool
) -> SampleDocument:
    write_group(sink, path, {"vocabulary": trace.vocabulary(number)})
    for name, values in derived.arrays.items():
        if name == "top_weight" and single_file:
            write_array(sink, path, name, weights_as_levels(values), WEIGHT)
        else:
            write_array(sink, path, name, values)
    return SampleDocument(
        path=path,
        question=prompt_of(trace, number),
        title=_title(trace, number, data),
        completion=trace.completion(number),
        steps=data.sizes["step"],
        positions=data.sizes["position"],
        arrays=list(derived.arrays),
        measures=[name for name, _ in derived.measures],
        measure_units=[unit for _, unit in derived.measures],
        roles=derived.roles,
        regions=derived.regions,
        skipped=derived.skipped,
    )


def _title(trace: Trace, number: int, data: xr.Dataset) -> str:
    """What the user asked, in a line, as it was written; `prompt_of` leaves out blanks that belong to no token."""
    own = ~data["template"].values & (data["committed"].values < 0) & (data["char_stop"].values > data["char_start"].values)
    if not own.any():
        return prompt_of(trace, number)
    return last_line_that_says_something(trace.prompt(number)[data["char_start"].values[own].min() : data["char_stop"].values[own].max()])


def last_line_that_says_something(text: str) -> str:
    """The last line that is no mere label, such as `Answer:`; the last one where all are.

    Examples
    --------
    >>> last_line_that_says_something("Rome is a city.\\nQuestion: who lives in Rome?\\nAnswer:")
    'Question: who lives in Rome?'
    """
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    saying = [line for line in lines if " " in line or not line.endswith(":")]
    return (saying or lines or [""])[-1]


def _write_heads(sink: Sink, document: SampleDocument, data: xr.Dataset, room: float | None) -> SampleDocument:
    """Write full patterns where they were recorded, and lift by head: as they are, or in as many bytes as there is room for."""
    skipped, arrays = dict(document.skipped), list(document.arrays)
    if "pattern" in data:
        files = _pattern(document.path, data["pattern"].values.astype(np.float32), room)
        for key, content in files.items():
            sink.put(key, content)
            room = None if room is None else room - len(content)
        if files:
            arrays.append("pattern")
        else:
            skipped["patterns"] = PATTERN_DID_NOT_FIT
    values = lift_by_head(data)
    how = None if values is None or room is None else fitting_way(values, room)
    if values is None:
        skipped["values per head"] = NO_HEADS
    elif room is not None and how is None:
        skipped["values per head"] = DID_NOT_FIT
    else:
        write_array(sink, document.path, "lift_by_head", values if how is None else as_levels(values, how), how, packed=how is not None)
        arrays.append("lift_by_head")
    return replace(document, skipped=skipped, arrays=arrays)


def _pattern(path: str, weights: np.ndarray, room: float | None) -> dict[str, bytes]:
    """The files of full patterns: exact or, where that takes more than half of the room, in one byte each; none if that does, too."""
    for how in (None, PATTERN):
        values = weights if how is None else as_levels(weights, how)
        if room is not None and values.nbytes > 20 * room:
            continue  # it never becomes so much smaller
        packed = InMemory()
        write_array(packed, path, "pattern", values, how)
        if room is None or packed.bytes <= room / 2:
            return packed.files
    return {}


def _run(name: str, trace: Trace, rule: str, eps: float, samples: list[SampleDocument]) -> RunDocument:
    about: dict[str, Any] = trace.attributes
    return RunDocument(
        name=name,
        **{
            entry: about[entry]
            for entry in ("model", "revision", "family", "seed", "dtype", "device", "edits", "heads", "groups", "chosen")
        },
        autoregressive=about["sampler"]["name"] == "autoregressive",
        sampler={key: str(value) for key, value in about["sampler"].items() if value is not None},
        versions=about["versions"],
        layers=about["layer_numbers"],
        rule=rule,
        eps=eps,
        samples=samples,
    )

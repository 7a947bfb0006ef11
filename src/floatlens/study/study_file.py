"""`study.toml`: which models are asked what, under which conditions, how often, and what is traced and measured.

pydantic reads the file; the tables are frozen and passed on as they are. Paths in a file (`data`, `corpus`, prompt files, folders of
models) are relative to the file, so that a study can be started from anywhere.

Every refusal names the file, the line and what would be right. Refused: what is not TOML; fields that are missing, unknown or of another
type; contexts, interventions, tasks, samplers and measures that do not exist; two models, tasks or samplers of one name; a study that
asks nothing.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from floatlens.decoding.options import SAMPLERS
from floatlens.errors import Refusal, shown, suggestion, wanted_in_words
from floatlens.interventions.wording import from_text
from floatlens.measures.catalogue import CATALOGUE
from floatlens.seeds import LARGEST_SEED
from floatlens.study.toml_lines import line_of, parse_toml
from floatlens.tasks.conditions import DRAWS, condition_of
from floatlens.tasks.likelihood import DRAWS as MASK_SETS
from floatlens.tasks.registry import TASKS

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
MEASURES = tuple(line.name for line in CATALOGUE)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelTable(_Part):
    """`[[models]]`: a model as `fl.load` takes it."""

    name: Name
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    block_length: Annotated[int, Field(ge=0)] | None = None
    trust_remote_code: bool = False


class TaskTable(_Part):
    """`[[tasks]]`: questions, and how many of them.

    `contexts`, `interventions`, `models` and `traced` (contexts in which the first samples are traced) take the place of the study's own.
    """

    task: str
    name: Name | None = None
    data: str | None = None
    corpus: str | None = None
    samples: Count = 100
    seed: Seed = 0
    contexts: tuple[str, ...] | None = None
    interventions: tuple[str, ...] | None = None
    traced: tuple[str, ...] | None = None
    models: tuple[Name, ...] | None = None
    gen_length: Count | None = None
    infer_gold: bool = False
    leave_out: bool = False
    run_code: bool = False

    @property
    def label(self) -> str:
        """The name by which its rows are known."""
        return self.name or self.task

    @field_validator("task")
    @classmethod
    def _is_a_task(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"there is no task {shown(task)!r}.{suggestion(task, TASKS)} There are: {', '.join(TASKS)}")
        return task


class PromptTable(_Part):
    """`[[prompts]]`: texts to trace, one, or those of a file of JSON lines."""

    name: Name
    text: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "PromptTable":
        if (self.text is None) == (self.file is None):
            raise ValueError("a table of prompts gives either text or file")
        return self


class SamplerTable(_Part):
    """`[[samplers]]`: a way to write. Options go to the models whose loop has them."""

    name: Name = "default"
    sampler: str | None = None
    gen_length: Count | None = None
    steps: Count | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)

    @field_validator("sampler")
    @classmethod
    def _is_a_sampler(cls, sampler: str | None) -> str | None:
        if sampler is not None and sampler not in SAMPLERS:
            raise ValueError(f"there is no sampler {shown(sampler)!r}. There are: {', '.join(SAMPLERS)}")
        return sampler

    @field_validator("options")
    @classmethod
    def _are_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        known = sorted({field.name for sampler in SAMPLERS.values() for field in fields(sampler)} - {"gen_length", "steps"})
        for name in options:
            if name not in known:
                raise ValueError(f"no sampler has an option {shown(name)!r}.{suggestion(name, known)} There are: {', '.join(known)}")
        return options


class TracesTable(_Part):
    """`[traces]`: how many of the first samples of each task are traced, in which contexts, and what is measured on them."""

    samples: Count = 4
    contexts: tuple[str, ...] | None = None
    detail: Literal["default", "light", "full"] = "default"
    measures: tuple[str, ...] = MEASURES
    keep: bool = False

    @field_validator("measures")
    @classmethod
    def _are_measures(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        for name in measures:
            if name not in MEASURES:
                raise ValueError(f"there is no measure {shown(name)!r}.{suggestion(name, MEASURES)} There are: {', '.join(MEASURES)}")
        return measures


class RunTable(_Part):
    """`[run]`: how the work is divided.

    `shard` is how many samples a unit asks; `threads` are fixed, because numbers depend on them. A model that is too large for one device
    is spread over `devices_per_worker` of them.
    """

    shard: Count = 25
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 8
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices_per_worker: Annotated[int, Field(ge=1, le=64)] = 1
    retries: Annotated[int, Field(ge=0, le=100)] = 1


class StudyFile(_Part):
    """The whole file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
    models: Annotated[tuple[ModelTable, ...], Field(min_length=1)]
    tasks: tuple[TaskTable, ...] = ()
    prompts: tuple[PromptTable, ...] = ()
    contexts: tuple[str, ...] = ()
    interventions: tuple[str, ...] = ()
    brackets: bool = True
    controls: bool = True
    draws: Annotated[int, Field(ge=1, le=1000)] = DRAWS
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    likelihood: bool = True
    mask_sets: Count = MASK_SETS
    chat: bool | None = None
    allow_unknown: bool = False
    samplers: Annotated[tuple[SamplerTable, ...], Field(min_length=1)] = (SamplerTable(),)
    traces: TracesTable | None = None
    run: RunTable = RunTable()

    @model_validator(mode="after")
    def _asks_something(self) -> "StudyFile":
        if not self.tasks and not self.prompts:
            raise ValueError("the study asks nothing: give at least one [[tasks]], or [[prompts]] with [traces]")
        if self.prompts and self.traces is None:
            raise ValueError("[[prompts]] are traced and not scored, and [traces] is missing, which says what is measured on them")
        return self


def read_study(path: str | PathLike[str]) -> StudyFile:
    """The study in a file.

    Examples
    --------
    >>> read_study("nowhere.toml")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no study nowhere.toml. Write one like those in examples/studies.
    """
    return parse_study(study_text(path), str(path))


def study_text(path: str | PathLike[str]) -> str:
    """The text of a study's file."""
    file = Path(path)
    if "\0" in str(file) or not file.is_file():
        raise Refusal(f"There is no study {shown(file)}. Write one like those in examples/studies.")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refusal(f"{file} cannot be read as text: {shown(error)}. A study is a TOML file in UTF-8.") from None


def parse_study(text: str, where: str) -> StudyFile:
    """The study in a text; `where` names its file in refusals.

    Examples
    --------
    >>> parse_study('name = "a"\\nmodels = [{ name = "twin-arm" }]\\ntasks = [\\n  { task = "wrld" },\\n]', "a.toml").name
    Traceback (most recent call last):
    floatlens.errors.Refusal: a.toml, line 4, tasks[0].task: there is no task 'wrld'. Did you mean 'world'? There are: world, \
world-closed, world-two-hop, world-description, nq, triviaqa, ms-marco, hotpotqa, trex, squad, rgb, key-value, poisonedrag, gsm8k, \
humaneval, ...
    """
    table = parse_toml(text, where, "Correct it there.")
    try:
        written = json.dumps(table, default=str, allow_nan=True)
    except (ValueError, RecursionError) as error:  # a number of too many digits, too deep a nesting
        raise Refusal(f"{where} cannot be read: {shown(error)}. Correct it there.") from None
    try:
        study = StudyFile.model_validate_json(written, strict=True)  # from JSON, where lists may be tuples
    except ValidationError as error:
        raise refusal_of([_mistake(each, text, where) for each in _own_mistakes(error)], where) from None
    mistakes = [f"{where}, line {line_of(text, path)}, {_spelled(path)}: {what}" for path, what in _mistakes(study)]
    if mistakes:
        raise refusal_of(mistakes, where)
    return study


def refusal_of(mistakes: Sequence[str], where: str) -> Refusal:
    """All mistakes of a file as one refusal: a sentence, or a line for each."""
    unique = list(dict.fromkeys(mistakes))
    if len(unique) == 1:
        return Refusal(unique[0])
    return Refusal("\n".join([f"{where} has {len(unique)} mistakes.", *(f"  {mistake}" for mistake in unique)]))


def _mistakes(study: StudyFile) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with single entries, and what does not go together: the path of each, and a sentence."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for path, contexts in _lists(study, "contexts"):
        found += [((*path, number), why) for number, text in enumerate(contexts) if (why := _why_not(condition_of, text))]
    for path, interventions in _lists(study, "interventions"):
        found += [((*path, number), why) for number, text in enumerate(interventions) if (why := _why_not(_original, text))]
    names = [model.name for model in study.models]
    for number, task in enumerate(study.tasks):
        edits = study.interventions if task.interventions is None else task.interventions
        asked = study.contexts if task.contexts is None else task.contexts
        if edits and not asked:
            found.append((("tasks", number), "interventions act in contexts, and this task has none. Give contexts, such as gold."))
        for place, model in enumerate(task.models or ()):
            if model not in names:
                found.append(
                    (("tasks", number, "models", place), f"there is no [[models]] {shown(model)!r}. There are: {', '.join(names)}.")
                )
    last_parts = [Path(name).name for name in names]
    found += _twice("models", last_parts) + _twice("tasks", [task.label for task in study.tasks])
    found += _twice("samplers", [sampler.name for sampler in study.samplers])
    labels = [task.label for task in study.tasks]
    found += [
        (("prompts", number), f"{prompts.name!r} is the name of another [[prompts]] or [[tasks]]. Give each its own.")
        for number, prompts in enumerate(study.prompts)
        if prompts.name in labels or prompts.name in [other.name for other in study.prompts[:number]]
    ]
    seeds = study.seeds
    found += [(("seeds", number), f"the seed {seed} is there twice.") for number, seed in enumerate(seeds) if seed in seeds[:number]]
    return found


def _lists(study: StudyFile, field: str) -> list[tuple[tuple[str | int, ...], tuple[str, ...]]]:
    own: list[tuple[tuple[str | int, ...], tuple[str, ...]]]
    own = [(("tasks", number, field), getattr(task, field) or ()) for number, task in enumerate(study.tasks)]
    if field == "contexts":
        own += [(("tasks", number, "traced"), task.traced or ()) for number, task in enumerate(study.tasks)]
        own += [(("traces", field), study.traces.contexts or ())] if study.traces else []
    return [((field,), getattr(study, field)), *own]


def _original(text: str) -> None:
    if from_text(text).original is not None:
        raise Refusal(f"{text!r} is a control; name what it is the control of, and its controls run beside it.")


def _why_not(read: Any, text: str) -> str:
    try:
        read(text)
    except Refusal as refusal:
        return str(refusal)
    return ""


def _twice(table: str, names: Sequence[str]) -> list[tuple[tuple[str | int, ...], str]]:
    count = Counter(names)
    places = [number for number, name in enumerate(names) if count[name] > 1 and name in names[:number]]
    return [
        ((table, number), f"two [[{table}]] are called {names[number]!r}, but rows are told apart by name. Rename one.")
        for number in places
    ]


def _own_mistakes(error: ValidationError) -> list[ErrorDetails]:
    """The complaints of pydantic without those that only follow from others: a list whose entries are wrong is called too short as well."""
    found = error.errors(include_url=False)
    return [
        each
        for each in found
        if each["type"] != "too_short" or not any(len(other["loc"]) > 1 and other["loc"][:1] == each["loc"] for other in found)
    ]


def _mistake(error: ErrorDetails, text: str, where: str) -> str:
    """What is wrong, on which line, and what would be right, from a complaint of pydantic."""
    path = tuple(part for part in error["loc"] if part not in ("bool", "int", "float", "str"))  # the kinds of an option are no keys
    kind, table = error["type"], _table_of(path)
    place = f"{where}, line {line_of(text, path)}"
    names = list(table.model_fields)
    if kind == "missing":
        return f"{place}: {_title(path[:-1])} does not say {path[-1]}. It takes: {', '.join(names)}."
    if kind == "extra_forbidden":
        field = str(path[-1])
        return f"{place}: {_title(path[:-1])} has no field {shown(field)!r}.{suggestion(field, names)} It takes: {', '.join(names)}."
    if kind == "value_error":
        return f"{place}{f', {_spelled(path)}' if path else ''}: {shown(error['msg'].removeprefix('Value error, ')).rstrip('.')}."
    wanted = wanted_in_words(kind, error["msg"])
    return f"{place}, {_spelled(path)}: {wanted} (it is {shown(json.dumps(error['input'], default=str)[:60])})."


def _table_of(path: Sequence[str | int]) -> type[BaseModel]:
    """The table that the last part of a path is a field of."""
    tables: dict[str, type[BaseModel]] = {
        "models": ModelTable,
        "tasks": TaskTable,
        "prompts": PromptTable,
        "samplers": SamplerTable,
        "traces": TracesTable,
        "run": RunTable,
    }
    return tables.get(str(path[0]), StudyFile) if len(path) > 1 else StudyFile


def _title(path: Sequence[str | int]) -> str:
    if not path:
        return "the study"
    return f"[[{path[0]}]]" if len(path) > 1 else f"[{path[0]}]"


def _spelled(path: Sequence[str | int]) -> str:
    """A path as one writes it: tasks[0].contexts[2]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")

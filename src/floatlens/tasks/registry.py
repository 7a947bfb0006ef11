"""Tasks by name: where their questions come from, which passages they get, how they are worded, and how answers are scored.

| task | where its questions come from |
|---|---|
| `world`, `world-closed`, `world-two-hop`, `world-description` | made, with the distractors and restatements that the contexts need |
| `nq`, `gsm8k`, ... (`PUBLISHED`) | a file (`--data FILE`), or a published name in a folder (`--data FOLDER`, `FLOATLENS_QA_DATA`) |
| `plain`, `kilt`, ... (`floatlens.tasks.readers`) | a file in that format |

One set of questions comes with floatlens, 100 of Natural Questions (`--data nq-100`), and none of the published files. What a file holds
is told from its first record, so a file in another format under a published name is read as well.

Decided here: passages come from a corpus where one is given. Where all questions of a file come with their gold passages and nothing else,
and a context needs more, they are found among the gold passages of all questions, as the published Lost-in-the-Middle sets have it;
`Task.passages_from` says so. A `retrieved` context then shows what was found, best first. In a ranking, gold passages are recognised by
their text, blanks aside; gold passages that were not found, and conflicting ones, come last.

Refused: a task or a file that does not exist, with the list of what does; programs, unless running them is allowed; fewer passages found
than a context needs; a file without samples (fewer than were asked for are fine).

What only some tasks need, the search for passages and the running of programs, is imported when it is used.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from floatlens.errors import Refusal, suggestion
from floatlens.models.sources.cache import cache_folder
from floatlens.tasks.conditions import Condition
from floatlens.tasks.contexts import Conflict, Context, Layout, Noise, Position, Retrieved
from floatlens.tasks.readers import KINDS, read_code_tasks, read_samples
from floatlens.tasks.readers.own import read_passages
from floatlens.tasks.readers.records import HUB
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import Score, Scorer, Shortcut, contains, contains_any, score_number, score_text
from floatlens.tasks.wording import CODE_WORDING, NUMBER_WORDING, QA_WORDING, WORLD_SENTENCES, WORLD_WORDING, Wording
from floatlens.tasks.world import closed_book_samples, description_samples, open_book_samples, shortcut, two_hop_samples, values_of

if TYPE_CHECKING:
    from floatlens.tasks.retrieval import PassageIndex

FOLDER_VARIABLE = "FLOATLENS_QA_DATA"

PUBLISHED = {
    "nq": ("nq-open-oracle.jsonl.gz", "nq-open-oracle.jsonl", "nq_dev_psg.jsonl", "NQ-open.dev.jsonl"),
    "triviaqa": ("tqa_dev_psg.jsonl",),
    "ms-marco": ("marco_qa_psg.jsonl",),
    "hotpotqa": ("hotpot_dev_distractor_v1.json", "hotpot-distractor-sample-100.jsonl", "hotpotqa_dev_psg.jsonl"),
    "trex": ("trex_dev_psg.jsonl", "pararel_trex_merged.jsonl"),
    "squad": ("dev-v1.1.json", "train-v1.1.json"),
    "rgb": ("en_fact.json", "rgb_en_fact.json"),
    "key-value": ("kv-retrieval-75_keys.jsonl.gz", "kv-retrieval-140_keys.jsonl.gz", "kv-retrieval-300_keys.jsonl.gz"),
    "poisonedrag": ("poisonedrag-nq.json", "nq.json"),
    "gsm8k": ("gsm8k-test.jsonl", "test.jsonl"),
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl"),
}
"""Data sets, and the names their files are published under."""

BROUGHT_ALONG = " `nq-100` stands for a hundred questions that come with floatlens."
BUNDLED = {"nq-100": "nq-100-questions.jsonl.gz"}
"""Questions that come with floatlens, by the name that stands for their file (src/floatlens/tasks/questions)."""


def find_data(name: str, data: str | os.PathLike[str] | None = None, folder: Path = Path()) -> str:
    """The file of a task: the one that is given, or the published one in a folder.

    Parameters
    ----------
    name
        A task.
    data, folder
        A file or a folder, relative to `folder`; a name on the hub ("hf:..."); or `nq-100` for the questions that come with floatlens.
        By default the folder that `FLOATLENS_QA_DATA` names.

    Examples
    --------
    >>> Path(find_data("nq", "nq-100")).name
    'nq-100-questions.jsonl.gz'
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "HumanEval.jsonl").touch()
    >>> Path(find_data("humaneval", folder)).name
    'HumanEval.jsonl'
    """
    given = data if data is not None else os.environ.get(FOLDER_VARIABLE)
    if given is None:
        names = f" ({' or '.join(PUBLISHED[name])})" if name in PUBLISHED else ""
        raise Refusal(
            f"The task {name} is read from a file{names}, and none is given. Give the file or its folder, "
            f"or name the folder in {FOLDER_VARIABLE}.{BROUGHT_ALONG * (name == 'nq')}"
        )
    if os.fspath(given).startswith(HUB):
        return os.fspath(given)
    place = Path(given).expanduser() if data is None else folder / Path(given).expanduser()
    if os.fspath(given) in BUNDLED and not place.exists():
        return str(Path(__file__).parent / "questions" / BUNDLED[os.fspath(given)])
    if not place.is_dir():
        return str(place)
    if name not in PUBLISHED:
        raise Refusal(f"{place} is a folder, and files of the task {name} have no published name to look for in it. Give the file.")
    file = next((place / published for published in PUBLISHED[name] if (place / published).is_file()), None)
    if file is None:
        raise Refusal(f"There is no file of the task {name} in {place}; looked for {', '.join(PUBLISHED[name])}.")
    return str(file)


def index_of_file(path: str | os.PathLike[str]) -> "PassageIndex":
    """The index of a corpus file (`floatlens.tasks.readers.own`); built at first use, kept in the cache.

    Examples
    --------
    >>> import tempfile
    >>> os.environ["FLOATLENS_CACHE"] = tempfile.mkdtemp()
    >>> file = Path(os.environ["FLOATLENS_CACHE"]) / "corpus.jsonl"
    >>> _ = file.write_text('{"text": "Marta lives in Oslo."}')
    >>> index_of_file(file).size, index_of_file(file).folder.name.partition("-")[0]
    (1, 'index')
    >>> del os.environ["FLOATLENS_CACHE"]
    """
    from floatlens.tasks.retrieval import OutdatedIndex, build_index, open_index

    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise Refusal(f"The corpus {file} cannot be read: {error.strerror or error}.") from None
    folder = cache_folder() / f"index-{file.name.partition('.')[0]}-{digest[:16]}"
    try:
        return open_index(folder) if folder.exists() else build_index(read_passages(file), folder)
    except OutdatedIndex:  # it is ours, and the corpus is at hand
        return build_index(read_passages(file), folder, rebuild=True)


def found_for(index: "PassageIndex", sample: Sample, *, best: int = 0, distractors: int = 0) -> Sample:
    """A question with the passages that are found for it, best first.

    Parameters
    ----------
    index
        Where to look.
    sample
        The question. What it has itself is kept where it is gold or conflicting.
    best
        How many passages to take at least, whatever they hold.
    distractors
        How many to take at least that are not gold and hold no answer.

    Examples
    --------
    >>> import tempfile
    >>> corpus = [Passage("Marta lives in Oslo."), Passage("Ben lives in Rome."), Passage("Ida lives in Bern.")]
    >>> from floatlens.tasks.retrieval import build_index
    >>> index = build_index(corpus, Path(tempfile.mkdtemp()) / "index")
    >>> asked = Sample("a", "Who lives in Rome?", ("Ben",), (corpus[1],), gold=(0,))
    >>> found = found_for(index, asked, best=1, distractors=2)
    >>> [passage.text for passage in found.passages], found.gold
    (['Ben lives in Rome.', 'Marta lives in Oslo.', 'Ida lives in Bern.'], (0,))
    """
    from floatlens.tasks.retrieval import ranked

    own = {_words(passage): passage for passage in sample.evidence}
    passages: list[Passage] = []
    without = 0
    for passage in ranked(index, sample.question):
        if len(passages) >= best and without >= distractors:
            break
        known = own.get(_words(passage), passage)
        if known in passages:  # the same words under another title
            continue
        passages.append(known)
        without += _words(passage) not in own and not contains_any(f"{passage.title}\n{passage.text}", sample.answers)
    if len(passages) < best or without < distractors:
        raise Refusal(
            f"Sample {sample.id} needs {best} passages, of them {distractors} distractors without an answer; "
            f"in {index.size:,} passages, {len(passages)} share a word with its question, "
            f"{without} of them without an answer. Ask for fewer, or use a larger corpus."
        )
    passages += [passage for passage in (*sample.evidence, *sample.conflicts) if passage not in passages]
    return replace(sample, passages=tuple(passages), gold=tuple(passages.index(passage) for passage in sample.evidence))


def gold_by_answer(samples: Iterable[Sample]) -> list[Sample]:
    """Questions whose gold passages are those that hold an answer, title included, where the file names none.

    Examples
    --------
    >>> [sample] = gold_by_answer([Sample("a", "Where?", ("Oslo",), (Passage("In Rome."), Passage("In Oslo.")))])
    >>> sample.gold
    (1,)
    """
    return [sample if sample.gold else replace(sample, gold=_holding_answers(sample)) for sample in samples]


def _holding_answers(sample: Sample) -> tuple[int, ...]:
    texts = [f"{passage.title}\n{passage.text}" for passage in sample.passages]
    return tuple(slot for slot, text in enumerate(texts) if not sample.passages[slot].conflicting and contains_any(text, sample.answers))


def _words(passage: Passage) -> str:
    return " ".join(passage.text.split())


WORLD_TASKS = {"world": 3, "world-closed": 3, "world-two-hop": 7, "world-description": 30}
"""Tasks of the synthetic world, and how many tokens their answers have with full stop and end."""

TASKS = (*WORLD_TASKS, *dict.fromkeys((*PUBLISHED, *KINDS)))
"""All tasks that `load_task` knows: the world, published data sets, formats."""


@dataclass(frozen=True)
class Task:
    """Questions, how they are put to a model, how many tokens an answer may have, and how it is scored.

    `passages_from` says where passages come from that the file does not give; `left_out` why questions are not there, by id.
    """

    name: str
    samples: tuple[Sample, ...]
    wording: Wording = QA_WORDING
    scorer: Scorer = score_text
    gen_length: int = 32
    shortcut: Shortcut | None = None
    passages_from: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def load_task(
    name: str,
    data: str | os.PathLike[str] | None = None,
    *,
    conditions: Sequence[Condition] = (),
    count: int = 100,
    seed: int = 0,
    corpus: "PassageIndex | None" = None,
    infer_gold: bool = False,
    run_code: bool = False,
    leave_out: bool = False,
) -> Task:
    """A task with its first samples.

    Parameters
    ----------
    name
        One of `TASKS`.
    data
        The file to read it from, or the folder to look in (`floatlens.tasks.registry`); the world needs none.
    conditions
        Under what the samples will be asked: they get the passages that these call for, where passages are made or found.
    count
        How many samples at most.
    seed
        Another seed gives other questions of the world.
    corpus
        Where passages are looked for, in place of those of the file that are not gold.
    infer_gold
        Call gold what holds an answer, for files that name no gold passages.
    run_code
        Programs that a model wrote may be run, in isolation; without it the task humaneval is refused.
    leave_out
        Leave out questions for which too few passages are found, instead of refusing; `Task.left_out` says which and why.

    Examples
    --------
    >>> from floatlens.tasks.conditions import condition_of
    >>> task = load_task("world", conditions=[condition_of("noise:0.2"), condition_of("position:1/10")], count=2)
    >>> [len(task.samples[0].evidence), len(task.samples[0].distractors), task.gen_length]
    [4, 9, 3]
    """
    if name not in TASKS:
        raise Refusal(f"There is no task {name!r}.{suggestion(str(name), TASKS)} There are: {', '.join(TASKS)}.")
    if count < 1:
        raise Refusal(f"{count} samples were asked for; at least one is needed.")
    contexts = [condition.context for condition in conditions]
    if name in WORLD_TASKS:
        if data is not None or corpus is not None:
            raise Refusal(f"The task {name} is made, not read, so it takes no file and no corpus.")
        return _world(name, contexts, count, seed)
    path = find_data(name, data)
    if name == "humaneval":
        return _programs(path, count, run_code)
    samples = read_samples(path, None if name in PUBLISHED else name)
    best, distractors = _best_for(contexts), _distractors_for(contexts)
    passages_from, left_out = "", dict[str, str]()
    if corpus is not None:
        kept, left_out = _found(corpus, list(islice(samples, count)), best, distractors, leave_out)
        samples = iter(kept)
        passages_from = f"Passages that are not gold come from {corpus.size:,} passages of the corpus."
    elif best or distractors:
        all_samples = list(samples)
        samples = iter(all_samples)
        if all(sample.gold and len(sample.gold) == len(sample.passages) for sample in all_samples):
            kept, left_out = _found_among(all_samples, count, best, distractors, leave_out)
            samples = iter(kept)
            passages_from = f"Passages that are not gold come from the gold passages of all {len(all_samples):,} questions of the file."
    chosen = tuple(islice(samples, count))
    if not chosen:
        raise Refusal(next(iter(left_out.values()), f"{path} holds no sample."))
    if infer_gold:
        chosen = tuple(gold_by_answer(chosen))
    if name == "gsm8k":
        return Task(name, chosen, NUMBER_WORDING, score_number, 256)
    return Task(name, chosen, passages_from=passages_from, left_out=left_out)


def _found(
    index: "PassageIndex", samples: Sequence[Sample], best: int, distractors: int, leave_out: bool
) -> tuple[list[Sample], dict[str, str]]:
    """Questions with passages that were found for them; by id, why some were left out, if they may be."""
    kept, left_out = [], {}
    for sample in samples:
        try:
            kept.append(found_for(index, sample, best=best, distractors=distractors))
        except Refusal as refusal:
            if not leave_out:
                raise
            left_out[sample.id] = str(refusal)
    return kept, left_out


def _found_among(
    all_samples: Sequence[Sample], count: int, best: int, distractors: int, leave_out: bool
) -> tuple[list[Sample], dict[str, str]]:
    """The first questions with passages found among the gold passages of all of them."""
    from floatlens.tasks.retrieval import build_index

    with tempfile.TemporaryDirectory() as folder:
        index = build_index([passage for sample in all_samples for passage in sample.evidence], Path(folder) / "index")
        return _found(index, all_samples[:count], best, distractors, leave_out)


def _programs(path: str, count: int, run_code: bool) -> Task:
    """HumanEval: a question is the beginning of a program, its answer the published solution, and right is what passes the tests."""
    if not run_code:
        raise Refusal(
            "The task humaneval runs programs that a model wrote. If you want that, pass --run-code (run_code=True); "
            "they run isolated or not at all."
        )
    from floatlens.tasks.code_runs import refuse_unusable_tests, require_isolation, score_program

    require_isolation()  # before a model has written anything
    programs = {task.id: task for task in islice(read_code_tasks(path), count)}
    refuse_unusable_tests(programs.values())
    samples = tuple(Sample(task.id, task.prompt, (task.solution,)) for task in programs.values())
    return Task("humaneval", samples, CODE_WORDING, partial(score_program, programs), 256)


def _world(name: str, contexts: Sequence[Context], count: int, seed: int) -> Task:
    passages = max(6, 1 + _distractors_for(contexts), _best_for(contexts))
    if name == "world":
        restatements = max([0, *(context.evidence - 1 for context in contexts if isinstance(context, Noise))])
        samples = open_book_samples(count, passages=passages, restatements=restatements, seed=seed)
    elif name == "world-closed":
        samples = closed_book_samples(count, seed=seed)
    elif name == "world-two-hop":
        samples = two_hop_samples(count, passages=passages + 1, seed=seed)
    else:
        samples = description_samples(count, passages=passages, seed=seed)
    wording = WORLD_WORDING if name in ("world", "world-closed") else WORLD_SENTENCES
    scorer = score_values if name == "world-description" else score_text
    return Task(name, tuple(samples), wording, scorer, WORLD_TASKS[name], shortcut)


def score_values(text: str, sample: Sample) -> Score:
    """A description's scores: accurate is one that holds all its values.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> score_values(sample.answers[0], sample).accuracy, score_values("Julia is a doctor.", sample).accuracy
    (1.0, 0.0)
    """
    scored = score_text(text, sample)
    accuracy = float(all(contains(scored.prediction, value) for value in values_of(sample)))
    return Score(scored.prediction, accuracy, scored.exact_match, scored.f1)


def _best_for(contexts: Sequence[Context]) -> int:
    """How many of the passages that are found the contexts show as they come."""
    return max([0, *(context.count for context in contexts if isinstance(context, Retrieved))])


def _distractors_for(contexts: Sequence[Context]) -> int:
    """How many distractors the contexts call for at most."""
    wanted = [0]
    for context in contexts:
        match context:
            case Noise():
                wanted.append(context.distractors)
            case Position(_, passages):
                wanted.append(passages - 1)
            case Layout(_, passages) | Conflict(passages):
                wanted.append(passages - 2)
    return max(wanted)

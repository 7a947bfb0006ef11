"""What an adaptation learns from: questions with passages and texts, read from the files of a recipe, without anything that is evaluated
on.

Questions come through the readers of `floatlens.tasks` (FairytaleQA, which no evaluation reads, through one here; of SQuAD 2.0 the
questions that have an answer). A file with `train` is split by passage title (`overlap.py`); its held-out questions are evaluated on. Of
all other sources, every question, passage or document that shares a 13-gram with an evaluation text is left out and counted, and what
remains is checked once more. What holds the mask token is left out and counted, too. Distractors are found among the gold passages of the
same file that are trained on.

Refused: files that are missing, empty, not UTF-8 or left with nothing; answers longer than every room, unless the recipe leaves them out.
"""

import codecs
import gzip
import hashlib
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from floatlens.errors import Refusal
from floatlens.lab.adaptation.overlap import Protected, protect, refuse_overlap, split_by_title, texts_of, words_of
from floatlens.lab.adaptation.recipe import QuestionFile, Recipe, TextFile
from floatlens.tasks.readers import FORMATS, read_samples
from floatlens.tasks.readers.records import Record, open_records
from floatlens.tasks.retrieval import PassageIndex, build_index
from floatlens.tasks.samples import Passage, Sample

FAIRYTALES = "fairytaleqa"
HELD_OUT_DOCUMENTS = 12  # of each text file
SHORTEST_DOCUMENT = 16  # words
HOLDS_MASK = "holds the mask token"


@dataclass(frozen=True)
class Source:
    """A file that was read: its path below the data folder, its SHA-256, what is in use, and what was left out and why."""

    file: str
    sha256: str
    used: int
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Questions:
    """The questions of a file that are trained on, and the index of their gold passages, in which distractors are found."""

    source: Source
    share: float
    samples: tuple[Sample, ...]
    index: PassageIndex


@dataclass(frozen=True)
class Texts:
    """The documents of a file that are trained on."""

    source: Source
    share: float
    documents: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """Everything that a recipe learns from, what is held out for its loss, and what is protected."""

    questions: tuple[Questions, ...]
    texts: tuple[Texts, ...]
    held_out: tuple[Sample, ...]
    held_out_documents: tuple[str, ...]
    evaluation: tuple[Source, ...]
    protected: Protected

    @property
    def sources(self) -> tuple[Source, ...]:
        """The files that are trained on."""
        return tuple(part.source for part in (*self.questions, *self.texts))

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of every file, by its path below the data folder."""
        return {source.file: source.sha256 for source in (*self.sources, *self.evaluation)}


def prepare(recipe: Recipe, folder: Path, tokenizer: Any) -> Data:
    """Read and clean the data of a recipe.

    Parameters
    ----------
    recipe
        Names the files.
    folder
        The folder below which they lie.
    tokenizer
        That of the base, which says how long answers are.
    """
    evaluation, protected = [], Protected(frozenset(), frozenset())
    for entry in recipe.evaluation_files:
        samples = read_questions(folder / entry.file, entry.kind)[0]
        protected = protected.joined(protect(samples))
        evaluation.append(Source(entry.file, _sha256(folder / entry.file), len(samples)))
    training: list[tuple[QuestionFile, Counter[str], Sequence[Sample]]] = []
    held_out: tuple[Sample, ...] = ()
    for entry in recipe.question_files:
        samples, left_out = read_questions(folder / entry.file, entry.kind)
        without_gold = [sample for sample in samples if not sample.gold]
        if without_gold:
            raise Refusal(
                f"{folder / entry.file}: sample {without_gold[0].id} names no gold passage. Train on questions whose gold "
                "passages are known."
            )
        if entry.train is not None:
            split = split_by_title(samples, entry.train, protected, hold_out_first=entry.hold_out_first, where=str(folder / entry.file))
            samples, held_out = list(split.train), (*held_out, *split.held_out)
            left_out["held out"] = len(split.held_out)
        training.append((entry, left_out, samples))
    protected = protected.joined(protect(held_out, gold_only=True))
    questions = tuple(_questions(entry, folder, samples, left_out, protected, recipe, tokenizer) for entry, left_out, samples in training)
    texts, documents = [], []
    for entry in recipe.text_files:
        part, kept_back = _texts(entry, folder, protected, _mask_finder(tokenizer, recipe.mask_token))
        texts.append(part)
        documents += kept_back
    return Data(questions, tuple(texts), held_out, tuple(documents), tuple(evaluation), protected)


def read_questions(path: Path, kind: str | None) -> tuple[list[Sample], Counter[str]]:
    """The questions of a file, and what was left out of it.

    Examples
    --------
    >>> file = Path(tempfile.mkdtemp()) / "tales.jsonl"
    >>> _ = file.write_text('{"story": "Snow-man", "context": "It was cold.", "question": "How was it?", "answers": ["cold"]}')
    >>> samples, _ = read_questions(file, "fairytaleqa")
    >>> samples[0].evidence[0].title, samples[0].answers
    ('Snow-man', ('cold',))
    """
    left_out: Counter[str] = Counter()
    if kind == FAIRYTALES:
        return [_fairytale(record) for record in open_records(path)], left_out
    if kind != "squad":
        return list(read_samples(path, kind)), left_out
    samples = []
    for record in open_records(path):
        answerable, impossible = _without_impossible(record.value)
        left_out["no answer"] += impossible
        samples += FORMATS["squad"].samples(replace(record, value=answerable))
    return samples, left_out


def _fairytale(record: Record) -> Sample:
    passage = Passage(" ".join(record.text("context").split()), record.title("story"))
    return record.sample(record.own_id(FAIRYTALES), record.text("question"), record.text_or_texts("answers"), (passage,), (0,))


def _without_impossible(document: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A SQuAD document without its unanswerable questions, and how many were removed; any other document is returned unchanged."""
    removed = 0

    def kept(questions: list[Any]) -> list[Any]:
        nonlocal removed
        answerable = [question for question in questions if not (isinstance(question, dict) and question.get("answers") == [])]
        removed += len(questions) - len(answerable)
        return answerable

    articles = document.get("data")
    if not isinstance(articles, list):
        return document, 0
    try:
        changed = [
            {**article, "paragraphs": [{**paragraph, "qas": kept(paragraph["qas"])} for paragraph in article["paragraphs"]]}
            for article in articles
        ]
    except (TypeError, KeyError):  # the reader refuses it with its place
        return document, 0
    return {**document, "data": changed}, removed


def _questions(
    entry: QuestionFile,
    folder: Path,
    samples: Sequence[Sample],
    left_out: Counter[str],
    protected: Protected,
    recipe: Recipe,
    tokenizer: Any,
) -> Questions:
    path, room = folder / entry.file, max(recipe.questions.rooms)
    answered = [_with_best_answer(sample) for sample in samples]
    lengths = [len(tokens) for tokens in tokenizer([f" {sample.answers[0]}" for sample in answered], add_special_tokens=False)["input_ids"]]
    kept = []
    masked = _mask_finder(tokenizer, recipe.mask_token)
    for sample, length in zip(answered, lengths, strict=True):
        if any(masked(text) for text in (*texts_of(sample, gold_only=True), sample.answers[0])):
            left_out[HOLDS_MASK] += 1
        elif protected.touches(sample):
            left_out["overlap with the evaluation"] += 1
        elif length < room:
            kept.append(sample)
        elif recipe.questions.long_answers == "leave out":
            left_out[f"answer longer than {room - 1} tokens"] += 1
        else:
            raise Refusal(
                f"{path}: the answer of sample {sample.id} has {length} tokens, and with its end token the longest of "
                f"questions.rooms has {room}. "
                'Add a longer room, or set questions.long_answers = "leave out".'
            )
    if not kept:
        raise Refusal(f"{path}: no question is left to train on ({_reasons(left_out)}). Choose another file, or longer rooms.")
    refuse_overlap((text for sample in kept for text in texts_of(sample, gold_only=True)), protected, str(path))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:  # what is opened stays mapped
        index = build_index([passage for sample in kept for passage in sample.evidence], Path(temporary) / "index")
    return Questions(Source(entry.file, _sha256(path), len(kept), dict(left_out)), entry.share, tuple(kept), index)


def _with_best_answer(sample: Sample) -> Sample:
    """The sample with the first answer that stands in a gold passage as its first answer."""
    shown = "\n".join(passage.text for passage in sample.evidence).lower()
    best = next((answer for answer in sample.answers if answer.lower() in shown), sample.answers[0])
    return replace(sample, answers=tuple(dict.fromkeys((best.strip(), *sample.answers))))


def _mask_finder(tokenizer: Any, token: str) -> Callable[[str], bool]:
    """Tells whether a text has the mask token among its tokens: there it could be neither read nor predicted."""
    mask_token_id = tokenizer.get_vocab()[token]
    spellings = {token, tokenizer.decode([mask_token_id])} - {""}

    def masked(text: str) -> bool:
        if not any(spelling in text for spelling in spellings):  # tokenising everything would take minutes
            return False
        return mask_token_id in tokenizer(text, verbose=False)["input_ids"]

    return masked


def _texts(entry: TextFile, folder: Path, protected: Protected, masked: Callable[[str], bool]) -> tuple[Texts, list[str]]:
    """The documents of a file that are trained on, and those that are held out for the loss."""
    path, left_out, kept = folder / entry.file, Counter[str](), []
    for document in documents_of(path, entry.separator):
        if len(words_of(document)) < SHORTEST_DOCUMENT:
            left_out["too short"] += 1
        elif masked(document):
            left_out[HOLDS_MASK] += 1
        elif protected.overlap(document) is not None:
            left_out["overlap with the evaluation"] += 1
        else:
            kept.append(document)
    by_hash = sorted(range(len(kept)), key=lambda number: hashlib.sha256(kept[number].encode()).digest())
    held_out = set(by_hash[:HELD_OUT_DOCUMENTS] if len(kept) > 2 * HELD_OUT_DOCUMENTS else ())
    documents = tuple(document for number, document in enumerate(kept) if number not in held_out)
    if not documents:
        raise Refusal(f"{path}: no text is left to train on ({_reasons(left_out)}). Choose another file.")
    refuse_overlap(documents, protected, str(path))
    left_out["held out"] = len(held_out)
    return Texts(Source(entry.file, _sha256(path), len(documents), dict(left_out)), entry.share, documents), [
        kept[n] for n in sorted(held_out)
    ]


def documents_of(path: Path, separator: str = "<|endoftext|>") -> Iterator[str]:
    """The documents of a text file, gzipped or not; they are separated by lines that are `separator`."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, ValueError, zlib.error) as error:  # a NUL in its name is a ValueError
        raise Refusal(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. Check the path.") from None
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content)  # a file that was cut may end inside a character
    except UnicodeDecodeError as error:
        raise Refusal(f"{path} is not UTF-8 (byte {error.start:,}), so words of it would be lost. Convert it to UTF-8.") from None
    for document in text.split(f"{separator}\n") if separator else [text]:
        yield document.removesuffix(separator).strip()


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _reasons(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items() if count) or "it is empty"

"""Find passages by their words, and distractors that do not give the answer away.

`build_index` writes a BM25 index (Lucene's variant, k1 = 1.5, b = .75) of a corpus into a folder, once; `open_index` maps it into memory
and checks every file against the hash it was built with. `search` ranks passages, `distractors` takes the best-ranked that hold no
answer, and `lost_in_the_middle` gives each question of a set as many passages as wanted, out of the gold passages of all of them.

Decided here: words are runs of letters and digits in lower case, title included, and none is left out, not even "the" (it weighs little,
and questions of small words stay searchable); ties go to the passage that came first, so that a longer list begins with the shorter one;
a passage given twice is kept once; a passage that shares no word with the query is not found. Refused: an index that was changed, or was
built from another corpus; too few distractors.
"""

import hashlib
import json
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from bm25s.tokenization import Tokenized

from floatlens.errors import Refusal
from floatlens.folders import unfinished_folder
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import contains_any
from floatlens.terminal import progress_bar

DESCRIPTION, CORPUS, OFFSETS = "index.json", "passages.jsonl", "offsets.npy"
WRITTEN_BY = "floatlens (building an index)"
SETTINGS = {"version": 1, "method": "lucene", "k1": 1.5, "b": 0.75, "words": r"\w+", "lower": True}
LARGE = 50_000  # passages: above, BM25's own steps take seconds and show their own bars

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, repr=False)
class PassageIndex:
    """An opened index: where it lies, how many passages it holds, and the hash of their texts."""

    folder: Path
    size: int
    fingerprint: str
    scorer: Any  # bm25s.BM25, memory-mapped; the package has no types
    lines: mmap.mmap
    offsets: np.ndarray  # (size + 1,) where each passage begins, memory-mapped

    def passage(self, number: int) -> Passage:
        """The passage of that number, in the order in which they were given."""
        return Passage(**json.loads(self.lines[self.offsets[number] : self.offsets[number + 1]]))

    def __repr__(self) -> str:
        return f"PassageIndex({self.folder}: {self.size:,} passages)"


class OutdatedIndex(Refusal):
    """An index that must be built again: its files are not those that were written, or floatlens writes them differently now."""


@dataclass(frozen=True)
class Hit:
    """A passage that was found, its number in the corpus and its BM25 score."""

    passage: Passage
    number: int
    score: float


def build_index(passages: Iterable[Passage], folder: str | os.PathLike[str], *, rebuild: bool = False) -> PassageIndex:
    """Write an index of the passages, or open the one that is there if it was built from the very same.

    Parameters
    ----------
    passages
        The corpus. Read once, one at a time.
    folder
        Where the index goes. It has its final name only when it is complete.
    rebuild
        Build it anyway, and replace what is there. Otherwise an index of another corpus is refused.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp()) / "index"
    >>> index = build_index([Passage("Marta lives in Oslo."), Passage("Ben lives in Rome.")], folder)
    >>> search(index, "Who lives in Rome?", 1)[0].passage.text
    'Ben lives in Rome.'
    """
    folder = Path(folder).expanduser()
    before = _description(folder) if (folder / DESCRIPTION).exists() else None
    if before is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refusal(f"{folder} is there and is not an index of passages. Name a folder that is empty or does not exist.")
    if before is not None and not rebuild:
        digest = hashlib.sha256()
        for line, _ in _once_each(passages):
            digest.update(line)
        if (before["fingerprint"], before["settings"]) == (digest.hexdigest(), SETTINGS):
            return open_index(folder)
        raise Refusal(
            f"{folder} holds an index of {before['passages']:,} other passages: the corpus has changed, "
            "or floatlens builds it differently now. Give rebuild=True to replace it, or name another folder."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(folder, WRITTEN_BY, replacing=WRITTEN_BY, mending=True, wait=True) as unfinished:
        words, vocabulary = _write_corpus(passages, unfinished.folder)
        _write_scores(words, vocabulary, unfinished.folder, _hash_file(unfinished.folder / CORPUS))
    return open_index(folder)


def open_index(folder: str | os.PathLike[str]) -> PassageIndex:
    """Map an index into memory, after checking that its files are those that were written.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp()) / "index"
    >>> _ = build_index([Passage("Marta lives in Oslo.")], folder)
    >>> open_index(folder).size
    1
    """
    folder = Path(folder).expanduser()
    description = _description(folder)
    if description["settings"] != SETTINGS:
        raise OutdatedIndex(f"{folder} was built by other settings than floatlens has now. Build it again, with rebuild=True.")
    with progress_bar(len(description["files"]), "Checking the index") as advance:
        for name, digest in description["files"].items():
            if not (folder / name).is_file() or _hash_file(folder / name) != digest:
                raise OutdatedIndex(
                    f"{folder / name} is missing or was changed since the index was built. Build it again, with rebuild=True."
                )
            advance(1)
    with (folder / CORPUS).open("rb") as corpus:
        lines = mmap.mmap(corpus.fileno(), 0, access=mmap.ACCESS_READ)
    scorer = bm25s.BM25.load(folder, mmap=True, show_progress=False)
    offsets = np.load(folder / OFFSETS, mmap_mode="r")
    return PassageIndex(folder, description["passages"], description["fingerprint"], scorer, lines, offsets)


def search(index: PassageIndex, query: str, k: int) -> list[Hit]:
    """The `k` passages that score highest, best first; fewer if fewer share a word with the query.

    Examples
    --------
    >>> index = build_index([Passage("Marta lives in Oslo."), Passage("Rain falls.")], Path(tempfile.mkdtemp()) / "index")
    >>> [hit.number for hit in search(index, "Where does Marta live?", 5)]
    [0]
    """
    if k < 1:
        raise Refusal(f"k = {k}, but at least one passage must be asked for.")
    scores = _scores(index, query)
    matches = int(np.count_nonzero(scores > 0))
    if not matches:
        return []
    worst = np.partition(scores, -min(k, matches))[-min(k, matches)]
    candidates = np.flatnonzero(scores >= worst)
    best = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
    return [Hit(index.passage(int(number)), int(number), float(scores[number])) for number in best]


def ranked(index: PassageIndex, query: str) -> Iterator[Passage]:
    """All passages that share a word with the query, best first, read one at a time.

    Examples
    --------
    >>> index = build_index([Passage("Rain falls."), Passage("Marta lives in Oslo.")], Path(tempfile.mkdtemp()) / "index")
    >>> [passage.text for passage in ranked(index, "Where does Marta live?")]
    ['Marta lives in Oslo.']
    """
    scores = _scores(index, query)
    for number in np.argsort(-scores, kind="stable"):
        if scores[number] <= 0:
            return
        yield index.passage(int(number))


def distractors(index: PassageIndex, sample: Sample, count: int) -> tuple[Passage, ...]:
    """The best-ranked passages for a question that hold none of its answers, in text or title, and are not among its own.

    Examples
    --------
    >>> corpus = [Passage("Marta lives in Oslo."), Passage("Ben lives in Rome."), Passage("Oslo lives.")]
    >>> index = build_index(corpus, Path(tempfile.mkdtemp()) / "index")
    >>> distractors(index, Sample("a", "Where does Marta live in?", ("Oslo",), tuple(corpus[:1]), gold=(0,)), 1)[0].text
    'Ben lives in Rome.'
    """
    own = {passage.text for passage in sample.passages}
    chosen: list[Passage] = []
    for hit in ranked(index, sample.question):
        if len(chosen) == count:
            break
        if hit.text not in own and not contains_any(f"{hit.title}\n{hit.text}", sample.answers):
            chosen.append(hit)
    if len(chosen) < count:
        raise Refusal(
            f"Sample {sample.id} needs {count} distractors, but only {len(chosen)} of the {index.size:,} passages "
            "share a word with its question and hold no answer. Ask for fewer, or use a larger corpus."
        )
    return tuple(chosen)


def lost_in_the_middle(
    samples: Iterable[Sample], count: int = 10, *, folder: str | os.PathLike[str] | None = None, progress: bool = True
) -> list[Sample]:
    """Each question with its gold passages first, and then distractors up to `count` passages, out of the gold passages of the other
    questions.

    The published sets of 10, 20 and 30 passages took distractors from all of Wikipedia by a trained retriever; these are rebuilt from the
    gold passages alone, by words. Sets are nested: that of 20 begins with that of 10. Where the gold passage stands is for the context to
    say.

    Parameters
    ----------
    samples
        Questions with gold passages, such as those of nq-open-oracle.
    count
        How many passages each question gets, gold included.
    folder
        Where the index is kept; by default it is built anew and thrown away.
    progress
        Whether a bar may be shown.

    Examples
    --------
    >>> people = [("Marta", "Oslo"), ("Ben", "Rome"), ("Ida", "Bern")]
    >>> asked = [Sample(who, f"Where is {who} at home?", (city,), (Passage(f"{who} is at home in {city}."),), (0,)) for who, city in people]
    >>> [passage.text for passage in lost_in_the_middle(asked, 2)[1].passages]
    ['Ben is at home in Rome.', 'Marta is at home in Oslo.']
    """
    samples = list(samples)
    for sample in samples:
        if not sample.gold or len(sample.gold) >= count:
            raise Refusal(
                f"Sample {sample.id} has {len(sample.gold)} gold passages, so no set of {count} can be made of it: "
                "it takes at least one gold passage and one other."
            )
    with tempfile.TemporaryDirectory() as temporary:
        index = build_index((passage for sample in samples for passage in sample.evidence), folder or Path(temporary) / "index")
        with progress_bar(len(samples), f"Sets of {count} passages", show=progress) as advance:
            return [_with_distractors(index, sample, count, advance) for sample in samples]


def _with_distractors(index: PassageIndex, sample: Sample, count: int, advance: Any) -> Sample:
    gold = replace(sample, passages=sample.evidence, gold=tuple(range(len(sample.gold))))
    advance(1)
    return replace(gold, passages=gold.passages + distractors(index, gold, count - len(gold.passages)))


def _scores(index: PassageIndex, query: str) -> np.ndarray:
    known = index.scorer.get_tokens_ids(_words(query))
    return index.scorer.get_scores_from_ids(known) if known else np.zeros(index.size, np.float32)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _once_each(passages: Iterable[Passage]) -> Iterator[tuple[bytes, Passage]]:
    """Each passage that was not there before, and its JSON line."""
    total, seen = len(passages) if isinstance(passages, Sequence) else 0, set[bytes]()
    with progress_bar(total, "Reading passages") as advance:
        for number, passage in enumerate(passages):
            if not passage.text.strip():
                raise Refusal(f"Passage {number} of the corpus is empty (passages count from 0).")
            advance(1)
            content = {"text": passage.text, "title": passage.title, "conflicting": passage.conflicting}
            line = json.dumps(content, ensure_ascii=False).encode() + b"\n"
            digest = hashlib.sha256(line).digest()
            if digest not in seen:
                seen.add(digest)
                yield line, passage


def _write_corpus(passages: Iterable[Passage], folder: Path) -> tuple[list[list[int]], dict[str, int]]:
    """One JSON line a passage and where each begins; the words of each as numbers, and the number of each word, in order of appearance."""
    vocabulary: dict[str, int] = {}
    words: list[list[int]] = []
    offsets = [0]
    with (folder / CORPUS).open("wb") as corpus:
        for line, passage in _once_each(passages):
            corpus.write(line)
            offsets.append(offsets[-1] + len(line))
            words.append([vocabulary.setdefault(word, len(vocabulary)) for word in _words(f"{passage.title}\n{passage.text}")])
    if not vocabulary:
        raise Refusal("The corpus has no passages with words in them, so nothing could ever be found.")
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    return words, vocabulary


def _write_scores(words: list[list[int]], vocabulary: dict[str, int], folder: Path, fingerprint: str) -> None:
    scorer = bm25s.BM25(method=SETTINGS["method"], k1=SETTINGS["k1"], b=SETTINGS["b"])
    scorer.index(Tokenized(words, vocabulary), show_progress=len(words) > LARGE and sys.stderr.isatty())
    scorer.save(folder, show_progress=False)
    files = {path.name: _hash_file(path) for path in sorted(folder.iterdir())}
    description = {"settings": SETTINGS, "passages": len(words), "fingerprint": fingerprint, "files": files}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")


def _description(folder: Path) -> dict[str, Any]:
    """What the index says of itself."""
    try:
        description = json.loads((folder / DESCRIPTION).read_text())
        if isinstance(description, dict) and {"settings", "passages", "fingerprint", "files"} <= description.keys():
            return description
    except FileNotFoundError:
        raise Refusal(f"{folder} holds no index of passages ({DESCRIPTION} is missing). Build one with build_index.") from None
    except (OSError, ValueError):
        pass
    raise Refusal(f"{folder / DESCRIPTION} cannot be read as the description of an index. Remove the folder and build the index again.")


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

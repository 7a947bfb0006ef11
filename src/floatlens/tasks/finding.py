"""Give questions passages that were found for them: out of a corpus, or out of the gold passages of the other questions.

`found_for` replaces a question's passages by a ranking, in which its gold passages keep their names; `gold_by_answer` calls gold what holds an answer, for
files with passages that do not say which is. `index_of_file` indexes a corpus once, in the user's cache, by the hash of the file.

Decided here: gold passages are recognised in a ranking by their text, blanks aside; those that were not found, and conflicting passages, stand behind everything that was.
Refused: fewer passages found than a context calls for.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.models.sources.cache import cache_folder
from floatlens.tasks.readers.corpus import read_passages
from floatlens.tasks.retrieval import OutdatedIndex, PassageIndex, build_index, open_index, ranked
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import contains_any


def index_of_file(path: str | os.PathLike[str]) -> PassageIndex:
    """The index of a corpus file (`floatlens.tasks.readers.corpus`); built at first use, kept in the cache.

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


def found_for(index: PassageIndex, sample: Sample, *, best: int = 0, distractors: int = 0) -> Sample:
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
    >>> index = build_index(corpus, Path(tempfile.mkdtemp()) / "index")
    >>> asked = Sample("a", "Who lives in Rome?", ("Ben",), (corpus[1],), gold=(0,))
    >>> found = found_for(index, asked, best=1, distractors=2)
    >>> [passage.text for passage in found.passages], found.gold
    (['Ben lives in Rome.', 'Marta lives in Oslo.', 'Ida lives in Bern.'], (0,))
    """
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
            f"Sample {sample.id} needs {best} passages, of them {distractors} distractors without an answer; in {index.size:,} passages, {len(passages)} share a word with its question, "
            f"{without} of them without an answer. Ask for fewer, or use a larger corpus."
        )
    passages += [passage for passage in (*sample.evidence, *sample.conflicts) if passage not in passages]
    return replace(sample, passages=tuple(passages), gold=tuple(passages.index(passage) for passage in sample.evidence))


def gold_by_answer(samples: Iterable[Sample]) -> list[Sample]:
    """Questions whose gold passages are those that hold an answer, title included, where the file names none.

    Examples
    --------
    >>> [found] = gold_by_answer([Sample("a", "Where?", ("Oslo",), (Passage("In Rome."), Passage("In Oslo.")))])
    >>> found.gold
    (1,)
    """
    return [sample if sample.gold else replace(sample, gold=_holding_answers(sample)) for sample in samples]


def _holding_answers(sample: Sample) -> tuple[int, ...]:
    texts = [f"{passage.title}\n{passage.text}" for passage in sample.passages]
    return tuple(slot for slot, text in enumerate(texts) if not sample.passages[slot].conflicting and contains_any(text, sample.answers))


def _words(passage: Passage) -> str:
    return " ".join(passage.text.split())

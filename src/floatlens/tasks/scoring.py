"""Whether what a model wrote is right: the same extraction and the same scores for every model.

Normalisation, exact match and F1 are those of SQuAD v1.1: lower case, without ASCII punctuation and English articles, blanks made one.
Several answers count as right: each score is the best over them. `accuracy` asks whether the normalised answer stands in the normalised
prediction.

Decided here:

- **Containment ends at words.** The papers look for the string, and so find "art" in "party" and "1" in "1914". Here an answer counts
  only where no letter or digit goes on at its edges; scripts that write no blanks between words (Chinese, Japanese, Thai), or let
  particles grow onto them (Korean), have no such edges, and are looked for as strings. `whole_words=False` gives the published number.
- **Nothing is never right.** An answer that normalises to nothing ("The", "?") is never contained and never an exact match; by SQuAD's
  own script an empty prediction would match it.
- What counts of a QA generation is its first line that is not empty; what a model writes behind its end token is not text at all. A final
  number is looked for in the whole text.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_EDGES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HAS_NO_EDGE = re.compile(f"[{_WITHOUT_EDGES}]")
_GOES_ON = rf"[^\W{_WITHOUT_EDGES}]"  # a letter or digit of a script that has edges
_NUMBER = re.compile(r"(?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])[-+]?\$?\.\d+")


@dataclass(frozen=True)
class Score:
    """One prediction's scores, from 0 to 1. A final number has no F1; a program has neither that nor an exact match."""

    prediction: str
    accuracy: float
    exact_match: float | None
    f1: float | None


Scorer = Callable[[str, Sample], Score]
"""From what a model wrote (up to its end token) and the sample to its scores."""

Shortcut = Callable[[Sample, Sequence[Passage]], float]
"""What ignoring the point of a question would score, when these passages are shown."""


def normalise(text: str) -> str:
    """A text as SQuAD v1.1 compares it.

    Examples
    --------
    >>> normalise("The  Eiffel-Tower, (an) icon!")
    'eiffeltower icon'
    >>> normalise("The.")
    ''
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def contains(text: str, answer: str, *, whole_words: bool = True) -> bool:
    """Whether the normalised answer stands in the normalised text; by default not inside of a word.

    Examples
    --------
    >>> contains("He moved to the city of Oslo.", "Oslo"), contains("a party", "art"), contains("a party", "art", whole_words=False)
    (True, False, True)
    >>> contains("anything", "The")
    False
    """
    return _holds(normalise(text), normalise(answer), whole_words)


def contains_any(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers stands in the text.

    Examples
    --------
    >>> contains_any("Ben lives in Rome.", ["Oslo", "Rome"])
    True
    """
    normalised = normalise(text)
    return any(_holds(normalised, normalise(answer), True) for answer in answers)


def exact_match(prediction: str, answer: str) -> bool:
    """Whether both normalise to the same, which is not nothing.

    Examples
    --------
    >>> exact_match("the Oslo.", "Oslo"), exact_match("", "The")
    (True, False)
    """
    normalised = normalise(answer)
    return bool(normalised) and normalise(prediction) == normalised


def f1(prediction: str, answer: str) -> float:
    """The harmonic mean of precision and recall of the normalised words, as SQuAD v1.1 has it; 0 where nothing is shared.

    Examples
    --------
    >>> f1("the city of Oslo", "Oslo")
    0.5
    """
    written, right = normalise(prediction).split(), normalise(answer).split()
    shared = sum((Counter(written) & Counter(right)).values())
    return 2 * shared / (len(written) + len(right)) if shared else 0.0


def first_line(text: str) -> str:
    """What a QA generation answers: its first line that is not empty.

    Examples
    --------
    >>> first_line("\\n Oslo \\nQuestion: what else?")
    'Oslo'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def final_number(text: str) -> float | None:
    """The number behind the last "####" (GSM8K's mark), or else the last number of the text; None if there is none.

    Examples
    --------
    >>> final_number("She pays $1,250.50 in all."), final_number("2 + 2 = 4\\n#### 4 apples"), final_number("none")
    (1250.5, 4.0, None)
    """
    before, mark, after = text.rpartition("####")
    marked = _NUMBER.search(after) if mark else None
    number = marked.group() if marked else next(reversed(_NUMBER.findall(before if mark else text)), None)
    return None if number is None else float(number.replace(",", "").replace("$", ""))


def score_text(text: str, sample: Sample, *, whole_words: bool = True) -> Score:
    """What the first line of a generation scores, the best over all answers that count as right.

    Parameters
    ----------
    text
        What the model wrote, up to its end token.
    sample
        The question with its answers.
    whole_words
        Whether containment ends at words.

    Examples
    --------
    >>> score_text("It is Oslo, Norway.\\nNext", Sample("a", "Where?", ("Oslo", "Christiania")))
    Score(prediction='It is Oslo, Norway.', accuracy=1.0, exact_match=0.0, f1=0.4)
    """
    line = first_line(text)
    normalised = normalise(line)
    return Score(
        line,
        float(any(_holds(normalised, normalise(answer), whole_words) for answer in sample.answers)),
        float(any(exact_match(line, answer) for answer in sample.answers)),
        max(f1(line, answer) for answer in sample.answers),
    )


def score_number(text: str, sample: Sample) -> Score:
    """Whether the final number of a generation is that of an answer.

    Examples
    --------
    >>> score_number("So 3 x 4 = 12.", Sample("a", "How many?", ("3 * 4 = 12\\n#### 12",))).accuracy
    1.0
    """
    right = [final_number(answer) for answer in sample.answers]
    if None in right:
        raise Refusal(
            f"The answer {sample.answers[right.index(None)]!r} of sample {sample.id} holds no number, so no final number can match it."
        )
    written = final_number(text)
    correct = float(written is not None and any(abs(written - number) < 1e-6 for number in right if number is not None))
    return Score("" if written is None else f"{written:.10g}", correct, correct, None)


def _holds(normalised: str, answer: str, whole_words: bool) -> bool:
    """Whether a normalised answer stands in a normalised text."""
    if not answer or answer not in normalised:
        return False
    if not whole_words:
        return True
    before = "" if _HAS_NO_EDGE.match(answer[0]) else f"(?<!{_GOES_ON})"
    after = "" if _HAS_NO_EDGE.match(answer[-1]) else f"(?!{_GOES_ON})"
    return re.search(before + re.escape(answer) + after, normalised) is not None

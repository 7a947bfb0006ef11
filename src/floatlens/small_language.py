"""The grammar that contexts and interventions share on the command line and in files: a name, then values, with or without their names.

    noise:.4,passages=5
    mask-anchors:5,layers=0-7

`parse` splits a text, `Phrase.values` gives each field its value; what names and values mean is decided by the two languages
(`floatlens.tasks.conditions`, `floatlens.interventions.wording`).

Decided here: values without a name belong to the fields in their order; blanks around names and values do not count; empty values are
skipped. Refused, with the text: a field that gets two values, and a value that no field is left for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from floatlens.errors import Refusal

MOST_DIGITS = 9
SHOWN = 80  # characters of a text that a message quotes


@dataclass(frozen=True)
class Phrase:
    """A text that was split: its name, and its words in their order, each a pair of a field's name ("" without) and a value.

    Examples
    --------
    >>> parse("keep-sinks: 16, k=4").words
    (('', '16'), ('k', '4'))
    """

    text: str
    name: str
    words: tuple[tuple[str, str], ...]

    def values(self, unnamed: Sequence[str], takes: str, several: str = "") -> dict[str, str]:
        """The value of each field that the text gives.

        Parameters
        ----------
        unnamed
            The fields whose values need no name, in order.
        takes
            All fields, for the message.
        several
            The field, if there is one, to which all values without a name belong, joined by commas.

        Examples
        --------
        >>> parse("keep-sinks:16,4,layers=0-7").values(["window", "k"], "window, k, layers")
        {'window': '16', 'k': '4', 'layers': '0-7'}
        >>> parse("mask-anchors:5,k=6").values(["k"], "k, layers")
        Traceback (most recent call last):
        floatlens.errors.Refusal: 'mask-anchors:5,k=6' names k twice; give it once.
        """
        left, values = list(unnamed), dict[str, str]()
        together = ",".join(value for field, value in self.words if not field) if several else ""
        words = [word for word in self.words if word[0] or not several]
        for field, value in [(several, together), *words] if together else words:
            if not field and not left:
                raise self.refusal(f"there is no place for {value[:SHOWN]!r}; {self.name} takes {takes}.")
            name = field or left[0]
            if name in values:
                raise Refusal(f"{self.text[:SHOWN]!r} names {name} twice; give it once.")
            if name in left:
                left.remove(name)
            values[name] = value
        return values

    def refusal(self, what: str) -> Refusal:
        """What is wrong, with the text."""
        return Refusal(f"{self.text[:SHOWN]!r}: {what}")

    def whole(self, value: str) -> int:
        """A value that is a whole number from 0 on."""
        if not is_number(value):
            raise self.refusal(f"{value[:40]!r} is no whole number{' that is small enough' * value.isdecimal()}.")
        return int(value)

    def number(self, value: str) -> float:
        """A value that is a number."""
        try:
            return float(value)
        except ValueError:
            raise self.refusal(f"{value[:40]!r} is not a number.") from None


def parse(text: str) -> Phrase:
    """Split a text into its name and its words.

    Examples
    --------
    >>> parse("conflict, passages=7")
    Phrase(text='conflict, passages=7', name='conflict', words=(('passages', '7'),))
    """
    end = min((place for place in (text.find(":"), text.find(",")) if place >= 0), default=len(text))
    words = []
    for word in filter(None, (word.strip() for word in text[end + 1 :].split(","))):
        field, equals, value = (part.strip() for part in word.partition("="))
        words.append((field, value) if equals else ("", word))
    return Phrase(text, text[:end].strip(), tuple(words))


def is_number(text: str) -> bool:
    """Whether a text is a whole number from 0 on, of no more digits than a layer, a head or a count of passages may need.

    Examples
    --------
    >>> is_number(" 12 "), is_number("²"), is_number("-1"), is_number("9" * 5000)
    (True, False, False, False)
    """
    return text.strip().isdecimal() and len(text.strip()) <= MOST_DIGITS

"""What a reader scores who knows what is asked for and ignores whom: the number to print beside every accuracy on the world.

Decided here: the reader is as good as it can be without the person. It takes what the shown passages say most often about the asked attribute, by lot among equals. If every passage is about somebody
else, that is 1 / passages; if the gold passage is restated, the reader can be right every time, and such a context does not show that a model binds facts to people.
Without passages it answers with the most frequent value of those learned by heart, or with any value where values are drawn anew.

Refused: passages that say nothing about the asked attribute.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import prod

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.world.people import make_world, most_frequent_share
from floatlens.tasks.world.sets import values_of
from floatlens.tasks.world.words import ATTRIBUTES

_FACTS = [re.compile(rf"(\w+ \w+) {' '.join(attribute.said)} (\w+)\.") for attribute in ATTRIBUTES]


def shortcut(sample: Sample, passages: Sequence[Passage]) -> float:
    """The score to expect from ignoring the person, when these passages are shown.

    Parameters
    ----------
    sample
        One of the world's samples.
    passages
        The passages as a context arranged them, joined or not; none for closed-book.

    Examples
    --------
    >>> from floatlens.tasks.world.sets import closed_book_samples, open_book_samples
    >>> sample = open_book_samples(1, passages=4)[0]
    >>> shortcut(sample, [*sample.evidence, *sample.distractors]), shortcut(sample, sample.evidence), shortcut(sample, [])
    (0.25, 1.0, 0.05)
    >>> round(shortcut(closed_book_samples(1)[0], []), 3)
    0.109
    """
    wanted = values_of(sample)
    attributes = [next(index for index, attribute in enumerate(ATTRIBUTES) if value in attribute.values) for value in wanted]
    if not passages and not sample.passages:
        return prod(most_frequent_share(make_world(), index) for index in attributes)
    if not passages:
        return prod(1 / len(ATTRIBUTES[index].values) for index in attributes)
    said = Counter(values for passage in passages for values in _said(passage.text, attributes))
    if not said:
        raise Refusal(
            f"The passages shown with sample {sample.id} hold no facts of the world, so what ignoring the person scores is not known."
        )
    most = max(said.values())
    favourites = [values for values, times in said.items() if times == most]
    return (wanted in favourites) / len(favourites)


def _said(text: str, attributes: Sequence[int]) -> list[tuple[str, ...]]:
    """The values of these attributes for each person about whom the text says them all."""
    by_person = [dict(_FACTS[index].findall(text)) for index in attributes]
    return [tuple(facts[person] for facts in by_person) for person in by_person[0] if all(person in facts for facts in by_person)]

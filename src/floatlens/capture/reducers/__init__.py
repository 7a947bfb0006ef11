"""What a tap can keep of a call. Each name of `keep=` stands for one small class in this folder.

A new reducer is a class like those here, beside those that look at the same thing, and a line in `_MAKERS`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from floatlens.capture.arguments import MOST_TOP_KEYS
from floatlens.capture.observation import Observation
from floatlens.capture.reducers.geometry import Geometry, Norms
from floatlens.capture.reducers.mass import Entropy, Halves, Mass, RowEntropy
from floatlens.capture.reducers.rows import Flow, Patterns, TopKeys
from floatlens.capture.walk import Reducer
from floatlens.errors import Refusal

DEFAULT_KEEP = ("mass", "entropy", "geometry", "norms")

ReducerMaker = Callable[[Observation], Reducer]

_MAKERS: dict[str, ReducerMaker] = {
    "mass": Mass,
    "entropy": Entropy,
    "entropy:rows": RowEntropy,
    "flow": Flow,
    "geometry": Geometry,
    "halves": Halves,
    "norms": Norms,
}
_TOP_KEYS = re.compile(r"top_keys:([1-9]\d*)(?:@(.+))?")


def as_names(keep: Any) -> tuple[str, ...]:
    """What `keep` names: one name or several.

    Examples
    --------
    >>> as_names("mass"), as_names(["mass", "norms"])
    (('mass',), ('mass', 'norms'))
    """
    names = (keep,) if isinstance(keep, str) else tuple(keep) if isinstance(keep, Iterable) else (keep,)
    for name in names:
        if not isinstance(name, str):
            raise Refusal(f'keep={keep!r}: {name!r} is not a name; write keep=["mass", "entropy"], or one of {_known()}.')
    return names


def reducer_makers(keep: Iterable[str]) -> list[ReducerMaker]:
    """The reducers that `keep` names.

    Examples
    --------
    >>> reducer_makers(["mass", "top_keys:8@masked"])[0].__name__
    'Mass'
    >>> reducer_makers(["masses"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    floatlens.errors.Refusal: keep does not know 'masses'. It knows: 'mass', 'entropy', ...
    """
    makers: list[ReducerMaker] = []
    for name in dict.fromkeys(as_names(keep)):
        if name in _MAKERS:
            makers.append(_MAKERS[name])
        elif match := _TOP_KEYS.fullmatch(name):
            if len(match[1]) > 4 or int(match[1]) > MOST_TOP_KEYS:
                raise Refusal(
                    f"keep={name!r}: at most {MOST_TOP_KEYS} favourite keys of a row are kept. For all of a head's weights, use patterns=."
                )
            makers.append(partial(TopKeys, count=int(match[1]), group=match[2]))
        else:
            raise Refusal(f"keep does not know {name!r}. It knows: {_known()}.")
    if sum(isinstance(maker, partial) for maker in makers) > 1:
        raise Refusal("keep names top_keys twice, and one would overwrite the other. Ask for the larger K, or open a tap for each.")
    if Entropy in makers and RowEntropy in makers:
        makers.remove(Entropy)  # the rows bring the means with them
    return makers


def _known() -> str:
    return f"{', '.join(map(repr, _MAKERS))}, 'top_keys:K' and 'top_keys:K@group'"


def patterns_of(layers: Sequence[int], patterns: Sequence[tuple[int, int]]) -> tuple[list[ReducerMaker], tuple[tuple[int, int], ...]]:
    """The reducer that keeps full patterns of the heads chosen in these layers, if any; and which heads of which layers they are."""
    chosen = tuple(pair for number in layers for pair in patterns if pair[0] == number)
    places = [(layers.index(layer), head) for layer, head in chosen]
    return ([partial(Patterns, chosen=places)] if chosen else []), chosen

"""What a tap can keep of a call. Each name of `keep=` stands for one small class in this folder.

A new reducer is a new file with a class like those here, and a line in `_MAKERS`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from floatlens.capture.observation import Observation
from floatlens.capture.reducers.entropy import Entropy, RowEntropy
from floatlens.capture.reducers.flow import Flow
from floatlens.capture.reducers.geometry import Geometry
from floatlens.capture.reducers.halves import Halves
from floatlens.capture.reducers.mass import Mass
from floatlens.capture.reducers.norms import Norms
from floatlens.capture.reducers.patterns import Patterns
from floatlens.capture.reducers.top_keys import TopKeys
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


def reducer_makers(keep: Iterable[str]) -> list[ReducerMaker]:
    """The reducers that `keep` names.

    Examples
    --------
    >>> reducer_makers(["mass", "top_keys:8@masked"])[0].__name__
    'Mass'
    >>> reducer_makers(["masses"])
    Traceback (most recent call last):
    floatlens.errors.Refusal: keep does not know 'masses'. It knows: 'mass', 'entropy', 'entropy:rows', 'flow', 'geometry', 'halves', 'norms', \
'top_keys:K' and 'top_keys:K@group'.
    """
    if isinstance(keep, str):
        raise Refusal(f"keep takes a list of names; write keep=[{keep!r}].")
    makers: list[ReducerMaker] = []
    for name in dict.fromkeys(keep):
        if name in _MAKERS:
            makers.append(_MAKERS[name])
        elif match := _TOP_KEYS.fullmatch(name):
            makers.append(partial(TopKeys, count=int(match[1]), group=match[2]))
        else:
            known = ", ".join(map(repr, _MAKERS))
            raise Refusal(f"keep does not know {name!r}. It knows: {known}, 'top_keys:K' and 'top_keys:K@group'.")
    if sum(isinstance(maker, partial) for maker in makers) > 1:
        raise Refusal("keep names top_keys twice, and one would overwrite the other. Ask for the larger K, or open a tap for each.")
    if Entropy in makers and RowEntropy in makers:
        makers.remove(Entropy)  # the rows bring the means with them
    return makers


def patterns_of(layer: int, patterns: Sequence[tuple[int, int]]) -> list[ReducerMaker]:
    """The reducer that keeps full patterns of the heads chosen in this layer, if any."""
    heads = tuple(head for chosen_layer, head in patterns if chosen_layer == layer)
    return [partial(Patterns, heads=heads)] if heads else []

"""Token roles: whether attention goes to structure or to words, and how that changes with depth.

Everything that stands on a canvas has one role, the first of these that fits:

| role | what |
|---|---|
| `mask` | not written yet when the step's forward ran: masked, or committed in this step (without a mask token: not accepted) |
| `special` | a special token of the tokenizer |
| `layout` | newlines and blanks only |
| `punctuation` | Unicode punctuation and symbols only, blanks aside |
| `template` | other tokens that the prompt template put there |
| `number` | digits of any script, and no letters |
| `function` | English words that carry grammar (`FUNCTION_WORDS`) |
| `content` | all other words, and words of all other languages |

`structural` is special, layout, punctuation and template together; `lexical` is function, content and number; mask stands alone. Pieces
of a word have the role of the whole word in the finished text, even while a neighbour is still masked. What has no text, what was
replaced later and what does not exist has no role, "none".

Function words are chosen by class, in lower case. Words that are more often something else ("like", "little", "past", "right", number
words) are left out. Contractions need no entries: their parts do (see `role_of_word`).

Shares stand beside the share that the role would have if every row spread evenly, so that a role which fills the canvas is not taken for
one that draws attention. Refused: traces without `special`, and tokens without texts or that are no words (amino acids).
"""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.absorption import NOT_MEASURED
from floatlens.measures.inputs import (
    NO_ROWS,
    RECEIVED,
    WITHOUT_TEXT,
    by_layers,
    one_sample_at_a_time,
    refuse_missing,
    refuse_other_axes,
    refuse_what_has_no_roles,
    relative_depth,
)
from floatlens.measures.received_attention import fair_mass
from floatlens.statistics.slopes import slope_over
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, MASKED, PROMPT

_ARTICLES_AND_DETERMINERS = """
    a an the this that these those each every either neither some any no none both all such another other others same own
    enough several few fewer many more most much less least
"""

_PRONOUNS = """
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself
    they them their theirs themselves thou thee thy who whom whose which what whoever whomever whichever whatever
    someone somebody something anyone anybody anything everyone everybody everything nobody nothing
"""

_PREPOSITIONS = """
    about above across after against along alongside amid among amongst around as at atop before behind below beneath beside besides between
    beyond by despite during except for from in inside into near of off on onto out outside over per since through throughout
    till til to toward towards under underneath until unto up upon via versus with within without
"""

_CONJUNCTIONS = """
    and but or nor so yet if unless because although though while whilst whereas whether than lest once
"""

_AUXILIARIES = """
    am is are was were be been being have has had having do does did doing done
    can cannot could will would shall should may might must ought
"""

_ADVERBS_OF_GRAMMAR = """
    not also too very just only even still then there here where when why how wherever whenever however
    again ever never thus hence therefore else rather quite
"""

FUNCTION_WORDS: frozenset[str] = frozenset(
    word
    for words in (_ARTICLES_AND_DETERMINERS, _PRONOUNS, _PREPOSITIONS, _CONJUNCTIONS, _AUXILIARIES, _ADVERBS_OF_GRAMMAR)
    for word in words.split()
)
"""Words that carry grammar, in lower case."""

CLITICS: frozenset[str] = frozenset(("d", "ll", "m", "re", "s", "t", "ve"))
"""What may follow an apostrophe and is a function word there: I'd, we'll, I'm, you're, it's, don't, they've."""


ROLES = ("none", "mask", "special", "layout", "punctuation", "template", "function", "content", "number")
"""The roles; what `token_roles` returns are places in here."""

KINDS = {"structural": ("special", "layout", "punctuation", "template"), "lexical": ("function", "content", "number")}
"""Roles that are also reported together."""

NO_ANCHORS = "there are no anchors"
ABSENT = "the group sees nothing that has this role"
TOO_FEW_LAYERS = "fewer than two layers have an enrichment"
TOO_FEW_POSITIVE = "fewer than two layers have an enrichment above 0"

_BLANKS = ("Zs", "Zl", "Zp", "Cc", "Cf")  # newlines are control characters
_APOSTROPHES = "'\u2019\u02bc"
_PIECE = re.compile(r"^##(?=\w)")  # BERT's mark of a piece that continues a word


def role_of_word(text: str) -> str:
    """The role of a word by its text alone: layout, punctuation, number, function or content.

    Contractions count by their parts: "don't" and "it's" are function words, "Anna's" is content.

    Examples
    --------
    >>> [role_of_word(text) for text in (" the", "Anna", " 3.5", "...", "\\n", "don't", "'s")]
    ['function', 'content', 'number', 'punctuation', 'layout', 'function', 'function']
    """
    kinds = {unicodedata.category(character)[0] for character in text if unicodedata.category(character) not in _BLANKS}
    if not kinds:
        return "layout"
    if kinds <= {"P", "S", "M"} and kinds != {"M"}:  # an emoji may carry a mark that picks its colour
        return "punctuation"
    if "N" in kinds and "L" not in kinds:
        return "number"
    words = [word for word in text.split() if any(map(str.isalpha, word))]
    return "function" if words and all(map(_is_function, words)) else "content"


def _is_function(word: str) -> bool:
    plain = re.sub(f"[{_APOSTROPHES}]", "'", word.casefold())
    start, stop = _letters(plain)
    core = plain[start:stop]
    before, apostrophe, after = core.rpartition("'")
    if not apostrophe:
        return core in FUNCTION_WORDS or (plain[:start].endswith("'") and core in CLITICS)
    return core.endswith("n't") or (before if after in CLITICS else core) in FUNCTION_WORDS


def _letters(text: str) -> tuple[int, int]:
    """From the first to behind the last letter or digit."""
    inside = [index for index, character in enumerate(text) if unicodedata.category(character)[0] in "LMN"]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def roles_of_tokens(
    texts: Sequence[str],
    special: Sequence[bool],
    template: Sequence[bool],
    starts: Sequence[int] | None = None,
    stops: Sequence[int] | None = None,
) -> list[str]:
    """The role of every token of a finished text; "none" for tokens without a text.

    A token continues the word before it if there is no blank between them: none in the texts, and no gap between their characters (or a
    span longer than the token's text, which holds a blank). Where characters are not known, a blank at the beginning of a text or BERT's
    "##" decides; if the tokens of the text show neither, each is a word.

    Parameters
    ----------
    texts
        The texts of the tokens, with the blanks they begin with.
    special, template
        Whether each is a special token, and whether the prompt template put it there.
    starts, stops
        The characters that each covers, -1 where not known.

    Examples
    --------
    >>> roles_of_tokens([" He", " un", "locks", " un", "der", "."], [False] * 6, [False] * 6)
    ['function', 'content', 'content', 'function', 'function', 'punctuation']
    >>> roles_of_tokens(["<s>", "user", "\\n"], [True, False, False], [True, True, True])
    ['special', 'template', 'layout']
    """
    given = {"special": special, "template": template, "starts": starts, "stops": stops}
    for name, values in given.items():
        if values is not None and len(values) != len(texts):
            raise Refusal(f"There are {len(texts)} texts and {len(values)} values of {name}; give one for each token.")
    return [
        "special" if special[index] else "none" if _has_no_text(text) else _role(text, word, bool(template[index]))
        for index, (text, word) in enumerate(zip(texts, _words(texts, special, template, starts, stops), strict=True))
    ]


def _role(text: str, word: str, template: bool) -> str:
    """The role of a token that is no special one, by its text and the word that it is a piece of."""
    own = role_of_word(_bare(text))
    if own in ("layout", "punctuation"):
        return own
    return "template" if template else role_of_word(word)


def _has_no_text(text: str) -> bool:
    return not text or WITHOUT_TEXT.fullmatch(text) is not None


def _bare(text: str) -> str:
    return _PIECE.sub("", text)


def _words(
    texts: Sequence[str], special: Sequence[bool], template: Sequence[bool], starts: Sequence[int] | None, stops: Sequence[int] | None
) -> list[str]:
    """For every token, the word that it is a piece of; for what follows an apostrophe in a contraction, that part of it."""
    leading_blanks = any(text[:1].isspace() and not text.isspace() for text in texts)

    def touches(index: int) -> bool:
        """Whether there is no blank between two tokens that show none."""
        bare = _bare(texts[index])
        if starts is not None and stops is not None and min(starts[index], stops[index - 1]) >= 0:
            return starts[index] == stops[index - 1] and stops[index] - starts[index] <= len(bare)
        return leading_blanks or texts[index] != bare

    def continues(index: int) -> bool:
        if (
            index == 0
            or special[index]
            or special[index - 1]
            or template[index] != template[index - 1]
            or not texts[index]
            or not texts[index - 1]
        ):
            return False
        return _is_inside_word(_bare(texts[index - 1])[-1], _bare(texts[index])[0]) and touches(index)

    words: list[str] = []
    first = 0
    for index in range(1, len(texts) + 1):
        if index == len(texts) or not continues(index):
            words += _parts([_bare(text) for text in texts[first:index]])
            first = index
    return words


def _is_inside_word(last: str, first: str) -> bool:
    """Whether a word may go on from one character to the next: letters, and apostrophes between them."""
    kinds = [character in _APOSTROPHES or unicodedata.category(character)[0] in "LM" for character in (last, first)]
    return all(kinds) and not (last in _APOSTROPHES and first in _APOSTROPHES)


def _parts(pieces: list[str]) -> list[str]:
    """For every piece of a word, the word; the part behind its last apostrophe is a word of its own if it is one in contractions."""
    word = "".join(pieces)
    apostrophe = max(word.rfind(mark) for mark in _APOSTROPHES)
    shortened = apostrophe > 0 and word[apostrophe + 1 :].casefold() in CLITICS
    ends = np.cumsum([len(piece) for piece in pieces])
    return [word[apostrophe:] if shortened and end - len(piece) >= apostrophe else word for piece, end in zip(pieces, ends, strict=True)]


@one_sample_at_a_time
def token_roles(data: xr.Dataset) -> xr.DataArray:
    """What stands on the canvas at each step, by role: places in `ROLES`, over step and position.

    Parameters
    ----------
    data
        A trace, or a dataset with state, canvas, final, token, special and template; characters (char_start, char_stop) tell words apart
        where the texts of tokens have no blanks.

    Examples
    --------
    A prompt of two tokens; the third is committed in step 0 and stands there in step 1.

    >>> data = xr.Dataset(
    ...     {
    ...         "state": (("step", "position"), [[1, 1, 3], [1, 1, 4]]),
    ...         "canvas": (("step", "position"), [[7, 8, 0], [7, 8, 9]]),
    ...         "final": ("position", [7, 8, 9]),
    ...         "special": ("position", [True, False, False]),
    ...         "template": ("position", [True, False, False]),
    ...     },
    ...     coords={"token": ("position", ["<s>", " Anna", "."])},
    ... )
    >>> np.array(ROLES)[token_roles(data)].tolist()
    [['special', 'content', 'mask'], ['special', 'content', 'punctuation']]
    """
    refuse_what_has_no_roles(data)
    texts = [str(text) for text in data["token"].values]
    starts, stops = (data[name].values.tolist() if name in data else None for name in ("char_start", "char_stop"))
    names = roles_of_tokens(texts, data["special"].values.tolist(), data["template"].values.tolist(), starts, stops)
    finished = xr.DataArray(np.array([ROLES.index(name) for name in names], np.int8), dims="position")
    state, canvas = data["state"], data["canvas"]
    written = state.isin((PROMPT, COMMITTED_BEFORE)) & (canvas == data["final"])
    open_still = state.isin((MASKED, COMMITTED_NOW)) & (canvas >= 0)  # an autoregressive canvas is empty where the step writes
    roles = xr.where(written, finished, xr.where(open_still, np.int8(ROLES.index("mask")), np.int8(0)))
    attributes = {"flag_values": list(range(len(ROLES))), "flag_meanings": list(ROLES)}
    return roles.transpose(*state.dims).rename("role").assign_attrs(attributes)


@one_sample_at_a_time
def role_shares(data: xr.Dataset, anchors: xr.Dataset | None = None, /) -> xr.Dataset:
    """The share of attention that each role draws in every layer, beside its share if every row spread evenly.

    All steps and heads count together, by their sums: of all (anchor) mass in a layer, the part on keys that have the role at that step.
    The shares of the eight roles add up to 1 (less what lies on keys without a role); `structural` and `lexical` are sums of them.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null, rows and what `token_roles` needs.
    anchors
        What `find_anchors` found in the same data: only mass on anchors counts then, and its null is the fair mass of the keys that could
        have been anchors. All mass counts without them.

    Returns
    -------
    xarray.Dataset
        `share`, `null` and `enrichment` (their ratio: 1 is a fair share) by layer, group and role; `reason`, why there is no enrichment.

    Examples
    --------
    One row, three keys: the mask draws half of the attention, and its fair share is a third.

    >>> from floatlens.measures import from_attention
    >>> data = from_attention(np.array([[0.25, 0.5, 0.25]])).assign(
    ...     state=(("step", "position"), [[1, 2, 1]]), canvas=(("step", "position"), [[5, 0, 6]]), final=("position", [5, 8, 6]),
    ...     special=("position", [False] * 3), template=("position", [False] * 3),
    ... )
    >>> shares = role_shares(data.assign_coords(token=("position", [" Anna", " saw", "."])))
    >>> shares["share"].squeeze().sel(role=["mask", "structural", "lexical"]).values.tolist()
    [0.5, 0.25, 0.25]
    >>> shares["enrichment"].squeeze().sel(role=["mask", "structural", "lexical"]).values.tolist()
    [1.5, 0.75, 0.75]
    """
    refuse_missing(data, RECEIVED, "Shares of roles")
    member = _members(token_roles(data))
    if anchors is None:
        return by_layers(lambda part: _shares(part, member), data[list(RECEIVED)])
    refuse_other_axes(data["mass"], anchors)
    return by_layers(lambda part, of_layers: _shares(part, member, of_layers), data[list(RECEIVED)], anchors)


def _members(roles: xr.DataArray) -> xr.DataArray:
    """1 where a key has a role: (step, key, role), with the roles that are sums of others."""
    names = [*ROLES[1:], *KINDS]
    each = [np.isin(roles, [ROLES.index(role) for role in KINDS.get(name, (name,))]) for name in names]
    return xr.DataArray(np.stack(each, axis=-1).astype(float), dims=(*roles.dims, "role"), coords={"role": names}).rename(position="key")


def _shares(data: xr.Dataset, member: xr.DataArray, anchors: xr.Dataset | None = None) -> xr.Dataset:
    """Shares in some layers."""
    lying, fair = data["mass"], fair_mass(data)
    if anchors is not None:
        lying, fair = lying.where(anchors["anchor"]), fair.where(anchors["measured"])
    of_role, of_all = _by_role(lying, member)
    fair_of_role, fair_of_all = _by_role(fair, member)
    share, null = of_role / of_all.where(of_all > 0), fair_of_role / fair_of_all.where(fair_of_all > 0)
    has_rows = (data["rows"] > 0).any([axis for axis in ("step", "head") if axis in data["rows"].dims])
    nothing = NO_ROWS if anchors is None else NO_ANCHORS
    reason = xr.where(
        ~has_rows, NO_ROWS, xr.where(~(fair_of_all > 0), NOT_MEASURED, xr.where(~(of_all > 0), nothing, xr.where(null > 0, "", ABSENT)))
    )
    variables = {"share": share, "null": null, "enrichment": share / null.where(null > 0), "reason": reason}
    return xr.Dataset({name: values.transpose(..., "role") for name, values in variables.items()})


def _by_role(amount: xr.DataArray, member: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """What lies on each role, and on all keys, over all steps and heads."""
    by_step = amount.sum("head", dtype=float) if "head" in amount.dims else amount.astype(float).fillna(0)
    over = [axis for axis in ("step", "key") if axis in by_step.dims]
    return xr.dot(by_step, member, dim=over), by_step.sum(over)


@one_sample_at_a_time
def structural_slope(shares: xr.Dataset) -> xr.Dataset:
    """How the enrichment of structure changes from the first layer to the last.

    It is one number for "shallow structure, deep content": below 0 where that holds.

    Parameters
    ----------
    shares
        What `role_shares` returns.

    Returns
    -------
    xarray.Dataset
        `slope`, the least-squares slope of structural enrichment over relative depth (0 the first layer, 1 the last), by group, and
        `log_slope`, that of its logarithm, in which halving and doubling weigh alike. Both are 0 if every row spreads evenly. `reason`
        and `log_reason` say why there is none.

    Examples
    --------
    >>> falling = xr.DataArray([[3.0], [2.0], [1.0]], dims=("layer", "role"), coords={"layer": [0, 1, 2], "role": ["structural"]})
    >>> structural_slope(xr.Dataset({"enrichment": falling}))["slope"].item()
    -2.0
    """
    if "enrichment" not in shares or "role" not in shares.coords or "structural" not in shares["role"].values:
        raise Refusal("The slope is taken of what role_shares(data) returns; this has no enrichment of the role 'structural'.")
    enrichment = shares["enrichment"].sel(role="structural", drop=True)
    depth, logarithm = relative_depth(enrichment["layer"]), xr.apply_ufunc(np.log, enrichment.where(enrichment > 0))
    slope, log_slope = slope_over(enrichment, "layer", depth), slope_over(logarithm, "layer", depth)
    return xr.Dataset(
        {
            "slope": slope,
            "reason": xr.where(slope.notnull(), "", TOO_FEW_LAYERS),
            "log_slope": log_slope,
            "log_reason": xr.where(log_slope.notnull(), "", TOO_FEW_POSITIVE),
        }
    )

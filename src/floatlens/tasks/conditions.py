"""Under which conditions a question is asked: a context, how many tokens are to be written, an intervention or one of its controls.

As text a condition is its context, with `masks=` where the number of trailing masks is part of the experiment: `gold,masks=64`.
`masks:64` is short for that: gold passages and 64 masks to write. (An autoregressive model has no masks; for it the number is only how
far it may write.)

Decided here: closed-book and gold-only always run beside what is asked for, unedited, as the brackets of everything else; gold-only is
left out only where no sample names a gold passage. An intervention acts in every context that was asked for, and comes with its controls:
random other keys, as many and as much, or random other heads. What a control hits is drawn several times, each draw from a seed of its
own: draw 0 is the control as it is written, `random-keys:mass of mask-anchors:5`, draw 1 the same with `seed=1`. Each unedited context
runs as well, since damage is what it loses.

Refused: contexts and numbers that do not exist, with the list of what does; gold for some samples and not for others; interventions
without a context; plain functions and controls by themselves; fewer draws than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from floatlens.errors import Refusal, suggestion
from floatlens.folders import short_name
from floatlens.interventions.specification import Intervention, KeyPicker, MaskHeads, RandomHeads, RandomKeys
from floatlens.interventions.wording import from_text, to_text
from floatlens.small_language import Phrase, parse
from floatlens.tasks.contexts import PASSAGES, ClosedBook, Conflict, Context, GoldOnly, Layout, Noise, Position, Retrieved, arrange
from floatlens.tasks.samples import Sample

CONTEXTS = (
    "closed-book",
    "gold",
    "retrieved:COUNT",
    "noise:SHARE",
    "position:SLOT/PASSAGES",
    "layout:one|adjacent|far",
    "conflict",
    "masks:COUNT",
)
"""The contexts as text; noise, layout and conflict also take `,passages=COUNT`, noise `,gold=COUNT`, and all of them `,masks=COUNT`."""

_VALUE = {"retrieved": "count", "noise": "share", "position": "slot", "layout": "where", "masks": "masks"}
"""The contexts that have a value, and what it is."""
_OPTIONS = {"noise": ("passages", "gold"), "layout": ("passages",), "conflict": ("passages",)}
"""What contexts take besides, apart from masks=, which all take."""

DRAWS = 5
"""How often a random control is drawn where nothing else is said: a single draw hits the answer by luck or misses it."""


@dataclass(frozen=True)
class Condition:
    """A context, with what else is varied. `masks` is how many tokens are to be written, where that is not the run's `gen_length`;
    `control` names the control of an intervention, and `draw` counts how often it was drawn before.

    Examples
    --------
    >>> Condition(GoldOnly(), masks=64).text, Condition(Noise(0.4)).text
    ('gold,masks=64', 'noise:0.4')
    """

    context: Context
    masks: int | None = None
    intervention: Intervention | None = None
    control: str = ""
    draw: int = 0

    def __post_init__(self) -> None:
        if self.masks is not None and self.masks < 1:
            raise Refusal(f"masks={self.masks}: at least one token must be written.")

    @property
    def text(self) -> str:
        """The context as text, with the number of masks where that is varied."""
        return self.context.text if self.masks is None else f"{self.context.text},masks={self.masks}"

    @property
    def kind(self) -> str:
        """What is varied: the kind of context, or "masks"."""
        return self.context.kind if self.masks is None else "masks"

    @property
    def level(self) -> float | None:
        """The number that is varied, where there is one."""
        return self.context.level if self.masks is None else float(self.masks)

    @property
    def acting(self) -> Intervention | None:
        """What acts on the model: the intervention, or its control."""
        if self.intervention is None or not self.control:
            return self.intervention
        return dict(controls_of(self.intervention, self.draw))[self.control]

    @property
    def name(self) -> str:
        """The condition in words, for messages."""
        return self.text if self.acting is None else f"{self.text} under {to_text(self.acting)}"


def as_file_name(text: str) -> str:
    """A condition's text as part of a file's name, cut if it is very long.

    Examples
    --------
    >>> as_file_name("noise:0.4,passages=10")
    'noise-0.4-passages=10'
    """
    return short_name("".join(letter if letter.isalnum() or letter in ".-=" else "-" for letter in text))


def condition_of(given: "str | Context | Condition") -> Condition:
    """A condition from its text, or from a context.

    Examples
    --------
    >>> condition_of("position:3/10").context
    Position(slot=3, passages=10)
    >>> condition_of("noise:.4,passages=10,masks=8")
    Condition(context=Noise(share=0.4, passages=10, gold=None), masks=8, intervention=None, control='', draw=0)
    >>> condition_of("noise:lots")
    Traceback (most recent call last):
    floatlens.errors.Refusal: 'noise:lots': 'lots' is not a number.
    """
    if isinstance(given, Condition):
        return given
    if isinstance(given, Context):
        return Condition(given)
    if not isinstance(given, str):
        raise Refusal(f"{given!r} is not a context; write one of {', '.join(CONTEXTS)}.")
    phrase = parse(given)
    form = next((form for form in CONTEXTS if form.partition(":")[0] == phrase.name), None)
    if form is None:
        known = [context.partition(":")[0] for context in CONTEXTS]
        raise Refusal(f"There is no context {phrase.name!r}.{suggestion(phrase.name, known)} There are: {', '.join(CONTEXTS)}.")
    value = [_VALUE[phrase.name]] if phrase.name in _VALUE else []
    takes = [*value, *_OPTIONS.get(phrase.name, ()), *(["masks"] if phrase.name != "masks" else [])]
    if bool(value) != any(field in ("", *value) for field, _ in phrase.words):
        raise Refusal(f"{given!r} is not how {phrase.name} is written: {form}.")
    values = phrase.values(value, ", ".join(f"{name}=" for name in takes))
    for name in values:
        if name not in takes:
            raise phrase.refusal(f"{phrase.name} takes no {name}=; it takes {', '.join(f'{name}=' for name in takes)}.")
    masks = phrase.whole(values["masks"]) if "masks" in values else None
    return Condition(_context(phrase, values), masks)


def controls_of(intervention: Intervention, draw: int = 0) -> list[tuple[str, Intervention]]:
    """The controls of an intervention, by name, drawn for the first time or once more. One that picks nothing has none.

    Examples
    --------
    >>> from floatlens.interventions import MaskAnchors
    >>> [name for name, _ in controls_of(MaskAnchors(5))]
    ['count', 'mass']
    """
    if isinstance(intervention, KeyPicker):
        return [(equal, RandomKeys(intervention, equal=equal, seed=draw)) for equal in ("count", "mass")]
    if isinstance(intervention, MaskHeads):
        return [("heads", RandomHeads(intervention, seed=draw))]
    return []


def plan(
    samples: Sequence[Sample],
    contexts: "Sequence[str | Context | Condition]",
    interventions: Sequence[str | Intervention] = (),
    *,
    controls: bool = True,
    brackets: bool = True,
    draws: int = 1,
) -> list[Condition]:
    """Every condition to run, the brackets first, none twice; the controls as often as they are drawn.

    Examples
    --------
    >>> sample = Sample("a", "Where?", ("Oslo",))
    >>> [condition.name for condition in plan([sample], ["closed-book"], ["mask-anchors:1"], controls=False)]
    ['closed-book', 'closed-book under mask-anchors:1']
    >>> [condition.name for condition in plan([sample], ["closed-book"], ["mask-heads:0:1"], draws=2)][2:]
    ['closed-book under random-heads of mask-heads:0:1', 'closed-book under random-heads:seed=1 of mask-heads:0:1']
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise Refusal(f"draws={draws!r}: a random control is drawn at least once.")
    asked = [condition_of(context) for context in contexts]
    edits = [_intervention(given) for given in interventions]
    if edits and not asked:
        raise Refusal("Interventions act in the contexts that are asked for, and none is. Give a context, such as gold.")
    if any(condition.intervention is not None for condition in asked):
        raise Refusal(
            "A context that is asked for holds an intervention already; give it as interventions=[...], so that its controls run too."
        )
    planned = [Condition(bracket) for bracket in _brackets(samples)] if brackets else []
    for condition in asked:
        planned.append(condition)
        for edit in edits:
            planned.append(replace(condition, intervention=edit))
            names = [name for name, _ in controls_of(edit)] if controls else []
            planned += [replace(condition, intervention=edit, control=name, draw=draw) for name in names for draw in range(draws)]
    if not planned:
        raise Refusal("There is no condition to run. Give a context, such as gold.")
    return list(dict.fromkeys(planned))


def with_one_gold(conditions: Sequence[Condition], samples: Sequence[Sample]) -> list[Condition]:
    """The conditions as questions with a single gold passage can be asked under them: noise shows that one, among as many distractors.

    Nothing changes where a question has several gold passages, where noise says `gold=` itself, or where it leaves a place for one gold
    passage only at all levels.

    Examples
    --------
    >>> from floatlens.tasks.samples import Passage
    >>> sample = Sample("a", "Where?", ("Oslo",), (Passage("In Oslo."),), gold=(0,))
    >>> [condition.text for condition in with_one_gold([condition_of("noise:0.4"), condition_of("noise:0.8")], [sample])]
    ['noise:0.4,gold=1', 'noise:0.8,gold=1']
    """
    if max((len(sample.gold) for sample in samples), default=0) != 1:
        return list(conditions)
    noisy = [given.context for given in conditions if isinstance(given.context, Noise) and given.context.gold is None]
    if all(noise.evidence == 1 for noise in noisy):
        return list(conditions)
    return [replace(given, context=replace(given.context, gold=1)) if given.context in noisy else given for given in conditions]


def complete(samples: Sequence[Sample], contexts: "Sequence[str | Context | Condition]") -> tuple[list[Sample], dict[str, str]]:
    """The samples that have what every context and bracket needs, and by id why the others do not: to leave those out knowingly, and to
    say so.

    Examples
    --------
    >>> from floatlens.tasks.samples import Passage
    >>> def sample(id, gold):
    ...     return Sample(id, "Where?", ("Oslo",), (Passage("In Oslo."),) * gold, gold=tuple(range(gold)))
    >>> kept, left_out = complete([sample("a", gold=1), sample("b", gold=2)], ["noise:0,passages=2"])
    >>> [sample.id for sample in kept], left_out
    (['b'], {'a': 'noise:0,passages=2 needs 2 gold passages, and sample a has 1. Find more of them in a corpus, \
show fewer gold ones with gold=1, or leave such samples out.'})
    """
    asked = [condition_of(context).context for context in contexts]
    wanted = [GoldOnly(), *asked] if any(sample.gold for sample in samples) else asked
    kept, left_out = [], {}
    for sample in samples:
        try:
            for context in wanted:
                arrange(sample, context)
            kept.append(sample)
        except Refusal as refusal:
            left_out[sample.id] = str(refusal)
    return kept, left_out


def _brackets(samples: Sequence[Sample]) -> list[Context]:
    without = [sample.id for sample in samples if not sample.gold]
    if without and len(without) < len(samples):
        raise Refusal(
            f"Sample {without[0]} names no gold passage and others do, so gold-only could not be compared with the rest. "
            "Leave out the samples that name none."
        )
    return [ClosedBook()] if without else [ClosedBook(), GoldOnly()]


def _intervention(given: str | Intervention) -> Intervention:
    intervention = from_text(given) if isinstance(given, str) else given
    if not isinstance(intervention, Intervention):
        raise Refusal(f"{given!r} is not an intervention of floatlens.interventions, so it has no controls and no text.")
    if intervention.original is not None:
        raise Refusal(f"{to_text(intervention)} is a control; name what it is the control of, and both its controls run beside it.")
    return intervention


def _context(phrase: Phrase, values: dict[str, str]) -> Context:
    passages = phrase.whole(values["passages"]) if "passages" in values else PASSAGES
    match phrase.name:
        case "closed-book":
            return ClosedBook()
        case "retrieved":
            return Retrieved(phrase.whole(values["count"]))
        case "noise":
            return Noise(phrase.number(values["share"]), passages, phrase.whole(values["gold"]) if "gold" in values else None)
        case "position":
            slot, _, of = values["slot"].partition("/")
            return Position(phrase.whole(slot), phrase.whole(of))
        case "layout":
            return Layout(values["where"], passages)
        case "conflict":
            return Conflict(passages)
    return GoldOnly()  # gold, and masks, which is short for gold with so many masks

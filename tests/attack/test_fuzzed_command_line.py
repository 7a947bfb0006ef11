"""The small languages of the command line, fed with mutated and random words.

A text is taken or refused in a sentence, and what is taken can be written down and read again.
`@example`s are texts that once ended in something other than a refusal, or were not read again as they were written.
"""

import copy
import json
import tomllib
from collections.abc import Callable
from typing import Any

from attack_size import tries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from floatlens.cli.eval import _block_lengths, context_texts
from floatlens.cli.trace import detail_of, layers_and_heads, sampler_options
from floatlens.decoding.options import SAMPLERS, make_options
from floatlens.errors import Refusal
from floatlens.interventions import from_dict, from_text, to_dict, to_text
from floatlens.lab.adaptation import recipe as adaptation_recipe
from floatlens.lab.recipe import bundled_recipe, recipe_as_table, recipe_as_toml, recipe_of
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.conditions import condition_of
from floatlens.trace.schema import make_detail

FEW_DIGITS, TOO_MANY_DIGITS = "9" * 9, "9" * 5000
attempts = settings(
    max_examples=tries(100, 10_000),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
    deadline=None,
)

WORDS = """
mask-anchors mask-above zero-anchor-values mask-heads extra-sink-token keep-sinks random-keys random-heads of : , = + - / . layers steps
k eps rule lift rate zscore additive
equal count mass seed window heads 0 1 3 7 99 0.5 .4 1e999 nan -1 inf 3:0 0-7 9- 12-3 closed-book gold retrieved noise
position layout one adjacent far conflict masks passages
default light full norms geometry head layer off flow top_keys temperature threshold block_length true false null none None [] {} " ² ٣
""".split()  # noqa: SIM905 - a list literal would be three pages
ODD = [" ", "", " of ", "\u00a0", "\x00", "\x1b", "\u202e", "\ud800", FEW_DIGITS, TOO_MANY_DIGITS]
words = st.sampled_from([*WORDS, *ODD])
texts = st.one_of(st.lists(words, max_size=9).map("".join), st.lists(words, max_size=7).map(" ".join), st.text(max_size=20))


def mutated(*seeds: str) -> st.SearchStrategy[str]:
    """Right texts, of which a piece was replaced by a word, or lost, or repeated; and texts of words alone."""

    def cut(text: str, first: int, length: int, word: str) -> str:
        first %= len(text) + 1
        return text[:first] + word + text[first + length :]

    return st.one_of(st.sampled_from(seeds), st.builds(cut, st.sampled_from(seeds), st.integers(0, 60), st.integers(0, 6), words), texts)


def taken(read: Callable[[], Any]) -> Any:
    """What is read; None where it is refused in a sentence."""
    try:
        return read()
    except Refusal as refusal:
        if not str(refusal).rstrip().endswith("."):
            raise AssertionError(f"this is no sentence: {refusal}") from refusal
        return None


@attempts
@given(
    mutated(
        "mask-anchors:5,layers=0-7,steps=0-15+20",
        "mask-above:0.3,rule=rate",
        "mask-heads:3:0,11:4",
        "keep-sinks:16,4",
        "random-keys:mass,seed=1 of zero-anchor-values:5",
    )
)
@example("mask-heads:²:0")
@example(f"mask-heads:{TOO_MANY_DIGITS}:0")
@example(f"mask-anchors:1,layers={TOO_MANY_DIGITS}")
@example(f"mask-anchors:{TOO_MANY_DIGITS}")
@example("random-keys of " * 3000 + "mask-anchors:1")
@example("mask-anchors:1,layers=0-999999999")
def test_interventions(text: str) -> None:
    intervention = taken(lambda: from_text(text))
    if intervention is not None:
        assert from_text(to_text(intervention)) == intervention
        assert from_dict(json.loads(json.dumps(to_dict(intervention)))) == intervention
        assert next(intervention.named_layers(), 0) >= 0, "the layers that must exist can be asked for, however many there are"


@attempts
@given(
    mutated(
        "noise:.4,passages=5",
        "noise:0.4,gold=1,masks=64",
        "position:3/10",
        "layout:far,passages=8",
        "conflict",
        "retrieved:5",
        "masks:64",
        "gold,masks=8",
        "closed-book",
    )
)
@example(f"retrieved:{TOO_MANY_DIGITS}")
@example(f"noise:.4,passages={'9' * 400}")
@example("noise:0.1234567")
@example("noise:.4,passages=5,passages=9")
@example("retrieved:²")
def test_contexts(text: str) -> None:
    condition = taken(lambda: condition_of(text))
    if condition is not None:
        assert condition_of(condition.text) == condition


@attempts
@given(
    st.lists(mutated("noise", "position", "layout:far", "masks", "gold"), max_size=3),
    mutated("0,.4,.8", "1/6,3/6", ","),
    st.none() | st.integers(-3, 10**12),
)
@example(["noise"], ",", None)
def test_levels(contexts: list[str], levels: str, passages: int | None) -> None:
    for text in taken(lambda: context_texts(contexts, levels, passages)) or []:
        taken(lambda text=text: condition_of(text))


@attempts
@given(mutated("twin-arm=32", "a=b=4", "=", "twin-arm=0"))
@example(f"twin-arm={TOO_MANY_DIGITS}")
@example("twin-arm=²")
@example("twin-arm=٣")
def test_block_lengths(text: str) -> None:
    lengths = taken(lambda: _block_lengths([text], ["twin-arm", "a=b"]))
    assert lengths is None or (set(lengths) <= {"twin-arm", "a=b"} and all(length >= 0 for length in lengths.values()))


@attempts
@given(mutated("geometry=head,norms=off", "light", "mass=layer,flow=head,top_keys=off"), mutated("3:0,11:4"), st.integers(-2, 10**12))
@example("default", "²:0", 8)
@example("mass=head,mass=off", "", 8)
def test_detail_and_patterns(detail: str, patterns: str, top_keys: int) -> None:
    made = taken(lambda: make_detail(detail_of(detail), None, top_keys, layers_and_heads(patterns), autoregressive=False))
    if made is not None:
        assert make_detail(made.kept, made.groups, made.top_keys, made.patterns, autoregressive=False) == made


@attempts
@given(
    st.lists(
        mutated("temperature=0.7", "threshold=0.9", "block_length=8", "remasking=random", "order=entropy", "top_k=5", "stop_at_eos=false"),
        max_size=3,
    ),
    st.sampled_from([*SAMPLERS]),
)
@example(["temperature=" + "[" * 100_000], "llada")
@example(["temperature=nan"], "llada")
@example(["temperature=Infinity"], "llada")
@example(["temperature=1", "temperature=2"], "llada")
def test_sampler_options(texts: list[str], sampler: str) -> None:
    options = taken(lambda: sampler_options(texts, LanguageModel.trace, "gen_length", "steps", "seed"))
    if options is not None:
        made = taken(lambda: make_options(sampler, {**options, "gen_length": 16}))
        assert made is None or make_options(sampler, vars(made)) == made


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([*WORDS]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from([*WORDS, "kind", "of", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@attempts
@given(
    st.dictionaries(
        st.sampled_from(["kind", "k", "of", "layers", "steps", "eps", "rule", "heads", "equal", "seed", "window", "odd"]),
        values,
        max_size=5,
    ),
    st.sampled_from([*WORDS[:8]]),
)
@example({"kind": ["mask-anchors"]}, "")
@example({"heads": 3}, "mask-heads")
def test_interventions_of_files(table: dict[str, Any], kind: str) -> None:
    given_table = {"kind": kind, **table} if kind else table
    intervention = taken(lambda: from_dict(given_table))
    if intervention is not None:
        assert from_dict(to_dict(intervention)) == intervention


SMOKE = recipe_as_table(bundled_recipe("smoke"))


def places(table: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested tables and lists."""
    inner = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else []
    return [path, *(place for name, value in inner for place in places(value, (*path, name)))]


@settings(attempts, max_examples=tries(40, 10_000))
@given(st.sampled_from(places(SMOKE)[1:]), values)
@example(("model",), 3)
@example(("stages", 0, "mixture", 0, "fillers"), 10**12)
@example(("stages", 0, "mixture", 0, "questions"), 10**9)
@example(("optimizer", "rate"), float("inf"))
@example(("stages", 0, "name"), "\U00010000")
@example(("stages", 0, "name"), "\x7f")
@example(("stages", 0, "name"), "\ud800")
def test_recipes(place: tuple[Any, ...], value: Any) -> None:
    table = copy.deepcopy(SMOKE)
    holder: Any = table
    for name in place[:-1]:
        holder = holder[name]
    holder[place[-1]] = value
    recipe = taken(lambda: recipe_of(table, "own.toml"))
    if recipe is not None:
        assert recipe_of(recipe_as_table(recipe), "again") == recipe
        assert recipe_of(tomllib.loads(recipe_as_toml(recipe)), "again") == recipe


ADAPTATION = json.loads(adaptation_recipe.bundled_recipe("smollm2").model_dump_json(exclude_none=True))


@settings(attempts, max_examples=tries(40, 10_000))
@given(st.sampled_from(places(ADAPTATION)[1:]), values)
@example(("seed",), 10**30)
@example(("base",), "\ud800")
@example(("adapter",), 3)
@example(("optimizer", "rate"), float("nan"))
@example(("question_files", 0, "train"), 10**12)
@example(("text_files", 0, "file"), "\x00")
def test_recipes_of_adaptations(place: tuple[Any, ...], value: Any) -> None:
    table = copy.deepcopy(ADAPTATION)
    holder: Any = table
    for name in place[:-1]:
        holder = holder[name]
    holder[place[-1]] = value
    recipe = taken(lambda: adaptation_recipe.recipe_of(table, "own.toml"))
    if recipe is not None:
        again = json.loads(recipe.model_dump_json(exclude_none=True))
        assert adaptation_recipe.recipe_of(again, "again") == recipe
        assert 0 < recipe.rate_at(1) < 1
        assert recipe.visible_share("annealed", recipe.updates) <= 1

"""Interventions in Python, in files and on the command line are the same thing, and a mistake in any of them is a sentence."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import floatlens as fl
from floatlens.interventions import (
    KINDS,
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
    from_dict,
    from_text,
    to_dict,
    to_text,
)
from floatlens.interventions.specification import holds, in_words, named

counts = st.integers(1, 300)
numbers = st.none() | st.lists(st.integers(0, 40), min_size=1) | st.integers(0, 9).map(lambda first: f"{first}-")
scope = {"layers": numbers, "steps": numbers}
pickers = st.one_of(
    st.builds(MaskAnchors, counts, **scope),
    st.builds(MaskAbove, st.floats(0, 0.99), rule=st.sampled_from(["lift", "additive", "zscore", "rate"]), **scope),
    st.builds(ZeroAnchorValues, counts, **scope),
    st.builds(KeepSinks, st.integers(0, 99), k=st.integers(0, 9), **scope),
)
pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=5, unique=True)
heads = st.builds(MaskHeads, pairs, **scope)
seeds = st.integers(0, 2**40)
any_intervention = st.one_of(
    pickers,
    heads,
    st.builds(ExtraSinkToken, **scope),
    st.builds(RandomKeys, pickers, equal=st.sampled_from(["count", "mass"]), seed=seeds, **scope),
    st.builds(RandomHeads, heads, seed=seeds, **scope),
)


@given(any_intervention)
def test_an_intervention_survives_a_file_and_the_command_line(intervention: Intervention) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(intervention)))) == intervention
    assert from_text(to_text(intervention)) == intervention
    assert hash(intervention) == hash(from_text(to_text(intervention)))


@given(st.lists(st.integers(0, 60), min_size=1), st.integers(0, 70))
def test_a_set_of_numbers_holds_what_was_put_in(given_numbers: list[int], number: int) -> None:
    text = in_words(given_numbers, "layers")
    assert holds(text, number) == (number in given_numbers)
    assert list(named(text)) == sorted(set(given_numbers))
    assert in_words(text, "layers") == text


def test_a_toml_file_names_interventions() -> None:
    text = """
        [[intervention]]
        kind = "mask-anchors"
        k = 5
        layers = [0, 1, 2]
        steps = "0-15"
        [[intervention]]
        kind = "random-keys"
        equal = "mass"
        of = {kind = "mask-above", eps = 2, rule = "zscore"}
        [[intervention]]
        kind = "mask-heads"
        heads = [[3, 0], [1, 2]]
    """
    made = [from_dict(one) for one in tomllib.loads(text)["intervention"]]
    assert made == [
        MaskAnchors(5, layers="0-2", steps=range(16)),
        RandomKeys(MaskAbove(2.0, rule="zscore"), equal="mass"),
        MaskHeads(((1, 2), (3, 0))),
    ]


@pytest.mark.parametrize(
    ("text", "intervention"),
    [
        ("mask-anchors", MaskAnchors(1)),
        ("mask-anchors:5,layers=0-7,steps=0-15+20", MaskAnchors(5, layers=range(8), steps=[*range(16), 20])),
        ("mask-anchors:k=5", MaskAnchors(5)),
        ("mask-above:0.3,rate", MaskAbove(0.3, rule="rate")),
        ("mask-above:2,rule=zscore", MaskAbove(2, rule="zscore")),
        ("zero-anchor-values:3", ZeroAnchorValues(3)),
        ("mask-heads:3:0,11:4,steps=4-", MaskHeads([(3, 0), (11, 4)], steps="4-")),
        ("extra-sink-token:layers=0", ExtraSinkToken(layers=0)),
        ("keep-sinks:16,4", KeepSinks(16, 4)),
        (" random-keys : mass , seed=3 of mask-anchors:1,layers=2", RandomKeys(MaskAnchors(1, layers=2), "mass", 3)),
        ("random-heads of mask-heads:3:0", RandomHeads(MaskHeads([(3, 0)]))),
    ],
)
def test_the_short_text_says_what_is_done(text: str, intervention: Intervention) -> None:
    assert from_text(text) == intervention


def test_numbers_of_numpy_are_numbers() -> None:
    found = np.argwhere(np.eye(3, dtype=bool))
    assert MaskHeads(found) == MaskHeads([(0, 0), (1, 1), (2, 2)])  # type: ignore[arg-type]  # an array is read like a list
    assert MaskAnchors(np.int64(3), layers=np.arange(4)) == MaskAnchors(3, layers="0-3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mask-anchor:1", "There is no intervention 'mask-anchor'. Did you mean 'mask-anchors'? There are: mask-anchors, mask-above"),
        ("mask-anchors:many", "k must be a number, not 'many'"),
        ("mask-anchors:0", "k=0 must be a whole number of at least 1"),
        ("mask-anchors:1,2", "no place for '2'; mask-anchors takes k, layers, steps"),
        ("mask-anchors:1,k=2", "names k twice"),
        ("mask-anchors:1,heads=2:3", "mask-anchors has no 'heads'; it takes k, layers, steps"),
        ("mask-anchors:1,layers=7-3", "the span 7-3 ends before it begins"),
        ("mask-anchors:1,layers=first", "cannot be read at 'first'"),
        ("mask-above:nan", "eps=nan is not a threshold"),
        ("mask-above:-1", "eps=-1.0 is not a threshold"),
        ("mask-above:3,rule=top", "there is no rule 'top'; the rules are lift, additive, zscore, rate"),
        ("mask-above:3,rule=rate", "never goes above eps=3.0; try 0.3"),
        ("mask-heads", "mask-heads needs 'heads'"),
        ("mask-heads:3", "heads are layer:head pairs"),
        ("mask-heads:3:0,3:0", "each only once"),
        ("keep-sinks", "keep-sinks needs 'window'"),
        ("random-keys:mass", "random-keys needs 'of': write 'random-keys of ...'"),
        ("random-keys:weight of mask-anchors:1", "it is 'count' (as many keys) or 'mass'"),
        ("random-keys of mask-heads:3:0", "mask-heads picks no keys; this is the control of mask-anchors"),
        ("random-keys of random-keys of mask-anchors", "names a control of a control; a control has one original"),
        ("random-heads of mask-anchors:1", "mask-anchors picks no heads"),
        ("random-keys:seed=-1 of mask-anchors", "seed=-1 must be a whole number of at least 0"),
    ],
)
def test_a_mistake_in_a_text_is_refused_with_what_there_is(text: str, sentence: str) -> None:
    with pytest.raises(fl.Refusal) as refused:
        from_text(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: from_dict({"k": 1}), 'must name its "kind", one of mask-anchors'),
        (lambda: from_dict({"kind": "mask-anchors", "K": 1}), "has no 'K'; it takes k, layers, steps"),
        (lambda: from_dict({"kind": "mask-anchors", "k": 1.5}), "k=1.5 must be a whole number"),
        (lambda: from_dict({"kind": "mask-anchors", "k": True}), "k=True must be a whole number"),
        (lambda: from_dict({"kind": "random-keys", "of": "mask-anchors:1"}), "'mask-anchors:1' picks no keys"),
        (lambda: MaskAnchors(1, layers=[]), "layers=[] names no numbers"),
        (lambda: MaskAnchors(1, steps=[-1]), "steps=[-1] names no numbers from 0 on"),
        (lambda: MaskAnchors(1, steps=[0.5]), "steps=[0.5] names no numbers from 0 on"),  # type: ignore[list-item]
        (lambda: MaskHeads([]), "at least one (layer, head) pair"),
        (lambda: MaskHeads([(1, 2, 3)]), "(1, 2, 3) is not a (layer, head) pair"),
        (lambda: KeepSinks(-1), "window=-1 must be a whole number of at least 0"),
    ],
)
def test_a_mistake_in_a_file_or_in_python_is_refused(made: Any, sentence: str) -> None:
    with pytest.raises(fl.Refusal) as refused:
        made()
    assert sentence in str(refused.value)


def test_what_the_documentation_writes_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "interventions.md").read_text()
    cells = [line.split("|") for line in page.splitlines() if line.startswith("| `") and "`" in line.split("|")[2]]
    table = {cell[1].split("(")[0].strip(" `"): from_text(cell[2].strip(" `")) for cell in cells}
    assert {name: type(one).__name__ for name, one in table.items()} == {made.__name__: made.__name__ for made in KINDS.values()}
    block = page.split("### In text")[1].split("```")[1]
    assert [type(from_text(line)).__name__ for line in block.strip().splitlines()] == ["MaskAnchors", "MaskAbove", "RandomKeys"]
    tables = tomllib.loads(page.split("```toml")[1].split("```")[0])["intervention"]
    assert [from_dict(one) for one in tables] == [
        MaskAnchors(5, layers=range(8)),
        RandomKeys(MaskAnchors(5, layers=range(8)), equal="mass"),
    ]
    for asked in re.findall(r"--intervention (?:\"([^\"]+)\"|(\S+))", page):
        from_text("".join(asked))


def test_every_intervention_is_public() -> None:
    for kind, made in KINDS.items():
        assert getattr(fl, made.__name__) is made
        assert made.kind == kind

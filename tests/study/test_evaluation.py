"""Evaluations: what runs, in which order, and that every row is what asking that one question by itself gives."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.interventions import ExtraSinkToken, MaskAnchors, MaskHeads, RandomHeads, RandomKeys
from floatlens.study.one_model import evaluate_model
from floatlens.study.outcomes import SCHEMA
from floatlens.tasks.conditions import CONTEXTS, Condition, condition_of, controls_of, plan
from floatlens.tasks.contexts import ClosedBook, Conflict, GoldOnly, Layout, Noise, Position, Retrieved, arrange
from floatlens.tasks.likelihood import continuation, log_likelihoods
from floatlens.tasks.registry import load_task
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import score_text
from floatlens.tasks.wording import WORLD_WORDING, format_prompt
from floatlens.tasks.world import closed_book_samples, open_book_samples, shortcut
from world_models import TOKENIZER, arm, mdm

Maker = Callable[..., fl.LanguageModel]


def ask(lm: fl.LanguageModel, samples: Sequence[Sample], contexts: Sequence[Any], **options: Any) -> pl.DataFrame:
    settings: dict[str, Any] = {"wording": WORLD_WORDING, "gen_length": 3, "progress": False, **options}
    return evaluate_model(lm, samples, contexts, **settings)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("closed-book", Condition(ClosedBook())),
        ("gold", Condition(GoldOnly())),
        ("retrieved:5", Condition(Retrieved(5))),
        ("noise:.4", Condition(Noise(0.4))),
        ("noise:0.4,passages=10", Condition(Noise(0.4, 10))),
        ("position:3/10", Condition(Position(3, 10))),
        ("layout:far,passages=6", Condition(Layout("far", 6))),
        ("conflict", Condition(Conflict())),
        ("conflict, passages=7", Condition(Conflict(7))),
        ("masks:64", Condition(GoldOnly(), masks=64)),
        ("noise:0.4,masks=8", Condition(Noise(0.4), masks=8)),
        ("noise:0.4,passages=10,gold=2", Condition(Noise(0.4, 10, 2))),
    ],
)
def test_a_condition_is_its_text(text: str, condition: Condition) -> None:
    assert condition_of(text) == condition
    assert condition_of(condition.text) == condition
    assert condition_of(condition.context) == replace(condition, masks=None)


def test_what_is_varied_has_a_kind_and_a_level() -> None:
    texts = ("noise:0.4", "position:3/10", "retrieved:5", "masks:64", "layout:far", "gold")
    found = [(condition_of(text).kind, condition_of(text).level) for text in texts]
    assert found == [("noise", 0.4), ("position", 3.0), ("retrieved", 5.0), ("masks", 64.0), ("layout", None), ("gold", None)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nois:.4", f"There is no context 'nois'. Did you mean 'noise'? There are: {', '.join(CONTEXTS)}."),
        ("noise", "'noise' is not how noise is written: noise:SHARE."),
        ("gold:3", "'gold:3' is not how gold is written: gold."),
        ("noise:some", "'some' is not a number"),
        ("position:3", "'' is no whole number"),
        ("position:a/10", "'a' is no whole number"),
        ("retrieved:2.5", "'2.5' is no whole number"),
        ("noise:.4,passages=x", "'x' is no whole number"),
        ("noise:.4,slots=3", "noise takes no slots=; it takes share=, passages=, gold=, masks="),
        ("position:1/3,gold=1", "position takes no gold="),
        ("noise:.4,gold=4", "3 of 5 places are left for gold passages, so gold= lies from 1 to 3"),
        ("noise:.4,gold=0", "gold= lies from 1 to 3"),
        ("gold,passages=3", "gold takes no passages="),
        ("masks:0", "masks=0: at least one token"),
    ],
)
def test_a_text_that_is_no_condition_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        condition_of(text)
    assert sentence in str(refused.value)


def test_brackets_come_first_and_interventions_with_their_controls() -> None:
    planned = plan(open_book_samples(2), ["gold", "noise:0.8"], ["mask-anchors:2", MaskHeads([(0, 1)])])
    found = [(condition.text, condition.acting) for condition in planned]
    under: list[Any] = [
        None,
        MaskAnchors(2),
        RandomKeys(MaskAnchors(2), equal="count"),
        RandomKeys(MaskAnchors(2), equal="mass"),
        MaskHeads([(0, 1)]),
        RandomHeads(MaskHeads([(0, 1)])),
    ]
    assert found == [("closed-book", None), *(("gold", one) for one in under), *(("noise:0.8", one) for one in under)]
    assert controls_of(ExtraSinkToken()) == []
    drawn = plan(open_book_samples(2), ["gold"], ["mask-anchors:2"], brackets=False, draws=3)
    assert [condition.acting for condition in drawn[2:]] == [
        RandomKeys(MaskAnchors(2), equal=equal, seed=seed) for equal in ("count", "mass") for seed in (0, 1, 2)
    ]
    with pytest.raises(Refusal, match="draws=0: a random control is drawn at least once"):
        plan(open_book_samples(2), ["gold"], draws=0)
    alone = plan(open_book_samples(2), ["noise:0.8"], ["mask-anchors:2"], controls=False, brackets=False)
    assert [condition.acting for condition in alone] == [None, MaskAnchors(2)]
    assert [condition.text for condition in plan(closed_book_samples(2), [])] == ["closed-book"]  # nobody names a gold passage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([*open_book_samples(1), *closed_book_samples(1)], []), "Sample world-closed-0000 names no gold passage and others do"),
        ((open_book_samples(1), [], ["mask-anchors:1"]), "Interventions act in the contexts that are asked for, and none is"),
        ((open_book_samples(1), ["gold"], ["random-keys:count of mask-anchors:1"]), "is a control; name what it is the control of"),
        ((open_book_samples(1), ["gold"], [lambda call, before: call]), "is not an intervention"),
        ((open_book_samples(1), [Condition(GoldOnly(), intervention=MaskAnchors(1))]), "holds an intervention already"),
    ],
)
def test_plans_that_compare_nothing_are_refused(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        plan(*arguments)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("make", [arm, mdm])
def test_every_row_is_that_question_asked_by_itself(make: Maker) -> None:
    lm = make()
    samples = sorted(
        open_book_samples(3, passages=2, fillers=0), key=lambda sample: -len(format_prompt(sample, sample.passages, WORLD_WORDING).text)
    )
    how: dict[str, Any] = {"likelihood": True, "shortcut": shortcut, "batch_size": 2, "draws": 2}
    table = ask(lm, samples, ["position:2/2"], interventions=["mask-anchors:1"], **how)
    assert dict(table.schema) == SCHEMA
    assert table["sample"].to_list() == [sample.id for sample in samples] * 8
    acting: dict[Any, Any] = {("", None): MaskAnchors(1)}
    acting |= {(equal, draw): RandomKeys(MaskAnchors(1), equal=equal, seed=draw) for equal in ("count", "mass") for draw in (0, 1)}
    drawn = {(row["control"], row["draw"]) for row in table.iter_rows(named=True) if row["intervention"]}
    assert drawn == acting.keys(), "each control is there as often as it was drawn"
    for row in table.iter_rows(named=True):
        number = [sample.id for sample in samples].index(row["sample"])
        sample = samples[number]
        passages = arrange(sample, condition_of(row["context"]).context)
        under = acting[row["control"], row["draw"]] if row["intervention"] else None
        prompt = format_prompt(sample, passages, WORLD_WORDING)
        written = lm.generate(prompt, gen_length=3, seed=number, intervention=under, progress=False)[0]
        score = score_text(written.text, sample)
        assert row["prompt"] == prompt.text
        assert (row["prediction"], row["accuracy"], row["exact_match"], row["f1"]) == (
            score.prediction,
            score.accuracy,
            score.exact_match,
            score.f1,
        )
        assert row["removed"] == (None if under is None else pytest.approx(written.removed, abs=1e-5))
        answer = continuation(lm, lm.encode(prompt), f"{sample.answers[0]}.", name=sample.id, seed=number)
        likely = log_likelihoods(lm, [answer], intervention=under)[0]
        assert row["log_likelihood"] == pytest.approx(likely.value, abs=1e-3)
        assert row["log_likelihood_error"] == likely.error
        assert row["likelihood_removed"] == (None if under is None else pytest.approx(likely.removed, abs=1e-4))
        assert row["shortcut"] == shortcut(sample, passages)
        assert (row["model"], row["answer"], row["passages"], row["gen_length"]) == (lm.name, sample.answers[0], len(passages), 3)
        assert (row["passages_cut"], row["gold_cut"]) == (0, 0)


def test_batches_and_the_order_of_samples_change_nothing() -> None:
    lm, samples = mdm(), open_book_samples(4, passages=2, restatements=1, fillers=0)
    settings: dict[str, Any] = {"interventions": ["mask-anchors:1"], "brackets": False}
    one_by_one = ask(lm, samples, ["noise:0.5,passages=2"], batch_size=1, **settings)
    together = ask(lm, samples, ["noise:0.5,passages=2"], batch_size=4, **settings)
    assert_frame_equal(one_by_one, together, abs_tol=1e-5)
    backwards = ask(lm, samples[::-1], ["noise:0.5,passages=2"], batch_size=2, **settings)
    key = ["context", "intervention", "control", "sample"]
    unedited = pl.col("control") == ""  # random keys are drawn by a sample's number
    assert_frame_equal(together.filter(unedited).sort(key), backwards.filter(unedited).sort(key), abs_tol=1e-5)


def test_the_number_of_masks_is_how_much_is_written() -> None:
    lm = mdm()
    table = ask(lm, open_book_samples(2), ["masks:2", "masks:6"], steps=3)
    for row in table.filter(pl.col("kind") == "masks").iter_rows(named=True):
        written = lm.generate(row["prompt"], gen_length=int(row["level"]), steps=min(3, int(row["level"])), progress=False)[0]
        assert row["prediction"] == written.text.strip()
    assert len({len(prediction.split()) for prediction in table["prediction"]}) > 1
    assert table["gen_length"].to_list() == [3] * 4 + [2] * 2 + [6] * 2
    assert table.filter(pl.col("kind") == "masks")["level"].to_list() == [2, 2, 6, 6]
    assert (
        table.filter(pl.col("context") == "gold,masks=6")["prompt"].to_list()
        == table.filter(pl.col("context") == "gold")["prompt"].to_list()
    )


def test_steps_are_for_models_that_have_some() -> None:
    assert len(ask(arm(), open_book_samples(1), [], steps=2)) == 2


def test_what_was_not_asked_for_is_null() -> None:
    table = ask(arm(), open_book_samples(1), [])
    for name in ("log_likelihood", "log_likelihood_error", "removed", "likelihood_removed", "shortcut", "level"):
        assert table[name].is_null().all()


def test_what_was_cut_is_in_the_table_and_gold_stays() -> None:
    samples = open_book_samples(3, passages=5)
    table = ask(arm(context=128), samples, ["position:5/5"])
    cut = table.filter(pl.col("context") == "position:5/5")
    assert cut["passages_cut"].to_list() == [2, 2, 2]  # 34 tokens a passage, 7 for the question, 3 to write
    assert cut["passages"].to_list() == [3, 3, 3]
    assert cut["gold_cut"].to_list() == [0, 0, 0]
    assert all(sample.evidence[0].text in prompt for sample, prompt in zip(samples, cut["prompt"], strict=True))
    gold = table.filter(pl.col("context") == "gold")
    assert gold["passages_cut"].sum() == gold["gold_cut"].sum() == 0


def test_stored_prompts_of_two_models_differ_in_template_text_alone() -> None:
    tokenizer = copy(TOKENIZER)
    tokenizer.chat_template = "{% for message in messages %}[BOS]Here is: {{ message['content'] }}\nThat was. {% endfor %}"
    samples = open_book_samples(3, passages=3)
    plain, chatting = (
        ask(lm, samples, ["position:2/3", "conflict,passages=3"]) for lm in (arm(), replace(mdm(), tokenizer=tokenizer, name="chatting"))
    )
    for without, templated in zip(plain.iter_rows(named=True), chatting.iter_rows(named=True), strict=True):
        assert (without["sample"], without["context"]) == (templated["sample"], templated["context"])
        assert templated["prompt"] == f"[BOS]Here is: {without['prompt']}\nThat was. "
    raw = ask(replace(mdm(), tokenizer=tokenizer), samples, ["position:2/3", "conflict,passages=3"], chat=False)
    assert raw["prompt"].to_list() == plain["prompt"].to_list()


def test_an_answer_longer_than_the_generation_is_scored_as_far_as_it_goes() -> None:
    sample = replace(open_book_samples(1)[0], answers=("Here is Ada Xu and Ben Xu and Carla Xu",))
    table = ask(mdm(), [sample], [], gen_length=1, likelihood=True)
    assert table["accuracy"].to_list() == [0, 0]
    assert (table["log_likelihood"] < 0).all()
    assert (table["log_likelihood_error"] > 0).all()  # ten tokens have more sets than draws


@pytest.mark.parametrize("make", [arm, mdm])
def test_a_sample_that_cannot_run_stops_it_with_its_id(make: Maker) -> None:
    fine = open_book_samples(2)
    masked = Sample("s-7", "Where does [MASK] live?", ("Oslo",), (Passage("Ada Xu lives in Oslo."),), gold=(0,))
    lm = make()
    if lm.mask_token_id is not None:
        with pytest.raises(Refusal, match="Sample s-7, closed-book: Prompt 0 holds the mask token"):
            ask(lm, [fine[0], masked, fine[1]], [])
    with pytest.raises(Refusal, match=r"Sample world-open-\d+, gold under mask-anchors:99: mask-anchors:99 picks 99 keys"):
        ask(lm, fine, ["gold"], interventions=["mask-anchors:99"])
    with pytest.raises(Refusal, match=r"noise:0 needs 5 gold passages, and sample world-open-0000 has 1"):
        ask(lm, fine, ["noise:0"])


def test_samples_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(Refusal, match="Two samples have the id world-open-0000"):
        ask(arm(), open_book_samples(1) * 2, [])
    with pytest.raises(Refusal, match="no samples to ask"):
        ask(arm(), [], [])
    with pytest.raises(Refusal, match="batch_size=0"):
        ask(arm(), open_book_samples(1), [], batch_size=0)


def test_tasks_bring_the_passages_that_contexts_call_for() -> None:
    conditions = [condition_of(text) for text in ("noise:0", "position:4/9", "conflict,passages=8")]
    task = load_task("world", conditions=conditions, count=3)
    for sample in task.samples:
        for condition in conditions:
            arrange(sample, condition.context)
    hops = load_task("world-two-hop", conditions=[condition_of("layout:far,passages=9")], count=2)
    assert len(arrange(hops.samples[0], Layout("far", 9))) == 9
    assert load_task("world-closed", count=4).samples == tuple(closed_book_samples(4))
    assert (
        load_task("world-description", count=1).scorer("Here is nothing.", load_task("world-description", count=1).samples[0]).accuracy == 0
    )

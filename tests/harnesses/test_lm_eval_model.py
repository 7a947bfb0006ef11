"""The model class that lm-eval calls, request by request, against plain forwards and `lm.generate`."""

from collections.abc import Sequence
from typing import Any

import pytest
from plain_forwards import dense_bound, masked_sum, most_confident_first, next_token_sum

import floatlens as fl
from floatlens.errors import Caution, Refusal
from floatlens.interventions import MaskAnchors, RandomKeys
from floatlens.tasks.likelihood import Continuation, log_likelihoods
from floatlens.tasks.mask_sets import spaced_mask_sets
from floatlens.tasks.world import make_tokenizer
from world_models import END, MASK, TOKENIZER, arm, mdm
from writers import diffusion_model

pytest.importorskip("lm_eval", reason="lm-eval is not installed; `make test-harnesses` installs it")

from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]

from floatlens.harnesses.lm_eval_model import FloatlensLM

READER: Any = TOKENIZER
BEGIN: int = READER.bos_token_id
CONTEXT = "Where does Ada Xu live?"
CHOICES = [" Oslo", " Lima.", " Ada Xu live?"]
PROMPTS = [CONTEXT, "Ada Xu live", "Where does Ada Xu live? Oslo. Where does Ada Xu live?"]


def likelihood_requests(pairs: Sequence[tuple[str, str]], *, choices: bool = True, task: str = "tiny") -> list[Any]:
    """One document with several choices, or a document for each pair."""
    return [
        Instance("loglikelihood", {}, pair, idx=number if choices else 0, metadata=(task, 0 if choices else number, 1))
        for number, pair in enumerate(pairs)
    ]


def writing_requests(prompts: Sequence[str], **how: Any) -> list[Any]:
    return [Instance("generate_until", {}, (prompt, how), idx=0, metadata=("tiny", number, 1)) for number, prompt in enumerate(prompts)]


def tokens(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def test_the_likelihood_of_an_autoregressive_model_is_exact_and_says_what_is_greedy() -> None:
    lm = arm()
    begun = [*lm.encode(CONTEXT, chat=False).tokens]
    greedy = READER.decode(lm.generate([begun], gen_length=1, progress=False)[0].tokens, skip_special_tokens=False)
    pairs = [(CONTEXT, choice) for choice in [*CHOICES, f" {greedy}"]]
    for batch_size in (1, 8):
        found = FloatlensLM(lm, batch_size=batch_size).loglikelihood(likelihood_requests(pairs), disable_tqdm=True)
        for (_, choice), (value, _is_greedy) in zip(pairs, found, strict=True):
            assert value == pytest.approx(next_token_sum(lm, begun, tokens(choice)), abs=1e-4)
        assert [is_greedy for _, is_greedy in found] == [False, False, False, True]


@pytest.mark.parametrize("row_offset", [0, 1])
def test_the_likelihood_of_a_diffusion_model_is_the_bound_over_all_masks(row_offset: int) -> None:
    lm = mdm(row_offset=row_offset)
    begun = lm.encode(CONTEXT, chat=False).tokens
    found = FloatlensLM(lm, batch_size=8).loglikelihood(likelihood_requests([(CONTEXT, choice) for choice in CHOICES]), disable_tqdm=True)
    for choice, (value, is_greedy) in zip(CHOICES, found, strict=True):
        assert value == pytest.approx(dense_bound(lm, begun, tokens(choice)), abs=1e-4)
        assert is_greedy is False


def test_long_continuations_get_as_many_masks_as_asked_for_the_same_for_choices_of_one_length() -> None:
    lm = mdm()
    begun = lm.encode(CONTEXT, chat=False).tokens
    long = [" Oslo Lima Oslo Lima Oslo", " Lima Lima Oslo Lima Oslo"]
    found = [
        FloatlensLM(lm, mc_samples=5, seed=seed, batch_size=16).loglikelihood(
            likelihood_requests([(CONTEXT, choice) for choice in long]), disable_tqdm=True
        )
        for seed in range(40)
    ]
    for place, choice in enumerate(long):
        values = [pair[place][0] for pair in found]
        mean = sum(values) / len(values)
        spread = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        assert spread > 0
        assert abs(mean - dense_bound(lm, begun, tokens(choice))) < 4 * spread / len(values) ** 0.5
    sets = spaced_mask_sets(5, 5, name=CONTEXT, seed=0)
    for place, choice in enumerate(long):
        expected = sum(masks.weight * masked_sum(lm, begun, tokens(choice), masks.positions) for masks in sets)
        assert found[0][place][0] == pytest.approx(expected, abs=1e-4)


def test_an_intervention_acts_on_likelihoods_and_is_reported() -> None:
    lm = mdm()
    model = FloatlensLM(lm, intervention="mask-anchors:1", batch_size=8)
    found = model.loglikelihood(likelihood_requests([(CONTEXT, choice) for choice in CHOICES]), disable_tqdm=True)
    begun = tuple(lm.encode(CONTEXT, chat=False).tokens)
    expected = log_likelihoods(
        lm, [Continuation(begun, tuple(tokens(choice))) for choice in CHOICES], intervention=MaskAnchors(1), draws=128
    )
    assert [value for value, _ in found] == pytest.approx([likelihood.value for likelihood in expected], abs=1e-4)
    assert found[0][0] != pytest.approx(dense_bound(lm, begun, tokens(CHOICES[0])), abs=1e-3)
    told = model.get_model_info()
    assert told["interventions"] == ["mask-anchors:1"]
    assert told["attention_removed"] == pytest.approx(sum(likelihood.removed or 0 for likelihood in expected) / 3, abs=1e-4)


def test_greedy_decoding_of_a_diffusion_model_is_found_out_if_asked_for() -> None:
    lm = mdm()
    begun = lm.encode(CONTEXT, chat=False).tokens
    written = READER.decode(most_confident_first(lm, begun, 3))
    pairs = [(CONTEXT, f" {written}"), (CONTEXT, " Oslo Lima Oslo"), (CONTEXT, " Oslo")]
    asked = likelihood_requests(pairs, choices=False)
    found = FloatlensLM(lm, greedy=True, batch_size=2).loglikelihood(asked, disable_tqdm=True)
    assert [is_greedy for _, is_greedy in found] == [True, False, False]
    assert not any(is_greedy for _, is_greedy in FloatlensLM(lm, greedy=False).loglikelihood(asked, disable_tqdm=True))
    with pytest.raises(Refusal, match=r"Task tiny has one continuation per document.*greedy=true.*greedy=false"):
        FloatlensLM(lm).loglikelihood(asked, disable_tqdm=True)


@pytest.mark.parametrize("make", [arm, mdm])
def test_an_empty_context_is_the_token_that_begins_texts(make: Any) -> None:
    lm = make()
    found = FloatlensLM(lm, batch_size=4).loglikelihood(likelihood_requests([("", "Oslo Lima"), ("", "Lima")]), disable_tqdm=True)
    likelihood = next_token_sum if lm.sampler == "autoregressive" else dense_bound
    for text, (value, _) in zip(["Oslo Lima", "Lima"], found, strict=True):
        assert value == pytest.approx(likelihood(lm, [BEGIN], tokens(text)), abs=1e-4)


def rolling(texts: Sequence[str]) -> list[Any]:
    return [Instance("loglikelihood_rolling", {}, (text,), idx=0, metadata=("tiny", number, 1)) for number, text in enumerate(texts)]


def test_whole_texts_are_read_in_windows_each_token_once() -> None:
    lm, text = arm(), "Where does Ada Xu live? Oslo."
    words = tokens(text)
    whole, short = FloatlensLM(lm).loglikelihood_rolling(rolling([text, "Oslo"]), disable_tqdm=True)
    assert whole == pytest.approx(next_token_sum(lm, [BEGIN], words), abs=1e-4)
    assert short == pytest.approx(next_token_sum(lm, [BEGIN], tokens("Oslo")), abs=1e-4)
    (in_windows,) = FloatlensLM(lm, max_length=3).loglikelihood_rolling(rolling([text]), disable_tqdm=True)
    assert len(words) == 8
    expected = (
        next_token_sum(lm, [BEGIN], words[:3]) + next_token_sum(lm, words[2:3], words[3:6]) + next_token_sum(lm, words[4:6], words[6:])
    )
    assert in_windows == pytest.approx(expected, abs=1e-4)


def test_whole_texts_of_a_diffusion_model_are_sums_of_bounds_over_windows() -> None:
    lm, text = mdm(), "Where does Ada Xu live"
    words = tokens(text)
    (whole,) = FloatlensLM(lm, batch_size=8).loglikelihood_rolling(rolling([text]), disable_tqdm=True)
    assert whole == pytest.approx(dense_bound(lm, [BEGIN], words), abs=1e-4)
    (in_windows,) = FloatlensLM(lm, max_length=4, batch_size=8).loglikelihood_rolling(rolling([text]), disable_tqdm=True)
    expected = dense_bound(lm, [BEGIN], words[:3]) + dense_bound(lm, words[1:3], words[3:])
    assert in_windows == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("make", [arm, mdm])
def test_what_is_written_is_what_generate_writes_whatever_the_batch(make: Any) -> None:
    lm = make()
    asked = [*writing_requests(PROMPTS, until=[], max_gen_toks=6), *writing_requests(PROMPTS[:1], until=[], max_gen_toks=2)]
    expected = [lm.generate(prompt, gen_length=6, chat=False, progress=False)[0].text for prompt in PROMPTS]
    expected += [lm.generate(PROMPTS[0], gen_length=2, chat=False, progress=False)[0].text]
    for batch_size in (1, 3):
        assert FloatlensLM(lm, batch_size=batch_size).generate_until(asked, disable_tqdm=True) == expected


@pytest.mark.parametrize("make", [arm, mdm])
def test_texts_end_at_the_first_stop_sequence(make: Any) -> None:
    lm = make()
    whole = lm.generate(CONTEXT, gen_length=8, chat=False, progress=False)[0].text
    words = whole.split()
    assert len(words) > 3
    model = FloatlensLM(lm)
    (cut,) = model.generate_until(writing_requests([CONTEXT], until=[words[3], words[2]], max_gen_toks=8), disable_tqdm=True)
    assert cut == whole[: min(whole.find(words[2]), whole.find(words[3]))]
    (uncut,) = model.generate_until(writing_requests([CONTEXT], until="nowhere", max_gen_toks=8), disable_tqdm=True)
    assert uncut == whole


def test_a_special_token_can_be_a_stop_sequence() -> None:
    lm = mdm()
    written = fl.Generation("", [*tokens("Oslo"), MASK, *tokens("Lima")], "", [], 3)
    model = FloatlensLM(lm).model
    assert model.cut(written, []).text == "Oslo Lima"
    assert model.cut(written, [READER.mask_token]).text == "Oslo"
    ended = fl.Generation("", [*tokens("Oslo"), END, *tokens("Lima")], "", [], 3)
    assert (model.cut(ended, []).text, model.cut(ended, []).stopped, model.cut(written, []).stopped) == ("Oslo", True, False)


def test_an_intervention_and_the_samplers_options_reach_generate() -> None:
    lm = mdm()
    asked = writing_requests([CONTEXT], until=[], max_gen_toks=8)
    how: dict[str, Any] = {"steps": 4, "block_length": 4}
    (found,) = FloatlensLM(lm, intervention=["mask-anchors:3", "layers=0"], **how).generate_until(asked, disable_tqdm=True)
    expected = lm.generate(CONTEXT, gen_length=8, chat=False, intervention=MaskAnchors(3, layers=[0]), progress=False, **how)[0].text
    plain = lm.generate(CONTEXT, gen_length=8, chat=False, progress=False)[0].text
    assert found == expected != plain
    (shorter,) = FloatlensLM(lm, **how).generate_until(writing_requests([CONTEXT], until=[], max_gen_toks=4, steps=2), disable_tqdm=True)
    assert shorter == lm.generate(CONTEXT, gen_length=4, steps=2, block_length=4, chat=False, progress=False)[0].text


def test_draws_belong_to_the_text_and_not_to_its_place() -> None:
    lm = mdm()
    how = {"until": [], "max_gen_toks": 6, "do_sample": True, "temperature": 2.0}
    together = FloatlensLM(lm, batch_size=4).generate_until(writing_requests([*PROMPTS, CONTEXT], **how), disable_tqdm=True)
    alone = [FloatlensLM(lm).generate_until(writing_requests([prompt], **how), disable_tqdm=True)[0] for prompt in PROMPTS]
    assert together[:3] == alone
    assert together[3] != together[0]  # asked a second time
    other = FloatlensLM(lm, seed=1).generate_until(writing_requests(PROMPTS, **how), disable_tqdm=True)
    assert other != alone
    greedy = FloatlensLM(lm).generate_until(writing_requests(PROMPTS, **{**how, "do_sample": False}), disable_tqdm=True)
    assert greedy == [lm.generate(prompt, gen_length=6, chat=False, progress=False)[0].text for prompt in PROMPTS]


def test_texts_that_are_too_long_are_refused_or_cut_on_the_left() -> None:
    lm = arm(context=8)
    asked = writing_requests([CONTEXT], until=[], max_gen_toks=4)
    with pytest.raises(
        Refusal, match=r"The prompt of document 0 of task tiny has 7 tokens; with 4 to write .* more than the 8 of tiny-arm"
    ):
        FloatlensLM(lm).generate_until(asked, disable_tqdm=True)
    (found,) = FloatlensLM(lm, truncate=True).generate_until(asked, disable_tqdm=True)
    assert found == lm.generate([tokens(CONTEXT)[-4:]], gen_length=4, progress=False)[0].text
    long = " Oslo Lima Oslo Lima"
    with pytest.raises(Refusal, match="has 7 tokens; with a continuation of 4"):
        FloatlensLM(lm).loglikelihood(likelihood_requests([(CONTEXT, long)]), disable_tqdm=True)
    ((value, _),) = FloatlensLM(lm, truncate=True).loglikelihood(likelihood_requests([(CONTEXT, long)]), disable_tqdm=True)
    assert value == pytest.approx(next_token_sum(lm, tokens(CONTEXT)[-5:], tokens(long)), abs=1e-4)


def test_block_diffusion_models_write_and_have_no_likelihood() -> None:
    bare = diffusion_model("sdar")
    lm = fl.LanguageModel(bare.module, TOKENIZER, family="sdar", sampler="sdar", mask_token_id=bare.mask_token_id, name="blocks")
    short = READER.decode([40])  # the model knows few tokens
    assert max(lm.encode(short).tokens) < 95
    (found,) = FloatlensLM(lm, block_length=2).generate_until(writing_requests([short], until=[], max_gen_toks=4), disable_tqdm=True)
    assert found == lm.generate(short, gen_length=4, block_length=2, chat=False, progress=False)[0].text
    for ask in (FloatlensLM(lm).loglikelihood, FloatlensLM(lm).loglikelihood_rolling):
        with pytest.raises(Refusal, match=r"blocks writes by blocks .* Choose tasks that generate"):
            ask(rolling([short]), disable_tqdm=True)


def with_template(template: Any) -> fl.LanguageModel:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    plain = mdm()
    return fl.LanguageModel(plain.module, tokenizer, mask_token_id=MASK, end_tokens=(END,), name="owner/chatty")


def test_chat_templates_are_applied_by_the_switches_of_lm_eval() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Oslo{% endif %}"
    model = FloatlensLM(with_template(template))
    turns = [{"role": "user", "content": "Where"}, {"role": "assistant", "content": "Lima"}]
    assert model.chat_template(True) == template
    assert model.tokenizer_name == "owner__chatty"
    rendered = model.apply_chat_template(turns)
    assert rendered == "[BOS]Where\nLima\nOslo"
    assert model.tok_encode(rendered).count(BEGIN) == 1
    assert model.apply_chat_template(turns, add_generation_prompt=False) == "[BOS]Where\nLima"  # goes on from Lima
    several = FloatlensLM(with_template({"default": "{{ messages[0].content }}", "loud": "{{ messages[0].content }} !"}))
    assert several.chat_template("loud") == "{{ messages[0].content }} !"
    assert several.apply_chat_template(turns) == "Where !"
    with pytest.raises(Refusal, match=r"owner/chatty has no chat template 'soft'. It has: default, loud"):
        several.chat_template("soft")
    with pytest.raises(Refusal, match=r"tiny-mdm has no chat template. Leave --apply_chat_template out"):
        FloatlensLM(mdm()).apply_chat_template(turns)


def test_words_that_the_tokenizer_does_not_know_are_warned_of() -> None:
    with pytest.warns(Caution, match=r"tiny-mdm does not know 1 of \d+ tokens .*Timbuktu"):
        FloatlensLM(mdm()).generate_until(writing_requests(["Where does Timbuktu live?"], until=[], max_gen_toks=2), disable_tqdm=True)


def test_random_controls_draw_by_the_text() -> None:
    lm = mdm()
    asked = likelihood_requests([(CONTEXT, choice) for choice in CHOICES])
    control = "random-keys:mass of mask-anchors:1"
    first = FloatlensLM(lm, intervention=control, batch_size=8).loglikelihood(asked, disable_tqdm=True)
    again = FloatlensLM(lm, intervention=RandomKeys(MaskAnchors(1), equal="mass"), batch_size=3).loglikelihood(asked, disable_tqdm=True)
    other = FloatlensLM(lm, intervention=control, batch_size=8, seed=5).loglikelihood(asked, disable_tqdm=True)
    assert [value for value, _ in first] == pytest.approx([value for value, _ in again], abs=1e-3)
    assert [value for value, _ in first] != pytest.approx([value for value, _ in other], abs=1e-3)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"stepz": 3}, r"--model_args has no 'stepz'. Did you mean 'steps'\? It takes: pretrained, mc_samples, greedy, .*intervention"),
        ({"intervention": "mask-anchors:5", "layers": "0-7"}, "no 'layers'.* An intervention with commas stands in quotes"),
        ({"intervention": "mask-anchor:1"}, "There is no intervention 'mask-anchor'. Did you mean 'mask-anchors'"),
        ({"intervention": 3}, "intervention=3 is not an intervention"),
        ({"temperature": 0.5}, r"temperature, which belongs to the requests: --gen_kwargs temperature=\.\.\."),
        ({"order": "entropy"}, "The llada sampler has no option 'order'. It has: gen_length, steps, block_length"),
        ({"sampler": "fast"}, "There is no sampler 'fast'"),
        ({"mc_samples": 0}, "mc_samples=0 must be a whole number of at least 1"),
        ({"mc_samples": 1.5}, "mc_samples=1.5 must be a whole number"),
        ({"greedy": "perhaps"}, "greedy='perhaps' is neither true nor false"),
        ({"seed": -1}, "seed=-1 is not a seed"),
        ({"batch_size": "auto"}, "--batch_size auto: floatlens takes a whole number of at least 1"),
        ({"max_batch_size": 64}, "--max_batch_size belongs to --batch_size auto"),
        ({"dtype": "float32"}, "dtype is for loading a model by its name"),
    ],
)
def test_mistakes_in_arguments_are_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        FloatlensLM(mdm(), **given)


def test_no_model_and_options_of_lm_eval_among_the_arguments_are_refused() -> None:
    with pytest.raises(Refusal, match=r"names no model: write --model_args pretrained="):
        FloatlensLM()
    with pytest.raises(Refusal, match=r"--model_args gives batch_size, which is an option of lm-eval: write --batch_size 8"):
        FloatlensLM.create_from_arg_obj({"pretrained": "twin-mdm", "batch_size": 8}, {"batch_size": 1})
    with pytest.raises(Refusal, match="There is no model 'twin-mdmm'"):
        FloatlensLM.create_from_arg_string("pretrained=twin-mdmm,steps=4", {"batch_size": "4", "device": None})


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"num_beams": 4}, "Task tiny generates with num_beams=4, which floatlens does not have. It takes: until, max_gen_toks"),
        ({"do_sample": True, "temperature": 1.0, "top_p": 0.9}, "The llada sampler has no option 'top_p'"),
        ({"max_gen_toks": 0}, "max_gen_toks=0 must be a whole number of at least 1"),
        ({"max_gen_toks": 6, "block_length": 4}, "block_length=4 does not divide gen_length=6"),
    ],
)
def test_what_a_task_asks_for_in_vain_is_one_sentence(how: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        FloatlensLM(mdm()).generate_until(writing_requests([CONTEXT], **{"until": [], **how}), disable_tqdm=True)


def test_values_that_change_nothing_are_accepted_and_images_are_not() -> None:
    (found,) = FloatlensLM(mdm()).generate_until(
        writing_requests([CONTEXT], until=[], max_gen_toks=2, num_beams=1, top_p=0.5), disable_tqdm=True
    )
    assert found == mdm().generate(CONTEXT, gen_length=2, chat=False, progress=False)[0].text
    seen = [Instance("generate_until", {}, (CONTEXT, {"until": []}, {"visual": []}), idx=0, metadata=("tiny", 0, 1))]
    with pytest.raises(Refusal, match="Task tiny asks about images or audio"):
        FloatlensLM(mdm()).generate_until(seen, disable_tqdm=True)

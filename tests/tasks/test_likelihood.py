"""Log-likelihoods against straight-line forwards and dense enumeration."""

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.interventions import ExtraSinkToken, MaskAnchors, MaskHeads, RandomKeys
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.likelihood import Continuation, continuation, log_likelihoods
from floatlens.tasks.mask_sets import mask_sets, spaced_mask_sets
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import WORLD_WORDING
from world_models import MASK, TOKENIZER, arm, mdm
from writers import diffusion_model

PROMPTS = [(2, 10, 11, 12, 13, 14), (2, 40, 41, 42), (2, 50, 51, 52, 53, 54, 55, 56, 57)]


@torch.no_grad()
def log_probabilities(lm: fl.LanguageModel, tokens: list[int]) -> torch.Tensor:
    """Of every token at every row, by a plain forward."""
    return lm.module(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(-1)


def next_token_sum(lm: fl.LanguageModel, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
    rows = log_probabilities(lm, [*prompt, *answer])
    return sum(float(rows[len(prompt) + at - 1, token]) for at, token in enumerate(answer))


def masked_sum(lm: fl.LanguageModel, prompt: tuple[int, ...], answer: tuple[int, ...], hidden: tuple[int, ...]) -> float:
    rows = log_probabilities(lm, [*prompt, *(MASK if at in hidden else token for at, token in enumerate(answer))])
    return sum(float(rows[len(prompt) + at - lm.row_offset, answer[at]]) for at in hidden)


def dense_bound(lm: fl.LanguageModel, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
    """The mean over l = 1 .. L of L / l times the mean over all sets of l."""
    length = len(answer)
    means = []
    for masked in range(1, length + 1):
        sums = [masked_sum(lm, prompt, answer, hidden) for hidden in combinations(range(length), masked)]
        means.append(length / masked * float(np.mean(sums)))
    return float(np.mean(means))


def test_an_autoregressive_likelihood_is_the_sum_of_next_token_log_probabilities() -> None:
    lm = arm()
    asked = [Continuation(PROMPTS[0], (60, 61, 62)), Continuation(PROMPTS[1], (70,)), Continuation(PROMPTS[2], (80, 81, 82))]
    for batch_size in (1, 8):
        found = log_likelihoods(lm, asked, batch_size=batch_size)
        for one, likely in zip(asked, found, strict=True):
            assert likely.value == pytest.approx(next_token_sum(lm, one.prompt, one.answer), abs=1e-4)
            assert (likely.error, likely.tokens, likely.removed) == (0.0, len(one.answer), None)


@pytest.mark.parametrize("row_offset", [0, 1])
def test_a_one_token_answer_is_exact_for_a_diffusion_model(row_offset: int) -> None:
    lm = mdm(row_offset=row_offset)
    found = log_likelihoods(lm, [Continuation(prompt, (60,)) for prompt in PROMPTS])
    for prompt, likely in zip(PROMPTS, found, strict=True):
        rows = log_probabilities(lm, [*prompt, MASK])
        assert likely.value == pytest.approx(float(rows[len(prompt) - row_offset, 60]), abs=1e-4)
        assert likely.error == 0


@pytest.mark.parametrize("row_offset", [0, 1])
@pytest.mark.parametrize("answer", [(60, 61), (60, 61, 62, 63)])
def test_short_answers_get_the_whole_bound(row_offset: int, answer: tuple[int, ...]) -> None:
    lm = mdm(row_offset=row_offset)
    found = log_likelihoods(lm, [Continuation(PROMPTS[1], answer)])[0]
    assert found.value == pytest.approx(dense_bound(lm, PROMPTS[1], answer), abs=1e-4)
    assert found.error == 0


@pytest.mark.parametrize("length", range(1, 8))
def test_weights_make_a_constant_count_once_a_token(length: int) -> None:
    every = mask_sets(length, 128)
    assert len(every) == 2**length - 1
    assert sum(one.weight * len(one.positions) for one in every) == pytest.approx(length)
    for one in every:
        assert one.weight == pytest.approx(length / len(one.positions) / length / comb(length, len(one.positions)))
    drawn = mask_sets(9, 16, name="a")
    assert sum(one.weight * len(one.positions) for one in drawn) == pytest.approx(9)  # L / l * l / draws, as often as there are draws


def test_drawn_masks_are_stratified_and_belong_to_the_sample() -> None:
    drawn = mask_sets(40, 80, name="a")
    assert [one.stratum for one in drawn] == [stratum for stratum in range(40) for _ in range(2)]
    assert [len(one.positions) for one in drawn] == [1 + stratum for stratum in range(40) for _ in range(2)]
    assert drawn == mask_sets(40, 80, name="a")
    assert drawn != mask_sets(40, 80, name="b")
    assert drawn != mask_sets(40, 80, name="a", seed=1)
    counts = np.zeros(40)
    for name in range(50):
        for one in mask_sets(40, 80, name=str(name)):
            counts[list(one.positions)] += 1
    assert counts.min() > 0.9 * counts.mean()  # no position is favoured


def test_the_sampled_bound_lies_around_the_dense_one_as_far_as_its_error_says() -> None:
    lm = mdm()
    answer = (60, 61, 62, 63, 64, 65)
    truth = dense_bound(lm, PROMPTS[1], answer)
    asked = [Continuation(PROMPTS[1], answer, name=str(number)) for number in range(60)]
    found = log_likelihoods(lm, asked, draws=12, batch_size=120)
    values = np.array([one.value for one in found])
    assert values.std() > 0
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(60)
    mean_error = np.sqrt(np.mean([one.error**2 for one in found]))
    assert 0.6 < mean_error / values.std(ddof=1) < 1.6


def test_spaced_sets_lie_around_the_dense_bound_and_claim_no_error() -> None:
    lm = mdm()
    answer = (60, 61, 62, 63, 64, 65)
    truth = dense_bound(lm, PROMPTS[1], answer)
    asked = [Continuation(PROMPTS[1], answer, name=str(number)) for number in range(60)]
    found = log_likelihoods(lm, asked, draws=12, batch_size=120, draw_sets=spaced_mask_sets)
    values = np.array([one.value for one in found])
    assert values.std() > 0
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(60)
    assert all(np.isnan(one.error) for one in found)


@pytest.mark.parametrize("intervention", [None, MaskHeads([(0, 0), (0, 1)])])
def test_an_answer_is_greedy_if_the_model_writes_it(intervention: Any) -> None:
    lm = arm()
    written = lm.generate([list(PROMPTS[0])], gen_length=3, intervention=intervention, progress=False, stop_at_eos=False)[0].tokens
    other = [*written[:2], written[2] + 1]
    found = log_likelihoods(lm, [Continuation(PROMPTS[0], tuple(answer)) for answer in (written, other)], intervention=intervention)
    assert [one.greedy for one in found] == [True, False]
    assert log_likelihoods(mdm(), [Continuation(PROMPTS[0], (60,))])[0].greedy is None


@pytest.mark.parametrize("make", [arm, mdm])
def test_batches_change_nothing(make: Callable[..., fl.LanguageModel]) -> None:
    lm = make()
    answers = [(60, 61, 62), (70,), (80, 81)]
    asked = [Continuation(prompt, answer, seed=at) for at, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True))]
    for intervention in (None, MaskAnchors(1), RandomKeys(MaskAnchors(1), equal="mass")):
        together = log_likelihoods(lm, asked, intervention=intervention, batch_size=16)
        alone = [log_likelihoods(lm, [one], intervention=intervention, batch_size=1)[0] for one in asked]
        for one, other in zip(together, alone, strict=True):
            assert one.value == pytest.approx(other.value, abs=1e-3)
            assert one.removed == (None if other.removed is None else pytest.approx(other.removed, abs=1e-4))


@torch.no_grad()
def hidden_key_forward(lm: fl.LanguageModel, tokens: list[int], rows: list[int]) -> torch.Tensor:
    """Log probabilities with each layer's and head's strongest key hidden from these rows, chosen by their own mean attention in an
    unedited forward.

    Straight from dense weights: eager attention with a mask of its own for every layer and head.
    """
    module: Any = lm.module
    length = len(tokens)
    module.config._attn_implementation = "eager"
    try:
        plain = module(input_ids=torch.tensor([tokens]), output_attentions=True).attentions
        picked = [layer[0][:, rows].mean(1).argmax(-1) for layer in plain]  # by head

        def hooked(layer: int) -> Callable[..., Any]:
            def hook(_module: nn.Module, args: Any, kwargs: Any) -> Any:
                causal = module.config.is_causal
                allowed = torch.ones(length, length).tril().bool() if causal else torch.ones(length, length).bool()
                mask = allowed.expand(1, module.config.num_attention_heads, length, length).clone()
                for head, key in enumerate(picked[layer].tolist()):
                    mask[0, head, rows, key] = False
                kwargs["attention_mask"] = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
                return args, kwargs

            return hook

        handles = [
            layer.self_attn.register_forward_pre_hook(hooked(number), with_kwargs=True) for number, layer in enumerate(module.model.layers)
        ]
        try:
            logits = module(input_ids=torch.tensor([tokens]), output_attentions=True).logits[0]
        finally:
            for handle in handles:
                handle.remove()
    finally:
        module.config._attn_implementation = "sdpa"
    return logits.double().log_softmax(-1)


def test_a_masked_anchor_is_that_of_the_same_pass_before_the_edit() -> None:
    lm, prompt = mdm(), PROMPTS[2]
    found = log_likelihoods(lm, [Continuation(prompt, (60,))], intervention=MaskAnchors(1))[0]
    tokens = [*prompt, MASK]
    rows = hidden_key_forward(lm, tokens, list(range(len(tokens))))
    assert found.value == pytest.approx(float(rows[-1, 60]), abs=1e-3)
    assert found.removed is not None
    assert found.removed > 0.1  # more than an even share of ten keys
    assert found.value != pytest.approx(log_likelihoods(lm, [Continuation(prompt, (60,))])[0].value, abs=1e-3)


def test_an_autoregressive_prompt_is_read_as_it_is_and_its_last_row_edited() -> None:
    lm, prompt = arm(), PROMPTS[2]
    found = log_likelihoods(lm, [Continuation(prompt, (60,))], intervention=MaskAnchors(1))[0]
    rows = hidden_key_forward(lm, list(prompt), [len(prompt) - 1])
    assert found.value == pytest.approx(float(rows[-1, 60]), abs=1e-3)
    plain = log_likelihoods(lm, [Continuation(prompt, (60,))])[0].value
    assert found.value != pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize("make", [arm, mdm])
def test_an_intervention_that_does_nothing_changes_nothing(make: Callable[..., fl.LanguageModel]) -> None:
    lm = make()
    asked = [Continuation(PROMPTS[0], (60, 61, 62)), Continuation(PROMPTS[1], (70, 71))]
    plain = log_likelihoods(lm, asked)
    elsewhere = log_likelihoods(lm, asked, intervention=MaskAnchors(1, steps=[99]))
    for one, other in zip(plain, elsewhere, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-4)
        assert other.removed == 0


@pytest.mark.parametrize("make", [arm, mdm])
def test_heads_and_an_extra_sink_act_as_they_do_in_writing(make: Callable[..., fl.LanguageModel]) -> None:
    lm = make()
    asked = [Continuation(PROMPTS[0], (60, 61))]
    plain = log_likelihoods(lm, asked)[0]
    silenced = log_likelihoods(lm, asked, intervention=MaskHeads([(0, 0), (1, 3)]))[0]
    assert silenced.removed == pytest.approx(2 / 8)
    assert silenced.value != pytest.approx(plain.value, abs=1e-3)
    assert log_likelihoods(lm, asked, intervention=ExtraSinkToken())[0].value != pytest.approx(plain.value, abs=1e-3)


def test_an_answer_goes_on_from_its_prompt() -> None:
    lm = arm()
    for text in ("Where does Ada Xu live?", "Where does Ada Xu live?\n"):
        prompt = lm.encode(text)
        found = continuation(lm, prompt, "Oslo.", name="a", seed=3)
        assert list(found.prompt) == prompt.tokens
        assert TOKENIZER.convert_ids_to_tokens(list(found.answer)) == ["Oslo", "."]
        assert (found.name, found.seed) == ("a", 3)
    with pytest.raises(Refusal, match="answer '' of sample a does not begin with a token of its own"):
        continuation(lm, lm.encode("Where?"), "", name="a")


def test_an_answer_whose_first_token_would_reach_into_the_prompt_is_tokenised_by_itself() -> None:
    letters = sorted({*"def f():return 1,".replace(" ", "Ġ"), "Ċ"})
    merges = [("Ġ", "Ġ"), ("Ċ", "ĠĠ"), ("r", "e"), ("re", "t")]
    words = {word: number for number, word in enumerate([*letters, *("".join(pair) for pair in merges)])}
    backend = Tokenizer(models.BPE(vocab=words, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    lm = fl.LanguageModel(arm().module, tokenizer, family="autoregressive", sampler="autoregressive", row_offset=1)
    prompt = lm.encode("def f():\n")
    assert "ĊĠĠ" in tokenizer.tokenize("def f():\n  return 1"), "line break and indentation are one token"
    found = continuation(lm, prompt, "  return 1")
    assert tokenizer.convert_ids_to_tokens(list(found.answer)) == ["ĠĠ", "ret", "u", "r", "n", "Ġ", "1"]
    assert list(found.prompt) == prompt.tokens


def test_an_answer_that_does_not_fit_behind_its_prompt_is_refused_before_anything_runs() -> None:
    lm = arm(context=8)
    sample = Sample("long", "Where does Ada Xu live?", ("Ada Xu lives in Oslo",))
    told = "The answer of sample long has 6 tokens and its prompt 7, together more than the 8 that"
    with pytest.raises(Refusal, match=told):
        evaluate_model(lm, [sample], [], wording=WORLD_WORDING, gen_length=1, likelihood=True, progress=False)


def test_models_and_draws_without_a_bound_are_refused() -> None:
    with pytest.raises(Refusal, match="bound of masked diffusion is not defined"):
        log_likelihoods(diffusion_model("sdar"), [Continuation((1, 2), (3,))])
    with pytest.raises(Refusal, match="even number of at least 4"):
        mask_sets(9, 7)
    with pytest.raises(Refusal, match="no tokenizer"):
        continuation(diffusion_model("llada"), arm().encode("Where?"), "Oslo")

"""Every sampler against a straight-line reference, token for token: batches of prompts of uneven length, all options, saturated logits."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoding import reference
from floatlens.errors import Refusal
from floatlens.models.language_model import LanguageModel
from zoo import VOCABULARY, build

MASK, EOS, END_OF_TURN = 95, 94, 93
SATURATING = 80.0  # probabilities of 1.0 in float64, and nothing that overflows in an exponential
PROMPTS = [[5, 6, 7, 8, 9], [11, 12], [21, 22, 23, 24, 25, 26, 27, 28, 29]]


@dataclass
class Tiny:
    lm: LanguageModel
    logits_of: Callable[..., Tensor]


def tiny(family: str, sampler: str, row_offset: int, sharpness: float = 1.0) -> Tiny:
    module = build(family, seed=3)
    module.config.is_causal = False
    with torch.no_grad():
        module.lm_head.weight.mul_(sharpness)
        module.lm_head.weight[MASK] = 0  # a mask is a rare guess

    @torch.no_grad()
    def logits_of(tokens: Tensor, block_length: int | None = None) -> Tensor:
        if block_length is None:
            return module(tokens, use_cache=False).logits
        block = torch.arange(tokens.shape[1]) // block_length
        return module(tokens, attention_mask=(block[:, None] >= block[None])[None, None], use_cache=False).logits

    lm = LanguageModel(
        module, sampler=sampler, row_offset=row_offset, mask_token_id=MASK, end_tokens=(EOS, END_OF_TURN) if sampler != "sdar" else (EOS,)
    )
    return Tiny(lm, logits_of)


def written(lm: LanguageModel, batch_size: int, **options: Any) -> list[list[int]]:
    return [one.tokens for one in lm.generate(PROMPTS, batch_size=batch_size, progress=False, **options)]


def generator(sample: int) -> torch.Generator:
    return torch.Generator().manual_seed(7 + sample)


LLADA_CASES = [
    {"steps": steps, "block_length": block, "temperature": temperature, "remasking": remasking, "cfg_scale": guidance}
    for steps, block, temperature, remasking, guidance in itertools.product(
        (4, 8), (4, 8), (0.0, 0.7), ("low_confidence", "random"), (0.0, 1.5)
    )
]


@pytest.mark.parametrize("sharpness", [1.0, SATURATING], ids=["plain", "saturated"])
@pytest.mark.parametrize("case", LLADA_CASES, ids=str)
def test_llada_batches_write_what_the_published_loop_writes_one_by_one(case: dict[str, Any], sharpness: float) -> None:
    model = tiny("llama, bidirectional", "llada", 0, sharpness)
    expected = [
        reference.llada(
            model.logits_of, prompt, MASK, 8, **case, forbid_eos=None, forbid_eos_confidence=(), threshold=None, generator=generator(sample)
        )[0][len(prompt) :]
        for sample, prompt in enumerate(PROMPTS)
    ]
    options = {("guidance" if name == "cfg_scale" else name): value for name, value in case.items()}
    for batch_size in (1, 3):
        assert written(model.lm, batch_size, gen_length=8, seed=7, **options) == expected


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("option", ["forbid_eos", "eos_last", "threshold"])
def test_llada_options_do_what_the_published_ones_do(option: str, temperature: float) -> None:
    model = tiny("llama, bidirectional", "llada", 0, 4.0)
    with torch.no_grad():
        model.lm.module.lm_head.weight[EOS] = model.lm.module.lm_head.weight[17] * 1.5  # type: ignore[union-attr,index,operator]
    for block_length in (4, 8):
        expected, plain = (
            [
                reference.llada(
                    model.logits_of,
                    prompt,
                    MASK,
                    8,
                    8,
                    block_length,
                    temperature,
                    forbid_eos=EOS if option == "forbid_eos" and asked else None,
                    forbid_eos_confidence=(EOS, END_OF_TURN) if option == "eos_last" and asked else (),
                    threshold=0.4 if option == "threshold" and asked else None,
                    generator=generator(sample),
                )[0][len(prompt) :]
                for sample, prompt in enumerate(PROMPTS)
            ]
            for asked in (True, False)
        )
        given_option = {option: 0.4 if option == "threshold" else True}
        for batch_size in (1, 3):
            found = written(
                model.lm, batch_size, gen_length=8, steps=8, block_length=block_length, seed=7, temperature=temperature, **given_option
            )
            assert found == expected
        assert expected != plain, "the option changes nothing here, so this shows nothing"


DREAM_CASES = [
    {"order": order, "temperature": temperature, "top_p": top_p, "top_k": top_k, "order_temperature": order_temperature}
    for order, temperature, (top_p, top_k), order_temperature in itertools.product(
        ("origin", "maskgit_plus", "topk_margin", "entropy"), (0.0, 0.8), ((None, None), (0.9, None), (None, 5), (0.8, 7)), (0.0, 0.5)
    )
    if order != "origin" or order_temperature == 0.0
]


@pytest.mark.parametrize("steps", [3, 8])
@pytest.mark.parametrize("case", DREAM_CASES, ids=str)
def test_dream_batches_write_what_the_published_loop_writes_one_by_one(case: dict[str, Any], steps: int) -> None:
    for sharpness in (1.0,) if case["top_k"] or case["top_p"] else (1.0, 12.0):
        model = tiny("qwen2", "dream", 1, sharpness)
        expected = [
            reference.dream(model.logits_of, prompt, MASK, 8, steps, **case, generator=generator(sample))[0][len(prompt) :]
            for sample, prompt in enumerate(PROMPTS)
        ]
        for batch_size in (1, 3):
            assert written(model.lm, batch_size, gen_length=8, steps=steps, seed=7, **case) == expected


@pytest.mark.parametrize("order", ["maskgit_plus", "topk_margin", "entropy"])
def test_dream_with_a_threshold_commits_every_sure_candidate(order: Any) -> None:
    model = tiny("qwen2", "dream", 1, 4.0)
    expected = [reference.dream(model.logits_of, prompt, MASK, 8, 8, order=order, threshold=0.4)[0][len(prompt) :] for prompt in PROMPTS]
    for batch_size in (1, 3):
        assert written(model.lm, batch_size, gen_length=8, order=order, threshold=0.4) == expected


SDAR_CASES = [
    {"order": order, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    for order, temperature, (top_k, top_p) in itertools.product(
        ("sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"), (0.0, 1.0, 0.6), ((None, None), (9, 0.9))
    )
]


@pytest.mark.parametrize("steps", [5, 10])
@pytest.mark.parametrize("case", SDAR_CASES, ids=str)
def test_sdar_batches_on_a_cache_write_what_full_passes_write_one_by_one(case: dict[str, Any], steps: int) -> None:
    model = tiny("qwen3", "sdar", 0, 3.0)
    limits: dict[str, Any] = {"threshold": 0.3, "entropy_bound": 1.5}
    expected = [
        reference.sdar(
            model.logits_of,
            prompt,
            MASK,
            10,
            4,
            round(steps * 4 / 10),
            case["order"],
            **limits,
            temperature=case["temperature"],
            top_k=case["top_k"] or 0,
            top_p=case["top_p"] or 1.0,
            generator=generator(sample),
        )[0][len(prompt) :]
        for sample, prompt in enumerate(PROMPTS)
    ]
    for batch_size in (1, 2, 3):
        assert written(model.lm, batch_size, gen_length=10, steps=steps, seed=7, stop_at_eos=False, **limits, **case) == expected


def test_sdar_writes_masks_only_where_the_published_top_k_rewrites_tokens() -> None:
    """A block of the last token of the prompt and three masks, of which all four are planned to be written at once."""
    is_mask = torch.tensor([False, True, True, True])
    confidence = torch.where(is_mask, torch.tensor([0.9, 0.5, 0.6, 0.7]), -torch.inf)
    assert sorted(torch.topk(confidence, 4).indices.tolist()) == [0, 1, 2, 3], "the published line reaches the token of the prompt"
    model = tiny("qwen3", "sdar", 0)
    prompt = PROMPTS[0]
    rewritten = int(model.logits_of(torch.tensor([[*prompt, *3 * [MASK]]]), 4)[0, 4].argmax())
    assert rewritten != prompt[4]
    how: dict[str, Any] = {"gen_length": 8, "steps": 2, "order": "low_confidence_static", "stop_at_eos": False}
    canvas = model.lm.trace([prompt], **how, detail="light", progress=False).dataset.canvas.isel(sample=0).values
    assert canvas[1, :5].tolist() == prompt, "after the step that wrote the rest of its block"
    assert MASK not in canvas[1, 5:8]


def test_sdar_stops_after_the_block_that_holds_an_end_token() -> None:
    model = tiny("qwen3", "sdar", 0)
    unstopped = written(model.lm, 3, gen_length=10, stop_at_eos=False)
    end = unstopped[0][4]  # in the middle of the first sample's second block
    stopping = LanguageModel(model.lm.module, sampler="sdar", mask_token_id=MASK, end_tokens=(end,))
    for batch_size in (1, 3):
        for prompt, stopped, whole in zip(PROMPTS, written(stopping, batch_size, gen_length=10), unstopped, strict=True):
            expected = reference.sdar(model.logits_of, prompt, MASK, 10, temperature=0.0, stop_ids=(end,))[0][len(prompt) :]
            expected = [token for token in expected if token != MASK]
            assert stopped == expected
            assert len(stopped) < len(whole) or end not in whole


@torch.no_grad()
def greedy_without_cache(module: Any, prompt: list[int], count: int, stop: int | None = None) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(module(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        if tokens[-1] == stop:
            break
    return tokens[len(prompt) :]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma3"])
def test_autoregressive_batches_on_a_cache_write_what_full_passes_write_one_by_one(family: str) -> None:
    module = build(family, seed=3)
    lm = LanguageModel(module, sampler="autoregressive", family="autoregressive", row_offset=1)
    expected = [greedy_without_cache(module, prompt, 9) for prompt in PROMPTS]
    for batch_size in (1, 2, 3):
        assert written(lm, batch_size, gen_length=9) == expected


def test_an_autoregressive_sample_ends_at_an_end_token_and_the_others_go_on() -> None:
    module = build("llama", seed=3)
    end = greedy_without_cache(module, PROMPTS[0], 4)[3]
    lm = LanguageModel(module, sampler="autoregressive", family="autoregressive", row_offset=1, end_tokens=(end,))
    expected = [greedy_without_cache(module, prompt, 9, stop=end) for prompt in PROMPTS]
    assert written(lm, 3, gen_length=9) == expected
    assert len({len(tokens) for tokens in expected}) > 1


@pytest.mark.parametrize("options", [{}, {"top_k": 6}, {"top_p": 0.7}, {"top_k": 12, "top_p": 0.8}], ids=str)
def test_autoregressive_sampling_draws_from_each_sample_its_own_generator(options: dict[str, Any]) -> None:
    module = build("llama", seed=3)
    lm = LanguageModel(module, sampler="autoregressive", family="autoregressive", row_offset=1)
    expected = []
    for sample, prompt in enumerate(PROMPTS):
        tokens, own = list(prompt), generator(sample)
        for _ in range(6):
            with torch.no_grad():
                row = module(torch.tensor([tokens]), use_cache=False).logits[0, -1:] / 0.9
            if "top_k" in options:
                row = reference.keep_top_k(row[0], options["top_k"])[None]
            if "top_p" in options:
                row = reference.keep_top_p(row[0], options["top_p"])[None]
            tokens.append(int(torch.multinomial(row.softmax(-1), 1, generator=own)))
        expected.append(tokens[len(prompt) :])
    for batch_size in (1, 3):
        assert written(lm, batch_size, gen_length=6, temperature=0.9, seed=7, **options) == expected


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    blocks=st.sampled_from([1, 2, 3]),
    family=st.sampled_from([("llama, bidirectional", "llada", 0), ("qwen2", "dream", 1), ("qwen3", "sdar", 0)]),
    sharpness=st.sampled_from([1.0, SATURATING]),
    seed=st.integers(0, 5),
)
def test_a_batch_writes_what_each_prompt_writes_alone(
    lengths: list[int], blocks: int, family: tuple[str, str, int], sharpness: float, seed: int
) -> None:
    lm = tiny(*family, sharpness).lm
    prompts = [torch.randint(3, 90, (length,), generator=torch.Generator().manual_seed(seed + length)).tolist() for length in lengths]
    options: dict[str, Any] = {"gen_length": 6 * blocks} | ({"block_length": 6} if family[1] == "llada" else {})
    alone = [lm.generate([prompt], progress=False, **options)[0].tokens for prompt in prompts]
    together = [one.tokens for one in lm.generate(prompts, batch_size=len(prompts), progress=False, **options)]
    assert together == alone


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gen_length": 8, "steps": 16}, "steps=16 is more than gen_length=8"),
        ({"gen_length": 8, "block_length": 3}, "block_length=3 does not divide gen_length=8"),
        ({"gen_length": 8, "block_length": 2, "steps": 6}, "cannot be shared evenly by 4 blocks"),
        ({"gen_length": 0, "block_length": 2}, "with gen_length=0 the masks inside the prompt are one block"),
        ({"gen_length": 0}, "holds no mask token"),
        ({"gen_length": 8, "remasking": "best"}, "remasking='best' is not known"),
        ({"gen_length": 8, "threshold": 0.5, "remasking": "random"}, "choose one of the two"),
        ({"gen_length": 8, "threshold": 1.5}, "must be a probability"),
        ({"gen_length": 8, "temperature": -1.0}, "must be at least 0"),
        ({"gen_length": 8, "forbid_eos": True}, "has no end token"),
        ({"gen_length": 8, "batch_size": 0}, "at least one prompt"),
        ({"gen_length": 8, "batch_size": -1}, "at least one prompt"),
        ({"gen_length": 8, "warmth": 1}, "no option 'warmth'"),
        ({"gen_length": 8, "sampler": "autoregressive"}, "cannot be run by the autoregressive sampler"),
        ({"gen_length": 8, "sampler": "llda"}, "There is no sampler 'llda'"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    lm = LanguageModel(tiny("llama, bidirectional", "llada", 0).lm.module, mask_token_id=MASK)
    with pytest.raises(Refusal, match=sentence):
        lm.generate([[5, 6]], progress=False, **options)


def test_noise_drawn_in_parts_is_the_noise_drawn_at_once() -> None:
    from floatlens.decoding.candidates import ROWS_AT_ONCE, uniform_rows

    length = 2 * ROWS_AT_ONCE + 5
    whole = torch.rand(length, VOCABULARY, dtype=torch.float64, generator=generator(0))
    wanted = [0, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, length - 1]
    own = generator(0)
    assert torch.equal(uniform_rows(own, length, VOCABULARY, wanted), whole[wanted])
    following = generator(0)
    torch.rand(length, VOCABULARY, dtype=torch.float64, generator=following)
    assert torch.equal(torch.rand(3, generator=own), torch.rand(3, generator=following))

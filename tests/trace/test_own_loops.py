"""Models that only their own `generate` can run: a checkpoint with code of its own, and DiffusionGemma.

What a trace says is compared with what a spy notes while the same model runs untraced: the tokens of each forward, and the weights of
each attention call straight from its queries, keys and mask, in float64.
"""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers.dynamic_module_utils
import xarray as xr
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSampler, EntropyBoundSamplerConfig

import floatlens as fl
from zoo import diffusion_gemma

VOCABULARY, MASK, PAD = 48, 47, 3
NOTHING, PROMPT, MASKED, NOW, BEFORE = range(5)
TOKENS = [5, 9, 2, 11, 7, 30, 8, 8, 21, 14]

# Four loops as published models have them: a whole canvas at each step; blocks on a growing canvas (LLaDA2.0: `self.forward` called
# directly, whole blocks, only the new tokens returned); the same with tokens changed afterwards (LLaDA2.1); a first look at everything,
# then one block at a time over a cache.
CODE = '''
import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class TinyConfig(PreTrainedConfig):
    model_type = "llada_tiny"


class Layer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        width, self.heads, self.number = config.hidden_size, config.num_attention_heads, number
        self.qkv, self.out, self.router = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, config.num_experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(config.num_experts))

    def forward(self, hidden, mask, cache):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1))
        if cache is not None:
            key, value = cache.update(key, value, self.number)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        chosen = self.router(hidden).softmax(-1)
        return hidden + sum(chosen[..., at, None] * expert(hidden).tanh() for at, expert in enumerate(self.experts))


class TinyModel(PreTrainedModel):
    config_class = TinyConfig
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(64, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.num_hidden_layers))
        self.post_init()

    def forward(self, input_ids, attention_mask=None, past_key_values=None):
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        hidden = self.embedding(input_ids) + self.places.weight[past : past + input_ids.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden, attention_mask, past_key_values)
        return BaseModelOutput(hidden)


class TinyForCausalLM(PreTrainedModel):
    config_class = TinyConfig
    base_model_prefix = "model"
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.model = TinyModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, past_key_values=None):
        logits = self.lm_head(self.model(input_ids, attention_mask=attention_mask, past_key_values=past_key_values).last_hidden_state)
        logits[..., self.config.mask_token_id] = -torch.inf
        return CausalLMOutput(logits=logits)

    @torch.no_grad()
    def generate(self, inputs, gen_length=8, steps=4, block_length=4, stop_after=None, loop=None, temperature=1.0):
        loop, self.temperature = loop or self.config.loop, temperature
        return getattr(self, loop)(inputs, gen_length, steps, block_length, stop_after)

    def write(self, logits, tokens, count):
        """Write the `count` surest of the masks in `tokens`, which is a view of the canvas."""
        chances = (logits / self.temperature).softmax(-1)
        drawn = torch.multinomial(chances[0], 1)[:, 0]
        sure = chances[0].gather(1, drawn[:, None])[:, 0].masked_fill(tokens[0] != self.config.mask_token_id, -1)
        rows = sure.topk(min(count, int((sure >= 0).sum()))).indices
        tokens[0, rows] = drawn[rows]

    def blank(self, inputs, length):
        return F.pad(inputs, (0, length - inputs.shape[1]), value=self.config.mask_token_id)

    def whole(self, inputs, gen_length, steps, block_length, stop_after):
        canvas = self.blank(inputs, inputs.shape[1] + gen_length)
        for step in range(stop_after or steps):
            self.write(self(canvas).logits, canvas, -(-gen_length // steps))
        return canvas

    def guided(self, inputs, gen_length, steps, block_length, stop_after):
        return self(self.blank(inputs, inputs.shape[1] + gen_length).repeat(2, 1)).logits.argmax(-1)

    def never(self, inputs, gen_length, steps, block_length, stop_after):
        return inputs

    def blocks(self, inputs, gen_length, steps, block_length, stop_after, edits=False):
        given = inputs.shape[1]
        count = -(-(given + gen_length) // block_length)
        canvas = self.blank(inputs, count * block_length)
        mask = torch.ones(count, count).tril().repeat_interleave(block_length, 0).repeat_interleave(block_length, 1)[None, None].log()
        for block in range(given // block_length, count):
            stop = (block + 1) * block_length
            window = canvas[:, :stop]
            while bool((window == self.config.mask_token_id).any()):
                logits = self.forward(window, attention_mask=mask[..., :stop, :stop]).logits
                self.write(logits[:, -block_length:], window[:, -block_length:], -(-block_length // steps))
            if edits:
                better = self.forward(window, attention_mask=mask[..., :stop, :stop]).logits.argmax(-1)
                first = max(given, stop - block_length)
                window[:, first:stop:2] = better[:, first:stop:2]
        return canvas[:, given : given + gen_length]

    def edits(self, *asked):
        return self.blocks(*asked, edits=True)

    def cached(self, inputs, gen_length, steps, block_length, stop_after):
        given = inputs.shape[1]
        canvas, cache = self.blank(inputs, given + gen_length), DynamicCache()
        logits = self(canvas, past_key_values=cache).logits
        cache.crop(-gen_length)
        self.write(logits[:, given : given + block_length], canvas[:, given : given + block_length], 1)
        for start in range(given, given + gen_length, block_length):
            block = canvas[:, start : start + block_length]
            while bool((block == self.config.mask_token_id).any()):
                if cache.get_seq_length() > start:
                    cache.crop(start - cache.get_seq_length())
                self.write(self(block, past_key_values=cache).logits, block, -(-block_length // steps))
        return canvas
'''
LOOPS = ["whole", "blocks", "edits", "cached"]
CONFIG = {
    "model_type": "llada_tiny",
    "architectures": ["TinyForCausalLM"],
    "auto_map": {"AutoConfig": "modeling_tiny.TinyConfig", "AutoModelForCausalLM": "modeling_tiny.TinyForCausalLM"},
    "num_experts": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "vocab_size": VOCABULARY,
    "mask_token_id": MASK,
    "pad_token_id": PAD,
    "eos_token_id": 1,
    "dtype": "float32",
}
ASKED: dict[str, Any] = {"gen_length": 9, "steps": 2, "block_length": 4, "seed": 5, "progress": False}


@pytest.fixture(autouse=True)
def code_of_checkpoints_goes_here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a checkpoint's code to a folder of its own; not to the user's in tests."""
    folder = str(tmp_path_factory.getbasetemp() / "modules")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", folder)


def written_checkpoint(folder: Path, loop: str = "whole", **config: Any) -> Path:
    """A checkpoint that only its own code can run."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, "loop": loop, **config}))
    (folder / "modeling_tiny.py").write_text(CODE)
    random, width = torch.Generator().manual_seed(1), CONFIG["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embedding.weight": (VOCABULARY, width),
        "model.places.weight": (64, width),
        "lm_head.weight": (VOCABULARY, width),
        "lm_head.bias": (VOCABULARY,),
    }
    for at in range(2):
        for name, size in {"qkv": 3 * width, "out": width, "router": 2, "experts.0": width, "experts.1": width}.items():
            shapes |= {f"model.layers.{at}.{name}.weight": (size, width), f"model.layers.{at}.{name}.bias": (size,)}
    save_file(
        {name: 0.35 * torch.randn(shape, generator=random) for name, shape in shapes.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    return folder


def remote(folder: Path, loop: str = "whole", **config: Any) -> fl.LanguageModel:
    return fl.load(written_checkpoint(folder, loop, **config), trust_remote_code=True)


@dataclass
class Seen:
    """One forward: where its rows stand, their tokens, and the weights of each layer on the keys of the whole text."""

    past: int
    tokens: np.ndarray  # (row,)
    weights: list[np.ndarray] = field(default_factory=list)  # by layer: (head, row, key), NaN where a layer's cache has forgotten the key

    @property
    def positions(self) -> np.ndarray:
        return self.past + np.arange(len(self.tokens))


class Spy(TorchFunctionMode):
    """Notes the forwards of a module while a model runs by itself."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self._inside = False
        self._hooks = [module.register_forward_pre_hook(self._enter, with_kwargs=True), module.register_forward_hook(self._leave)]

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)

    def _enter(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["decoder_input_ids"]
        cache = kwargs.get("past_key_values")
        self.seen.append(Seen(0 if cache is None else cache.get_seq_length(), ids[0].numpy().copy()))
        self._inside = True

    def _leave(self, *_: Any) -> None:
        self._inside = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention and self._inside:
            self._note(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _note(
        self, query: Tensor, key: Tensor, _value: Tensor, attn_mask: Tensor | None = None, *, scale: float | None = None, **rest: Any
    ) -> None:
        assert not rest.get("is_causal")
        assert not rest.get("dropout_p")
        forward = self.seen[-1]
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1).double()
        scores = query.double() @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        known = forward.past + len(forward.tokens)  # the rows' own keys come last
        weights = np.full((query.shape[1], query.shape[2], known), np.nan)
        weights[..., known - key.shape[2] :] = scores.softmax(-1)[0].numpy()
        forward.weights.append(weights)


def run_untraced(lm: fl.LanguageModel, prompt: list[int], **asked: Any) -> tuple[list[int], list[Seen]]:
    """The whole text, and every forward on the way to it."""
    assert lm.step_on is not None
    with Spy(lm.step_on) as spy:
        written = lm.generate([prompt], **asked)[0]
    return [*prompt, *written.tokens], spy.seen


def written_at(seen: list[Seen], final: list[int], prompt: int) -> np.ndarray:
    """bool (step, position): the last step that showed a position before it held another token that is no mask."""
    width = max(len(final), *(forward.positions[-1] + 1 for forward in seen))
    written = np.zeros((len(seen), width), bool)
    for position in range(prompt, width):
        history = [
            (step, int(forward.tokens[position - forward.past])) for step, forward in enumerate(seen) if position in forward.positions
        ]
        history += [(len(seen), final[position])] if position < len(final) else []
        for (step, before), (_, after) in itertools.pairwise(history):
            written[step, position] = after not in (before, MASK)
    return written


def assert_canvas(
    sample: xr.Dataset, seen: list[Seen], final: list[int], prompt: int, written: np.ndarray, still_open: list[np.ndarray]
) -> None:
    """Tokens, states and the steps of commitment. `still_open` says for each forward which rows are masked, or not accepted."""
    width = written.shape[1]
    state = np.zeros((len(seen), width), int)
    canvas = np.full((len(seen), width), -1)
    for step, forward in enumerate(seen):
        canvas[step, : forward.past] = final[: forward.past]
        canvas[step, forward.positions] = forward.tokens
        state[step, : forward.past] = BEFORE
        state[step, forward.positions] = np.where(still_open[step], MASKED, BEFORE)
    state[written] = NOW
    canvas[:, :prompt], state[:, :prompt] = final[:prompt], PROMPT
    np.testing.assert_array_equal(sample.canvas.values, canvas)
    np.testing.assert_array_equal(sample.state.values, state)
    committed = [int(np.flatnonzero(column)[-1]) if column.any() else -1 for column in written.T]
    np.testing.assert_array_equal(sample.final.values[: len(final)], final)
    np.testing.assert_array_equal(sample.committed.values[: len(final)], committed[: len(final)])
    assert (sample.final.values[len(final) :] == -1).all()


def assert_attention(sample: xr.Dataset, seen: list[Seen], written: np.ndarray, still_open: list[np.ndarray]) -> None:
    """Mass of each group, and the favourite keys of the rows that wrote."""
    for step, forward in enumerate(seen):
        rows = {"masked": still_open[step], "unmasked": ~still_open[step], "predicting": written[step, forward.positions]}
        assert len(forward.weights) == sample.sizes["layer"]
        for layer, weights in enumerate(forward.weights):
            for group, chosen in rows.items():
                found = sample.isel(step=step, layer=layer).sel(group=group)
                mass = np.full((weights.shape[0], sample.sizes["key"]), np.nan)
                mass[:, : weights.shape[2]] = np.nan_to_num(weights)[:, chosen].sum(1)  # what a window has forgotten exists, unseen
                np.testing.assert_allclose(found.mass.values, mass, atol=2e-5)
                np.testing.assert_allclose(found.mass.sum("key").values, chosen.sum(), rtol=1e-5)
                assert found.rows.values == chosen.sum()
            for position in np.flatnonzero(written[step]):
                if step == np.flatnonzero(written[:, position])[-1]:
                    assert_favourites(sample.isel(layer=layer, position=position), weights[:, position - forward.past])


def assert_favourites(found: xr.Dataset, row: np.ndarray) -> None:
    """Favourite keys of one row; row is (head, key)."""
    ranks = min(found.sizes["rank"], int((~np.isnan(row[0])).sum()))
    best = -np.sort(-np.nan_to_num(row, nan=-1), axis=-1)[:, :ranks]
    np.testing.assert_allclose(found.top_weight.values[:, :ranks], best, atol=2e-5)
    np.testing.assert_allclose(np.take_along_axis(row, found.top_key.values[:, :ranks].astype(int), 1), best, atol=2e-5)
    np.testing.assert_allclose(found.top_retained.values, best.sum(-1), atol=5e-5)
    assert (found.top_key.values[:, ranks:] == -1).all()


def test_code_that_comes_with_a_checkpoint_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    written_checkpoint(tmp_path)
    with pytest.raises(fl.Refusal, match=r"TinyForCausalLM\) runs only with code that comes with the checkpoint.*trust_remote_code=True"):
        fl.load(tmp_path)
    lm = fl.load(tmp_path, trust_remote_code=True)
    assert (lm.family, lm.sampler, lm.mask_token_id, lm.end_tokens, lm.row_offset) == ("remote", None, MASK, (1,), 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_generate_is_the_models_own(loop: str, tmp_path: Path) -> None:
    lm = remote(tmp_path, loop)
    written = lm.generate([TOKENS], **ASKED)[0]
    torch.manual_seed(ASKED["seed"])
    module: Any = lm.module
    own = module.generate(torch.tensor([TOKENS]), gen_length=9, steps=2, block_length=4)[0].tolist()
    assert written.tokens == own[-9:]
    assert MASK not in own
    assert written.prompt_tokens == TOKENS


@pytest.mark.parametrize("loop", LOOPS)
def test_every_forward_of_a_loop_is_a_step_with_its_tokens_its_states_and_its_attention(loop: str, tmp_path: Path) -> None:
    lm = remote(tmp_path, loop)
    final, seen = run_untraced(lm, TOKENS, **ASKED)
    sample = lm.trace([TOKENS], **ASKED).sample(0)
    written = written_at(seen, final, len(TOKENS))
    still_open = [forward.tokens == MASK for forward in seen]
    assert sample.sizes["step"] == len(seen)
    assert written[:, len(TOKENS) : len(final)].any(0).all()
    if loop == "edits":
        assert (written.sum(0) > 1).any()  # some tokens were changed after they had been written
    assert_canvas(sample, seen, final, len(TOKENS), written, still_open)
    assert_attention(sample, seen, written, still_open)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_committed_step_is_the_one_that_placed_the_final_token(loop: str, tmp_path: Path) -> None:
    sample = remote(tmp_path, loop).trace([TOKENS], **ASKED).sample(0)
    for position in range(len(TOKENS), len(TOKENS) + ASKED["gen_length"]):
        history, step = sample.canvas.values[:, position], int(sample.committed[position])
        assert (np.isin(history[step + 1 :], [sample.final.values[position], -1])).all()
        assert history[step] != sample.final.values[position]


def test_a_canvas_wider_than_the_text_keeps_its_keys(tmp_path: Path) -> None:
    """Ten tokens and nine to write are five blocks of four: the last row of the canvas is computed and then dropped."""
    sample = remote(tmp_path, "blocks").trace([TOKENS], **ASKED).sample(0)
    assert sample.sizes["key"] == sample.sizes["position"] == 20
    assert sample.final.values[-1] == -1
    assert sample.final.values[-2] >= 0
    np.testing.assert_allclose(
        sample.mass.sum("key").values, np.broadcast_to(sample.rows.values[:, None, None], sample.mass.shape[:-1]), rtol=1e-5
    )
    assert sample.in_region.sel(region="answer").values.sum() == 9


def test_masks_that_are_left_in_the_text_were_never_committed(tmp_path: Path) -> None:
    sample = remote(tmp_path).trace([TOKENS], **{**ASKED, "steps": 9}, stop_after=4).sample(0)
    left = sample.final.values == MASK
    assert left.sum() == 5
    assert sample.sizes["step"] == 4
    assert (sample.committed.values[left] == -1).all()
    assert (sample.state.values[-1][left] == MASKED).all()
    assert sorted(sample.committed.values[10:][~left[10:]].tolist()) == [0, 1, 2, 3]
    assert sample.rows.sel(group="predicting").values.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("loop", ["whole", "cached"])
def test_rows_of_the_prompt_are_a_group_on_request(loop: str, tmp_path: Path) -> None:
    lm = remote(tmp_path, loop)
    _, seen = run_untraced(lm, TOKENS, **ASKED)
    sample = lm.trace([TOKENS], groups=["prompt", "predicting"], **ASKED).sample(0)
    assert sample.group.values.tolist() == ["prompt", "predicting"]
    for step, forward in enumerate(seen):
        chosen = forward.positions < len(TOKENS)
        found = sample.mass.isel(step=step, layer=1).sel(group="prompt").values[:, : forward.weights[1].shape[2]]
        np.testing.assert_allclose(found, forward.weights[1][:, chosen].sum(1), atol=2e-5)
    assert sample.rows.sel(group="prompt").values[0] == len(TOKENS)


def test_norms_and_patterns_are_kept_whatever_groups_are_asked_for(tmp_path: Path) -> None:
    lm = remote(tmp_path, "cached")
    _, seen = run_untraced(lm, TOKENS, **ASKED)
    sample = lm.trace([TOKENS], groups=["predicting"], patterns=[(1, 0)], **ASKED).sample(0)
    for step, forward in enumerate(seen):
        pattern = np.full((19, 19), np.nan)
        pattern[forward.positions, : forward.weights[1].shape[2]] = forward.weights[1][0]
        np.testing.assert_allclose(sample.pattern.values[step, 0], pattern, atol=2e-5)
        there = ~np.isnan(sample.query_norm.values[step])
        assert (there == np.isin(np.arange(19), forward.positions)).all()


@pytest.mark.parametrize("kept", ["norms", "top_keys"])
def test_one_thing_alone_can_be_kept(kept: str, tmp_path: Path) -> None:
    lm = remote(tmp_path)
    off = {name: "off" for name in ("mass", "entropy", "geometry", "norms", "top_keys") if name != kept}
    alone, together = lm.trace([TOKENS], detail=off, **ASKED).sample(0), lm.trace([TOKENS], **ASKED).sample(0)
    names = {"norms": ["query_norm", "key_norm", "value_norm"], "top_keys": ["top_key", "top_weight", "top_retained"]}[kept]
    assert "mass" not in alone
    assert "entropy" not in alone
    for name in [*names, "canvas", "state", "committed"]:
        np.testing.assert_array_equal(alone[name].values, together[name].values)


def test_a_padding_token_in_the_text_is_read_like_any_other(tmp_path: Path) -> None:
    prompt = [PAD, *TOKENS]
    lm = remote(tmp_path)
    final, seen = run_untraced(lm, prompt, **ASKED)
    written, still_open = written_at(seen, final, len(prompt)), [forward.tokens == MASK for forward in seen]
    assert_attention(lm.trace([prompt], **ASKED).sample(0), seen, written, still_open)


def test_samples_are_those_of_their_own_seeds(tmp_path: Path) -> None:
    lm = remote(tmp_path, "blocks")
    both = lm.trace([TOKENS, TOKENS[:3]], **ASKED)
    alone = lm.trace([TOKENS[:3]], **{**ASKED, "seed": ASKED["seed"] + 1})
    xr.testing.assert_equal(both.sample(1).load(), alone.sample(0).load())
    assert both.attributes["sampler"] == {"name": "own", "gen_length": 9, "steps": 2, "block_length": 4}


def test_an_edit_reaches_every_step_of_an_own_loop(tmp_path: Path) -> None:
    def hide_the_first_key(call: Any, before: Any) -> Any:
        return call.hide((torch.arange(call.keys) == 0)[None])

    lm = remote(tmp_path)
    sample = lm.trace([TOKENS], edits=[hide_the_first_key], **ASKED).sample(0)
    assert (sample.mass.isel(key=0).values == 0).all()
    np.testing.assert_allclose(sample.mass.sum("key").values, sample.rows.values, rtol=1e-5)


# DiffusionGemma

GEMMA: dict[str, Any] = {"gen_length": 20, "max_denoising_steps": 5, "seed": 3, "progress": False}
CANVAS = 8


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> fl.LanguageModel:
    """A tiny DiffusionGemma, saved and loaded, with a sampler that accepts several tokens at once and takes some back."""
    model = diffusion_gemma(CANVAS)
    model.generation_config.update(sampler_config=EntropyBoundSamplerConfig(entropy_bound=9.0))
    folder = tmp_path_factory.mktemp("gemma")
    model.save_pretrained(folder)
    return fl.load(folder)


@dataclass
class GemmaRun:
    """One run untraced and the same one traced."""

    final: list[int]
    seen: list[Seen]
    accepted: list[np.ndarray]  # what the sampler accepted after each forward, bool (row,)
    sample: xr.Dataset


@pytest.fixture(scope="module")
def gemma_run(gemma: fl.LanguageModel) -> GemmaRun:
    masks: list[np.ndarray] = []
    accept: Any = EntropyBoundSampler.accept_canvas

    def accept_and_note(sampler: Any, *args: Any) -> Any:
        canvas = accept(sampler, *args)
        masks.append(sampler.accepted_token_mask[0].numpy().copy())
        return canvas

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EntropyBoundSampler, "accept_canvas", accept_and_note)
        final, seen = run_untraced(gemma, TOKENS, **GEMMA)
    return GemmaRun(final, seen, masks, gemma.trace([TOKENS], **GEMMA).sample(0).load())


def of_gemma(run: GemmaRun) -> tuple[np.ndarray, list[np.ndarray]]:
    """What was written at each step, bool (step, position), and which rows were open before it.

    Both from what the sampler accepted, canvas by canvas.
    """
    seen, final, accepted = run.seen, run.final, run.accepted
    written, still_open = np.zeros((len(seen), len(final)), bool), []
    for step, forward in enumerate(seen):
        first = step == 0 or seen[step - 1].past != forward.past
        last = step == len(seen) - 1 or seen[step + 1].past != forward.past
        still_open.append(np.ones(CANVAS, bool) if first else ~accepted[step - 1])
        after = np.array(final)[forward.positions] if last else seen[step + 1].tokens
        now = np.ones(CANVAS, bool) if last else accepted[step]
        written[step, forward.positions] = now & (still_open[step] | (after != forward.tokens))
    return written, still_open


def test_a_diffusion_gemma_is_loaded_with_its_decoder_as_the_step(gemma: fl.LanguageModel) -> None:
    module: Any = gemma.module
    assert (gemma.family, gemma.sampler, gemma.mask_token_id) == ("diffusion-gemma", None, None)
    assert gemma.step_on is module.model.decoder


def test_states_of_a_model_without_a_mask_token_say_what_its_sampler_accepted(gemma_run: GemmaRun) -> None:
    seen, accepted, sample = gemma_run.seen, gemma_run.accepted, gemma_run.sample
    written, still_open = of_gemma(gemma_run)
    assert any(2 <= rows.sum() < CANVAS for rows in accepted)
    assert sample.sizes["step"] == len(seen) == 3 * GEMMA["max_denoising_steps"]
    assert [forward.past for forward in seen] == [10] * 5 + [18] * 5 + [26] * 5
    assert_canvas(sample, seen, gemma_run.final, len(TOKENS), written, still_open)


def test_a_token_accepted_and_taken_back_is_open_again(gemma_run: GemmaRun) -> None:
    state, taken_back = gemma_run.sample.state.values, 0
    for step in (step for step in range(14) if step % 5 != 4):  # the last step on a canvas takes nothing back
        here = gemma_run.seen[step].positions
        held = np.zeros(CANVAS, bool) if step % 5 == 0 else gemma_run.accepted[step - 1]
        lost = held & ~gemma_run.accepted[step]
        assert (state[step, here][lost] == BEFORE).all()
        assert np.isin(state[step + 1, here][lost], [MASKED, NOW]).all()
        taken_back += int((state[step + 1, here][lost] == MASKED).sum())
    assert taken_back > 0


def test_all_of_a_canvas_is_written_by_its_last_step(gemma_run: GemmaRun) -> None:
    sample = gemma_run.sample
    for number in range(3):
        here = slice(10 + CANVAS * number, 18 + CANVAS * number)
        begin, stop = 5 * number, 5 * number + 5
        steps = sample.committed.values[here]
        assert ((steps >= begin) & (steps < stop)).all()
        for position, step in enumerate(steps, here.start):
            assert (sample.canvas.values[step + 1 :, position] == sample.final.values[position]).all()
        assert (sample.state.values[stop:, here] == BEFORE).all()
        assert (sample.state.values[:begin, here] == NOTHING).all()
        assert (sample.canvas.values[:begin, here] == -1).all()


def test_attention_of_a_canvas_counts_keys_over_the_whole_text(gemma_run: GemmaRun) -> None:
    """Dense weights at every step and layer, windows that forget and caches included."""
    sample = gemma_run.sample
    assert sample.sizes["key"] == 34
    assert sample.rows.dims == ("step", "layer", "group")
    assert_attention(sample, gemma_run.seen, *of_gemma(gemma_run))
    sliding, full = sample.mass.values[5, 0, 0, 0], sample.mass.values[5, 2, 0, 0]
    assert np.flatnonzero(sliding > 0).tolist() == list(range(18 - 5, 26))  # a window of 6
    assert (sliding[: 18 - 5] == 0).all()
    assert np.flatnonzero(~np.isnan(full)).tolist() == list(range(26))


def test_tracing_a_diffusion_gemma_changes_no_token(gemma: fl.LanguageModel, gemma_run: GemmaRun) -> None:
    module: Any = gemma.module
    torch.manual_seed(GEMMA["seed"])
    own = module.generate(torch.tensor([TOKENS]), max_new_tokens=20, max_denoising_steps=5).sequences[0].tolist()
    assert gemma_run.sample.final.values.tolist() == own == [*TOKENS, *gemma.generate([TOKENS], **GEMMA)[0].tokens]
    assert "_denoising_step" not in vars(module)  # nothing is left on the model


# what both kinds share


@pytest.mark.parametrize("loop", ["blocks", "gemma"])
def test_a_trace_on_disk_equals_the_one_in_memory(loop: str, tmp_path: Path, gemma: fl.LanguageModel) -> None:
    lm, asked = (gemma, {**GEMMA, "gen_length": 16, "max_denoising_steps": 2}) if loop == "gemma" else (remote(tmp_path, loop), ASKED)
    prompts = [TOKENS, TOKENS[:4]]
    in_memory = lm.trace(prompts, patterns=[(1, 1)], **asked)
    on_disk = lm.trace(prompts, patterns=[(1, 1)], path=tmp_path / "run.zarr", **asked)
    again = fl.open_trace(tmp_path / "run.zarr")
    for other in (on_disk, again):
        xr.testing.assert_identical(in_memory.dataset.load(), other.dataset.load())
        assert in_memory.attributes == other.attributes
    assert not list(tmp_path.glob(".*writing*"))


@pytest.mark.parametrize("detail", [{"flow": "layer"}, "full"])
def test_flow_is_refused_with_the_way_out(detail: Any, tmp_path: Path) -> None:
    with pytest.raises(
        fl.Refusal, match=r"Region flow is not recorded for models that run their own generate \(remote\).*detail=\{'flow': 'off'\}"
    ):
        remote(tmp_path).trace([TOKENS], detail=detail, **ASKED)


def test_a_loop_that_never_runs_its_step_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.Refusal, match="generate of TinyForCausalLM never ran the TinyModel whose forwards are its steps"):
        remote(tmp_path, "never").trace([TOKENS], **ASKED)


def test_a_loop_that_runs_several_texts_at_once_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.Refusal, match="runs several samples at once"):
        remote(tmp_path, "guided").trace([TOKENS], **ASKED)


def test_without_a_step_module_each_forward_of_the_model_is_a_step(tmp_path: Path) -> None:
    loaded = remote(tmp_path)
    bare = fl.LanguageModel(loaded.module, sampler=None, mask_token_id=MASK)
    np.testing.assert_array_equal(bare.trace([TOKENS], **ASKED).dataset.state, loaded.trace([TOKENS], **ASKED).dataset.state)


def test_after_a_refusal_the_model_can_be_traced_again(tmp_path: Path) -> None:
    lm = remote(tmp_path, "never")
    with pytest.raises(fl.Refusal):
        lm.trace([TOKENS], path=tmp_path / "run.zarr", **ASKED)
    assert not (tmp_path / "run.zarr").exists()
    assert not list(tmp_path.glob(".*writing*"))
    assert lm.trace([TOKENS], loop="whole", **ASKED).dataset.sizes["step"] == 2


@pytest.mark.parametrize("ask", ["generate", "trace"])
@pytest.mark.parametrize("kind", ["remote", "gemma"])
def test_an_option_that_generate_does_not_know_is_refused_with_the_list(
    ask: str, kind: str, tmp_path: Path, gemma: fl.LanguageModel
) -> None:
    lm, known = (gemma, "max_denoising_steps") if kind == "gemma" else (remote(tmp_path), "gen_length, steps, block_length")
    with pytest.raises(fl.Refusal, match=f"does not know 'temprature'. It knows: .*{known}"):
        getattr(lm, ask)([TOKENS], gen_length=8, temprature=0.5, progress=False)


def test_steps_are_denoising_steps_whatever_generate_calls_them(gemma: fl.LanguageModel) -> None:
    assert gemma.trace([TOKENS], gen_length=CANVAS, steps=3, progress=False).dataset.sizes["step"] == 3


def test_a_prompt_with_the_mask_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.Refusal, match="holds the mask token"):
        remote(tmp_path).trace([[*TOKENS, MASK]], **ASKED)


def test_a_sampler_that_needs_a_mask_token_is_refused_where_there_is_none(gemma: fl.LanguageModel) -> None:
    with pytest.raises(fl.Refusal, match="no mask token"):
        gemma.trace([TOKENS], sampler="llada", gen_length=8, progress=False)


def test_an_option_of_any_type_is_told_in_the_attributes(gemma: fl.LanguageModel) -> None:
    trace = gemma.trace([TOKENS], sampler_config=EntropyBoundSamplerConfig(entropy_bound=4.0), **GEMMA)
    assert "entropy_bound=4.0" in json.loads(trace.dataset.attrs["floatlens"])["sampler"]["sampler_config"]


def test_what_is_not_in_the_text_was_not_committed(tmp_path: Path) -> None:
    sample = remote(tmp_path, "blocks").trace([TOKENS], **{**ASKED, "gen_length": 7}).sample(0)
    assert (sample.committed.values[sample.final.values == -1] == -1).all()

"""From prompts, a model and how to write, to what a decoding loop runs: everything is checked here, before anything is run.

`plan_writing` encodes the prompts and settles the sampler's options once; `generate` and `trace` both run the `Plan` that it returns.
Batches are cut here, each sample with a seed of its own, so that a batch never changes what a prompt draws.

Refused: no prompts; a sampler that does not suit the model; options that the sampler does not have or that the model cannot follow;
prompts that are empty, too long, or hold tokens that they must not.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from floatlens.decoding import autoregressive, dream, llada, sdar
from floatlens.decoding.canvas import Canvas, Run, Step, blank_canvas
from floatlens.decoding.model import Writer
from floatlens.decoding.options import AutoregressiveOptions, Decoding, DreamOptions, LladaOptions, Options, SdarOptions, make_options
from floatlens.decoding.prompts import AnyPrompt, EncodedPrompt, encode
from floatlens.decoding.tokens import warn_of_empty_prompts, warn_of_unknown_tokens
from floatlens.errors import Refusal
from floatlens.seeds import seeds_of


@dataclass(frozen=True)
class Batch:
    """Prompts that run together, and the seed of each."""

    prompts: Sequence[EncodedPrompt]
    seeds: Sequence[int]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a model is about to write: prompts in its tokens, how to write, a seed for each prompt, and the sampler's options.

    `options` is None where the model runs its own `generate`, which then takes what `decoding` says, one prompt at a time.
    """

    lm: Writer
    encoded: Sequence[EncodedPrompt]
    decoding: Decoding
    seeds: Sequence[int]
    options: Options | None

    @property
    def steps_at_most(self) -> int:
        """How many steps any one of the prompts takes at most; of a model's own loop only what was asked for is known."""
        options = self.options
        if options is None:
            return int(self.decoding.own_options.get("steps") or self.decoding.gen_length)
        if isinstance(options, LladaOptions | DreamOptions) and options.threshold is None and options.steps is not None:
            return options.steps
        extra = options.block_length if isinstance(options, SdarOptions) else 0
        return (options.gen_length or max(masks_in(self.lm, prompt) for prompt in self.encoded)) + extra

    @property
    def steps_of_all_batches(self) -> int:
        """How many steps all batches take at most; for a model's own loop, how many prompts there are."""
        if self.options is None:
            return len(self.encoded)
        return -(-len(self.encoded) // self.decoding.batch_size) * self.steps_at_most

    @property
    def described(self) -> dict[str, Any]:
        """The sampler's name and all its options, as a trace stores them."""
        if self.options is None:
            given = json.loads(json.dumps(self.decoding.own_options, default=repr))
            return {"name": "own", "gen_length": self.decoding.gen_length, **given}
        return {"name": self.decoding.sampler or self.lm.sampler, **asdict(self.options)}

    def batches(self) -> Iterator[Batch]:
        """The prompts in order, as many at a time as may run together."""
        size = 1 if self.options is None else self.decoding.batch_size
        for first in range(0, len(self.encoded), size):
            yield Batch(self.encoded[first : first + size], self.seeds[first : first + size])

    def canvas(self, batch: Batch) -> Canvas:
        """The canvas that a batch starts from."""
        assert self.options is not None
        lengths: Any = self.options.gen_length
        if isinstance(self.options, SdarOptions):
            length, block = self.options.gen_length, self.options.block_length
            lengths = [sdar.whole_blocks(len(prompt.tokens), length, block) for prompt in batch.prompts]
        pad = self.lm.config.pad_token_id if isinstance(getattr(self.lm.config, "pad_token_id", None), int) else 0
        canvas = blank_canvas(
            [prompt.tokens for prompt in batch.prompts],
            lengths,
            -1 if self.lm.mask_token_id is None else self.lm.mask_token_id,
            batch.seeds,
            suffix=self.lm.suffix if not isinstance(self.options, AutoregressiveOptions) else (),
            pad_token_id=max(pad, 0),
            device=self.lm.device,
        )
        if self.lm.mask_token_id is None:
            canvas.mask_token_id = None
        return canvas

    def loop(self, run: Run, canvas: Canvas) -> Iterator[Step]:
        """The decoding loop that goes with the options."""
        lm, options = self.lm, self.options
        if isinstance(options, LladaOptions):
            return llada.denoise(run, canvas, options, lm.row_offset, lm.end_tokens)
        if isinstance(options, DreamOptions):
            return dream.denoise(run, canvas, options, lm.row_offset)
        if isinstance(options, SdarOptions):
            return sdar.denoise(run, canvas, options, lm.new_cache, lm.end_tokens)
        assert options is not None
        return autoregressive.write(run, canvas, options, lm.new_cache, lm.end_tokens)


def plan_writing(lm: Writer, prompts: AnyPrompt | Sequence[AnyPrompt], decoding: Decoding) -> Plan:
    """Encode the prompts, settle the options, and refuse what the model cannot do; warn of text that it cannot read."""
    encoded = [encode(prompt, lm.tokenizer, chat=decoding.chat, suffix=lm.suffix) for prompt in as_list(prompts)]
    warn_of_unknown_tokens(lm.name, lm.tokenizer, encoded)
    warn_of_empty_prompts(lm.name, encoded)
    seeds = seeds_of(decoding.seed, len(encoded))
    if lm.sampler is None and decoding.sampler is None:
        return Plan(lm, encoded, decoding, seeds, None)
    return Plan(lm, encoded, decoding, seeds, _options(lm, encoded, decoding))


def _options(lm: Writer, encoded: Sequence[EncodedPrompt], decoding: Decoding) -> Options:
    """The sampler's options, checked against the prompts and the model."""
    sampler, gen_length = decoding.sampler or lm.sampler, decoding.gen_length
    assert sampler is not None
    if (sampler == "autoregressive") != (lm.sampler == "autoregressive"):
        raise Refusal(f"A {lm.family} model cannot be run by the {sampler} sampler.")
    if sampler != "autoregressive" and lm.mask_token_id is None:
        raise Refusal(f"A {lm.family} model has no mask token, and the {sampler} sampler cannot write without one.")
    if lm.sampler == "sdar" and sampler != "sdar":
        raise Refusal(
            f"{lm.name} was trained to see block by block, and the {sampler} sampler lets every row see the whole text, which gives "
            "plausible but wrong numbers. Leave sampler (--sampler) out."
        )
    given = {**(lm.sampler_defaults if sampler == lm.sampler else {}), **decoding.options, "gen_length": gen_length}
    if decoding.steps is not None:
        given["steps"] = decoding.steps
    elif sampler == "llada":
        given["steps"] = gen_length or max(1, *(masks_in(lm, prompt) for prompt in encoded))
    elif sampler == "dream" and gen_length:
        given["steps"] = gen_length
    for option in ("forbid_eos", "eos_last"):
        if given.get(option) and not lm.end_tokens:
            raise Refusal(f"{option} is asked for, but {lm.name} has no end token that it could keep back.")
    options = make_options(sampler, given)
    refuse_unfit_prompts(lm, encoded, options)
    return options


def as_list(prompts: AnyPrompt | Sequence[AnyPrompt]) -> list[Any]:
    """One prompt or several, as a list of prompts."""
    given: Any = prompts
    if isinstance(given, Tensor | np.ndarray):
        given = list(given) if given.ndim == 2 else [given]
    first: Any = given[0] if isinstance(given, Sequence) and len(given) else None
    is_single = isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Sequence)
    if is_single or isinstance(first, Integral | float) or (isinstance(first, dict) and "role" in first):
        given = [given]
    if not given:
        raise Refusal("There are no prompts; give at least one.")
    return list(given)


def context_length(lm: Writer) -> int | None:
    """How many tokens a model was made for; None where its config does not say.

    Examples
    --------
    >>> import floatlens as fl
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=16)
    >>> context_length(fl.LanguageModel(LlamaForCausalLM(config)))
    16
    """
    limit = getattr(lm.config, "max_position_embeddings", None)
    if isinstance(limit, int) and "roberta" in str(getattr(lm.config, "model_type", "")):
        limit -= lm.config.pad_token_id + 1  # its positions begin after that of the padding token
    return limit if isinstance(limit, int) else None


def masks_in(lm: Writer, prompt: EncodedPrompt) -> int:
    """How many mask tokens a prompt holds."""
    return 0 if lm.mask_token_id is None else prompt.tokens.count(lm.mask_token_id)


def refuse_foreign_tokens(lm: Writer, number: int, prompt: EncodedPrompt) -> None:
    """Refuse token ids that the model has no embedding for."""
    vocabulary = getattr(lm.config, "vocab_size", None)
    if vocabulary is not None and any(not 0 <= token < vocabulary for token in prompt.tokens):
        raise Refusal(f"Prompt {number} holds a token id outside the vocabulary of {lm.name} (0 to {vocabulary - 1}).")


def refuse_unfit_prompts(lm: Writer, encoded: Sequence[EncodedPrompt], options: Options) -> None:
    """Refuse prompts that are empty, too long, or hold tokens they must not."""
    limit = context_length(lm)
    for number, prompt in enumerate(encoded):
        length = len(prompt.tokens) + options.gen_length + len(lm.suffix)
        if isinstance(options, AutoregressiveOptions) and not prompt.tokens:
            raise Refusal(f"Prompt {number} is empty; an autoregressive model needs at least one token to go on from.")
        if length == 0:
            raise Refusal(f"Prompt {number} is empty and gen_length is 0: there is nothing to write.")
        if limit is not None and length > limit:
            raise Refusal(
                f"Prompt {number} has {len(prompt.tokens)} tokens; with {options.gen_length} to write that is more than the {limit} that "
                f"{lm.name} was made for."
            )
        refuse_foreign_tokens(lm, number, prompt)
        masks = masks_in(lm, prompt)
        if masks and options.gen_length:
            raise Refusal(
                f"Prompt {number} holds the mask token. To fill masks inside a prompt, choose gen_length=0; otherwise remove them."
            )
        if not masks and not options.gen_length:
            raise Refusal(f"gen_length is 0 and prompt {number} holds no mask token, so there is nothing to write.")

"""A language model as floatlens uses it: a module, its tokenizer, and how its family writes.

`generate` writes; `trace` writes and records where the model looks while it does. Both run the same loops.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from floatlens.capture.edits import Edit
from floatlens.decoding import autoregressive, dream, llada, sdar
from floatlens.decoding.canvas import Canvas, Pass, Run, Step, blank_canvas
from floatlens.decoding.options import AutoregressiveOptions, DreamOptions, LladaOptions, Options, SdarOptions, make_options
from floatlens.decoding.prompts import AnyPrompt, EncodedPrompt, encode
from floatlens.decoding.tokens import say_what_is_unknown
from floatlens.errors import Refusal
from floatlens.folders import unfinished_folder
from floatlens.interventions.run import AnyIntervention, InterventionRun, intervening, run_of
from floatlens.models.writing import Generation, refuse_unfit_prompts, write, write_by_itself
from floatlens.seeds import seeds_of

if TYPE_CHECKING:
    from floatlens.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A module that writes. `fl.load` makes one; you can also build it around a module of your own.

    Examples
    --------
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
    >>> config = LlamaConfig(**size)
    >>> config.is_causal = False
    >>> lm = LanguageModel(LlamaForCausalLM(config).eval(), mask_token_id=63)
    >>> written = lm.generate([[1, 2, 3]], gen_length=4, steps=2)
    >>> len(written[0].tokens), written[0].steps
    (4, 2)
    """

    module: nn.Module
    tokenizer: Any = None
    family: str = "llada"
    sampler: str | None = "llada"
    row_offset: int = 0
    mask_token_id: int | None = None
    end_tokens: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    name: str = "model"
    revision: str | None = None
    sampler_defaults: dict[str, Any] = field(default_factory=dict)
    step_on: nn.Module | None = None

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    @property
    def config(self) -> Any:
        """The config of the text model."""
        config: Any = getattr(self.module, "config", None)
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    def predicting_row(self, position: int) -> int:
        """The row whose logits fill this position."""
        return max(position - self.row_offset, 0)

    def generate(
        self,
        prompts: AnyPrompt | Sequence[AnyPrompt],
        *,
        gen_length: int = 32,
        steps: int | None = None,
        sampler: str | None = None,
        seed: int | Sequence[int] = 0,
        batch_size: int = 8,
        chat: bool | None = None,
        intervention: AnyIntervention | None = None,
        progress: bool = True,
        **options: Any,
    ) -> list[Generation]:
        """Write after each prompt.

        Parameters
        ----------
        prompts
            Texts, `fl.Prompt`s, conversations or lists of token ids; one or several.
        gen_length
            How many tokens to write; 0 fills the masks inside the prompts.
        steps
            How many denoising steps; one a token by default. Autoregressive models have none to choose.
        sampler
            Another decoding loop than the family's: "llada", "dream", "sdar".
        seed
            A whole number from 0 to 2^62: sample i draws from a generator seeded with `seed + i`, whatever batch it is in; or one seed for each prompt.
        batch_size
            How many prompts run together. It changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may fall differently (docs/reference/decoding.md).
        chat
            Whether texts go through the tokenizer's chat template; by default if it has one.
        intervention
            What the model may not look at while it writes: one or several of `floatlens.interventions`, or functions that change attention calls.
        progress
            Show a progress bar.
        options
            Those of the sampler: temperature, threshold, block_length, ... An unknown one is refused, with the list.
        """
        encoded = [self.encode(prompt, chat=chat) for prompt in as_list(prompts)]
        say_what_is_unknown(self, encoded)
        refuse_batch_size(batch_size)
        under = run_of(self, intervention)
        seeds = seeds_of(seed, len(encoded))
        if self.sampler is None and sampler is None:
            own_options = options if steps is None else {**options, "steps": steps}
            return write_by_itself(self, encoded, gen_length, seeds, own_options, under, progress=progress)
        chosen = self.options(encoded, gen_length, steps, sampler, options)
        return write(self, encoded, chosen, seeds, batch_size, under, progress=progress)

    def intervene(self, intervention: AnyIntervention) -> AbstractContextManager[InterventionRun]:
        """Everything that the model writes inside the context, it writes under these interventions; the run says what they removed.

        Examples
        --------
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from floatlens.interventions import MaskAnchors
        >>> config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
        >>> config.is_causal = False
        >>> lm = LanguageModel(LlamaForCausalLM(config).eval(), mask_token_id=63)
        >>> with lm.intervene(MaskAnchors(1)) as run:
        ...     written = lm.generate([[1, 2, 3]], gen_length=4, steps=2, progress=False)
        >>> dict(run.removed.sizes)
        {'sample': 1, 'step': 2, 'layer': 2, 'head': 4}
        """
        return intervening(self, intervention)

    def trace(
        self,
        prompts: AnyPrompt | Sequence[AnyPrompt],
        *,
        gen_length: int = 32,
        steps: int | None = None,
        sampler: str | None = None,
        seed: int = 0,
        batch_size: int = 4,
        chat: bool | None = None,
        detail: str | dict[str, str] = "default",
        groups: Sequence[str] | None = None,
        top_keys: int = 8,
        patterns: Sequence[tuple[int, int]] = (),
        edits: Sequence[Edit] = (),
        intervention: AnyIntervention | None = None,
        path: str | PathLike[str] | None = None,
        progress: bool = True,
        **options: Any,
    ) -> "Trace":
        """Write after each prompt, and record where the model looks at every step.

        Takes what `generate` takes, and:

        Parameters
        ----------
        detail
            What is kept: "default", "light" (mass and entropy per layer), "full" (everything per head), or a dictionary over the default, such as
            {"geometry": "head", "norms": "off"}. Names: mass, halves, entropy, geometry, norms, flow, top_keys; values: "head", "layer", "off".
        groups
            Query groups: "masked", "unmasked", "predicting", "prompt"; the first three by default ("predicting" for autoregressive models).
        top_keys
            How many favourite keys of each predicting row are kept.
        patterns
            (layer, head) pairs whose full patterns are kept at every step.
        edits
            Changes of attention calls, as in `fl.tap`; they come after those of an intervention.
        path
            Write to this folder as the run goes, and return the trace opened from there. Denoising loops hold at most 32 steps of a batch in
            memory; autoregressive models and models with their own generate hold what they record until a batch or sample is done.
        """
        from floatlens.trace.run import record_trace  # the trace needs models, so models cannot need the trace

        return record_trace(
            self,
            prompts,
            gen_length=gen_length,
            steps=steps,
            sampler=sampler,
            seed=seed,
            batch_size=batch_size,
            chat=chat,
            detail=detail,
            groups=groups,
            top_keys=top_keys,
            patterns=patterns,
            edits=edits,
            intervention=intervention,
            path=path,
            progress=progress,
            options=options,
        )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a checkpoint that `fl.load` and transformers' Auto classes both load, to a new folder: stock tensor names, safetensors, the tokenizer."""
        if self.sampler is None:
            raise Refusal(f"A {self.family} model is saved by its own save_pretrained; floatlens has nothing to add to it.")
        module: Any = self.module
        with unfinished_folder(folder, "floatlens (saving a model)") as unfinished:
            module.config.floatlens = {
                "family": self.family,
                "sampler": self.sampler,
                "row_offset": self.row_offset,
                "mask_token_id": self.mask_token_id,
                "end_tokens": list(self.end_tokens),
                "suffix": list(self.suffix),
                "sampler_defaults": self.sampler_defaults,
            }
            module.save_pretrained(unfinished.folder, save_original_format=False)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(unfinished.folder)

    def encode(self, prompt: AnyPrompt, *, chat: bool | None = None) -> EncodedPrompt:
        """A prompt in this model's tokens."""
        return encode(prompt, self.tokenizer, chat=chat, suffix=self.suffix)

    def options(
        self, encoded: Sequence[EncodedPrompt], gen_length: int, steps: int | None, sampler: str | None, given: dict[str, Any]
    ) -> Options:
        """The sampler's options, checked against the prompts and the model."""
        sampler = sampler or self.sampler
        assert sampler is not None
        if (sampler == "autoregressive") != (self.sampler == "autoregressive"):
            raise Refusal(f"A {self.family} model cannot be run by the {sampler} sampler.")
        if sampler != "autoregressive" and self.mask_token_id is None:
            raise Refusal(f"A {self.family} model has no mask token, and the {sampler} sampler cannot write without one.")
        if self.sampler == "sdar" and sampler != "sdar":
            raise Refusal(
                f"{self.name} was trained to see block by block, and the {sampler} sampler lets every row see the whole text, which gives plausible, wrong "
                "numbers. Leave sampler (--sampler) out."
            )
        everything = {**(self.sampler_defaults if sampler == self.sampler else {}), **given, "gen_length": gen_length}
        if steps is not None:
            everything["steps"] = steps
        elif sampler == "llada":
            masks = max(prompt.tokens.count(-1 if self.mask_token_id is None else self.mask_token_id) for prompt in encoded)
            everything["steps"] = gen_length or max(masks, 1)
        elif sampler == "dream" and gen_length:
            everything["steps"] = gen_length
        for option in ("forbid_eos", "eos_last"):
            if everything.get(option) and not self.end_tokens:
                raise Refusal(f"{option} is asked for, but {self.name} has no end token that it could keep back.")
        options = make_options(sampler, everything)
        refuse_unfit_prompts(self, encoded, options)
        return options

    def canvas(self, batch: Sequence[EncodedPrompt], options: Options, seeds: Sequence[int]) -> Canvas:
        """The canvas a batch starts from; each of its samples has a seed."""
        lengths: Any = options.gen_length
        if isinstance(options, SdarOptions):
            lengths = [sdar.whole_blocks(len(prompt.tokens), options.gen_length, options.block_length) for prompt in batch]
        mask = -1 if self.mask_token_id is None else self.mask_token_id
        pad = self.config.pad_token_id if isinstance(getattr(self.config, "pad_token_id", None), int) else 0
        canvas = blank_canvas(
            [prompt.tokens for prompt in batch],
            lengths,
            mask,
            seeds,
            suffix=self.suffix if not isinstance(options, AutoregressiveOptions) else (),
            pad_token_id=max(pad, 0),
            device=self.device,
        )
        if self.mask_token_id is None:
            canvas.mask_token_id = None
        return canvas

    def loop(self, run: Run, canvas: Canvas, options: Options) -> Iterator[Step]:
        """The decoding loop that goes with the options."""
        eos = self.end_tokens[0] if self.end_tokens else None
        if isinstance(options, LladaOptions):
            return llada.denoise(run, canvas, options, self.row_offset, eos, self.end_tokens)
        if isinstance(options, DreamOptions):
            return dream.denoise(run, canvas, options, self.row_offset)
        if isinstance(options, SdarOptions):
            return sdar.denoise(run, canvas, options, self.new_cache, self.end_tokens)
        return autoregressive.write(run, canvas, options, self.new_cache, self.end_tokens)

    def most_steps(self, encoded: Sequence[EncodedPrompt], options: Options, batch_size: int) -> int:
        """How many steps all batches take at most."""
        return -(-len(encoded) // batch_size) * self.steps_at_most(encoded, options)

    def steps_at_most(self, encoded: Sequence[EncodedPrompt], options: Options) -> int:
        """How many steps any one of the prompts takes at most."""
        if isinstance(options, LladaOptions | DreamOptions) and options.threshold is None and options.steps is not None:
            return options.steps
        masks = max(prompt.tokens.count(-1 if self.mask_token_id is None else self.mask_token_id) for prompt in encoded)
        extra = options.block_length if isinstance(options, SdarOptions) else 0
        return (options.gen_length or masks) + extra

    def new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.config)

    @torch.no_grad()
    def run_pass(self, asked: Pass) -> Tensor:
        """Logits of the wanted rows: (sample, wanted row, vocabulary)."""
        if asked.unguided is None:
            return self._wanted(self.forward(asked, asked.tokens, asked.real), asked)
        twice = self.forward(asked, torch.cat([asked.tokens, asked.unguided]), torch.cat([asked.real, asked.real]))
        guided, unguided = self._wanted(twice, asked).chunk(2)
        return unguided + (asked.guidance + 1) * (guided - unguided)

    def forward(self, asked: Pass, tokens: Tensor, real: Tensor) -> Tensor:
        """The module's forward for a pass."""
        inputs: dict[str, Any] = {"input_ids": tokens}
        if asked.cache is not None:
            offset = torch.tensor(asked.offset or [0] * len(tokens), device=tokens.device)
            rows = torch.arange(asked.past, asked.past + tokens.shape[1], device=tokens.device)
            inputs["position_ids"] = (rows - offset[:, None]).clamp(min=0)
            inputs |= {"past_key_values": asked.cache, "use_cache": True}
            inputs["attention_mask"] = asked.real_keys.long() if asked.visible is None else asked.visible
        else:
            if not bool(real.all()):
                inputs["attention_mask"] = real.long()
            if "use_cache" in self._accepts:
                inputs["use_cache"] = False
        if asked.wanted_rows is not None and "logits_to_keep" in self._accepts:
            inputs["logits_to_keep"] = asked.wanted_rows
        return self.module(**inputs).logits

    def _wanted(self, logits: Tensor, asked: Pass) -> Tensor:
        if asked.wanted_rows is None or "logits_to_keep" in self._accepts:
            return logits
        return logits[:, asked.wanted_rows]

    @cached_property
    def _accepts(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.module.forward).parameters)

    def text_of(self, tokens: Sequence[int]) -> str:
        """Text up to the first end token."""
        end = next((at for at, token in enumerate(tokens) if token in self.end_tokens), len(tokens))
        return "" if self.tokenizer is None else self.tokenizer.decode(list(tokens[:end]), skip_special_tokens=True)


def refuse_batch_size(batch_size: int) -> None:
    """Refuse a batch size below 1, and what is no number."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
        raise Refusal(f"batch_size={batch_size!r}: at least one prompt must run at a time.")


def as_list(prompts: AnyPrompt | Sequence[AnyPrompt]) -> list[Any]:
    """One prompt or several, as a list of prompts."""
    given: Any = prompts
    if isinstance(given, Tensor | np.ndarray):
        given = list(given) if given.ndim == 2 else [given]
    first: Any = given[0] if isinstance(given, Sequence) and len(given) else None
    is_one = isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Sequence)
    if is_one or isinstance(first, Integral | float) or (isinstance(first, dict) and "role" in first):
        given = [given]
    if not given:
        raise Refusal("There are no prompts; give at least one.")
    return list(given)


def described(options: Options, sampler: str | None) -> dict[str, Any]:
    """The sampler's name and all its options, as the trace keeps them."""
    return {"name": sampler, **asdict(options)}

"""A language model as floatlens uses it: a module, its tokenizer, and how its family writes.

`generate` writes; `trace` writes and records where the model looks meanwhile. Both run the same plan (`floatlens.decoding.plan`): a loop of
floatlens, or the module's own `generate` for models that nothing else can run.

Refused: options that the module's own `generate` would ignore; saving a model that floatlens adds nothing to.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationConfig

from floatlens.capture.edits import Edit
from floatlens.decoding.canvas import Pass
from floatlens.decoding.model import Decisions
from floatlens.decoding.options import Decoding
from floatlens.decoding.plan import Batch, Plan, plan_writing, refuse_foreign_tokens
from floatlens.decoding.prompts import AnyPrompt, EncodedPrompt, encode
from floatlens.errors import Refusal
from floatlens.folders import unfinished_folder
from floatlens.interventions.run import (
    AnyIntervention,
    InterventionRun,
    intervened_loop,
    intervened_own_loop,
    intervening,
    run_of,
)
from floatlens.models.families import FAMILIES
from floatlens.terminal import progress_bar
from floatlens.trace.run import TracePlan, plan_trace
from floatlens.trace.schema import Detail, make_detail
from floatlens.trace.trace import Trace

_TRANSFORMERS_NAMES = {"gen_length": "max_new_tokens", "steps": "max_denoising_steps"}


@dataclass(frozen=True)
class Generation:
    """What a model wrote."""

    text: str  # up to the first end token, without special tokens
    tokens: list[int]  # everything it wrote
    prompt: str
    prompt_tokens: list[int]
    steps: int
    whole_text: str = ""  # prompt and answer together, without special tokens: the prompt with its masks filled, where those were written
    removed: float | None = None  # the share of the attention that interventions removed, over steps, layers and heads; None without any


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A language model: a module that writes text with a decoding loop.

    `fl.load` makes one; you can also build it around a module of your own.

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
    never_written: tuple[int, ...] = ()
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
            How many denoising steps; one per token by default. Autoregressive models have none to choose.
        sampler
            Another decoding loop than the family's: "llada", "dream", "sdar".
        seed
            A whole number from 0 to 2^62: sample i draws from a generator seeded with `seed + i`, whatever batch it is in; or one seed for
            each prompt.
        batch_size
            How many prompts run together. It changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may
            fall differently (docs/reference/decoding.md).
        chat
            Whether texts go through the tokenizer's chat template; by default they do if it has one.
        intervention
            What the model may not look at while it writes: one or several of `floatlens.interventions`, or functions that change attention
            calls.
        progress
            Show a progress bar.
        options
            Those of the sampler: temperature, threshold, block_length, ... An unknown one is refused, with the list.
        """
        plan = plan_writing(self, prompts, Decoding(gen_length, steps, sampler, options, seed, batch_size, chat))
        under = run_of(self, intervention)
        written: list[Generation] = []
        with progress_bar(plan.steps_of_all_batches, f"Writing with {self.name}", show=progress) as advance:
            for batch in plan.batches():
                written += self._write(plan, batch, under, advance)
        if under is not None:
            under.say_if_nothing_was_removed()
        return written

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
    ) -> Trace:
        """Write after each prompt, and record where the model looks at every step.

        Takes what `generate` takes, and:

        Parameters
        ----------
        detail
            What is kept: "default", "light" (mass and entropy per layer), "full" (everything per head), or a dictionary of what differs
            from the default, such as {"geometry": "head", "norms": "off"}. Names: mass, halves, entropy, geometry, norms, flow, top_keys;
            values: "head", "layer", "off".
        groups
            Query groups: "masked", "unmasked", "predicting", "prompt"; the first three by default ("predicting" for autoregressive models).
        top_keys
            How many favourite keys of each predicting row are kept.
        patterns
            (layer, head) pairs whose full patterns are kept at every step.
        edits
            Changes of attention calls, as in `fl.tap`; they come after those of an intervention.
        path
            Write to this folder during the run, and return the trace opened from there. Denoising loops hold at most 32 steps of a batch in
            memory; autoregressive models and models with their own generate hold what they record until a batch or sample is done.
        """
        decoding = Decoding(gen_length, steps, sampler, options, seed, batch_size, chat)
        kept = make_detail(detail, groups, top_keys, patterns)
        return self.plan_trace(prompts, decoding, kept, edits=edits, intervention=intervention).run(path, progress=progress)

    def plan_trace(
        self,
        prompts: AnyPrompt | Sequence[AnyPrompt],
        decoding: Decoding,
        detail: Detail,
        *,
        edits: Sequence[Edit] = (),
        intervention: AnyIntervention | None = None,
    ) -> TracePlan:
        """What `trace` is about to do, with everything checked and nothing run: its `size` says what it will take, `run` does it.

        Examples
        --------
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64)
        >>> module = LlamaForCausalLM(LlamaConfig(**size)).eval()
        >>> lm = LanguageModel(module, family="autoregressive", sampler="autoregressive", row_offset=1)
        >>> plan = lm.plan_trace([[1, 2, 3]], Decoding(gen_length=4), make_detail("light"))
        >>> plan.size.steps, plan.size.length
        (4, 7)
        >>> plan.run(progress=False).dataset.sizes["step"]
        4
        """
        return plan_trace(self, prompts, decoding, detail, edits, run_of(self, intervention))

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a checkpoint to a new folder that `fl.load` and transformers' Auto classes both load: stock tensor names, safetensors."""
        if self.sampler is None:
            raise Refusal(f"A {self.family} model is saved by its own save_pretrained; floatlens has nothing to add to it.")
        module: Any = self.module
        with unfinished_folder(folder, "floatlens (saving a model)") as unfinished:
            module.config.floatlens = {
                "family": self.family,
                "sampler": self.sampler,
                "row_offset": self.row_offset,
                "mask_token_id": self.mask_token_id,
                "never_written": list(self.never_written),
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

    def new_cache(self) -> DynamicCache:
        """An empty cache of keys and values."""
        return DynamicCache(config=self.config)

    @torch.no_grad()
    def run_pass(self, asked: Pass) -> Tensor:
        """Logits of the wanted rows: (sample, wanted row, vocabulary); -inf for tokens that the model never writes."""
        logits = self._guided(asked)
        for token in self.never_written:
            logits[..., token] = float("-inf")
        return logits

    def _guided(self, asked: Pass) -> Tensor:
        if asked.unguided is None:
            return self._wanted(self.forward(asked, asked.tokens, asked.real), asked)
        twice = self.forward(asked, torch.cat([asked.tokens, asked.unguided]), torch.cat([asked.real, asked.real]))
        guided, unguided = self._wanted(twice, asked).chunk(2)
        return unguided + (asked.guidance + 1) * (guided - unguided)

    def forward(self, asked: Pass, tokens: Tensor, real: Tensor) -> Tensor:
        """The module's forward for a pass, whose tensors are brought to the model."""
        device = self.device
        inputs: dict[str, Any] = {"input_ids": tokens.to(device)}
        if asked.cache is not None:
            offset = torch.tensor(asked.offset or [0] * len(tokens))
            rows = torch.arange(asked.past, asked.past + tokens.shape[1])
            inputs["position_ids"] = (rows - offset[:, None]).clamp(min=0).to(device)
            inputs |= {"past_key_values": asked.cache, "use_cache": True}
            inputs["attention_mask"] = (asked.real_keys.long() if asked.visible is None else asked.visible).to(device)
        else:
            if not bool(real.all()):
                inputs["attention_mask"] = real.long().to(device)
            if "use_cache" in self._accepts:
                inputs["use_cache"] = False
        if asked.wanted_rows is not None and "logits_to_keep" in self._accepts:
            inputs["logits_to_keep"] = asked.wanted_rows.to(device)
        return self.module(**inputs).logits

    def _wanted(self, logits: Tensor, asked: Pass) -> Tensor:
        if asked.wanted_rows is None or "logits_to_keep" in self._accepts:
            return logits
        return logits[:, asked.wanted_rows.to(logits.device)]

    @cached_property
    def _accepts(self) -> frozenset[str]:
        """What the module's forward takes. Rows to keep are indices on one device, and those of a model on several may be on another."""
        spread = len(set(getattr(self.module, "hf_device_map", {}).values())) > 1
        return frozenset(inspect.signature(self.module.forward).parameters) - ({"logits_to_keep"} if spread else set())

    def text_of(self, tokens: Sequence[int]) -> str:
        """Text up to the first end token."""
        end = next((index for index, token in enumerate(tokens) if token in self.end_tokens), len(tokens))
        return "" if self.tokenizer is None else self.tokenizer.decode(list(tokens[:end]), skip_special_tokens=True)

    def whole_text(self, tokens: Sequence[int]) -> str:
        """Text of all tokens, without special ones; "" for a model without a tokenizer."""
        return "" if self.tokenizer is None else self.tokenizer.decode(list(tokens), skip_special_tokens=True)

    @torch.no_grad()
    def own_generate(self, prompt: EncodedPrompt, decoding: Decoding, seed: int) -> list[int]:
        """The whole text in tokens, written after one prompt by the module's own `generate`, seeded."""
        module: Any = self.module
        gen_length: Any = decoding.gen_length
        if isinstance(gen_length, bool) or not isinstance(gen_length, int) or gen_length < 1:
            raise Refusal(f"gen_length={gen_length!r}: a model's own generate writes at least one token.")
        named = self._names_of_generate({"gen_length": gen_length, **decoding.own_options})
        refuse_foreign_tokens(self, 0, prompt)
        if self.mask_token_id in prompt.tokens:
            raise Refusal("The prompt holds the mask token, which a model's own generate would take for its own. Remove it.")
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed)
            output = module.generate(torch.tensor([prompt.tokens], device=self.device), **named)
        tokens = getattr(output, "sequences", output)[0].tolist()
        return tokens if tokens[: len(prompt.tokens)] == prompt.tokens else [*prompt.tokens, *tokens]

    def watch_decisions(self) -> AbstractContextManager[Decisions | None]:
        """While `own_generate` runs in here: what its loop accepts, if the family's adapter knows how to ask."""
        watch = FAMILIES[self.family].watch_decisions if self.family in FAMILIES else None
        return nullcontext() if watch is None else watch(self.module)

    def _names_of_generate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options under the names that the module's own `generate` has for them; what it does not know is refused."""
        generate: Any = getattr(self.module, "generate", None)
        if generate is None:
            raise Refusal(f"{type(self.module).__name__} has no generate of its own. Choose a sampler of floatlens: sampler='llada'.")
        parameters = list(inspect.signature(generate).parameters.values())[1:]  # the first is the prompt
        known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        if len(known) < len(parameters):  # as transformers has it: whatever is not named there goes to the generation config
            known += [name for name in vars(getattr(self.module, "generation_config", None) or GenerationConfig()) if name[0] != "_"]
        named = {name if name in known else _TRANSFORMERS_NAMES.get(name, name): value for name, value in given.items()}
        if unknown := [name for name in named if name not in known]:
            raise Refusal(f"generate of {type(self.module).__name__} does not know {unknown[0]!r}. It knows: {', '.join(known)}.")
        return named

    def _write(self, plan: Plan, batch: Batch, under: InterventionRun | None, advance: Callable[[int], None]) -> list[Generation]:
        """Write after the prompts of a batch, under interventions if there are any."""
        if plan.options is None:
            running = None if under is None else under.start(batch.seeds)
            with nullcontext() if running is None else intervened_own_loop(self, running):
                text = self.own_generate(batch.prompts[0], plan.decoding, batch.seeds[0])
            advance(1)
            finished, written, steps = [text], [text[len(batch.prompts[0].tokens) :]], [0]
        else:
            canvas = plan.canvas(batch)
            running = None if under is None else under.start_batch(canvas, plan.options)
            steps = [0] * len(batch.prompts)
            with nullcontext(self.run_pass) if running is None else intervened_loop(self, running) as run_pass:
                for step in plan.loop(run_pass, canvas):
                    for sample in step.samples:
                        steps[sample] += 1
                    if running is not None:
                        running.finish(step)
                    advance(1)
            was_written = canvas.real & ~canvas.prompt
            finished = [tokens[rows].tolist() for tokens, rows in zip(canvas.tokens, canvas.real, strict=True)]
            written = [tokens[rows].tolist() for tokens, rows in zip(canvas.tokens, was_written, strict=True)]
        removed = [None if running is None else running.mean_removed(sample) for sample in range(len(batch.prompts))]
        return [
            Generation(self.text_of(tokens), tokens, prompt.text, prompt.tokens, count, self.whole_text(all_tokens), share)
            for prompt, tokens, all_tokens, count, share in zip(batch.prompts, written, finished, steps, removed, strict=True)
        ]

"""Whether prompts fit the model and what it is asked to write.

Models that bring their own `generate`: run it one prompt at a time, seeded, and refuse options that it would ignore.

`lm.generate`: run the loop batch by batch, under interventions where there are some, and gather what was written.
"""

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig

from floatlens.decoding.canvas import Canvas
from floatlens.decoding.options import AutoregressiveOptions, Options
from floatlens.decoding.prompts import EncodedPrompt
from floatlens.errors import Refusal
from floatlens.interventions.run import InterventionRun, intervened_loop, intervened_own_loop
from floatlens.terminal import progress_bar

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel


def context_length(lm: "LanguageModel") -> int | None:
    """How many tokens a model was made for; None where its config does not say.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.models.language_model import LanguageModel
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=16)
    >>> context_length(LanguageModel(LlamaForCausalLM(config)))
    16
    """
    limit = getattr(lm.config, "max_position_embeddings", None)
    if isinstance(limit, int) and "roberta" in str(getattr(lm.config, "model_type", "")):
        limit -= lm.config.pad_token_id + 1  # its positions begin behind the padding token's
    return limit if isinstance(limit, int) else None


def refuse_foreign_tokens(lm: "LanguageModel", number: int, prompt: EncodedPrompt) -> None:
    """Refuse token ids that the model has no embedding for."""
    vocabulary = getattr(lm.config, "vocab_size", None)
    if vocabulary is not None and any(not 0 <= token < vocabulary for token in prompt.tokens):
        raise Refusal(f"Prompt {number} holds a token id outside the vocabulary of {lm.name} (0 to {vocabulary - 1}).")


def refuse_unfit_prompts(lm: "LanguageModel", encoded: Sequence[EncodedPrompt], options: Options) -> None:
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
                f"Prompt {number} has {len(prompt.tokens)} tokens; with {options.gen_length} to write that is more than the {limit} that {lm.name} was made for."
            )
        refuse_foreign_tokens(lm, number, prompt)
        masks = prompt.tokens.count(lm.mask_token_id) if lm.mask_token_id is not None else 0
        if masks and options.gen_length:
            raise Refusal(
                f"Prompt {number} holds the mask token. To fill masks inside a prompt, choose gen_length=0; otherwise remove them."
            )
        if not masks and not options.gen_length:
            raise Refusal(f"gen_length is 0 and prompt {number} holds no mask token, so there is nothing to write.")


_TRANSFORMERS_NAMES = {"gen_length": "max_new_tokens", "steps": "max_denoising_steps"}


@torch.no_grad()
def own_generate(lm: "LanguageModel", prompt: EncodedPrompt, gen_length: int, seed: int, options: dict[str, Any]) -> list[int]:
    """The module's own `generate`, one prompt at a time, seeded; the whole text in tokens."""
    module: Any = lm.module
    if isinstance(gen_length, bool) or not isinstance(gen_length, int) or gen_length < 1:
        raise Refusal(f"gen_length={gen_length!r}: a model's own generate writes at least one token.")
    named = _own_options(lm, {"gen_length": gen_length, **options})
    refuse_foreign_tokens(lm, 0, prompt)
    if lm.mask_token_id in prompt.tokens:
        raise Refusal("The prompt holds the mask token, which a model's own generate would take for its own. Remove it.")
    with torch.random.fork_rng(devices=[lm.device] if lm.device.type == "cuda" else []):
        torch.manual_seed(seed)
        output = module.generate(torch.tensor([prompt.tokens], device=lm.device), **named)
    tokens = getattr(output, "sequences", output)[0].tolist()
    return tokens if tokens[: len(prompt.tokens)] == prompt.tokens else [*prompt.tokens, *tokens]


def _own_options(lm: "LanguageModel", given: dict[str, Any]) -> dict[str, Any]:
    """Options under the names that the module's own `generate` has for them; what it does not know is refused."""
    generate: Any = getattr(lm.module, "generate", None)
    if generate is None:
        raise Refusal(f"{type(lm.module).__name__} has no generate of its own. Choose a sampler of floatlens: sampler='llada'.")
    parameters = list(inspect.signature(generate).parameters.values())[1:]  # the first is the prompt
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    if len(known) < len(parameters):  # as transformers has it: whatever is not named there goes to the generation config
        known += [name for name in vars(getattr(lm.module, "generation_config", None) or GenerationConfig()) if name[0] != "_"]
    named = {name if name in known else _TRANSFORMERS_NAMES.get(name, name): value for name, value in given.items()}
    if unknown := [name for name in named if name not in known]:
        raise Refusal(f"generate of {type(lm.module).__name__} does not know {unknown[0]!r}. It knows: {', '.join(known)}.")
    return named


@dataclass(frozen=True)
class Generation:
    """What a model wrote."""

    text: str  # up to the first end token, without special tokens
    tokens: list[int]  # everything it wrote
    prompt: str
    prompt_tokens: list[int]
    steps: int
    removed: float | None = None  # the share of the attention that interventions removed, over steps, layers and heads; None without any


def write(
    lm: "LanguageModel",
    encoded: Sequence[EncodedPrompt],
    options: Options,
    seeds: Sequence[int],
    batch_size: int,
    under: InterventionRun | None,
    *,
    progress: bool,
) -> list[Generation]:
    """Write after each prompt with the family's loop."""
    written: list[Generation] = []
    with progress_bar(lm.most_steps(encoded, options, batch_size), f"Writing with {lm.name}", show=progress) as advance:
        for first in range(0, len(encoded), batch_size):
            batch = encoded[first : first + batch_size]
            canvas = lm.canvas(batch, options, seeds[first : first + batch_size])
            running = None if under is None else under.start_batch(canvas, options)
            taken = [0] * len(batch)
            with nullcontext(lm.run_pass) if running is None else intervened_loop(lm, running) as run_pass:
                for step in lm.loop(run_pass, canvas, options):
                    for sample in step.samples:
                        taken[sample] += 1
                    if running is not None:
                        running.finish(step)
                    advance(1)
            for sample, prompt in enumerate(batch):
                removed = None if running is None else running.mean_removed(sample)
                written.append(_generation(lm, prompt, _written_tokens(canvas, sample), taken[sample], removed))
    if under is not None:
        under.say_if_nothing_was_removed()
    return written


def write_by_itself(
    lm: "LanguageModel",
    encoded: Sequence[EncodedPrompt],
    gen_length: int,
    seeds: Sequence[int],
    options: dict[str, Any],
    under: InterventionRun | None,
    *,
    progress: bool,
) -> list[Generation]:
    """Write after each prompt with the model's own `generate`."""
    written = []
    with progress_bar(len(encoded), f"Writing with {lm.name}", show=progress) as advance:
        for seed, prompt in zip(seeds, encoded, strict=True):
            running = None if under is None else under.start([seed])
            with nullcontext() if running is None else intervened_own_loop(lm, running):
                tokens = own_generate(lm, prompt, gen_length, seed, options)
            removed = None if running is None else running.mean_removed(0)
            written.append(_generation(lm, prompt, tokens[len(prompt.tokens) :], 0, removed))
            advance(1)
    if under is not None:
        under.say_if_nothing_was_removed()
    return written


def _written_tokens(canvas: Canvas, sample: int) -> list[int]:
    return canvas.tokens[sample][(canvas.real & ~canvas.prompt)[sample]].tolist()


def _generation(lm: "LanguageModel", prompt: EncodedPrompt, tokens: list[int], steps: int, removed: float | None) -> Generation:
    return Generation(lm.text_of(tokens), tokens, prompt.text, prompt.tokens, steps, removed)

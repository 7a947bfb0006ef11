"""Models that bring their own `generate`: run it one prompt at a time, seeded, and refuse options that it would ignore."""

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig

from floatlens.errors import Refusal
from floatlens.models.fitting import refuse_foreign_tokens
from floatlens.models.prompts import EncodedPrompt

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel

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

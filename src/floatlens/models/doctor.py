"""What is known of a model before it is loaded: from its config, its tokenizer and the headers of its files. No weight is read.

`measure_cost` is the exception: it takes a loaded model and times generation with and without a trace, where the model is.
"""

import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatlens.capture.layers import expected_calls, refuse_what_cannot_be_tapped
from floatlens.decoding.options import Decoding
from floatlens.decoding.tokens import token_text
from floatlens.errors import Refusal, in_a_sentence
from floatlens.models.checkpoint import Checkpoint, find_checkpoint
from floatlens.models.families import FAMILIES
from floatlens.models.loading import draw_up, tokenizer_for, torch_dtype, with_mask_token
from floatlens.models.weights import on_meta_device, refuse_wrong_tensors
from floatlens.terminal import progress_bar
from floatlens.trace.schema import Detail

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel

ROUNDS = 5


@dataclass(frozen=True)
class Examination:
    """The findings. `obstacle` is why the model cannot be traced, or None."""

    name: str
    folder: str
    revision: str | None
    family: str
    runs_as: str
    config: Any
    layers: int
    attention_calls: int
    heads: int
    kv_heads: int
    parameters: int
    weight_bytes: int
    weights_here: bool
    sampler: str | None
    block_length: int | None  # of models that see block by block
    row_offset: int
    mask_token: str | None
    first_token: str
    end_tokens: str
    obstacle: str | None
    tokenizer: Any = None


def examine(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    family: str | None = None,
    mask_token_id: int | None = None,
    block_length: int | None = None,
) -> Examination:
    """Everything that `floatlens doctor` reports about a model."""
    kind = torch_dtype(dtype)
    checkpoint = find_checkpoint(name, revision, weights=False, trust_remote_code=trust_remote_code)
    blueprint = draw_up(checkpoint, family, trust_remote_code, block_length)
    tokenizer = tokenizer_for(checkpoint, blueprint, trust_remote_code)
    blueprint = with_mask_token(checkpoint, blueprint, tokenizer, mask_token_id)
    module: Any = on_meta_device(checkpoint, blueprint, trust_remote_code)
    config = blueprint.config.get_text_config()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    with in_a_sentence(f"The attention layers of {checkpoint.name} cannot be counted", "Check config.json."):
        calls = expected_calls(module, None)
    return Examination(
        name=checkpoint.name,
        folder=str(checkpoint.folder),
        revision=checkpoint.revision,
        family=blueprint.family,
        runs_as=blueprint.runs_as or FAMILIES[blueprint.family].runs_as,
        config=config,
        layers=config.num_hidden_layers,
        attention_calls=calls,
        heads=config.num_attention_heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        parameters=parameters,
        weight_bytes=parameters * kind.itemsize if kind else checkpoint.bytes or parameters * 2,
        weights_here=bool(checkpoint.weight_files),
        sampler=blueprint.sampler,
        block_length=(blueprint.sampler_defaults or {}).get("block_length") if blueprint.sampler == "sdar" else None,
        row_offset=blueprint.row_offset,
        mask_token=None if blueprint.mask_token_id is None else _named(tokenizer, blueprint.mask_token_id),
        first_token=_first_token(tokenizer),
        end_tokens=", ".join(_named(tokenizer, token) for token in blueprint.end_tokens) or "none",
        obstacle=_obstacle(module, checkpoint, blueprint),
        tokenizer=tokenizer,
    )


def _obstacle(module: Any, checkpoint: Checkpoint, blueprint: Any) -> str | None:
    try:
        refuse_what_cannot_be_tapped(module)
        checkpoint.refuse_wrong_types()
        if checkpoint.weight_files and blueprint.family != "remote":
            refuse_wrong_tensors(checkpoint, blueprint, module)
    except Refusal as refusal:
        return str(refusal)
    return None


def _named(tokenizer: Any, token: int) -> str:
    return f"{token} {token_text(tokenizer, token)!r}" if tokenizer is not None else str(token)


def _first_token(tokenizer: Any) -> str:
    """What every text begins with."""
    if tokenizer is None:
        return "unknown: there is no tokenizer"
    begins = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    is_added = tokenizer("a")["input_ids"][:1] == [begins]
    if begins is None:
        return "none: the tokenizer has no BOS"
    return f"{_named(tokenizer, begins)}, {'added before every text' if is_added else 'not added by the tokenizer'}"


@dataclass(frozen=True)
class Cost:
    """Median seconds of a step, alone and while a trace is recorded in memory, over runs that took turns in random order."""

    alone: float
    traced: float
    steps: int
    length: int
    device: str

    @property
    def ratio(self) -> float:
        """How many times as long a traced step takes."""
        return self.traced / self.alone

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"{1000 * self.traced:.3g} ms per step with a trace, {1000 * self.alone:.3g} ms without: {self.ratio:.2f} times as long "
            f"(on {self.device}, {self.length} tokens, {ROUNDS} runs of {self.steps} steps each, in random turns)"
        )


def measure_cost(lm: "LanguageModel", length: int, steps: int, detail: Detail, *, progress: bool = True) -> Cost:
    """Time generation alone and with a trace, on texts of `length` tokens of which one is written per step.

    Examples
    --------
    >>> import floatlens as fl
    >>> cost = measure_cost(fl.load("twin-mdm"), length=24, steps=2, detail=Detail(), progress=False)
    >>> cost.steps, cost.traced > 0 < cost.alone
    (2, True)
    """
    if lm.sampler is None:
        raise Refusal(f"{lm.name} runs its own generate, and how many steps that takes is not known, so its steps cannot be timed.")
    if not 0 < steps < length:
        raise Refusal(f"A text of {length} tokens has no room for {steps} that are written and at least one before them.")
    forbidden = {lm.mask_token_id, lm.config.pad_token_id, *lm.end_tokens}
    words = [token for token in range(lm.config.vocab_size) if token not in forbidden]
    prompt = random.Random(0).choices(words, k=length - steps)
    stops: dict[str, Any] = {"stop_at_eos": False} if lm.sampler in ("autoregressive", "sdar") else {}
    ways: dict[str, Callable[[], Any]] = {
        "alone": lambda: lm.generate([prompt], gen_length=steps, progress=False, **stops),
        "traced": lambda: lm.plan_trace([prompt], Decoding(gen_length=steps, options=stops), detail).run(progress=False),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    order = [name for turn in range(ROUNDS + 1) for name in random.Random(turn).sample(list(ways), len(ways))]
    with progress_bar(len(order), f"Timing {lm.name} on {lm.device}", show=progress) as advance:
        for name in order:
            began = time.perf_counter()
            ways[name]()  # what it returns is in host memory: the device has finished
            taken[name].append((time.perf_counter() - began) / steps)
            advance(1)
    alone, traced = (statistics.median(taken[name][1:]) for name in ("alone", "traced"))  # the first warms up
    return Cost(alone, traced, steps, length, str(lm.device))

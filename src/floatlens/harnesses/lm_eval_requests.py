"""What lm-eval asks a model to write, read from a request and its command line, and checked.

Decided here: without `do_sample`, or with a temperature of 0, decoding is greedy, and what only filters draws has no effect.

Refused: options of generation that floatlens does not have, unless their value changes nothing; images and audio; `--batch_size auto`.
"""

from dataclasses import dataclass
from typing import Any

from lm_eval.models.utils import normalize_gen_kwargs  # pyright: ignore[reportMissingImports]  # an extra: floatlens[lm-eval]

from floatlens.errors import Refusal, shown
from floatlens.harnesses.model import PER_REQUEST, SAMPLER_OPTIONS, count

WITHOUT_EFFECT = {"num_beams": 1, "repetition_penalty": 1, "num_return_sequences": 1}
"""Options of generation that some tasks name, and the value that changes nothing."""


@dataclass(frozen=True)
class Asked:
    """How much to write, with which options of the sampler, and where the text ends."""

    gen_length: int
    options: tuple[tuple[str, Any], ...]
    stops: tuple[str, ...]


@dataclass(frozen=True)
class Writing:
    """A request to write: the prompt in tokens, what is asked for, and the seed of what is drawn."""

    prompt: tuple[int, ...]
    asked: Asked
    seed: int


def generation_of(request: Any, gen_length: int) -> Asked:
    """What a request asks for; `gen_length` tokens where it does not say how many."""
    asked = normalize_gen_kwargs(request.args[1], gen_length)
    length = count("max_gen_toks", asked.pop("max_gen_toks"))
    stops = tuple(str(stop) for stop in asked.pop("until"))
    temperature = float(asked.pop("temperature", 0.0))
    sampled = asked.pop("do_sample") and temperature > 0
    options = {"temperature": temperature} if sampled else {}
    for name, value in asked.items():
        if name in SAMPLER_OPTIONS or (sampled and name in PER_REQUEST):
            options[name] = value
        elif name not in PER_REQUEST and (name not in WITHOUT_EFFECT or value != WITHOUT_EFFECT[name]):
            known = ["until", "max_gen_toks", "do_sample", *PER_REQUEST, *SAMPLER_OPTIONS]
            raise Refusal(
                f"Task {request.task_name} generates with {name}={shown(repr(value))}, which floatlens does not have. "
                f"It takes: {', '.join(known)} (--gen_kwargs)."
            )
    return Asked(length, tuple(sorted(options.items())), stops)


def batch_size_of(given: Any) -> int:
    """The batch size that `--batch_size` names, a number in words."""
    text = str(given)
    if not text.isdecimal() or int(text) < 1:
        raise Refusal(f"--batch_size {shown(text)}: floatlens takes a whole number of at least 1, such as --batch_size 8.")
    return int(text)


def refuse_more_than_text(request: Any) -> None:
    """Refuse requests about images or audio."""
    if len(request.args) > 2:
        raise Refusal(f"Task {request.task_name} asks about images or audio, and floatlens models read text. Leave it out.")

"""How to write, as values: `Decoding`, what a user asks for, and the options of every decoding loop, checked when they are made.

Greedy decoding is the default everywhere, so that runs are comparable and repeatable; published defaults that differ are named in the
comments of the fields.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, get_args, get_type_hints

from floatlens.errors import Refusal


@dataclass(frozen=True)
class Decoding:
    """How to write, as the user asks for it: made once where the keywords arrive, then passed whole.

    What the sampler makes of it depends on the model and the prompts: see `floatlens.decoding.plan`.

    Examples
    --------
    >>> Decoding(gen_length=8, steps=4, options={"temperature": 0.7}).own_options
    {'temperature': 0.7, 'steps': 4}
    >>> Decoding(batch_size=0)
    Traceback (most recent call last):
    floatlens.errors.Refusal: batch_size=0: at least one prompt must run at a time.
    """

    gen_length: int = 32  # 0 fills the masks inside the prompts
    steps: int | None = None  # as many as there are tokens to write
    sampler: str | None = None  # that of the model's family
    options: Mapping[str, Any] = field(default_factory=dict)  # the sampler's own: temperature, threshold, ...
    seed: int | Sequence[int] = 0  # of the first prompt, those after it counting on; or one for each prompt
    batch_size: int = 8
    chat: bool | None = None  # whether texts go through the chat template; None if there is one

    def __post_init__(self) -> None:
        refuse_batch_size(self.batch_size)

    @property
    def own_options(self) -> dict[str, Any]:
        """What a model's own `generate` is given besides the length."""
        return {**self.options} if self.steps is None else {**self.options, "steps": self.steps}


def refuse_batch_size(batch_size: Any) -> None:
    """Refuse a batch size below 1, and what is no whole number."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
        raise Refusal(f"batch_size={batch_size!r}: at least one prompt must run at a time.")


@dataclass(frozen=True)
class LladaOptions:
    """LLaDA's loop: blocks from left to right, the most confident candidates of a block first."""

    gen_length: int = 32
    steps: int = 32
    block_length: int | None = None  # the whole generation
    temperature: float = 0.0
    remasking: str = "low_confidence"  # or "random"
    guidance: float = 0.0  # classifier-free guidance: uncond + (guidance + 1)(cond - uncond)
    threshold: float | None = None  # commit every candidate at least this probable, at least one; steps are then as many as it takes
    forbid_eos: bool = False  # never write the end-of-text token
    eos_last: bool = False  # write end-of-text and end-of-turn tokens after everything else

    def __post_init__(self) -> None:
        _check_lengths(self.gen_length, self.steps)
        _check_choice("remasking", self.remasking, ("low_confidence", "random"))
        _check_at_least("temperature", self.temperature, 0)
        _check_at_least("guidance", self.guidance, 0)
        _check_probability("threshold", self.threshold)
        if self.threshold is not None and self.remasking == "random":
            raise Refusal("threshold compares probabilities, and remasking='random' ranks by chance; choose one of the two.")
        if self.block_length is not None and self.gen_length == 0:
            raise Refusal(
                "block_length divides what is written after a prompt; with gen_length=0 the masks inside the prompt are one block."
            )
        if self.block_length is not None and (self.block_length < 1 or self.gen_length % self.block_length):
            raise Refusal(f"block_length={self.block_length} does not divide gen_length={self.gen_length}; choose one that does.")
        if self.threshold is None and self.steps % self.blocks:
            raise Refusal(
                f"steps={self.steps} cannot be shared evenly by {self.blocks} blocks (gen_length={self.gen_length}, "
                f"block_length={self.block_length}); choose a multiple of {self.blocks}."
            )

    @property
    def blocks(self) -> int:
        return self.gen_length // self.block_length if self.block_length else 1

    @property
    def steps_per_block(self) -> int:
        return self.steps // self.blocks


@dataclass(frozen=True)
class DreamOptions:
    """Dream's loop: one block, a fixed share of the masks at each step."""

    gen_length: int = 32
    steps: int | None = None  # one for each mask of the sample
    order: str = "entropy"  # or "maskgit_plus", "topk_margin", "origin" (published default)
    order_temperature: float = 0.0  # above 0 the order is drawn, not ranked
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    eps: float = 1e-3
    threshold: float | None = None  # as for LLaDA

    def __post_init__(self) -> None:
        _check_lengths(self.gen_length, 1 if self.steps is None else self.steps)
        _check_choice("order", self.order, ("entropy", "maskgit_plus", "topk_margin", "origin"))
        _check_at_least("temperature", self.temperature, 0)
        _check_at_least("order_temperature", self.order_temperature, 0)
        _check_filters(self.top_p, self.top_k)
        _check_probability("threshold", self.threshold)
        if self.threshold is not None and self.order == "origin":
            raise Refusal("threshold ranks candidates, and order='origin' draws them at random; choose another order.")
        if not 0 < self.eps < 1:
            raise Refusal(f"eps={self.eps} is the time at which denoising ends; it lies between 0 and 1 (published: 0.001).")


@dataclass(frozen=True)
class SdarOptions:
    """SDAR's loop: blocks of a few tokens that see all blocks before them, kept in a cache once they are written."""

    gen_length: int = 32
    steps: int | None = None  # as many as tokens; shared evenly by the blocks
    block_length: int = 4
    order: str = "low_confidence_dynamic"  # or "low_confidence_static", "sequential", "entropy_bounded"
    threshold: float = 0.85
    entropy_bound: float = 0.35
    temperature: float = 0.0  # published default 1
    top_p: float | None = None
    top_k: int | None = None
    stop_at_eos: bool = True  # no further block after one that holds an end token

    def __post_init__(self) -> None:
        _check_lengths(self.gen_length, self.gen_length if self.steps is None else self.steps)
        if self.gen_length < 1:
            raise Refusal("SDAR writes new blocks; it cannot fill masks inside a prompt. Choose gen_length of at least 1.")
        _check_choice("order", self.order, ("low_confidence_dynamic", "low_confidence_static", "sequential", "entropy_bounded"))
        _check_at_least("block_length", self.block_length, 1)
        _check_at_least("temperature", self.temperature, 0)
        _check_at_least("entropy_bound", self.entropy_bound, 0)
        _check_filters(self.top_p, self.top_k)
        _check_probability("threshold", self.threshold)

    @property
    def steps_per_block(self) -> int:
        """How many denoising steps a whole block gets."""
        steps = self.gen_length if self.steps is None else self.steps
        return max(1, min(self.block_length, round(steps * self.block_length / self.gen_length)))


@dataclass(frozen=True)
class AutoregressiveOptions:
    """Left to right, one token per step, with a cache."""

    gen_length: int = 32
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    stop_at_eos: bool = True

    def __post_init__(self) -> None:
        if self.gen_length < 1:
            raise Refusal(f"gen_length={self.gen_length}: an autoregressive model writes at least one token.")
        _check_at_least("temperature", self.temperature, 0)
        _check_filters(self.top_p, self.top_k)


Options = LladaOptions | DreamOptions | SdarOptions | AutoregressiveOptions

SAMPLERS: dict[str, type[Options]] = {
    "llada": LladaOptions,
    "dream": DreamOptions,
    "sdar": SdarOptions,
    "autoregressive": AutoregressiveOptions,
}


def make_options(sampler: str, given: dict[str, Any]) -> Options:
    """The options of a sampler, or a sentence about the first one that is wrong.

    Examples
    --------
    >>> make_options("dream", {"steps": 8, "order": "entropy"}).steps
    8
    >>> make_options("dream", {"block_length": 8})
    Traceback (most recent call last):
    floatlens.errors.Refusal: The dream sampler has no option 'block_length'. It has: gen_length, steps, order, order_temperature, \
temperature, top_p, top_k, eps, threshold.
    """
    _refuse_no_sampler(sampler)
    kind = SAMPLERS[sampler]
    types = get_type_hints(kind)
    for name, value in given.items():
        if name not in _known(sampler):
            raise _unknown(sampler, name)
        accepted = get_args(types[name]) or (types[name],)
        if isinstance(value, bool) != (bool in accepted) or not isinstance(value, (*accepted, int) if float in accepted else accepted):
            raise Refusal(f"{name}={value!r} is not what the {sampler} sampler takes: {name} is {_in_words(accepted)}.")
    return kind(**given)


def share_out(given: Mapping[str, Any], samplers: Sequence[str | None]) -> list[dict[str, Any]]:
    """Share options that are given for several samplers: each gets those that it has, and a model's own loop (None) gets all.

    An option that none of them has is refused.

    Examples
    --------
    >>> share_out({"threshold": 0.9, "temperature": 1.0}, ["llada", "autoregressive"])
    [{'threshold': 0.9, 'temperature': 1.0}, {'temperature': 1.0}]
    """
    for sampler in samplers:
        _refuse_no_sampler(sampler)
    for name in given:
        if not any(sampler is None or name in _known(sampler) for sampler in samplers):
            raise _unknown(next(sampler for sampler in samplers if sampler is not None), name)
    return [{name: value for name, value in given.items() if sampler is None or name in _known(sampler)} for sampler in samplers]


def _refuse_no_sampler(sampler: str | None) -> None:
    if sampler is not None and sampler not in SAMPLERS:
        raise Refusal(f"There is no sampler {sampler!r}. There are: {', '.join(SAMPLERS)}.")


def _known(sampler: str) -> list[str]:
    return [field.name for field in fields(SAMPLERS[sampler])]


def _unknown(sampler: str, name: str) -> Refusal:
    return Refusal(f"The {sampler} sampler has no option {name!r}. It has: {', '.join(_known(sampler))}.")


def _in_words(types: tuple[type, ...]) -> str:
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "nothing"}
    return " or ".join(names[kind] for kind in types)


def _check_lengths(gen_length: int, steps: int) -> None:
    if gen_length < 0:
        raise Refusal(f"gen_length={gen_length} is not a length. It is the number of new tokens, or 0 to fill the masks in the prompt.")
    if steps < 1:
        raise Refusal(f"steps={steps}: at least one step is needed.")
    if gen_length and steps > gen_length:
        raise Refusal(
            f"steps={steps} is more than gen_length={gen_length}: some steps would write nothing. Choose at most {gen_length} steps."
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Refusal(f"{name}={value!r} is not known; choose one of {', '.join(choices)}.")


def _check_at_least(name: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        raise Refusal(f"{name}={value} must be at least {least}{' and finite' if value == math.inf else ''}.")


def _check_probability(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= 1:
        raise Refusal(f"{name}={value} must be a probability above 0 and up to 1.")


def _check_filters(top_p: float | None, top_k: int | None) -> None:
    _check_probability("top_p", top_p)
    if top_k is not None and top_k < 1:
        raise Refusal(f"top_k={top_k} must keep at least one token.")

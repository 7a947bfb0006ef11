"""A floatlens model as a harness sets it up: from name=value arguments to a model that writes under its interventions.

Decided here: what a harness asks for in a request (temperature, length, stop sequences, ...) comes before what stands in the arguments.
Random numbers belong to a text and not to its place in a run: the same prompt draws the same, whatever the batch, the limit or what a cache
has left over. Stop sequences are cut off after writing, because a diffusion model writes all positions of its canvas together.

Refused: arguments that nobody takes, with the list of those that are taken; values of the wrong kind; options that the model's sampler
does not have.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from floatlens.decoding.options import SAMPLERS, refuse_batch_size, share_out
from floatlens.decoding.plan import context_length
from floatlens.decoding.tokens import special_tokens
from floatlens.errors import Refusal, shown, suggestion
from floatlens.interventions.specification import Intervention
from floatlens.interventions.wording import KINDS, from_text
from floatlens.models.language_model import Generation, LanguageModel
from floatlens.models.loading import load
from floatlens.seeds import refuse_seed

LOADING = ("revision", "dtype", "device", "trust_remote_code", "allow_pickle", "family", "mask_token_id", "trained_block_length")
"""Arguments of `fl.load`; `trained_block_length` is its `block_length`, because the sampler has one as well."""

PER_REQUEST = ("temperature", "top_p", "top_k")
"""Options of samplers that harnesses have options of their own for."""

SAMPLER_OPTIONS = tuple(
    dict.fromkeys(field.name for kind in SAMPLERS.values() for field in fields(kind) if field.name not in ("gen_length", *PER_REQUEST))
)
WRITING = ("intervention", "sampler", "seed", "batch_size", *SAMPLER_OPTIONS)

_TRUTH = {"true": True, "false": False}
_SPREAD = 1 << 60  # seeds of texts are drawn from this many, so that a seed plus a number stays a seed


@dataclass(frozen=True)
class Cut:
    """A text up to the first stop sequence, and whether there was one."""

    text: str
    stopped: bool


@dataclass(frozen=True, eq=False)
class HarnessModel:
    """A model, the interventions it writes under, and how it writes where a request does not say."""

    lm: LanguageModel
    interventions: tuple[Intervention, ...] = ()
    sampler: str | None = None
    options: Mapping[str, Any] | None = None  # steps among them
    seed: int = 0
    batch_size: int = 8

    @property
    def intervention(self) -> tuple[Intervention, ...] | None:
        """What `generate` and `log_likelihoods` take."""
        return self.interventions or None

    @property
    def room(self) -> int | None:
        """How many tokens of prompt and answer the model was made for; None where its config does not say."""
        limit = context_length(self.lm)
        return None if limit is None else limit - len(self.lm.suffix)

    def seed_for(self, text: str, occurrence: int = 0) -> int:
        """The seed of a text, the n-th time that it is asked for.

        Examples
        --------
        >>> from torch import nn
        >>> model = HarnessModel(LanguageModel(nn.Identity()), seed=3)
        >>> model.seed_for("a") == model.seed_for("b"), model.seed_for("a", 1) - model.seed_for("a")
        (False, 1)
        """
        digest = hashlib.sha256(f"{self.seed}\n{text}".encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % _SPREAD + occurrence

    def write(self, prompts: Sequence[Sequence[int]], gen_length: int, seeds: Sequence[int], **asked: Any) -> list[Generation]:
        """Write after prompts in tokens, all of them alike; `asked` comes before the model's own options."""
        given = {**(self.options or {}), **asked}
        steps = given.pop("steps", None)
        if isinstance(steps, int) and not isinstance(steps, bool):
            steps = min(steps, gen_length)  # a request may be shorter than what the steps were chosen for
        return self.lm.generate(
            [list(prompt) for prompt in prompts],
            gen_length=gen_length,
            steps=steps,
            sampler=self.sampler,
            seed=seeds,
            batch_size=self.batch_size,
            intervention=self.intervention,
            progress=False,
            **given,
        )

    def refuse_options(self, asked: Mapping[str, Any]) -> None:
        """Refuse options that the sampler does not have; a model's own loop refuses what it does not know when it runs."""
        share_out(asked, [self.sampler or self.lm.sampler])

    def cut(self, written: Generation, stops: Sequence[str]) -> Cut:
        """What was written, up to its first end token, special token that is a stop sequence, or stop sequence."""
        lm, tokenizer = self.lm, self.lm.tokenizer
        vocabulary, special = tokenizer.get_vocab(), special_tokens(tokenizer)
        ends = {*lm.end_tokens, *(vocabulary[stop] for stop in stops if vocabulary.get(stop) in special)}
        end = next((place for place, token in enumerate(written.tokens) if token in ends), None)
        text = tokenizer.decode(written.tokens[:end], skip_special_tokens=True)
        places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
        return Cut(text[: min(places)] if places else text, bool(places) or end is not None)


def set_up(model: "str | LanguageModel", given: Mapping[str, Any], own: Sequence[str], harness: str) -> HarnessModel:
    """The model of some arguments, loaded; `own` are further arguments that the harness takes itself, for the message.

    Examples
    --------
    >>> set_up("twin-mdm", {"step": 4}, ["mc_samples"], "--model_args")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --model_args has no 'step'. Did you mean 'steps'? It takes: mc_samples, revision, dtype, device, \
trust_remote_code, allow_pickle, family, mask_token_id, trained_block_length, intervention, sampler, seed, batch_size, steps, \
block_length, remasking, guidance, threshold, forbid_eos, eos_last, order, order_temperature, eps, entropy_bound, stop_at_eos.
    """
    known = [*own, *LOADING, *WRITING]
    for name in given:
        if name in PER_REQUEST:
            raise Refusal(f"{harness} does not take {name}, which belongs to the requests: {_PER_REQUEST_AS[harness].format(name)}.")
        if name not in known:
            quoted = " An intervention with commas stands in quotes." if "intervention" in given else ""
            raise Refusal(f"{harness} has no {name!r}.{suggestion(name, known)} It takes: {', '.join(known)}.{quoted}")
    values = {name: value for name, value in given.items() if value is not None}
    interventions = interventions_of(values["intervention"]) if "intervention" in values else ()
    seed, batch_size = refuse_seed(values.get("seed", 0)), values.get("batch_size", 8)
    refuse_batch_size(batch_size)
    if isinstance(model, LanguageModel):
        if loading := [name for name in LOADING if name in values]:
            raise Refusal(f"{loading[0]} is for loading a model by its name, and this one is loaded already. Leave it out.")
        lm = model
    else:
        lm = load(model, **_loading(values))
    if lm.tokenizer is None:
        raise Refusal(f"{lm.name} has no tokenizer, and harnesses ask in text. Load it with its tokenizer files.")
    options = {name: values[name] for name in SAMPLER_OPTIONS if name in values}
    set_up_ = HarnessModel(lm, interventions, values.get("sampler"), options, seed, batch_size)
    set_up_.refuse_options(options)
    return set_up_


_PER_REQUEST_AS = {"--model_args": "--gen_kwargs {}=...", "-M": "--{} ..."}


def _loading(values: Mapping[str, Any]) -> dict[str, Any]:
    """What `fl.load` is called with; harnesses read numbers out of texts that are none."""
    chosen = {name: values[name] for name in LOADING if name in values}
    for name in ("revision", "dtype", "family"):
        if name in chosen:
            chosen[name] = str(chosen[name])
    for name in ("trust_remote_code", "allow_pickle"):
        if name in chosen:
            chosen[name] = truth(name, chosen[name])
    if "trained_block_length" in chosen:
        chosen["block_length"] = chosen.pop("trained_block_length")
    return chosen


def truth(name: str, value: Any) -> bool:
    """A value that is true or false.

    Examples
    --------
    >>> truth("greedy", "True")
    True
    >>> truth("greedy", 2)
    Traceback (most recent call last):
    floatlens.errors.Refusal: greedy=2 is neither true nor false.
    """
    known = _TRUTH.get(str(value).lower()) if isinstance(value, bool | str) else None
    if known is None:
        raise Refusal(f"{name}={shown(repr(value))} is neither true nor false.")
    return known


def count(name: str, value: Any, least: int = 1) -> int:
    """A value that is a whole number.

    Examples
    --------
    >>> count("mc_samples", 0)
    Traceback (most recent call last):
    floatlens.errors.Refusal: mc_samples=0 must be a whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Refusal(f"{name}={shown(repr(value))} must be a whole number of at least {least}.")
    return value


def interventions_of(given: Any) -> tuple[Intervention, ...]:
    """The interventions of a text, or of several; harnesses cut texts at their commas, and the pieces are joined again.

    Examples
    --------
    >>> interventions_of("mask-anchors:1")
    (MaskAnchors(layers=None, steps=None, k=1),)
    >>> [each.kind for each in interventions_of(["mask-anchors:5", "layers=0-7", "extra-sink-token"])]
    ['mask-anchors', 'extra-sink-token']
    """
    pieces = [given] if isinstance(given, str | Intervention) else given
    if not isinstance(pieces, Sequence) or not pieces:
        raise Refusal(f"intervention={shown(repr(given))} is not an intervention: write, e.g., intervention=mask-anchors:1.")
    texts: list[Any] = []
    for piece in pieces:
        begins = isinstance(piece, Intervention) or not texts or str(piece).split(":")[0].split(" of ")[0].strip() in KINDS
        texts = [*texts, piece] if begins else [*texts[:-1], f"{texts[-1]},{piece}"]
    return tuple(text if isinstance(text, Intervention) else from_text(str(text)) for text in texts)


def by_kind(requests: Sequence[Any], kind: Callable[[Any], Any], length: Callable[[Any], int], size: int) -> list[list[int]]:
    """Batches of the numbers of requests that may run together: of one kind, and of similar length, the longest first.

    Examples
    --------
    >>> by_kind(["a", "bbb", "C", "bb"], str.isupper, len, size=2)
    [[1, 3], [0], [2]]
    """
    kinds: dict[Any, list[int]] = {}
    for number, request in enumerate(requests):
        kinds.setdefault(kind(request), []).append(number)
    batches = []
    for numbers in kinds.values():
        longest_first = sorted(numbers, key=lambda number: -length(requests[number]))
        batches += [longest_first[first : first + size] for first in range(0, len(numbers), size)]
    return batches

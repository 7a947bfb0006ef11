"""What the adapter of a family is made of: a `Family`, the `Blueprint` that it draws up, and help with published configs.

A `Family` recognises checkpoints by their config and draws up a `Blueprint` before any weight is read: which stock class of transformers
it is, and how it writes. `loading.py` builds the module from it. A new family is one file in this folder with a `FAMILY`, and a line in
`__init__.py`.

Published configs are translated field by field into the config of a stock class. A field that a class silently ignores makes a model that
is plausibly wrong, so every field must be one that the class has, one that is known not to matter, or one that has the only value that is
right here. Refused: everything else.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from floatlens.decoding.model import Decisions
from floatlens.errors import Refusal, reason, shown
from floatlens.models.checkpoint import Checkpoint


@dataclass(frozen=True)
class Blocks:
    """For models that may see block by block: a row sees its own block and those before it."""

    named: Any = None  # the block length in the config, as it stands there
    default: int | None = None  # where neither config nor user names one; None if there is no safe guess
    may_be_none: bool = False  # whether models of the family exist in which every row sees the whole text (block length 0)


@dataclass(frozen=True)
class Blueprint:
    """How a checkpoint becomes a running model."""

    family: str
    config: Any  # the transformers config that the module is built from
    model_class: Any  # the transformers class, or an Auto class
    sampler: str | None  # the decoding loop; None for models that only their own `generate` can run
    row_offset: int  # position p is filled from row max(p - row_offset, 0)
    mask_token_id: int | None = None
    never_written: tuple[int, ...] = ()  # tokens that training left out of the output
    end_tokens: tuple[int, ...] = ()  # a text ends at the first of these, and of those that the tokenizer calls:
    end_token_names: tuple[str, ...] = ()
    suffix: tuple[int, ...] = ()  # what stands after the masks
    suffix_names: tuple[str, ...] = ()  # tokenizer attributes of what ends every text ("sep_token_id"): first that is set
    renames: Mapping[str, str] | None = None  # patterns of published tensor names, one group each -> stock names
    ignored_tensors: str | None = None  # a pattern of published tensors that the class has no use for
    tokenizer: Callable[[Checkpoint], Any] | None = None  # where the published tokenizer cannot be used as it is
    finish: Callable[[nn.Module], None] | None = None  # what is done to the module after loading
    sampler_defaults: Mapping[str, Any] | None = None  # options that the checkpoint itself sets
    blocks: Blocks | None = None  # None for families whose rows never see by blocks
    step_on: Callable[[nn.Module], nn.Module] | None = None  # for own loops: the module of which a forward is a step
    runs_as: str = ""  # what this model is, where its family runs as several things
    strict_names: bool = True  # compare tensor names with the class before reading weights


@dataclass(frozen=True)
class Family:
    """One family of models, and its adapter."""

    name: str
    models: str  # what people know it by
    runs_as: str
    checked: str  # how it is known to be right
    recognises: Callable[[Mapping[str, Any]], bool]
    blueprint: Callable[[Checkpoint], Blueprint]
    finish: Callable[[nn.Module], None] | None = None
    watch_decisions: Callable[[nn.Module], AbstractContextManager[Decisions]] | None = None  # for own loops without a mask token


# fields that do not change what the model computes
BOOKKEEPING = {
    "_name_or_path", "architectures", "auto_map", "model_type", "torch_dtype", "transformers_version", "use_cache", "tokenizer_class",
    "task_specific_params", "return_dict", "output_attentions", "output_hidden_states", "_attn_implementation_autoset", "floatlens",
    "initializer_range", "init_std", "init_fn", "init_device",
    "init_cutoff_factor", "precision", "_attn_implementation", "attn_implementation", "gradient_checkpointing",
}  # fmt: skip


def native_config(checkpoint: Checkpoint) -> Any:
    """The config as transformers reads it, without code of the checkpoint."""
    try:
        return AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)  # explicit, because transformers would ask otherwise
    except Exception as error:  # it raises nearly everything over a wrong field
        named = checkpoint.config.get("model_type")
        is_known = isinstance(named, str) and named in CONFIG_MAPPING
        if "auto_map" in checkpoint.config and not is_known:
            raise Refusal(
                f"{checkpoint.name} (model_type {shown(repr(named))}) runs only with code that comes with the checkpoint. If you trust "
                "it, pass trust_remote_code=True, family='remote' (--trust-remote-code --family remote)."
            ) from None
        if not is_known:
            raise Refusal(
                f"transformers knows no model_type {shown(repr(named))}, which the config of {checkpoint.name} names. Correct it, or "
                "update transformers."
            ) from None
        raise Refusal(
            f"transformers cannot read the config of {checkpoint.name} (model_type {named!r}): {reason(error)}. Fetch config.json again, "
            "or correct it."
        ) from error


def stock_config(
    name: str,
    config_class: Callable[..., PretrainedConfig],
    published: Mapping[str, Any],
    *,
    ignored: Iterable[str] = (),
    required: Mapping[str, Any] | None = None,
) -> Any:
    """The published fields as a `config_class`, bidirectional.

    `ignored` are fields known not to matter; `required` maps fields to the only values that the stock class can honour.
    """
    required = required or {}
    refuse_other_values(name, published, required)
    known = set(config_class().to_dict()) | {"rope_theta", "rope_scaling"}
    unknown = set(published) - known - BOOKKEEPING - set(ignored) - set(required)
    if unknown:
        refuse_unknown(name, published, unknown)
    kept = {field: value for field, value in published.items() if field in known - BOOKKEEPING - set(required)}
    if kept.get("rope_scaling") is None:
        kept.pop("rope_scaling", None)
    config = config_class(**kept)
    config.is_causal = False
    return config


def refuse_other_values(name: str, published: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Refuse a field that is there and has another value than the stock class can honour."""
    for field, value in required.items():
        accepted = value if isinstance(value, tuple) else (value,)
        if field in published and published[field] not in accepted:
            raise Refusal(
                f"The config of {name} says {field}={published[field]!r}; this adapter is right for {field}={accepted[0]!r} only, and "
                "would give plausible but wrong numbers. Ask for support, or load the model's own code with trust_remote_code=True, "
                "family='remote'."
            )


def refuse_unknown(name: str, published: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Refuse fields whose meaning is not known."""
    first = sorted(fields)[0]
    others = len(set(fields)) - 1
    raise Refusal(
        f"The config of {name} has a field this adapter does not know: {first}={published[first]!r}"
        f"{f' (and {others} more)' if others else ''}. It could change what the model computes, so it is not ignored. Remove it if you "
        "know it does not matter."
    )


def as_tokens(token: Any) -> tuple[int, ...]:
    """A config's `eos_token_id`, which may be one, several or none."""
    tokens = () if token is None else tuple(token) if isinstance(token, list | tuple) else (token,)
    for given in tokens:
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise Refusal(
                f"{shown(repr(given))} is not a token id, as a config or tokenizer calls an end token. Correct it, or fetch the file again."
            )
    return tokens

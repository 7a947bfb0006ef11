"""What a family's adapter says about a checkpoint, before any weight is read: which stock class it is, and how it writes.

A `Family` recognises checkpoints by their config and draws up a `Blueprint`; `loading.py` builds the module from it. A new family is one file
in `families/` with a `FAMILY`, and a line in `families/__init__.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from floatlens.models.checkpoint import Checkpoint


@dataclass(frozen=True)
class Blocks:
    """For models that may see block by block: a row sees its own block and those before it."""

    named: Any = None  # the block length in the config, as it stands there
    default: int | None = None  # where neither config nor user names one; None if that cannot be told
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
    step_on: Callable[[nn.Module], nn.Module] | None = None  # for own loops: the module a forward of which is a step
    strict_names: bool = True  # compare tensor names with the class before reading weights


@dataclass(frozen=True)
class Family:
    """One family of models."""

    name: str
    models: str  # what people know it by
    runs_as: str
    checked: str  # how it is known to be right
    recognises: Callable[[Mapping[str, Any]], bool]
    blueprint: Callable[[Checkpoint], Blueprint]
    finish: Callable[[nn.Module], None] | None = None

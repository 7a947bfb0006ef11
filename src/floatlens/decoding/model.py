"""What decoding, interventions and traces need of a language model, as a Protocol.

Nothing to the left of `floatlens.models` knows how a model is loaded or what family it belongs to: it asks for what is named here. A
`floatlens.LanguageModel` is a `Writer`; so is any object with these members.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from floatlens.decoding.canvas import Pass
from floatlens.decoding.options import Decoding
from floatlens.decoding.prompts import EncodedPrompt


class Decisions(Protocol):
    """What a model's own loop decided in its last step, for models without a mask token."""

    @property
    def draft(self) -> np.ndarray | None:
        """(row,): the tokens that the canvas will hold if that step was its last; None if the loop does not tell."""
        ...

    def accepted(self, rows: int) -> np.ndarray:
        """bool (row,): which of so many rows hold a token that was accepted and stands for now."""
        ...


class Writer(Protocol):
    """A language model as decoding loops, interventions and recorders see it."""

    @property
    def module(self) -> nn.Module:
        """The network."""
        ...

    @property
    def tokenizer(self) -> Any:
        """A fast tokenizer of transformers, or None."""
        ...

    @property
    def name(self) -> str:
        """What people call the model."""
        ...

    @property
    def revision(self) -> str | None:
        """The commit on the model hub that it comes from."""
        ...

    @property
    def family(self) -> str:
        """The adapter that loaded it."""
        ...

    @property
    def sampler(self) -> str | None:
        """The decoding loop of its family; None for models that only their own `generate` can run."""
        ...

    @property
    def sampler_defaults(self) -> dict[str, Any]:
        """Options of that loop that the checkpoint itself sets."""
        ...

    @property
    def row_offset(self) -> int:
        """Position p is filled from row max(p - row_offset, 0)."""
        ...

    @property
    def mask_token_id(self) -> int | None:
        """What stands where nothing is written yet."""
        ...

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """A text ends at the first of these."""
        ...

    @property
    def suffix(self) -> tuple[int, ...]:
        """What ends every text, after the masks."""
        ...

    @property
    def step_on(self) -> nn.Module | None:
        """For models with their own `generate`: the module of which a forward is a step; the whole module if None."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """What its weights are stored as."""
        ...

    @property
    def config(self) -> Any:
        """The transformers config of the text model."""
        ...

    def predicting_row(self, position: int) -> int:
        """The row whose logits fill this position."""
        ...

    def new_cache(self) -> Any:
        """An empty cache of keys and values."""
        ...

    def run_pass(self, asked: Pass) -> Tensor:
        """Logits of the wanted rows: (sample, wanted row, vocabulary)."""
        ...

    def own_generate(self, prompt: EncodedPrompt, decoding: Decoding, seed: int) -> list[int]:
        """The whole text in tokens, written after one prompt by the module's own `generate`."""
        ...

    def watch_decisions(self) -> AbstractContextManager[Decisions | None]:
        """While `own_generate` runs in here: what its loop decides, if it has no mask token to tell by; None if nobody can say."""
        ...

"""What decoding, interventions and traces need of a language model, as a Protocol, and which prompts fit a model.

Nothing to the left of `floatlens.models` knows how a model is loaded or what family it belongs to: it asks for what is named here. A
`floatlens.LanguageModel` is a `Writer`; so is any object with these members.

Refused: prompts that are empty, too long, or hold tokens that they must not.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from floatlens.decoding.canvas import Pass
from floatlens.decoding.options import AutoregressiveOptions, Decoding, Options
from floatlens.decoding.prompts import EncodedPrompt
from floatlens.errors import Refusal


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


def context_length(lm: Writer) -> int | None:
    """How many tokens a model was made for; None where its config does not say.

    Examples
    --------
    >>> import floatlens as fl
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=16)
    >>> context_length(fl.LanguageModel(LlamaForCausalLM(config)))
    16
    """
    limit = getattr(lm.config, "max_position_embeddings", None)
    if isinstance(limit, int) and "roberta" in str(getattr(lm.config, "model_type", "")):
        limit -= lm.config.pad_token_id + 1  # its positions begin after that of the padding token
    return limit if isinstance(limit, int) else None


def masks_in(lm: Writer, prompt: EncodedPrompt) -> int:
    """How many mask tokens a prompt holds."""
    return 0 if lm.mask_token_id is None else prompt.tokens.count(lm.mask_token_id)


def refuse_foreign_tokens(lm: Writer, number: int, prompt: EncodedPrompt) -> None:
    """Refuse token ids that the model has no embedding for."""
    vocabulary = getattr(lm.config, "vocab_size", None)
    if vocabulary is not None and any(not 0 <= token < vocabulary for token in prompt.tokens):
        raise Refusal(f"Prompt {number} holds a token id outside the vocabulary of {lm.name} (0 to {vocabulary - 1}).")


def refuse_unfit_prompts(lm: Writer, encoded: Sequence[EncodedPrompt], options: Options) -> None:
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
                f"Prompt {number} has {len(prompt.tokens)} tokens; with {options.gen_length} to write that is more than the {limit} that "
                f"{lm.name} was made for."
            )
        refuse_foreign_tokens(lm, number, prompt)
        masks = masks_in(lm, prompt)
        if masks and options.gen_length:
            raise Refusal(
                f"Prompt {number} holds the mask token. To fill masks inside a prompt, choose gen_length=0; otherwise remove them."
            )
        if not masks and not options.gen_length:
            raise Refusal(f"gen_length is 0 and prompt {number} holds no mask token, so there is nothing to write.")

"""Whether prompts fit the model and what it is asked to write."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floatlens.decoding.options import AutoregressiveOptions, Options
from floatlens.errors import Refusal
from floatlens.models.prompts import EncodedPrompt

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

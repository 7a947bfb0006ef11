"""One update of one twin: the model before training, its optimizer, the sequences of an update, and the step itself.

Decided here: what an update sees depends on the recipe's seed and its own number alone, never on a generator that runs on; update 1,000 is the same
whether or not the run was killed before it. All twins see the same sequences and start from the same numbers.
Refused: a kind of twin that does not exist.
"""

from random import Random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.models.families.twin import KINDS
from floatlens.tasks.world.people import World
from floatlens.tasks.world.words import BOS, EOS, PAD
from floatlens.training.initial_weights import set_initial_weights
from floatlens.training.objectives import batch_loss
from floatlens.training.recipe import Recipe
from floatlens.training.sequences import LONGEST, TOKEN_ID, Batch, make_batch


def make_twin(kind: str, recipe: Recipe) -> LlamaForCausalLM:
    """A twin before its training.

    Examples
    --------
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> model = make_twin("mdm", bundled_recipe())
    >>> sum(weights.numel() for weights in model.parameters()) < 1_100_000, model.config.is_causal
    (True, False)
    """
    if kind not in KINDS:
        raise Refusal(f"There is no twin {kind!r}; the twins are {', '.join(KINDS)}.")
    shape = recipe.model
    config = LlamaConfig(
        vocab_size=len(TOKEN_ID),
        hidden_size=shape.width,
        intermediate_size=2 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
        bos_token_id=TOKEN_ID[BOS],
        eos_token_id=TOKEN_ID[EOS],
        pad_token_id=TOKEN_ID[PAD],
        rope_parameters={"rope_type": "default", "rope_theta": shape.rotary_base},
    )
    config.is_causal = KINDS[kind].causal
    config.twin = kind  # how the family recognises it
    model = LlamaForCausalLM(config)
    set_initial_weights(model, recipe.seed)
    return model


def make_optimizer(model: LlamaForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; the norms' weights do not decay.

    Examples
    --------
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> recipe = bundled_recipe("smoke")
    >>> [group["weight_decay"] for group in make_optimizer(make_twin("arm", recipe), recipe).param_groups]
    [0.1, 0.0]
    """
    groups = [
        {"params": [weights for weights in model.parameters() if weights.ndim == 2], "weight_decay": recipe.optimizer.weight_decay},
        {"params": [weights for weights in model.parameters() if weights.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.optimizer.rate, betas=(0.9, 0.98))


def draw_batches(recipe: Recipe, world: World, update: int) -> list[Batch]:
    """The sequences of an update, one batch a part of its stage's mixture.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> [tuple(batch.tokens.shape) for batch in draw_batches(bundled_recipe(), make_world(), update=1)]
    [(32, 29), (8, 29)]
    """
    rng = Random(f"{recipe.seed}-{update}")
    return [make_batch(rng, world, shape, count) for shape, count in recipe.stage_of(update).mixture]


def run_update(model: LlamaForCausalLM, optimizer: torch.optim.AdamW, kind: str, recipe: Recipe, world: World, update: int) -> float:
    """One update, changing the model and the optimizer in place; its loss.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> recipe = bundled_recipe("smoke")
    >>> model = make_twin("arm", recipe)
    >>> run_update(model, make_optimizer(model, recipe), "arm", recipe, make_world(), update=1) > 2
    True
    """
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate_at(update)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + update)
    batches = draw_batches(recipe, world, update)
    whole, total = sum(len(batch.tokens) for batch in batches), 0.0
    for batch in batches:
        loss = batch_loss(model, kind, batch, generator) * (len(batch.tokens) / whole)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total

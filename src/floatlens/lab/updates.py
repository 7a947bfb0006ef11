"""One update of one twin: the model before training, its optimizer, the sequences and the loss of an update, and the step itself.

The twins learn to predict the next token (twin-arm) or what is behind the masks (the others). Both losses count a token of an answer
fully and every other token by `ELSEWHERE`, so that names nobody could guess do not drown the answers. Mask ratios of the answers are
stratified over the batch; in a third of the sequences the answers are masked completely, because that is where decoding starts. There
are no 1/t weights, which make small batches slower and not better. In half of the sequences up to .3 of the other tokens are masked
as well.

What an update sees depends only on the recipe's seed and on the number of the update, never on a generator that runs on: update 1,000
is the same whether or not the run was killed before it. All twins see the same sequences and start from the same numbers. `data_hash`
is one hash of what a recipe trains on (all that the world can say, and the sequences of each stage's first update), so that weights
can say which data they saw; it is the same in every process and on every platform.

Refused: a kind of twin that does not exist.
"""

import json
from hashlib import sha256
from random import Random

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.lab.initial_weights import set_initial_weights
from floatlens.lab.recipe import Recipe
from floatlens.lab.sequences import LONGEST, TOKEN_ID, Batch, Predictor, make_batch
from floatlens.models.families.twin import KINDS
from floatlens.tasks.world.people import World, make_world
from floatlens.tasks.world.tokenizer import world_hash
from floatlens.tasks.world.words import BOS, EOS, MASK, PAD

ELSEWHERE = 0.15


def draw_masks(batch: Batch, generator: Generator) -> Tensor:
    """Draw what is hidden: bool (sequence, position).

    Examples
    --------
    >>> answers = torch.zeros(6, 10, dtype=torch.bool)
    >>> answers[:, 8:] = True
    >>> hidden = draw_masks(Batch(torch.ones(6, 10, dtype=torch.long), answers), torch.Generator().manual_seed(0))
    >>> bool(hidden[:, 8:].all(-1).sum() >= 2), bool(hidden[:, 0].any())
    (True, False)
    """
    count, length = batch.tokens.shape
    order = torch.randperm(count, generator=generator)
    of_answers = (((order + torch.rand(count, generator=generator)) / count) * 1.5).clamp(max=1.0)
    of_others = torch.rand(count, generator=generator).mul(0.6).sub(0.3).clamp(min=0.0)
    draw = torch.rand(count, length, generator=generator)
    hidden = draw < torch.where(batch.answers, of_answers[:, None], of_others[:, None])
    hidden[:, 0] = False
    return hidden


def batch_loss(model: Predictor, kind: str, batch: Batch, generator: Generator) -> Tensor:
    """The mean loss of a batch, in which answers weigh most; the generator draws the masks (twin-arm has none).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def knows_nothing(input_ids):
    ...     return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 4))
    >>> batch = Batch(torch.tensor([[2, 3, 1, 0]]), torch.tensor([[False, False, True, True]]))
    >>> round(batch_loss(knows_nothing, "arm", batch, torch.Generator()).item(), 4)  # log 4
    1.3863
    """
    weight = torch.where(batch.answers, 1.0, ELSEWHERE)
    if kind == "arm":
        logits, target, weight = model(input_ids=batch.tokens).logits[:, :-1], batch.tokens[:, 1:], weight[:, 1:]
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(weight)
        return (losses * weight).sum() / weight.sum()
    hidden = draw_masks(batch, generator)
    logits = model(input_ids=batch.tokens.masked_fill(hidden, TOKEN_ID[MASK])).logits[hidden]
    losses = F.cross_entropy(logits, batch.tokens[hidden], reduction="none")
    return (losses * weight[hidden]).sum() / weight[hidden].sum().clamp(min=1.0)  # a batch may hide almost nothing


def make_twin(kind: str, recipe: Recipe) -> LlamaForCausalLM:
    """A twin before its training.

    Examples
    --------
    >>> from floatlens.lab.recipe import bundled_recipe
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
    >>> from floatlens.lab.recipe import bundled_recipe
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
    """The sequences of an update, one batch per part of its stage's mixture.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> [tuple(batch.tokens.shape) for batch in draw_batches(bundled_recipe(), make_world(), update=1)]
    [(32, 29), (8, 29)]
    """
    rng = Random(f"{recipe.seed}-{update}")
    return [make_batch(rng, world, shape, count) for shape, count in recipe.stage_of(update).mixture]


def run_update(model: LlamaForCausalLM, optimizer: torch.optim.AdamW, kind: str, recipe: Recipe, world: World, update: int) -> float:
    """Run one update, which changes the model and the optimizer in place, and return its loss.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.lab.recipe import bundled_recipe
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


def data_hash(recipe: Recipe) -> str:
    """The sha256 of a recipe's data, in hexadecimal; the same for all twins.

    Examples
    --------
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> len(data_hash(bundled_recipe("smoke")))
    64
    """
    world, first, sequences = make_world(), 1, []
    for stage in recipe.stages:
        batches = draw_batches(recipe, world, first)
        sequences.append([[batch.tokens.tolist(), batch.answers.int().tolist()] for batch in batches])
        first += stage.updates
    return sha256(json.dumps([world_hash(world), sequences]).encode("ascii")).hexdigest()

"""Initial weights from which a small Llama learns to look things up in minutes instead of hours.

From the usual random start, binding a value to its person is a plateau: attention must first carry a name to its value (by place)
and then find the same name elsewhere (by content), and neither is worth anything without the other. So both halves are there from the
beginning, weakly, and training keeps what it can use:

- **by place**: in the first layer, head h starts out looking `offsets[h]` tokens back. Llama has no biases, so eight dimensions of
  every embedding are constant; the head's query and key read them, the key turned by the rotary phase of the offset. All heads read a
  token alike and write it to places of their own.
- **by content**: in all later layers, half of the heads start with queries equal to keys, so that like attends to like: a masked
  value finds the value that follows the same words. The other half compares the tokens before the query with those one further back
  from the key: it finds what *followed* the same words, which is what a model that predicts the next token needs. Output is the
  transpose of value, so that what is attended to is copied (compare "mimetic initialization", arXiv:2305.09828).
- **in balance**: what attention and MLPs add starts at the size of the embeddings, not at many times it; otherwise noise drowns the
  word itself.

All twins start from the same numbers, and each uses what suits it. Nothing here prefers the first token: no sink is planted.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Start:
    """How strongly each part is there at the beginning."""

    offsets: tuple[int, ...] = (1, 2, 3, 4)
    constant_dimensions: int = 8
    embedding_scale: float = 0.1
    constant: float = 0.3
    place_logit: float = 5.0  # what each of the fastest rotary pairs adds at the offset
    fast_pairs: int = 5
    likeness_logit: float = 3.0  # the score of a vector with itself
    following_gain: float = 0.9
    attention_gain: float = 0.15
    mlp_gain: float = 0.1


def set_initial_weights(model: Any, seed: int, start: Start | None = None) -> None:
    """Overwrite all matrices of a `LlamaForCausalLM` with tied embeddings.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=30)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True, attn_implementation="eager"))
    >>> set_initial_weights(model, seed=0, start=Start(offsets=(1, 2)))
    >>> first_layer = model(torch.arange(30)[None], output_attentions=True).attentions[0][0]
    >>> first_layer[0, 10].argmax().item(), first_layer[1, 10].argmax().item()
    (9, 8)
    """
    start = start or Start()
    generator = torch.Generator().manual_seed(seed)
    width, heads = model.config.hidden_size, model.config.num_attention_heads
    likeness = (start.likeness_logit / ((width // heads) ** 0.5 * width)) ** 0.5
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        embeddings.copy_(_normal(generator, *embeddings.shape) * start.embedding_scale)
        embeddings[:, : start.constant_dimensions] = start.constant
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            attention.k_proj.weight.copy_(_normal(generator, width, width) * likeness)
            attention.q_proj.weight.copy_(attention.k_proj.weight)
            attention.v_proj.weight.copy_(_normal(generator, width, width) / width**0.5)
            attention.o_proj.weight.copy_(attention.v_proj.weight.T * start.attention_gain)
            for projection, gain in ((mlp.gate_proj, 1.0), (mlp.up_proj, 1.0), (mlp.down_proj, start.mlp_gain)):
                rows, columns = projection.weight.shape
                projection.weight.copy_(_normal(generator, rows, columns) * gain / columns**0.5)
        places = torch.linalg.qr(_normal(generator, width, width))[0].view(heads, width // heads, width)
        _look_back(model.model.layers[0].self_attn, model.model.rotary_emb.inv_freq, places, likeness, start, generator)
        for layer in model.model.layers[1:]:
            _find_what_followed(layer.self_attn, places, start, generator)


def _normal(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _look_back(attention: Any, turns: Tensor, places: Tensor, scale: float, start: Start, generator: Generator) -> None:
    """Point the first layer's heads at their offsets. places: (head, dimension of the head, width), where each writes."""
    heads, head_size, width = places.shape
    fast = min(start.fast_pairs, head_size // 2)
    size = (start.place_logit * head_size**0.5) ** 0.5
    constant_square = start.constant_dimensions * start.constant**2
    square = (constant_square + (width - start.constant_dimensions) * start.embedding_scale**2) / width
    read = start.constant_dimensions * start.constant / square**0.5  # the sum of the constant dimensions behind the norm
    seen = _normal(generator, head_size, width) / width**0.5
    seen[:, : start.constant_dimensions] = 0  # what all tokens have in common says nothing
    for head in range(heads):
        rows, query, key = slice(head * head_size, (head + 1) * head_size), torch.zeros(head_size), torch.zeros(head_size)
        angle = start.offsets[head] * turns[:fast]
        query[:fast] = size
        key[:fast], key[head_size // 2 : head_size // 2 + fast] = size * torch.cos(angle), size * torch.sin(angle)
        for projection, direction in ((attention.q_proj, query), (attention.k_proj, key)):
            projection.weight[rows] = _normal(generator, head_size, width) * scale * 0.2  # little content beside the place
            projection.weight[rows, : start.constant_dimensions] += direction[:, None] / read
        attention.v_proj.weight[rows] = seen
        attention.o_proj.weight[:, rows] = places[head].T * start.attention_gain


def _find_what_followed(attention: Any, places: Tensor, start: Start, generator: Generator) -> None:
    """Let the odd heads compare the tokens before the query with those one further back from the key."""
    heads, head_size, width = places.shape
    for head in range(1, heads, 2):
        rows, query, key = slice(head * head_size, (head + 1) * head_size), torch.zeros(head_size, width), torch.zeros(head_size, width)
        for nearer in range(heads - 1):
            mixed = _normal(generator, head_size, head_size) / head_size**0.5
            query += mixed @ places[nearer]
            key += mixed @ places[nearer + 1]
        attention.q_proj.weight[rows] = query * start.following_gain
        attention.k_proj.weight[rows] = key * start.following_gain

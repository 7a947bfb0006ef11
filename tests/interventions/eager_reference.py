"""Interventions straight from dense attention, and from nothing of floatlens: one text, no cache, every row computed again at every step.

A row that was computed under a mask keeps that mask whenever it is computed again, so recomputing gives what a cache would hold. Weights
are those of a softmax in float64; `before` are the weights of each row as they would be in this very call without its mask.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask


@dataclass
class Plan:
    """What one forward may see. `hidden` and `silenced` are bool (head, query, key) by layer; `off` are (layer, head) pairs."""

    visible: np.ndarray  # bool (query, key)
    window: dict[int, int] = field(default_factory=dict)  # by layer: a query sees only this many keys, itself and those before it
    hidden: dict[int, np.ndarray] = field(default_factory=dict)
    silenced: dict[int, np.ndarray] = field(default_factory=dict)
    off: tuple[tuple[int, int], ...] = ()
    sink_in: tuple[int, ...] = ()  # layers with one more key of score 0 and value 0


@dataclass
class Looked:
    """A forward: logits (query, vocabulary), and by layer the weights before and after, (head, query, key), and what a sink drew."""

    logits: np.ndarray
    before: list[np.ndarray]
    after: list[np.ndarray]
    drawn: list[np.ndarray]


_plan: Plan
_seen: Looked


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **_: Any) -> Any:
    layer = module.layer_idx
    groups = query.shape[1] // key.shape[1]
    q, k, v = (tensor[0].double() for tensor in (query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)))
    visible = torch.from_numpy(_plan.visible)
    if layer in _plan.window:
        visible = visible & torch.ones_like(visible).triu(1 - _plan.window[layer])
    scores = (q @ k.transpose(1, 2) * scaling).masked_fill(~visible, -torch.inf)
    before = scores.softmax(-1)
    if layer in _plan.hidden:
        scores = scores.masked_fill(torch.from_numpy(_plan.hidden[layer]), -torch.inf)
    extra = torch.zeros(*scores.shape[:2], 1 if layer in _plan.sink_in else 0, dtype=torch.float64)
    whole = torch.cat([scores, extra], -1).softmax(-1)
    after = whole[..., : scores.shape[-1]]
    used = after
    if layer in _plan.silenced:
        used = used.masked_fill(torch.from_numpy(_plan.silenced[layer]), 0)
    output = used @ v
    for off_layer, head in _plan.off:
        if off_layer == layer:
            output[head] = 0
    _seen.before.append(before.numpy())
    _seen.after.append(after.numpy())
    _seen.drawn.append(whole[..., scores.shape[-1] :].sum(-1).numpy())
    return output.transpose(0, 1)[None].to(query.dtype), None


AttentionInterface.register("planned", _attend)
AttentionMaskInterface.register("planned", eager_mask)


def look(module: nn.Module, tokens: list[int], plan: Plan) -> Looked:
    """One forward under a plan."""
    global _plan, _seen
    model: Any = module
    _plan, _seen = plan, Looked(np.zeros(0), [], [], [])
    model.set_attn_implementation("planned")
    try:
        with torch.no_grad():
            _seen.logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()
    finally:
        model.set_attn_implementation("sdpa")
    return _seen


Picks = dict[int, list[list[int]]]
"""By layer and head, picked keys."""
Act = Callable[[Looked | None, list[int], int], Plan]
"""From the step before (None at first), the rows of this step and the number of positions: what this step may see."""
Choose = Callable[[list[float]], list[int]]
"""From what every key received in the step before: the picked keys."""


def top(k: int) -> Choose:
    """The k largest, of equals the left one."""
    return lambda received: sorted(range(len(received)), key=lambda key: (-received[key], key))[:k]


def picked(last: Looked | None, choose: Choose, causal: bool) -> Picks:
    """What is picked by the step before: from the mean weight over all its rows, or over its last row.

    Every row sees every key it is asked for.
    """
    if last is None:
        return {}
    n = last.before[0].shape[2]
    rows = [n - 1] if causal else list(range(n))
    return {
        layer: [choose([sum(float(head[row, key]) for row in rows) / len(rows) for key in range(n)]) for head in weights]
        for layer, weights in enumerate(last.before)
    }


@dataclass
class Written:
    """A finished text, the steps that wrote it, and by step what was removed: (layer, head)."""

    tokens: list[int]
    steps: list[Looked]
    hidden: list[dict[int, np.ndarray]]
    removed: list[np.ndarray]


def removed_from(looked: Looked, plan: Plan, rows: list[int]) -> np.ndarray:
    """The share of the attention before that lay on what the plan takes away, (layer, head): an entry at a time."""
    layers, heads = len(looked.before), looked.before[0].shape[0]
    removed = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            for row in rows:
                gone = 0.0
                for key in range(looked.before[layer].shape[2]):
                    hidden = layer in plan.hidden and plan.hidden[layer][head, row, key]
                    silent = layer in plan.silenced and plan.silenced[layer][head, row, key]
                    gone += looked.before[layer][head, row, key] if hidden or silent else 0.0
                if layer in plan.sink_in:
                    gone = 1 - (1 - gone) * (1 - looked.drawn[layer][head, row])
                removed[layer, head] += (1.0 if (layer, head) in plan.off else gone) / len(rows)
    return removed


def denoise(
    module: nn.Module, prompt: list[int], mask: int, count: int, act: Act, *, leftmost: bool = False, guidance: float = 0.0
) -> Written:
    """LLaDA's loop, greedy, one token a step, the surest first (or the leftmost). Every row counts, and every row sees every key.

    Under guidance the text without its prompt is looked at as well, with picks of its own.
    """
    canvas = [*prompt, *[mask] * count]
    rows, looked, unguided, written = list(range(len(canvas))), None, None, Written([], [], [], [])
    for _ in range(count):
        plan = act(looked, rows, len(canvas))
        looked = look(module, canvas, plan)
        logits = looked.logits
        if guidance:
            unguided = look(module, [mask] * len(prompt) + canvas[len(prompt) :], act(unguided, rows, len(canvas)))
            logits = unguided.logits + (guidance + 1) * (logits - unguided.logits)
        odds = {}
        for position in rows:
            if canvas[position] == mask:
                token = int(logits[position].argmax())
                odds[position] = logits[position, token] - np.logaddexp.reduce(np.delete(logits[position], token))
        chosen = min(odds) if leftmost else max(odds, key=lambda position: (odds[position], -position))
        canvas[chosen] = int(logits[chosen].argmax())
        _note(written, looked, plan, rows)
    written.tokens = canvas[len(prompt) :]
    return written


def write_blocks(module: nn.Module, prompt: list[int], mask: int, count: int, choose: Choose, length: int = 4) -> Written:
    """SDAR's loop with keys hidden, one token per step from left to right.

    A finished block keeps what its last step would hide in the next.
    """
    whole = -(-(len(prompt) + count) // length) * length
    canvas = [*prompt, *[mask] * (whole - len(prompt))]
    block_of = np.arange(whole) // length
    kept: dict[int, np.ndarray] = {}
    picks: Picks = {}
    written = Written([], [], [], [])
    for block in range(len(prompt) // length, whole // length):
        stop, rows = (block + 1) * length, list(range(block * length, (block + 1) * length))
        while mask in canvas[:stop]:
            plan = Plan(block_of[:stop, None] >= block_of[:stop], hidden=entries(picks, rows, stop))
            for layer, stored in kept.items():
                plan.hidden[layer][:, : block * length, : block * length] = stored
            looked = look(module, canvas[:stop], plan)
            position = canvas.index(mask)
            canvas[position] = int(looked.logits[position].argmax())
            _note(written, looked, plan, rows)
            picks = {
                layer: [choose([float(head[rows, key].mean()) for key in range(stop)]) for head in weights]
                for layer, weights in enumerate(looked.before)
            }
        now = entries(picks, rows, stop)
        for layer, stored in kept.items():
            now[layer][:, : block * length, : block * length] = stored
        kept = now
    written.tokens = canvas[len(prompt) :]
    return written


def write(module: nn.Module, prompt: list[int], count: int, act: Act, window: dict[int, int] | None = None) -> Written:
    """Greedy from left to right. A step is its new row (all of the prompt at first); rows written before keep what was hidden from them."""
    text, looked, last, written = list(prompt), None, Plan(np.zeros((0, 0), bool)), Written([], [], [], [])
    for step in range(count):
        n, rows = len(text), list(range(len(text))) if step == 0 else [len(text) - 1]
        plan = act(looked, rows, n)
        plan.visible, plan.window = np.tril(np.ones((n, n), bool)), window or {}
        for now, before in ((plan.hidden, last.hidden), (plan.silenced, last.silenced)):
            for layer, entries in before.items():
                now[layer][:, : n - 1, : n - 1] = entries
        looked, last = look(module, text, plan), plan
        _note(written, looked, plan, rows)
        text.append(int(looked.logits[-1].argmax()))
    written.tokens = text[len(prompt) :]
    return written


def _note(written: Written, looked: Looked, plan: Plan, rows: list[int]) -> None:
    written.steps.append(looked)
    written.hidden.append({layer: hidden.copy() for layer, hidden in plan.hidden.items()})
    written.removed.append(removed_from(looked, plan, rows))


def hide(picks: Picks, rows: list[int], n: int, heads: int = 4) -> Plan:
    """The picked keys are hidden from these rows."""
    return Plan(np.ones((n, n), bool), hidden=entries(picks, rows, n, heads))


def entries(picks: Picks, rows: list[int], n: int, heads: int = 4) -> dict[int, np.ndarray]:
    """The picked keys, in these rows: bool (head, query, key) by layer."""
    marked = {}
    for layer, of_heads in picks.items():
        marked[layer] = np.zeros((heads, n, n), bool)
        for head, keys in enumerate(of_heads):
            for row in rows:
                for key in keys:
                    marked[layer][head, row, key] = True
    return marked

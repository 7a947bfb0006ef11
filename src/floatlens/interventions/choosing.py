"""Which keys: the anchors of a step from what its keys received, and random other keys in their place.

All tensors are over (sample, head, key). Ties are decided by position and not by rounding: what differs by less than rounding counts as
equal, and the left key goes first; a margin must exceed eps by more than rounding. Otherwise a batch could choose another key than a single prompt.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.edits import Received
from floatlens.errors import Refusal
from floatlens.interventions.specification import KeyPicker, MaskAbove

ROUNDING = 1e-5
WITNESSES = 16


def anchors(picker: KeyPicker, received: Received) -> Tensor:
    """The keys that an intervention picks by what keys received in a step (from the first group of rows): bool (sample, head, key).

    Examples
    --------
    >>> import torch
    >>> from floatlens.interventions import MaskAnchors
    >>> mass = torch.tensor([[[[0.5, 1.2, 0.3]]]])  # two rows looked at three keys
    >>> seen = torch.full_like(mass, 2.0)
    >>> anchors(MaskAnchors(1), Received(("all",), 0, mass, seen, seen / 6, torch.tensor([[[2.0]]]))).tolist()
    [[[False, True, False]]]
    """
    measured = measured_keys(received)
    if isinstance(picker, MaskAbove):
        return measured & (_margin(picker.rule, received) > picker.eps + ROUNDING)
    mass, visible = received.mass[:, :, 0], received.visible[:, :, 0]
    return strongest((mass / visible).masked_fill(~measured, float("-inf")), picker.k)


def measured_keys(received: Received) -> Tensor:
    """Keys that enough rows saw to tell: 16 and a quarter of them, or all where there are fewer. bool (sample, head or 1, key)."""
    visible, rows = received.visible[:, :, 0], received.rows[:, :, 0, None]
    return (visible > 0) & (visible >= torch.minimum(rows, (rows / 4).clamp(min=WITNESSES)))


def strongest(values: Tensor, count: int) -> Tensor:
    """The `count` largest values along the last axis, equal ones from the left; minus infinity is never among them.

    Examples
    --------
    >>> strongest(torch.tensor([0.1, 0.4, 0.1, 0.4 + 1e-7]), 2).tolist()
    [False, True, False, True]
    >>> strongest(torch.tensor([0.3, 0.3 + 1e-8, 0.4]), 2).tolist()
    [True, False, True]
    """
    chosen, left = torch.zeros_like(values, dtype=torch.bool), values.clone()
    for _ in range(count):
        best = left.amax(-1, keepdim=True)
        first = (left >= best - ROUNDING * best.abs()).int().argmax(-1, keepdim=True)  # argmax takes the first of equals
        chosen.scatter_(-1, first, True)
        left.scatter_(-1, first, float("-inf"))
    return chosen & values.isfinite()


def _margin(rule: str, received: Received) -> Tensor:
    """How far each key goes beyond the others by a rule; NaN at padding."""
    mass, visible = received.mass[:, :, 0], received.visible[:, :, 0]
    if rule == "lift":
        return mass / (visible * received.null[:, :, 0]) - 1
    if rule == "rate":
        return mass / visible
    rows, keys = received.rows[:, :, 0, None], mass.isfinite().sum(-1, keepdim=True)
    if rule == "additive":
        scaled = mass * keys / rows
        return scaled - (scaled.nansum(-1, keepdim=True) - scaled) / (keys - 1)
    per_row = mass / rows
    mean = per_row.nanmean(-1, keepdim=True)
    spread = ((per_row - mean) ** 2).nanmean(-1, keepdim=True).sqrt()
    return (per_row - mean) / spread.masked_fill(
        spread <= ROUNDING * mean, float("nan")
    )  # an even spread is all rounding: no deviations to count


@dataclass(frozen=True, eq=False)
class Others:
    """Random other keys in place of the picked ones, and what they are short of an equal mass: (sample, head)."""

    keys: Tensor
    shortfall: Tensor


def as_many_others(picked: Tensor, available: Tensor, order: Tensor, where: str) -> Others:
    """As many keys as are picked, of those that are available and not picked, smallest `order` first.

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> order = torch.tensor([[[0.1, 0.9, 0.2, 0.5]]])
    >>> as_many_others(picked, torch.ones_like(picked), order, "layer 0").keys.tolist()
    [[[False, False, True, False]]]
    """
    others = available & ~picked
    wanted, there = (picked & available).sum(-1), others.sum(-1)
    if bool((wanted > there).any()):
        sample, head = (int(at) for at in (wanted > there).nonzero()[0])
        raise Refusal(
            f"random-keys is to take {int(wanted[sample, head])} other keys in {where}, head {head}, and there are only {int(there[sample, head])}. "
            "Pick fewer keys, or use longer prompts."
        )
    return Others(_first_of(_drawn(others, order), wanted), torch.zeros_like(wanted, dtype=torch.float64))


def as_much_from_others(picked: Tensor, available: Tensor, order: Tensor, share: Tensor) -> Others:
    """Keys that hold as much as the picked ones, of those that are available and not picked, smallest `order` first.

    Up to the first key with which they reach it, or one less if that is closer; all but one where all together do not reach it.

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> order, share = torch.tensor([[[0.1, 0.9, 0.2, 0.5]]]), torch.tensor([[[0.3, 0.4, 0.2, 0.1]]])
    >>> as_much_from_others(picked, torch.ones_like(picked), order, share).keys.tolist()  # .2, and .1 more
    [[[False, False, True, True]]]
    """
    others, there = available & ~picked, (available & ~picked).sum(-1)
    share = share.double().nan_to_num()
    target = (share * (picked & available)).sum(-1)
    drawn = _drawn(others, order)
    real = torch.arange(drawn.shape[-1], device=drawn.device) < there[..., None]
    sums = F.pad((share.gather(-1, drawn) * real).cumsum(-1), (1, 0))  # what the first 0, 1, 2, ... keys hold
    reached = (sums >= target[..., None]) & F.pad(real, (1, 0), value=True)
    first = reached.int().argmax(-1)
    above = sums.gather(-1, first[..., None])[..., 0] - target
    below = target - sums.gather(-1, (first - 1).clamp(min=0)[..., None])[..., 0]
    enough = reached.any(-1)
    count = torch.where(enough, first - ((below < above) & (first > 0)).int(), (there - 1).clamp(min=0))
    missing = target - sums.gather(-1, count[..., None])[..., 0]
    return Others(_first_of(drawn, count), torch.where(enough, 0.0, missing))


def _drawn(keys: Tensor, order: Tensor) -> Tensor:
    """These keys' indices, smallest order first; after them those of all others."""
    lots = order.to(keys.device).masked_fill(~keys, float("inf")).cpu().numpy()
    return torch.from_numpy(lots.argsort(-1)).to(keys.device)  # numpy sorts these four times as fast as torch


def _first_of(drawn: Tensor, count: Tensor) -> Tensor:
    """The first `count` (sample, head) of the indices that were drawn, as booleans over keys."""
    taken = torch.arange(drawn.shape[-1], device=drawn.device) < count[..., None]
    return torch.zeros_like(taken).scatter_(-1, drawn, taken)

"""What is known when a forward begins: its inputs, how long the cache is, which positions are real, groups and regions.

Positions count over the whole text, cache included. With a cache of `past` keys, query `i` stands at position `past + i`; a call with fewer
keys than positions (a sliding-window cache) holds the last ones, a call with more (a static cache) starts at position 0.

What is wrong with a call (attention to padding, padding that nobody told of) is not asked of the device while the forward runs: it is
added to `checks`, which whoever fetches the results of the forward reads with them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from floatlens.capture.call import AttentionCall, as_four_axes
from floatlens.capture.checks import Check
from floatlens.capture.observation import Observation, Scene, observe_alone
from floatlens.capture.visibility import Real, Visibility, everything_real, see
from floatlens.errors import Refusal

Region = Tensor | tuple[int, int] | slice
Groups = Mapping[str, Tensor] | Callable[["Forward"], Mapping[str, Tensor]]
Regions = Mapping[str, Region] | Callable[["Forward"], Mapping[str, Region]]
EVERYONE = "all"  # the group of all rows, when no groups are given
SCENES_HELD = 4  # layers of a model rarely use more kinds of masks; a model that makes a new one for each layer must not pile them up


@dataclass(eq=False)
class Forward:
    """One forward of the watched module. `inputs` are its arguments by name, for groups and regions that depend on them."""

    step: int
    inputs: Mapping[str, Any]
    padding: Tensor | None = None  # bool (sample, position), True where real
    groups: Groups | None = None
    regions: Regions | None = None
    pad_token: int | None = None
    checks: list[Check] = field(default_factory=list)
    _scenes: dict[Any, tuple[Tensor | None, Scene]] = field(default_factory=dict)

    @property
    def input_ids(self) -> Tensor:
        """The token ids of this forward, (sample, query)."""
        if (ids := self._ids()) is None:
            raise Refusal(f"This forward was given no input_ids, only {', '.join(self.inputs) or 'nothing'}; use forward.inputs instead.")
        return ids

    def _ids(self) -> Tensor | None:
        return next((value for name, value in self.inputs.items() if name.endswith("input_ids") and value is not None), None)

    def __post_init__(self) -> None:
        cache = self.inputs.get("past_key_values")
        self.past: int | None = int(cache.get_seq_length()) if cache is not None and hasattr(cache, "get_seq_length") else None
        """How many keys the cache held when the forward began (it grows with every layer), or None if there is no cache to ask."""

    def locate(self, call: AttentionCall, **known: Any) -> AttentionCall:
        """The call with the positions of its first query and key, and what else is known of where it comes from."""
        if self.past is None:
            return replace(call, query_start=max(0, call.keys - call.queries), key_start=0, **known)
        return replace(call, query_start=self.past, key_start=max(0, self.past + call.queries - call.keys), **known)

    def observe(self, call: AttentionCall, samples: slice | None = None, *, edited: bool = False) -> Observation:
        """One call as reducers want it; `samples` picks those that are recorded."""
        return observe_alone(call if samples is None else call.of_samples(samples), self.scene(call, samples, edited=edited))

    def scene(self, call: AttentionCall, samples: slice | None = None, *, edited: bool = False) -> Scene:
        """What a call shares with others.

        A model's own mask is checked for padding and read once for all layers that share it; an edited one is taken as it is.
        """
        mask = call.mask
        if edited or (mask is not None and mask.is_inference()):  # an inference tensor does not tell when it is written to
            scene = self._scene(call if edited else _with_own_mask(call), samples)
            if not edited:
                self._check_padding(call, scene.visibility)
            return scene
        address = None if mask is None else (mask.data_ptr(), mask.shape, mask.stride(), mask.dtype, mask._version)
        known_as = (
            address,
            call.causal,
            call.query.shape[:3],
            call.keys,
            call.query_start,
            call.key_start,
            call.query.device,
            samples is None,
        )
        if known_as not in self._scenes:
            scene = self._scene(_with_own_mask(call), samples)
            self._check_padding(call, scene.visibility)
            while len(self._scenes) >= SCENES_HELD:
                self._scenes.pop(next(iter(self._scenes)))
            self._scenes[known_as] = (mask, scene)  # holding the mask keeps its address from being reused
        return self._scenes[known_as][1]

    def _scene(self, call: AttentionCall, samples: slice | None) -> Scene:
        if samples is not None and not range(call.samples)[samples]:
            raise Refusal(f"samples={samples!r} records none of the {call.samples} samples of this forward. Choose some of them.")
        queries = slice(call.query_start, call.query_start + call.queries)
        real = self._real(call)
        groups, regions = self._groups(call), self._regions(call)
        length = torch.full((call.samples,), queries.stop) if self.padding is None else self.padding[:, : queries.stop].sum(-1)
        positions = self._text_positions(call)
        if samples is not None:
            call, groups, regions = call.of_samples(samples), groups[samples], regions[samples]
            real = real._replace(queries=real.queries[samples], keys=real.keys[samples])
            length, positions = length[samples], positions[samples]
        return Scene(
            visibility=see(call, real),
            query_start=call.query_start,
            key_start=call.key_start,
            length=length,
            group_names=(EVERYONE,) if self._given_groups is None else tuple(self._given_groups),
            groups=groups,
            query_positions=positions,
            region_names=tuple(self._given_regions),
            query_regions=regions[..., queries],
            key_regions=F.pad(regions[..., call.key_start : call.key_start + call.keys - call.appended], (0, call.appended)),
        )

    def _text_positions(self, call: AttentionCall) -> Tensor:
        """Where each query stands in its sample's own text: (sample, query)."""
        stop, device = call.query_start + call.queries, call.query.device
        if self.padding is None:
            return torch.arange(call.query_start, stop, device=device).expand(call.samples, -1)
        return self.padding[:, :stop].to(device).long().cumsum(-1)[:, call.query_start :] - 1

    @cached_property
    def _all_real(self) -> bool:
        """Whether nothing is padding. Padding that is in host memory is known without asking the device."""
        return self.padding is None or bool(self.padding.all())

    def _real(self, call: AttentionCall) -> Real:
        """Which queries and keys are real."""
        queries, keys, *_ = everything_real(call)
        stop, own_keys = call.query_start + call.queries, call.keys - call.appended
        all_written = not getattr(self.inputs.get("past_key_values"), "is_compileable", False) or stop >= own_keys
        if not all_written:
            keys[:, stop:own_keys] = False  # slots of a static cache that nothing was written to
        if self.padding is None:
            return Real(queries, keys, True, all_written)
        if self.padding.dim() != 2 or self.padding.shape[0] != call.samples or self.padding.shape[1] < stop:
            raise Refusal(
                f"The padding is {tuple(self.padding.shape)} (sample, position), but {call.where} runs {call.samples} samples up to "
                f"position {stop}. Pass one row per sample and one column per position, cached positions included."
            )
        if self._all_real:
            return Real(queries, keys, True, all_written)
        padding = self.padding.to(call.query.device)
        queries &= padding[:, call.query_start : stop]
        known = padding[:, call.key_start : call.key_start + own_keys]
        keys[:, : known.shape[1]] &= known
        return Real(queries, keys, False, False)

    def _check_padding(self, call: AttentionCall, visibility: Visibility) -> None:
        """Note what may be wrong about padding; the answers are read with the results."""
        if not visibility.all_keys_real:
            self.checks.append(_attention_to_padding(call, visibility))
        if self.padding is None:
            if visibility.mask is not None:
                self.checks.append(_unknown_padding(call, visibility))
            self._check_pad_tokens(call)

    def _check_pad_tokens(self, call: AttentionCall) -> None:
        ids = self._ids()
        if self.pad_token is None or ids is None or ids.dim() != 2 or ids.shape != (call.samples, call.queries):
            return
        padded = (ids[:, 0] == self.pad_token) | (ids[:, -1] == self.pad_token)

        def refuse() -> None:
            raise Refusal(
                f"Sample {int(padded.nonzero()[0])} begins or ends with the padding token ({self.pad_token}), and the forward got no "
                "attention_mask, so padding rows cannot be told from real ones. Pass attention_mask to the model, or padding= to the tap "
                "(padding=torch.ones_like(input_ids) if every token is meant to be read)."
            )

        self.checks.append(Check(padded.any(), refuse))

    @cached_property
    def _given_groups(self) -> Mapping[str, Tensor] | None:
        groups = self.groups(self) if callable(self.groups) else self.groups
        if groups is not None and not isinstance(groups, Mapping):
            raise Refusal(
                f"groups={groups!r} are not groups; pass {{name: boolean tensor over (sample, query), ...}}, or a function that gives them."
            )
        if groups is not None and not groups:
            raise Refusal("groups is empty; leave it out to have one group of all rows.")
        return groups

    @cached_property
    def _given_regions(self) -> Mapping[str, Region]:
        regions = self.regions(self) if callable(self.regions) else self.regions
        if regions is not None and not isinstance(regions, Mapping):
            raise Refusal(f"regions={regions!r} are not regions; pass {{name: (start, stop), ...}}, or a function that gives them.")
        return regions or {}

    def _groups(self, call: AttentionCall) -> Tensor:
        """Which rows belong to each group: bool (sample, group, query)."""
        shape = (call.samples, call.queries)
        if self._given_groups is None:
            return torch.ones(call.samples, 1, call.queries, dtype=torch.bool, device=call.query.device)
        groups = []
        for name, rows in self._given_groups.items():
            try:
                rows = torch.as_tensor(rows, device=call.query.device)
            except (TypeError, ValueError, RuntimeError):
                raise Refusal(f"Group {name!r} is {rows!r}; a group is a boolean tensor over (sample, query) = {shape}.") from None
            if rows.dtype != torch.bool or rows.shape not in (shape, shape[1:]):
                raise Refusal(
                    f"Group {name!r} is {rows.dtype} of shape {tuple(rows.shape)}; a group is a boolean tensor over the rows of this "
                    "forward, "
                    f"(sample, query) = {shape}. Where they change from step to step, pass groups as a function of the forward."
                )
            groups.append(rows.expand(shape))
        return torch.stack(groups, dim=1)

    def _regions(self, call: AttentionCall) -> Tensor:
        """Which positions belong to each region: bool (sample, region, position)."""
        positions = max(call.query_start + call.queries, call.key_start + call.keys - call.appended)
        regions = [_region(name, region, call, positions) for name, region in self._given_regions.items()]
        nowhere = torch.zeros(call.samples, 0, positions, dtype=torch.bool, device=call.query.device)
        return torch.stack(regions, dim=1) if regions else nowhere


def named_inputs(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a forward by name."""
    try:
        named = dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:  # the call is wrong: let the module itself say how
        return dict(kwargs)
    others = [name for name, parameter in signature.parameters.items() if parameter.kind is inspect.Parameter.VAR_KEYWORD]
    return {**named, **(named.pop(others[0], {}) if others else {})}


def known_padding(*inputs: Mapping[str, Any]) -> Tensor | None:
    """The first 2D attention mask among the inputs of a module and of those around it, as booleans."""
    for given in inputs:
        for name in ("attention_mask", "decoder_attention_mask"):
            mask = given.get(name)
            if isinstance(mask, Tensor) and mask.dim() == 2:
                return mask.bool()
    return None


def _region(name: str, region: Region, call: AttentionCall, positions: int) -> Tensor:
    """A region as booleans (sample, position)."""
    device = call.query.device
    if isinstance(region, slice) and region.step in (None, 1):
        region = (0 if region.start is None else region.start, positions if region.stop is None else region.stop)
    if isinstance(region, tuple):
        start, stop = _span(name, region, positions)
        inside = torch.zeros(positions, dtype=torch.bool, device=device)
        inside[start:stop] = True
        return inside.expand(call.samples, positions)
    try:
        region = torch.as_tensor(region, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise Refusal(f"Region {name!r} is {region!r}; a region is (start, stop) or a boolean tensor over positions.") from None
    if region.dtype != torch.bool or region.shape not in ((positions,), (call.samples, positions)):
        raise Refusal(
            f"Region {name!r} is {region.dtype} of shape {tuple(region.shape)}; a region is (start, stop) or a boolean tensor over "
            "positions, "
            f"({positions},) or ({call.samples}, {positions}). Where the text grows from step to step, pass regions as a function of "
            "the forward."
        )
    return region.expand(call.samples, positions)


def _span(name: str, region: tuple[Any, ...], positions: int) -> tuple[int, int]:
    """The edges of a region that is a span of the text."""
    if len(region) != 2 or not all(isinstance(edge, Integral) and not isinstance(edge, bool) for edge in region):
        raise Refusal(f"Region {name!r} is {region!r}; a span is (start, stop), two whole numbers.")
    start, stop = region
    if not 0 <= start < stop <= positions:
        raise Refusal(
            f"Region {name!r} spans the positions {start} to {stop}, but this forward has {positions}; a region lies inside them and is "
            "not empty "
            f"(0 <= start < stop <= {positions}). Where the text grows from step to step, pass regions as a function of the forward."
        )
    return start, stop


def _with_own_mask(call: AttentionCall) -> AttentionCall:
    """The call with a copy of its mask: the model may write to its own before the call is reduced."""
    return call if call.mask is None else replace(call, mask=as_four_axes(call.mask).clone())


def _attention_to_padding(call: AttentionCall, visibility: Visibility) -> Check:
    rows = visibility.live_rows[:, :, None].float()
    seen = visibility.sum_over_seeing_rows(rows)[:, :, 0] > 0
    leaking = seen & ~visibility.real_keys[:, None]

    def refuse() -> None:
        sample, _, key = (int(index) for index in leaking.nonzero()[0])
        raise Refusal(
            f"In {call.where}, real queries of sample {sample} can see the padding at key {key}, so the text next to it is not what the "
            "model alone decides on. Pass the attention_mask to the model as well, or run the samples one by one."
        )

    return Check(leaking.any(), refuse)


def _unknown_padding(call: AttentionCall, visibility: Visibility) -> Check:
    assert visibility.mask is not None
    everyone = visibility.real_queries[:, None, None].float().expand(-1, visibility.mask.shape[1], -1, -1)
    unseen = (visibility.sum_over_seeing_rows(everyone)[:, :, 0] == 0).all(1) & visibility.real_keys

    def refuse() -> None:
        sample, key = (int(index) for index in unseen.nonzero()[0])
        raise Refusal(
            f"In {call.where}, no query sees key {key} of sample {sample}: the batch looks padded, and padding rows cannot be told from "
            "real ones. Pass the model a 2D attention_mask, or padding= to the tap (True where a position is real)."
        )

    return Check(unseen.any(), refuse)


def pad_token(model: nn.Module) -> int | None:
    """The model's padding token, if it stands for nothing else."""
    config = getattr(model, "config", None)
    pad = getattr(config, "pad_token_id", None)
    others = (getattr(config, name, None) for name in ("eos_token_id", "bos_token_id"))
    used = [token for other in others for token in (other if isinstance(other, list) else [other])]
    return None if pad in used else pad

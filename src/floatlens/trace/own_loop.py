"""Record a model that only its own `generate` can run: every forward of its step module is a step.

What the loop decided is read off afterwards: a position was committed in a step if it held the mask before and no longer does at the next. Models without a
mask token (DiffusionGemma) accept tokens instead, and may take them back; their sampler is asked which.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr

from floatlens.capture.chosen_rows import SeenCall
from floatlens.capture.dataset import assemble
from floatlens.capture.edits import Edit
from floatlens.capture.forward import Forward
from floatlens.capture.tapping import Tap
from floatlens.capture.walk import BLOCK_ENTRIES, Workspace
from floatlens.decoding.canvas import Canvas
from floatlens.errors import Refusal
from floatlens.models.language_model import LanguageModel
from floatlens.models.prompts import EncodedPrompt
from floatlens.trace.frames import Arrays, Place, attention_arrays, join_groups
from floatlens.trace.recording import Favourites, layers_differ, record_rows
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, MASKED, NOTHING, PROMPT, Detail


@dataclass(eq=False)
class _OwnStep:
    """One forward of the loop."""

    past: int
    tokens: np.ndarray  # (row,)
    open_before: np.ndarray  # bool (row,): masked, or not accepted
    committed: np.ndarray  # bool (row,)
    in_passing: xr.Dataset
    predicting: xr.Dataset


def record_own_loop(
    lm: LanguageModel,
    prompt: EncodedPrompt,
    gen_length: int,
    seed: int,
    options: dict[str, Any],
    detail: Detail,
    edits: Sequence[Edit] = (),
) -> tuple[Canvas, Arrays, list[Favourites], xr.Dataset]:
    """The finished canvas, the arrays of all steps with a leading step axis, the favourite keys, and one step as it was seen."""
    if detail.keeps("flow"):
        raise Refusal(
            f"Region flow is not recorded for models that run their own generate ({lm.family}); switch it off: detail={{'flow': 'off'}}."
        )
    watch = _Watch(lm, detail, edits)
    with watch.watching():
        tokens = lm.own_generate(prompt, gen_length, seed, options)
    watch.finish(tokens)
    canvas = _finished_canvas(lm, prompt, tokens)
    favourites = Favourites(len(tokens), detail.top_keys)
    of_steps = [_arrays(lm, step, prompt, len(tokens), detail, favourites, edited=bool(edits)) for step in watch.steps]
    arrays: Arrays = {name: (("step", *dims), np.stack([one[name][1] for one in of_steps])) for name, (dims, _) in of_steps[0].items()}
    return canvas, arrays, [favourites], watch.steps[0].in_passing


class _Watch:
    """Watches the loop, one step behind: what a step decided shows at the next."""

    def __init__(self, lm: LanguageModel, detail: Detail, edits: Sequence[Edit]) -> None:
        self.lm, self.detail, self.edits = lm, detail, edits
        self.steps: list[_OwnStep] = []
        self._seen: list[SeenCall] = []
        self._sampler: Any = None
        self._workspace = Workspace(BLOCK_ENTRIES)
        self._now: tuple[int, np.ndarray, np.ndarray] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        assert self.lm.step_on is not None
        self._tap = Tap(
            self.lm.module,
            self.detail.reducers,
            self.detail.patterns,
            groups=self._groups,
            regions=None,
            padding=None,
            layers=None,
            edits=self.edits,
            step_on=self.lm.step_on,
            samples=None,
            block_entries=BLOCK_ENTRIES,
            on_call=self._seen.append,
        )
        with self._asking_the_sampler(), self._tap:
            yield

    def _groups(self, forward: Forward) -> dict[str, torch.Tensor]:
        """A step begins: the one before it has decided by now."""
        tokens = forward.input_ids[0].cpu().numpy()
        if len(forward.input_ids) != 1:
            raise Refusal("This model's generate runs several samples at once (guidance?), which is not recorded. Switch that off.")
        past = forward.past or 0
        if self._now is not None:
            self._close_step(past, tokens)
        still_open = self._open_rows(past, tokens)
        self._now = (past, tokens, still_open)
        masked = torch.as_tensor(still_open, device=forward.input_ids.device)[None]
        return {"masked": masked, "unmasked": ~masked} | ({"prompt": torch.zeros_like(masked)} if "prompt" in self.detail.groups else {})

    def _open_rows(self, past: int, tokens: np.ndarray) -> np.ndarray:
        if self.lm.mask_token_id is not None:
            return tokens == self.lm.mask_token_id
        accepted = getattr(self._sampler, "accepted_token_mask", None)
        if accepted is None or (self.steps and self.steps[-1].past != past) or not self.steps:
            return np.ones(len(tokens), bool)  # a new canvas
        return ~accepted[0].cpu().numpy()

    def _close_step(self, next_past: int, next_tokens: np.ndarray) -> None:
        assert self._now is not None
        past, tokens, was_open = self._now
        if self.lm.mask_token_id is None:
            committed = self._accepted(len(tokens)) & was_open
        else:
            shown = dict(zip(range(next_past, next_past + len(next_tokens)), next_tokens, strict=True))
            committed = np.array(
                [open_before and shown.get(past + row, -1) != self.lm.mask_token_id for row, open_before in enumerate(was_open)]
            )
        self._record(committed)

    def finish(self, tokens: list[int]) -> None:
        """The last step: what was still open is written in it."""
        if self._now is None:
            raise Refusal(
                f"generate of {type(self.lm.module).__name__} never ran {type(self.lm.step_on).__name__}, so there are no steps to trace."
            )
        past, _, was_open = self._now
        self._record(was_open & np.array([past + row < len(tokens) for row in range(len(was_open))]))

    def _accepted(self, rows: int) -> np.ndarray:
        accepted = getattr(self._sampler, "accepted_token_mask", None)
        return np.zeros(rows, bool) if accepted is None else accepted[0].cpu().numpy()

    def _record(self, committed: np.ndarray) -> None:
        assert self._now is not None
        past, tokens, was_open = self._now
        in_passing = assemble([self._tap.take_step()], with_steps=False, attributes={})
        rows = torch.as_tensor(np.flatnonzero(committed) if committed.any() else np.zeros(1, int))[None]
        rows = rows.to(self.lm.device)
        groups = {"predicting": torch.full_like(rows, bool(committed.any()), dtype=torch.bool)}
        predicting = record_rows(self._seen, rows, groups, self.detail, self._workspace)
        self.steps.append(_OwnStep(past, tokens, was_open, committed, in_passing, predicting))
        self._seen.clear()

    @contextmanager
    def _asking_the_sampler(self) -> Iterator[None]:
        """Models without a mask token: keep hold of the sampler that `generate` makes, which knows what it accepted."""
        module: Any = self.lm.module
        if self.lm.mask_token_id is not None or not hasattr(module, "_prepare_sampler"):
            yield
            return
        prepare = module._prepare_sampler

        def prepare_and_keep(*args: Any, **kwargs: Any) -> Any:
            self._sampler = prepare(*args, **kwargs)
            return self._sampler

        module._prepare_sampler = prepare_and_keep
        try:
            yield
        finally:
            del module._prepare_sampler


def _finished_canvas(lm: LanguageModel, prompt: EncodedPrompt, tokens: list[int]) -> Canvas:
    text = torch.tensor([tokens])
    masked = torch.arange(len(tokens))[None] >= len(prompt.tokens)
    canvas = Canvas(text, masked, torch.ones_like(masked), [len(prompt.tokens)], [], lm.mask_token_id)
    canvas.masked = torch.zeros_like(masked)
    return canvas


def _arrays(
    lm: LanguageModel, step: _OwnStep, prompt: EncodedPrompt, length: int, detail: Detail, favourites: Favourites, *, edited: bool
) -> Arrays:
    place = Place(0, 0, step.past, length)
    per_layer = edited or layers_differ(lm)
    passing = tuple(name for name in detail.groups if name != "predicting")
    parts = [
        (tuple(map(str, seen["group"].values)), attention_arrays(seen, place, detail, counts_per_layer=per_layer, counts_per_head=edited))
        for seen in ([step.in_passing] if passing else []) + ([step.predicting] if "predicting" in detail.groups else [])
    ]
    positions = [step.past + int(row) for row in np.flatnonzero(step.committed)]
    if detail.keeps("top_keys"):
        favourites.add(step.predicting, 0, [position for position in positions if position < length], 0)
    return _canvas_arrays(step, prompt, length) | join_groups(parts, detail.groups)


def _canvas_arrays(step: _OwnStep, prompt: EncodedPrompt, length: int) -> Arrays:
    """The canvas before the step: the rows of the forward, the prompt, and what came before them."""
    tokens, state = np.full(length, -1, np.int32), np.full(length, NOTHING, np.int8)
    rows = min(len(step.tokens), length - step.past)
    tokens[: len(prompt.tokens)], state[: len(prompt.tokens)] = prompt.tokens, PROMPT
    state[len(prompt.tokens) : step.past] = COMMITTED_BEFORE
    here = slice(step.past, step.past + rows)
    tokens[here] = step.tokens[:rows]
    now = np.where(step.committed[:rows], COMMITTED_NOW, np.where(step.open_before[:rows], MASKED, COMMITTED_BEFORE))
    in_prompt = np.arange(here.start, here.stop) < len(prompt.tokens)
    state[here] = np.where(in_prompt, PROMPT, now)
    return {
        "canvas": (("position",), tokens),
        "state": (("position",), state),
        "confidence": (("position",), np.full(length, np.nan, np.float32)),
    }

"""Record a model that only its own `generate` can run: every forward of its step module is a step.

What the loop decided is read off afterwards: a position was committed in a step if at the next step it holds another token than before,
and not the mask. What went into a cache is finished; what lies beyond the next canvas is still open. Models without a mask token accept
tokens instead, and may take them back: they are asked which (`watch_decisions`), and the last step on a canvas writes all that is left of
it.

The axes are as long as the widest canvas of the loop, which may be wider than the text it returns (whole blocks, an end token): rows look
at all of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from floatlens.capture.edits import Edit
from floatlens.capture.forward import Forward
from floatlens.capture.records import StepArrays, fetch_steps
from floatlens.capture.reduction import SeenLayers
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Canvas
from floatlens.decoding.model import Decisions, Writer
from floatlens.decoding.options import Decoding
from floatlens.decoding.prompts import EncodedPrompt
from floatlens.errors import Refusal
from floatlens.interventions.run import all_real
from floatlens.interventions.running import EachForward, Running
from floatlens.trace.own_axes import Favourites, Place, attention_arrays, join_groups
from floatlens.trace.recording import averaged_arrays, layers_differ, record_rows
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, MASKED, NOTHING, PROMPT, Arrays, Detail


@dataclass(eq=False)
class _OwnStep:
    """One forward of the loop."""

    past: int
    tokens: np.ndarray  # (row,)
    open_before: np.ndarray  # bool (row,): masked, or not accepted
    committed: np.ndarray  # bool (row,)
    in_passing: StepArrays
    predicting: StepArrays


def record_own_loop(
    lm: Writer,
    prompt: EncodedPrompt,
    decoding: Decoding,
    seed: int,
    detail: Detail,
    edits: Sequence[Edit] = (),
    running: Running | None = None,
) -> tuple[Canvas, Arrays, list[Favourites], StepArrays]:
    """The finished canvas, the arrays of all steps with a leading step axis, the favourite keys, and one step as it was seen."""
    if detail.keeps("flow"):
        raise Refusal(
            f"Region flow is not recorded for models that run their own generate ({lm.family}); switch it off: detail={{'flow': 'off'}}."
        )
    forwards = None if running is None else EachForward(running)
    edits = edits if forwards is None else (forwards, *edits)
    watch = _Watch(lm, len(prompt.tokens), detail, edits)
    with watch.watching():
        tokens = lm.own_generate(prompt, decoding, seed)
    watch.finish(tokens)
    length = max(len(tokens), *(step.past + len(step.tokens) for step in watch.steps))
    favourites = Favourites(length, detail.top_keys)
    removed = [{} for _ in watch.steps] if forwards is None else forwards.finish()
    of_steps = [
        _arrays(lm, step, prompt, tokens, length, detail, favourites, edited=bool(edits)) | of_step
        for step, of_step in zip(watch.steps, removed, strict=True)
    ]
    arrays: Arrays = {
        name: (("step", *dims), np.stack([of_step[name][1] for of_step in of_steps])) for name, (dims, _) in of_steps[0].items()
    }
    return _finished_canvas(lm, prompt, tokens, length), arrays, [favourites], watch.steps[0].in_passing


class _Watch:
    """Watches the loop, one step behind: what a step decided shows at the next."""

    def __init__(self, lm: Writer, prompt_length: int, detail: Detail, edits: Sequence[Edit]) -> None:
        self.lm, self.prompt_length, self.detail, self.edits = lm, prompt_length, detail, edits
        self.steps: list[_OwnStep] = []
        self._step_on = lm.module if lm.step_on is None else lm.step_on
        self._seen: list[SeenLayers] = []
        self._decisions: Decisions | None = None  # only asked of models without a mask token
        self._workspace = Workspace()
        self._now: tuple[int, np.ndarray, np.ndarray] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._tap = Tap(
            self.lm.module,
            TapRequest(
                keep=self.detail.reducers,
                patterns=self.detail.patterns,
                groups=self._groups,
                padding=all_real,
                edits=self.edits,
                step_on=self._step_on,
                on_seen=self._seen.append,
                averaged=averaged_arrays(self.detail),
            ),
        )
        with self.lm.watch_decisions() as self._decisions, self._tap:
            yield
            if self._now is None:
                raise Refusal(
                    f"generate of {type(self.lm.module).__name__} never ran the {type(self._step_on).__name__} whose forwards are its "
                    "steps, so there is nothing to trace. Name another module of it as step_on."
                )

    def _groups(self, forward: Forward) -> dict[str, torch.Tensor]:
        """A step begins: the one before it has decided by now."""
        tokens = forward.input_ids[0].cpu().numpy().copy()  # a loop may write on its canvas in place
        if len(forward.input_ids) != 1:
            raise Refusal("This model's generate runs several samples at once (guidance?), which is not recorded. Switch that off.")
        past = forward.past or 0
        if self._now is not None:
            self._record(self._written(past, tokens))
        still_open = self._open_rows(past, tokens)
        self._now = (past, tokens, still_open)
        masked = torch.as_tensor(still_open, device=forward.input_ids.device)[None]
        rows = {"masked": masked, "unmasked": ~masked}
        if "prompt" in self.detail.groups:
            rows["prompt"] = torch.arange(past, past + len(tokens), device=masked.device)[None] < self.prompt_length
        return rows

    def _open_rows(self, past: int, tokens: np.ndarray) -> np.ndarray:
        if self.lm.mask_token_id is not None:
            return tokens == self.lm.mask_token_id
        if not self.steps or self.steps[-1].past != past:
            return np.ones(len(tokens), bool)  # a new canvas
        return ~self._accepted(len(tokens))

    def finish(self, tokens: list[int]) -> None:
        """The last step shows in the text."""
        self._record(self._written(0, np.array(tokens), finished=True))

    def _written(self, next_past: int, next_tokens: np.ndarray, *, finished: bool = False) -> np.ndarray:
        """Which rows the step that is over has written, now that it is known what stands there after it: bool (row,)."""
        assert self._now is not None
        past, tokens, was_open = self._now
        positions = past + np.arange(len(tokens))
        shown = (positions >= next_past) & (positions < next_past + len(next_tokens))
        after = tokens.copy()
        after[shown] = next_tokens[positions[shown] - next_past]
        if self.lm.mask_token_id is not None:
            written = ((after != tokens) & (after != self.lm.mask_token_id)) | (was_open & (positions < next_past))
        elif finished:
            written = shown & (was_open | (after != tokens))
        elif next_past != past:
            draft = None if self._decisions is None else self._decisions.draft
            written = was_open if draft is None else was_open | (draft != tokens)
        else:
            written = self._accepted(len(tokens)) & (was_open | (after != tokens))
        return written & (positions >= self.prompt_length)

    def _accepted(self, rows: int) -> np.ndarray:
        return np.zeros(rows, bool) if self._decisions is None else self._decisions.accepted(rows)

    def _record(self, committed: np.ndarray) -> None:
        assert self._now is not None
        past, tokens, was_open = self._now
        rows = torch.as_tensor(np.flatnonzero(committed) if committed.any() else np.zeros(1, int))[None]
        groups = {"predicting": torch.full_like(rows, bool(committed.any()), dtype=torch.bool)}
        chosen = record_rows(self._seen, rows, groups, self.detail, self._workspace)
        in_passing, predicting = fetch_steps(self._tap.take_step(), chosen)
        self.steps.append(_OwnStep(past, tokens, was_open, committed, in_passing, predicting))
        self._seen.clear()


def _finished_canvas(lm: Writer, prompt: EncodedPrompt, tokens: list[int], length: int) -> Canvas:
    """The text, and after it what the loop's canvas was wider."""
    text = torch.zeros(1, length, dtype=torch.long)
    text[0, : len(tokens)] = torch.tensor(tokens)
    positions = torch.arange(length)[None]
    real = positions < len(tokens)
    canvas = Canvas(text, real & (positions >= len(prompt.tokens)), real, [len(prompt.tokens)], [], lm.mask_token_id)
    canvas.masked = torch.zeros_like(real)
    return canvas


def _arrays(
    lm: Writer,
    step: _OwnStep,
    prompt: EncodedPrompt,
    final: list[int],
    length: int,
    detail: Detail,
    favourites: Favourites,
    *,
    edited: bool,
) -> Arrays:
    place = Place(0, 0, step.past, step.past + len(step.tokens), length)
    per_layer = edited or layers_differ(lm)
    parts = [
        (seen.group_names, attention_arrays(seen, place, detail, counts_per_layer=per_layer, counts_per_head=edited))
        for seen in (step.in_passing, step.predicting)
    ]
    if detail.keeps("top_keys"):
        favourites.add(step.predicting, 0, (step.past + np.flatnonzero(step.committed)).tolist(), 0, place.width)
    return _canvas_arrays(step, prompt, final, length) | join_groups(parts, detail.groups)


def _canvas_arrays(step: _OwnStep, prompt: EncodedPrompt, final: list[int], length: int) -> Arrays:
    """The canvas before the step: the rows of the forward, the prompt, and what was finished before them."""
    tokens, state = np.full(length, -1, np.int32), np.full(length, NOTHING, np.int8)
    begun = max(len(prompt.tokens), min(step.past, len(final)))
    tokens[:begun], state[:begun] = final[:begun], COMMITTED_BEFORE
    here = slice(step.past, step.past + len(step.tokens))
    tokens[here] = step.tokens
    state[here] = np.where(step.committed, COMMITTED_NOW, np.where(step.open_before, MASKED, COMMITTED_BEFORE))
    state[: len(prompt.tokens)] = PROMPT
    return {
        "canvas": (("position",), tokens),
        "state": (("position",), state),
        "confidence": (("position",), np.full(length, np.nan, np.float32)),
    }

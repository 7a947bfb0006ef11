"""Run a decoding loop with interventions and nothing recorded: a tap that keeps nothing, with the running interventions as its edit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, Edit
from floatlens.capture.forward import Forward
from floatlens.capture.tapping import Tap
from floatlens.capture.walk import BLOCK_ENTRIES
from floatlens.decoding.canvas import Pass, Run
from floatlens.errors import Refusal
from floatlens.interventions.memory import Row
from floatlens.interventions.running import Reported, Running

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel


@contextmanager
def intervened_loop(lm: "LanguageModel", running: Running) -> Iterator[Run]:
    """What a loop runs its passes with, inside the context; tell `running` of every step the loop yields."""
    padding: list[Tensor] = []
    tap = _tap(lm, running, lambda _forward: padding[-1], lm.module)

    def run(asked: Pass) -> Tensor:
        running.begin(asked)
        padding[:] = [asked.real_keys if asked.unguided is None else torch.cat([asked.real_keys, asked.real_keys])]
        if not asked.is_step:
            with tap.unrecorded():
                return lm.run_pass(asked)
        logits = lm.run_pass(asked)
        tap.take_step()
        return logits

    with tap:
        yield run


@contextmanager
def intervened_own_loop(lm: "LanguageModel", running: Running) -> Iterator[None]:
    """A model's own `generate` runs in here, for one prompt; every forward of its step module is a step."""
    steps = EachForward(running)
    with _tap(lm, steps, all_real, lm.module if lm.step_on is None else lm.step_on):
        yield
    steps.finish()


class EachForward:
    """An edit that takes every forward of a tap for a step of one sample, where no loop says what a step is."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._step: int | None = None

    @property
    def uses_statistics(self) -> bool:
        return self.running.uses_statistics

    def __call__(self, call: AttentionCall, before: Before) -> AttentionCall:
        if call.samples != 1:
            raise Refusal(
                "This model's generate runs several samples at once (guidance?), and interventions cannot tell them apart. Switch that off."
            )
        if call.step != self._step:
            if self._step is not None:
                self.running.finish_samples([0])
            self.running.begin_rows([Row(0)])
            self._step = call.step
        return self.running(call, before)

    def finish(self) -> list[Reported]:
        """The last forward was the last step; what is reported of all of them."""
        self.running.finish_samples([0])
        return self.running.reports[0]


def all_real(forward: Forward) -> Tensor:
    """A model's own loop runs one text at a time: none of it is padding, whatever tokens stand there."""
    samples, rows = forward.input_ids.shape
    return torch.ones(samples, (forward.past or 0) + rows, dtype=torch.bool, device=forward.input_ids.device)


def _tap(lm: "LanguageModel", edit: Edit, padding: Any, step_on: torch.nn.Module) -> Tap:
    return Tap(
        lm.module,
        keep=(),
        patterns=(),
        groups=None,
        regions=None,
        padding=padding,
        layers=None,
        edits=(edit,),
        step_on=step_on,
        samples=None,
        block_entries=BLOCK_ENTRIES,
        record=False,
    )

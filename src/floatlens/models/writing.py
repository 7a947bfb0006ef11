"""`lm.generate`: run the loop batch by batch, under interventions where there are some, and gather what was written."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floatlens.decoding.canvas import Canvas
from floatlens.decoding.options import Options
from floatlens.interventions.run import InterventionRun
from floatlens.interventions.watching import intervened_loop, intervened_own_loop
from floatlens.models.own_generate import own_generate
from floatlens.models.prompts import EncodedPrompt
from floatlens.progress import progress_bar

if TYPE_CHECKING:
    from floatlens.models.language_model import LanguageModel


@dataclass(frozen=True)
class Generation:
    """What a model wrote."""

    text: str  # up to the first end token, without special tokens
    tokens: list[int]  # everything it wrote
    prompt: str
    prompt_tokens: list[int]
    steps: int
    removed: float | None = None  # the share of the attention that interventions removed, over steps, layers and heads; None without any


def write(
    lm: "LanguageModel",
    encoded: Sequence[EncodedPrompt],
    options: Options,
    seeds: Sequence[int],
    batch_size: int,
    under: InterventionRun | None,
    *,
    progress: bool,
) -> list[Generation]:
    """Write after each prompt with the family's loop."""
    written: list[Generation] = []
    with progress_bar(lm.most_steps(encoded, options, batch_size), f"Writing with {lm.name}", show=progress) as advance:
        for first in range(0, len(encoded), batch_size):
            batch = encoded[first : first + batch_size]
            canvas = lm.canvas(batch, options, seeds[first : first + batch_size])
            running = None if under is None else under.start_batch(canvas, options)
            taken = [0] * len(batch)
            with nullcontext(lm.run_pass) if running is None else intervened_loop(lm, running) as run_pass:
                for step in lm.loop(run_pass, canvas, options):
                    for sample in step.samples:
                        taken[sample] += 1
                    if running is not None:
                        running.finish(step)
                    advance(1)
            for sample, prompt in enumerate(batch):
                removed = None if running is None else running.mean_removed(sample)
                written.append(_generation(lm, prompt, _written_tokens(canvas, sample), taken[sample], removed))
    if under is not None:
        under.say_if_nothing_was_removed()
    return written


def write_by_itself(
    lm: "LanguageModel",
    encoded: Sequence[EncodedPrompt],
    gen_length: int,
    seeds: Sequence[int],
    options: dict[str, Any],
    under: InterventionRun | None,
    *,
    progress: bool,
) -> list[Generation]:
    """Write after each prompt with the model's own `generate`."""
    written = []
    with progress_bar(len(encoded), f"Writing with {lm.name}", show=progress) as advance:
        for seed, prompt in zip(seeds, encoded, strict=True):
            running = None if under is None else under.start([seed])
            with nullcontext() if running is None else intervened_own_loop(lm, running):
                tokens = own_generate(lm, prompt, gen_length, seed, options)
            removed = None if running is None else running.mean_removed(0)
            written.append(_generation(lm, prompt, tokens[len(prompt.tokens) :], 0, removed))
            advance(1)
    if under is not None:
        under.say_if_nothing_was_removed()
    return written


def _written_tokens(canvas: Canvas, sample: int) -> list[int]:
    return canvas.tokens[sample][(canvas.real & ~canvas.prompt)[sample]].tolist()


def _generation(lm: "LanguageModel", prompt: EncodedPrompt, tokens: list[int], steps: int, removed: float | None) -> Generation:
    return Generation(lm.text_of(tokens), tokens, prompt.text, prompt.tokens, steps, removed)

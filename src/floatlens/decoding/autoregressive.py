"""Greedy or sampled decoding from left to right, with a cache. Prompts of different lengths are padded on the left."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from floatlens.decoding.candidates import drawn, filtered, log_odds
from floatlens.decoding.canvas import Canvas, Pass, Run, Step, commit
from floatlens.decoding.options import AutoregressiveOptions


def write(
    run: Run, canvas: Canvas, options: AutoregressiveOptions, new_cache: Callable[[], Any], end_tokens: Sequence[int] = ()
) -> Iterator[Step]:
    """Write token after token. A sample that has written an end token is finished, and leaves the rest of its canvas empty."""
    longest = max(canvas.start)
    offset = [longest - start for start in canvas.start]
    tokens = torch.zeros(canvas.samples, longest, dtype=torch.long, device=canvas.tokens.device)
    real = torch.zeros_like(tokens, dtype=torch.bool)
    for sample, start in enumerate(canvas.start):
        tokens[sample, offset[sample] :] = canvas.tokens[sample, :start]
        real[sample, offset[sample] :] = True
    cache, past, past_real = new_cache(), 0, None
    writing = list(range(canvas.samples))
    everyone = list(range(canvas.samples))
    written_until = list(canvas.start)
    for step in range(options.gen_length):
        asked = Pass(
            everyone,
            tokens,
            real,
            torch.zeros_like(real),
            torch.tensor([tokens.shape[1] - 1], device=tokens.device),
            past=past,
            past_real=past_real,
            offset=offset,
            cache=cache,
        )
        rows = run(asked)[:, 0]
        written, confidence, chosen = {}, {}, torch.zeros(canvas.samples, dtype=torch.long, device=tokens.device)
        for sample in writing:
            row = filtered(rows[sample : sample + 1], options.temperature, options.top_k, options.top_p)
            token = drawn(row, canvas.generators[sample]) if options.temperature > 0 else row.argmax(-1)
            position = canvas.start[sample] + step
            written[sample] = [(position, int(token))]
            confidence[sample] = {position: float(log_odds(row, token).sigmoid())}
            chosen[sample] = token[0]
            written_until[sample] = position + 1
        yield commit(canvas, list(writing), asked, written, confidence)
        if options.stop_at_eos:
            writing = [sample for sample in writing if int(chosen[sample]) not in end_tokens]
        if not writing:
            break
        past_real, past = asked.real_keys, asked.past + tokens.shape[1]
        tokens, real = chosen[:, None], torch.ones(canvas.samples, 1, dtype=torch.bool, device=tokens.device)
    canvas.end_at(written_until)

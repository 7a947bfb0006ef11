"""Greedy or sampled decoding from left to right, with a cache. Prompts of different lengths are padded on the left."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from floatlens.decoding.candidates import drawn, fetched, filtered, log_odds, rows_at
from floatlens.decoding.canvas import Canvas, Decision, Pass, Run, Step, commit
from floatlens.decoding.options import AutoregressiveOptions


def write(
    run: Run, canvas: Canvas, options: AutoregressiveOptions, new_cache: Callable[[], Any], end_tokens: Sequence[int] = ()
) -> Iterator[Step]:
    """Write token after token. A sample that has written an end token is finished, and leaves the rest of its canvas empty."""
    longest = max(canvas.start)
    offset = [longest - start for start in canvas.start]
    tokens = torch.zeros(canvas.samples, longest, dtype=torch.long)
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
            torch.tensor([tokens.shape[1] - 1]),
            past=past,
            past_real=past_real,
            offset=offset,
            cache=cache,
        )
        rows = rows_at(run(asked), writing, [0] * len(writing))
        rows = filtered(rows, options.temperature, options.top_k, options.top_p)
        if options.temperature > 0:
            tokens_drawn = [drawn(rows[index : index + 1], canvas.generators[sample]) for index, sample in enumerate(writing)]
            candidates = torch.cat(tokens_drawn)
        else:
            candidates = rows.argmax(-1)
        candidates, odds = fetched(candidates, log_odds(rows, candidates))
        confidence, chosen = odds.sigmoid(), torch.zeros(canvas.samples, dtype=torch.long)
        chosen[writing] = candidates.long()
        decisions = []
        for index, sample in enumerate(writing):
            written_until[sample] = canvas.start[sample] + step + 1
            position = torch.tensor([canvas.start[sample] + step])
            decisions.append(Decision(sample, position, chosen[sample : sample + 1], confidence[index : index + 1], [0]))
        yield commit(canvas, asked, decisions)
        if options.stop_at_eos:
            writing = [sample for sample in writing if int(chosen[sample]) not in end_tokens]
        if not writing:
            break
        past_real, past = asked.real_keys, asked.past + tokens.shape[1]
        tokens, real = chosen[:, None], torch.ones(canvas.samples, 1, dtype=torch.bool)
    canvas.end_at(written_until)

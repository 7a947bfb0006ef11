"""Which token does masking the strongest key take away? For each twin, the strongest key of the row that writes a short answer.

    python examples/what_is_the_strongest_key.py [models ...]

Masking a model's strongest key shows that a *sink* matters only if that key is a sink. The script prints how often the key is the
very value that has to be copied, another token of its sentence, or the first token. Each head counts once per question.
"""

import sys

import xarray as xr
from rich.console import Console
from rich.table import Table

import floatlens as fl
from floatlens.tasks.contexts import Position, arrange
from floatlens.tasks.wording import WORLD_WORDING, format_prompt
from floatlens.tasks.world import open_book_samples, values_of

QUESTIONS, PASSAGES, SLOT = 40, 3, 2


def main() -> None:
    """Ask the questions, trace the answers and count the keys."""
    names = sys.argv[1:] or ["twin-arm", "twin-mdm", "twin-causal-mdm"]
    samples = open_book_samples(QUESTIONS, passages=PASSAGES)
    prompts = [format_prompt(sample, arrange(sample, Position(SLOT, PASSAGES)), WORLD_WORDING) for sample in samples]
    table = Table(title=f"Strongest key of the row that writes the value: % of heads, {QUESTIONS} questions", title_justify="left")
    for heading in ("model", "layer", "the value itself", "elsewhere in its sentence", "first token", "anything else"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name in names:
        lm = fl.load(name)
        trace = lm.trace(prompts, gen_length=3)
        shares = shares_by_layer(trace, [values_of(sample)[0] for sample in samples])
        for layer, (value, sentence, first) in enumerate(shares):
            others = 100 - value - sentence - first
            table.add_row(name if layer == 0 else "", str(layer), *(f"{share:.0f}" for share in (value, sentence, first, others)))
    Console().print(table)


def shares_by_layer(trace: fl.Trace, values: list[str]) -> list[tuple[float, ...]]:
    """For each layer, the percentage of heads whose strongest key is the value, another token of its sentence, or the first token."""
    by_sample = []
    for number, value in enumerate(values):
        sample = trace.sample(number)
        words = sample["token"].values.tolist()
        place, answer = words.index(value), int(sample["in_region"].sel(region="answer").argmax("position"))
        strongest = sample["top_key"].isel(position=answer, rank=0)
        sentence = (strongest >= place - 4) & (strongest <= place + 1) & (strongest != place)
        by_sample.append(xr.concat([strongest == place, sentence, strongest == 0], "what").mean("head"))
    shares = 100 * xr.concat(by_sample, "sample").mean("sample").transpose("layer", "what")
    return [tuple(layer) for layer in shares.values.tolist()]


if __name__ == "__main__":
    main()

"""Print the numbers of antiberty.md: masked accuracy, the half-masked prompts that are traced, and where the model looked in a trace.

    python docs/results/antiberty.py accuracy
    python docs/results/antiberty.py prompts > half-masked.jsonl
    floatlens trace -m antiberty --prompt-file half-masked.jsonl --gen-length 0 --steps 16 -o half-masked.zarr
    python docs/results/antiberty.py attention half-masked.zarr

The antibodies are those of tests/data/antibodies.jsonl. Intervals are 95 % bootstrap intervals over antibodies: the two chains of one, and
the masks that are drawn for them, stay together.
"""

import argparse
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr

import floatlens as fl
from floatlens.measures import measure_trace
from floatlens.measures.catalogue import CATALOGUE
from floatlens.statistics.resampling import bootstrap
from floatlens.terminal import progress_bar

DATA = Path(__file__).parents[2] / "tests" / "data" / "antibodies.jsonl"
LEVELS = (0.15, 0.5, 0.9)
DRAWS = 8
CDR3 = re.compile(r"(?<=Y[YF]C)(.+)(?=[WF]G.G)")  # between the second cysteine and the J segment
OF_TRACE = (
    "on the first token",
    "on the run's strongest key",
    "on the step's anchors",
    "anchors of a head",
    "float index (no movement)",
    "movement",
)


@dataclass(frozen=True)
class Chain:
    """The variable domain of one chain of an antibody."""

    antibody: str
    chain: str  # heavy or light
    sequence: str

    def masked(self, level: float, draw: int) -> np.ndarray:
        """bool (position,): the same share of its positions for every chain, drawn at random."""
        length = len(self.sequence)
        seed = [int(100 * level), draw, *self.antibody.encode(), *self.chain.encode()]
        chosen = np.random.default_rng(seed).permutation(length)[: max(1, round(level * length))]
        return np.isin(np.arange(length), chosen)

    def hidden(self, masked: np.ndarray) -> str:
        """The sequence with underscores where it is masked."""
        return "".join("_" if hide else letter for letter, hide in zip(self.sequence, masked, strict=True))


def read_chains() -> list[Chain]:
    """All chains of the data file."""
    records = map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
    return [Chain(record["antibody"], record["chain"], record["prompt"]) for record in records]


def copied(own: Chain, masked: np.ndarray, others: list[Chain]) -> str:
    """The sequence of the chain that agrees best with what is visible, letter by letter: its first half from the left, the rest from the
    right, because chains differ in length in the middle."""
    length = len(own.sequence)
    half = length // 2

    def stretched(other: Chain) -> str:
        return (other.sequence.ljust(length)[:half] + other.sequence.rjust(length)[-(length - half) :])[:length]

    def agreement(text: str) -> int:
        return sum(a == b for a, b, hide in zip(own.sequence, text, masked, strict=True) if not hide)

    return max((stretched(other) for other in others if other.chain == own.chain and other.antibody != own.antibody), key=agreement)


def predictions(lm: fl.LanguageModel, sequences: list[str]) -> list[str]:
    """The most probable token at every position, in one pass."""
    tokens = lm.tokenizer(sequences, padding=True, return_tensors="pt")
    with torch.no_grad():
        best = lm.module(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).logits.argmax(-1)
    letters = [lm.tokenizer.convert_ids_to_tokens(row[1:].tolist()) for row in best]
    texts = ["".join(letter if len(letter) == 1 else "?" for letter in row) for row in letters]  # a special token is never right
    return [text[: len(sequence)] for text, sequence in zip(texts, sequences, strict=True)]


def share_right(own: Chain, guess: str, masked: np.ndarray, inside: np.ndarray) -> float:
    """The share of the masked positions inside a part that hold the right letter; NaN if there are none."""
    wanted = masked & inside
    return float(np.mean(np.array(list(guess))[wanted] == np.array(list(own.sequence))[wanted])) if wanted.any() else np.nan


def print_accuracy() -> None:
    """Masked accuracy by the share that is masked, beside two baselines."""
    lm, chains = fl.load("antiberty", device="cpu"), read_chains()
    names = ("all", "CDR3", "elsewhere", "commonest letter", "closest other chain")
    print(f"| masked | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    with progress_bar(len(LEVELS) * len(chains), "Masking antibodies", show=True) as advance:
        for level in LEVELS:
            rows: list[list[float]] = []
            for own in chains:
                masks = [own.masked(level, draw) for draw in range(DRAWS)]
                guesses = predictions(lm, [own.hidden(masked) for masked in masks])
                others = [other for other in chains if other.antibody != own.antibody]
                commonest = Counter("".join(other.sequence for other in others)).most_common(1)[0][0]
                everywhere = np.ones(len(own.sequence), bool)
                match = CDR3.search(own.sequence)
                assert match is not None
                loop = np.isin(np.arange(len(own.sequence)), range(*match.span()))
                of_draws = [
                    [
                        share_right(own, guess, masked, everywhere),
                        share_right(own, guess, masked, loop),
                        share_right(own, guess, masked, ~loop),
                        share_right(own, commonest * len(own.sequence), masked, everywhere),
                        share_right(own, copied(own, masked, others), masked, everywhere),
                    ]
                    for guess, masked in zip(guesses, masks, strict=True)
                ]
                rows.append(np.nanmean(of_draws, axis=0).tolist())
                advance(1)
            table = xr.DataArray(rows, dims=("sample", "name"), coords={"name": list(names)})
            interval = bootstrap(table, clusters=[own.antibody for own in chains])
            print(f"| {100 * level:.0f} % | {' | '.join(cell(interval.sel(name=name)) for name in names)} |")


def digits(value: float) -> str:
    """A number without the 0 before its point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")


def cell(interval: xr.Dataset) -> str:
    """A number with its interval."""
    return f"{digits(interval['estimate'].item())} [{digits(interval['low'].item())}, {digits(interval['high'].item())}]"


def print_prompts() -> None:
    """Every chain with half of its positions masked, one JSON object per line."""
    for own in read_chains():
        print(json.dumps({"antibody": own.antibody, "chain": own.chain, "prompt": own.hidden(own.masked(0.5, 0))}))


def print_attention(path: Path) -> None:
    """What `floatlens measure` says about sinks and movement, with intervals over antibodies; and the strongest keys by letter."""
    trace, chains = fl.open_trace(path), read_chains()
    assert [own.hidden(own.masked(0.5, 0)) for own in chains] == [trace.prompt(number) for number in range(len(trace))]
    summary = measure_trace(trace, lines=[line for line in CATALOGUE if line.name in OF_TRACE])
    antibodies = [own.antibody for own in chains]
    print("| measure | rows | all layers | null | by layer |\n|---|---|---|---|---|")
    for name in OF_TRACE:
        values = summary.values[name]
        for group in ("unmasked", "predicting") if "group" in values.dims else ("",):
            of_group = values.sel(group=group) if group else values
            for part in of_group["part"].values if "part" in of_group.dims else ("",):
                own = of_group.sel(part=part) if part else of_group
                numbers = own["value"]
                whole = numbers.mean("layer") if "layer" in numbers.dims else numbers
                null = digits(float(own["null"].mean())) if "null" in own else ""
                layers = " ".join(digits(float(value)) for value in numbers.mean("sample").values) if "layer" in numbers.dims else ""
                print(f"| {name} {part} | {group} | {cell(bootstrap(whole, clusters=antibodies))} | {null} | {layers} |")
    print_strongest(trace)
    right = []
    for number, own in enumerate(chains):
        final = "".join(trace.sample(number)["token"].values[1:-1])
        right.append(share_right(own, final, own.masked(0.5, 0), np.ones(len(final), bool)))
    print(f"\nFilled in the trace, right: {cell(bootstrap(xr.DataArray(right, dims='sample'), clusters=antibodies))}")


def print_strongest(trace: fl.Trace) -> None:
    """What stands at the key that the unmasked rows of a layer attend to most, over the whole run: how often each letter, by layer."""
    print("\n| layer | strongest key of the run, by what stands there at the end (of " + f"{len(trace)} chains) |\n|---|---|")
    letters: dict[int, Counter[str]] = {}
    for number in range(len(trace)):
        data = trace.sample(number)
        mass = data["mass"].sel(group="unmasked").sum([axis for axis in ("step", "head") if axis in data["mass"].dims])
        for layer in data["layer"].values.tolist():
            key = int(mass.sel(layer=layer).argmax("key"))
            letters.setdefault(layer, Counter())[str(data["token"].values[key])] += 1
    for layer, counts in letters.items():
        print(f"| {layer} | {', '.join(f'{letter} {count}' for letter, count in counts.most_common())} |")


def main() -> None:
    """Read the command line and print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "prompts", "attention"))
    parser.add_argument("trace", type=Path, nargs="?", help="for attention: the trace of the half-masked prompts")
    options = parser.parse_args()
    if options.what == "attention":
        if options.trace is None:
            parser.error("attention needs the trace of the half-masked prompts")
        print_attention(options.trace)
    else:
        {"accuracy": print_accuracy, "prompts": print_prompts}[options.what]()


if __name__ == "__main__":
    main()

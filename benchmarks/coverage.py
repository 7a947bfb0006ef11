"""How often intervals of scores hold the truth, and how wide they are.

Compared are those of `floatlens.statistics.proportions` and the studentised bootstrap that they replaced.

For 8, 20, 40 and 100 prompts and true chances from .02 to 1. Right-or-wrong answers are not simulated: every possible table is weighted
by its probability. Averages, differences of averages, interactions, slopes and two sides are simulated, with a fixed seed. Goals: mean
coverage over the chances 94 to 98 %, at no chance below 92 %; above 98 % only where so few answers can differ. Takes a few minutes.
`--write` also writes docs/reference/statistics.md.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from rich.console import Console

from floatlens.statistics.proportions import Range, bounded_difference, bounded_mean
from floatlens.statistics.resampling import bootstrap, bootstrap_difference
from floatlens.terminal import progress_bar

PROMPTS = (8, 20, 40, 100)
CHANCES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
SIMULATIONS, DRAWS = 800, 400
SIDES = ((0.02, 0.02), (0.02, 0.1), (0.1, 0.3), (0.3, 0.6), (0.5, 0.5), (0.9, 0.98), (0.8, 1.0))
"""Chances of two separate sides."""
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "statistics.md"
START, END = "<!-- table: written by benchmarks/coverage.py --write -->", "<!-- end of table -->"


def along(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims=("sample", "cell"))


def ends(found: xr.Dataset, within: Range) -> np.ndarray:
    """The interval of each cell, as it was and is printed: ended where the range ends. end, cell"""
    return np.stack([found["low"].values, found["high"].values]).clip(*within)


def intervals(values: np.ndarray, within: Range) -> np.ndarray:
    """The new and the present interval of each column: method, end, cell."""
    new = bounded_mean(along(values), within=within)
    return np.stack([ends(found, within) for found in (new, bootstrap(along(values), draws=DRAWS))])


def held(found: np.ndarray, truth: float, weights: np.ndarray) -> np.ndarray:
    """Coverage and mean width of each method: method, number."""
    low, high = found[:, 0], found[:, 1]
    covers = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
    return np.stack([(covers * weights).sum(axis=1), ((high - low) * weights).sum(axis=1)], axis=1) / weights.sum()


def one_proportion(prompts: int) -> Iterator[np.ndarray]:
    counts = np.arange(prompts + 1)
    found = intervals((np.arange(prompts)[:, None] < counts).astype(float), (0.0, 1.0))
    ways = np.array([math.comb(prompts, int(count)) for count in counts], float)
    for chance in np.linspace(0.02, 1.0, 99):
        yield held(found, chance, ways * chance**counts * (1 - chance) ** (prompts - counts))


def paired_proportions(prompts: int) -> Iterator[np.ndarray]:
    """Both sides at all chances, independent of each other or correlated by .5."""
    tables = np.array([(worse, better) for worse in range(prompts + 1) for better in range(prompts + 1 - worse)])
    half = tables[tables[:, 0] <= tables[:, 1]]
    places = np.arange(prompts)[:, None]
    above = intervals((places < half[:, 1]).astype(float) - (places >= prompts - half[:, 0]), (-1.0, 1.0))
    by_table = {tuple(table): above[:, :, place] for place, table in enumerate(half.tolist())}
    found = np.stack([by_table[w, b] if w <= b else -by_table[b, w][:, ::-1] for w, b in tables.tolist()], axis=-1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, prompts + 1)))])
    stayed = prompts - tables.sum(axis=1)
    ways = logs[prompts] - logs[tables].sum(axis=1) - logs[stayed]
    counts = np.column_stack([tables[:, 0], stayed, tables[:, 1]])
    for first in CHANCES:
        for second in CHANCES:
            for together in (0.0, 0.5):
                both = first * second + together * math.sqrt(first * (1 - first) * second * (1 - second))
                both = min(both, first, second)
                chances = np.array([second - both, 1 - first - second + 2 * both, first - both]).clip(0, 1)
                with np.errstate(divide="ignore", invalid="ignore"):
                    exponents = np.where(counts > 0, counts * np.log(chances), 0.0).sum(axis=1)
                yield held(found, first - second, np.exp(ways + exponents))


def two_sides(prompts: int) -> Iterator[np.ndarray]:
    """Two separate sets of prompts: simulated tables, each computed once."""
    draw = np.random.default_rng([1, prompts])
    for first, second in SIDES:
        drawn = np.column_stack([draw.binomial(prompts, first, SIMULATIONS), draw.binomial(prompts, second, SIMULATIONS)])
        tables, weights = np.unique(drawn, axis=0, return_counts=True)
        a, b = (along((np.arange(prompts)[:, None] < tables[:, side]).astype(float)) for side in (0, 1))
        new, present = bounded_difference(a, b, paired=False), bootstrap_difference(a, b, paired=False, draws=DRAWS)
        yield held(np.stack([ends(found, (-1.0, 1.0)) for found in (new, present)]), first - second, weights.astype(float))


Draw = Callable[[np.random.Generator, float, tuple[int, int]], tuple[np.ndarray, float]]


def answers(draw: np.random.Generator, chance: float, shape: tuple[int, int]) -> np.ndarray:
    """Right or wrong."""
    return (draw.random(shape) < chance).astype(float)


def averages(draw: np.random.Generator, chance: float, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """The share of four answers about one prompt that are right; some prompts are easier than others."""
    ease = draw.beta(2 * chance, 2 * (1 - chance), shape) if chance < 1 else np.ones(shape)
    return draw.binomial(4, ease) / 4, chance


def differences_of_averages(draw: np.random.Generator, chance: float, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """The same prompts under a condition that takes a fifth of what was right."""
    ease = draw.beta(2 * chance, 2 * (1 - chance), shape) if chance < 1 else np.ones(shape)
    return draw.binomial(4, ease) / 4 - draw.binomial(4, 0.8 * ease) / 4, 0.2 * chance


def interactions(draw: np.random.Generator, chance: float, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """What one model gains minus what another gains, of single answers."""
    chances = min(1.0, chance + 0.1), chance / 2, chance, chance / 3
    a, b, c, d = (answers(draw, each, shape) for each in chances)
    return a - b - (c - d), chances[0] - chances[1] - (chances[2] - chances[3])


LEVELS = np.array([0.0, 0.2, 0.4, 0.6, 0.8])
STEEPNESS = (LEVELS - 0.4) / ((LEVELS - 0.4) ** 2).sum()
STEEPEST = float(np.maximum(STEEPNESS, 0).sum())


def slopes(draw: np.random.Generator, chance: float, shape: tuple[int, int]) -> tuple[np.ndarray, float]:
    """One slope a prompt over five levels, at each of which an answer is right or wrong."""
    right = [answers(draw, 1 - chance * level, shape) for level in LEVELS]
    return sum((weight * each for weight, each in zip(STEEPNESS, right, strict=True)), np.zeros(shape)), -chance


def simulated(of: Draw, within: Range) -> Callable[[int], Iterator[np.ndarray]]:
    """Coverage and width at each chance, of outcomes that are drawn."""

    def at_each_chance(prompts: int) -> Iterator[np.ndarray]:
        for place, chance in enumerate(CHANCES):
            values, truth = of(np.random.default_rng([2, prompts, place]), chance, (prompts, SIMULATIONS))
            yield held(intervals(values, within), truth, np.ones(SIMULATIONS))

    return at_each_chance


KINDS: dict[str, Callable[[int], Iterator[np.ndarray]]] = {
    "one proportion": one_proportion,
    "paired difference": paired_proportions,
    "unpaired difference": two_sides,
    "average of four answers": simulated(averages, (0.0, 1.0)),
    "paired difference of averages": simulated(differences_of_averages, (-1.0, 1.0)),
    "interaction": simulated(interactions, (-2.0, 2.0)),
    "slope over five levels": simulated(slopes, (-STEEPEST, STEEPEST)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/reference/statistics.md")
    asked = parser.parse_args()
    lines = [
        "| interval of | prompts | covers, mean | covers, least | mean width | bootstrap: covers, mean | least | mean width |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with progress_bar(len(KINDS) * len(PROMPTS), "Counting what intervals cover") as advance:
        for kind, at_each_chance in KINDS.items():
            for prompts in PROMPTS:
                found = np.stack(list(at_each_chance(prompts)))  # chance, method, number
                cells = []
                for method in (0, 1):
                    covered, width = found[:, method, 0], found[:, method, 1]
                    cells += [f"{100 * covered.mean():.1f} %", f"{100 * covered.min():.1f} %", f"{width.mean():.3f}"]
                lines.append(f"| {kind} | {prompts} | " + " | ".join(cells) + " |")
                advance(1)
    Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(f"{text.split(START)[0]}{START}\n\n" + "\n".join(lines) + f"\n\n{END}{text.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()

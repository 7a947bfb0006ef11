"""How many texts depend on what runs beside them, by number format: 120 prompts of the made-up world, alone and eight at a time.

    python benchmarks/batch_dependence.py

Prompts have one to six passages, so batches are padded; 12 tokens are written after each, greedily, with one thread.
"""

import torch

import floatlens as fl
from floatlens.tasks.wording import WORLD_WORDING, format_prompt
from floatlens.tasks.world import open_book_samples

TEXTS, TOKENS, TOGETHER = 120, 12, 8


def main() -> None:
    torch.set_num_threads(1)
    samples = open_book_samples(TEXTS, passages=6)
    prompts = [format_prompt(sample, sample.passages[: 1 + number % 6], WORLD_WORDING) for number, sample in enumerate(samples)]
    print("| model | format | texts that differ |\n|---|---|---|")
    for model in ("twin-mdm", "twin-arm"):
        for dtype in ("float32", "bfloat16"):
            lm = fl.load(model, dtype=dtype)
            alone, together = (lm.generate(prompts, gen_length=TOKENS, batch_size=size, progress=False) for size in (1, TOGETHER))
            differing = sum(one.tokens != other.tokens for one, other in zip(alone, together, strict=True))
            print(f"| {model} | {dtype} | {differing} of {TEXTS} |", flush=True)


if __name__ == "__main__":
    main()

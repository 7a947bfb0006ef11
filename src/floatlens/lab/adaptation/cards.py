"""What is said about an adaptation: the plan before it starts, and the model card afterwards.

Decided here: time and memory of the plan are measured on one update that is thrown away, not guessed; tokens are those of the first
updates, extrapolated. The card names every file that was trained on and every file that was kept apart, with its SHA-256, and says that
what differs between models of one recipe is the mask and the objective.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from floatlens.folders import write_whole
from floatlens.lab.adaptation.data import Source
from floatlens.lab.adaptation.objective import backward
from floatlens.lab.adaptation.training import Adaptation, Standing
from floatlens.tasks.samples import Sample

SAMPLED_UPDATES = 24
CARD, HELD_OUT = "README.md", "held-out.jsonl"
_MASKS = {
    "causal": "causal: a token sees itself and what stands before it",
    "bidirectional": "none: every token sees every other",
    "annealed": "annealed: causal at first, then more and more of the later tokens is visible, in the end all",
}
_OBJECTIVES = {
    "ar": "to predict each target from what stands before it, which is not hidden",
    "diffusion": "to predict each target while all targets are hidden behind the mask token",
}
_ORIGINS = {"smollm2-135m": "SmolLM2-135M-Instruct, from a Q4_1 GGUF file, dequantised to float32"}


@dataclass(frozen=True)
class Plan:
    """What an adaptation will see and take; `text_share` is the share of texts in the tokens."""

    updates: int
    seen: int
    supervised: int
    text_share: float
    trained: int
    tokens_per_second: float
    seconds: float
    memory: int

    def sentences(self) -> list[str]:
        """The plan in words."""
        return [
            f"{self.updates:,} updates left, about {self.seen:,} tokens seen, {self.supervised:,} of them predicted; "
            f"{self.text_share:.0%} of the tokens are texts.",
            f"{self.trained:,} parameters are trained.",
            f"About {self.tokens_per_second:.0f} tokens per second ({_threads(torch.get_num_threads())}), "
            f"{_duration(self.seconds)} in all, "
            f"and {self.memory / 2**30:.1f} GB of memory.",
        ]


def make_plan(adaptation: Adaptation, done: int = 0) -> Plan:
    """Draw the first updates, and time one of them without changing any weights."""
    left = adaptation.recipe.updates - done
    first = [adaptation.draw(update) for update in range(done + 1, done + 1 + min(SAMPLED_UPDATES, left))]
    count = max(len(first), 1)
    tokens: Counter[str] = Counter()
    supervised = 0
    for sequence in (sequence for sequences in first for sequence in sequences):
        tokens[sequence.kind] += len(sequence.tokens)
        supervised += len(sequence.targets)
    speed = 0.0
    if first:
        backward(adaptation.predictor, first[0][:1], adaptation.objective)  # the first pass is slower than any other
        timed, began = first[len(first) // 2], time.monotonic()
        backward(adaptation.predictor, timed, adaptation.objective)
        speed = sum(len(sequence.tokens) for sequence in timed) / (time.monotonic() - began)
    trained = sum(weights.numel() for weights in adaptation.trained.values())
    memory = psutil.Process().memory_info().rss + 8 * trained  # and AdamW's moments
    for weights in adaptation.trained.values():
        weights.grad = None
    seen = round(tokens.total() / count * left)
    share = tokens["text"] / max(tokens.total(), 1)
    return Plan(left, seen, round(supervised / count * left), share, trained, speed, seen / speed if speed else 0.0, memory)


def write_card(folder: Path, adaptation: Adaptation, standing: Standing, name: str) -> None:
    """Write the model card, and the held-out questions as a file that `floatlens eval --task nq --data` reads."""
    write_whole(folder / CARD, card_text(adaptation, standing, name).encode())
    if adaptation.data.held_out:
        lines = (json.dumps(_record(sample), ensure_ascii=False) + "\n" for sample in adaptation.data.held_out)
        write_whole(folder / HELD_OUT, "".join(lines).encode())


def card_text(adaptation: Adaptation, standing: Standing, name: str) -> str:
    """The card, in Markdown."""
    recipe, settings = adaptation.recipe, adaptation.recipe.adapter
    what = {
        "lora": f"LoRA of rank {settings.rank} (alpha {settings.alpha:g}) on all linear maps",
        "lora+norms": f"LoRA of rank {settings.rank} (alpha {settings.alpha:g}) on all linear maps, and the gains of all norms",
        "all": "all weights",
    }[settings.trains]
    return f"""---
language: en
tags: [floatlens, adapter]
---

# {name}

An adapter for `{recipe.base}` ({_ORIGINS.get(recipe.base, "as floatlens loads it")}).
What it shows holds after this adaptation, and not for diffusion models in general.

- **Attention mask**: {_MASKS[adaptation.mask]}.
- **Objective**: {_OBJECTIVES[adaptation.objective]}. Position p is predicted from row p - 1.
- **Trained**: {what}; and an offset to the embedding of the mask token
  (`{recipe.mask_token}`, id {adaptation.mask_token_id}), which is never an output.
- **Weights of the base**: SHA-256 `{adaptation.base_sha256}` (names, shapes and values).
- Models of this recipe share base, sequences, their order, the positions that are predicted and their weights, the shape of the
  adapter, the optimizer and the number of updates. They differ in the mask and the objective only.
- **One training run**, seed {recipe.seed}.

## Training

{standing.done:,} updates; {standing.seen:,} tokens seen, {standing.supervised:,} of them predicted.
{_duration(standing.seconds)} with {_threads(*standing.threads)}, torch {torch.__version__}.
The same recipe on the same machine with as many threads gives the same weights, bit for bit.

| update | held-out loss, answers | held-out loss, texts |
|---|---|---|
{_loss_rows(standing)}

Cross-entropy per token in nats: of answers to held-out questions with their gold passage and the whole answer to predict, and of half of
the tokens of held-out texts. Losses of different objectives do not compare. All entries are in `log.jsonl`.

## Data

| file | used | left out | SHA-256 |
|---|---|---|---|
{_source_rows(adaptation.data.sources)}

Kept apart: {len(adaptation.data.held_out):,} held-out questions (`{HELD_OUT}`) with their gold passages, and the files below.
No 13 words in a row of these questions and passages occur in what was trained on.

| file | questions | SHA-256 |
|---|---|---|
{_evaluation_rows(adaptation.data.evaluation)}

## Recipe

`run.json` holds the whole recipe; with it, `floatlens adapt` trains this model again.
"""


def _loss_rows(standing: Standing) -> str:
    entries = [entry for entry in standing.log if any(name.startswith("held-out") for name in entry)]
    return "\n".join(
        f"| {entry['update']:,} | {_loss(entry.get('held-out question'))} | {_loss(entry.get('held-out text'))} |" for entry in entries
    )


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _source_rows(sources: Sequence[Source]) -> str:
    rows = []
    for source in sources:
        left_out = ", ".join(f"{count:,} ({reason})" for reason, count in source.left_out.items() if count)
        rows.append(f"| {source.file} | {source.used:,} | {left_out or 'nothing'} | `{source.sha256}` |")
    return "\n".join(rows)


def _evaluation_rows(sources: Sequence[Source]) -> str:
    return "\n".join(f"| {source.file} | {source.used:,} | `{source.sha256}` |" for source in sources)


def _record(sample: Sample) -> dict[str, object]:
    passages = [
        {"title": passage.title, "text": passage.text, "isgold": slot in sample.gold} for slot, passage in enumerate(sample.passages)
    ]
    return {
        "id": sample.id.removeprefix("lost-in-the-middle-"),
        "question": sample.question,
        "answers": list(sample.answers),
        "ctxs": passages,
    }


def _threads(*counts: int) -> str:
    return f"{' and '.join(map(str, counts))} thread{'' if counts == (1,) else 's'}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{seconds:.0f} s"

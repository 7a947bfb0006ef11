"""Small files of questions with passages, and a pair of tiny real models in folders that read them."""

import json
from dataclasses import replace
from pathlib import Path

import floatlens as fl

STORIES = Path(__file__).parent / "data" / "stories260K.bin"
ANIMALS = ("cat", "dog", "bird", "frog", "duck", "bear", "fox", "pig", "cow", "hen", "fish", "bee", "ant", "owl")
PLACES = ("box", "tree", "house", "park", "pond", "car", "bed", "shop", "field", "nest", "cup", "boat", "hat", "shed")


def write_questions(folder: Path, count: int = 14) -> Path:
    """Questions whose gold passage is one of six; where it stands among them changes from question to question."""
    lines = []
    for number in range(count):
        passages = [f"The {ANIMALS[(number + k) % 14]} is in the {PLACES[(number + k) % 14]}." for k in range(6)]
        gold = number % 6
        moved = [*passages[1 : gold + 1], passages[0], *passages[gold + 1 :]]
        asked = f"Where is the {ANIMALS[number]}?"
        lines.append({"id": f"q-{number:02d}", "question": asked, "answers": [PLACES[number]], "passages": moved, "gold": [gold]})
    return _written(folder / "questions.jsonl", lines)


def write_two_hops(folder: Path, count: int = 8) -> Path:
    """Questions that need two passages together: neither of the first holds the answer by itself."""
    lines = []
    for number in range(count):
        animal, friend, place = ANIMALS[number], ANIMALS[(number + 7) % 14], PLACES[number]
        others = [f"The {ANIMALS[(number + k) % 14]} is in the {PLACES[(number + k) % 14]}." for k in range(1, 7)]
        passages = [f"The {animal} likes the {friend}.", f"The {friend} is in the {place}.", *others]
        asked = f"Where is the one that the {animal} likes?"
        lines.append({"id": f"h-{number}", "question": asked, "answers": [place], "passages": passages, "gold": [0, 1]})
    return _written(folder / "two-hops.jsonl", lines)


def write_models(folder: Path) -> dict[str, str]:
    """One real Llama of 260,000 parameters, as it is and with its causal mask taken away, denoising; by role."""
    arm = fl.load(STORIES, dtype="float32")
    arm.save(folder / "stories-arm")
    lm = fl.load(STORIES, dtype="float32")
    lm.module.config.is_causal = False  # type: ignore[union-attr]  # a model of transformers
    mdm = replace(lm, family="a2d", sampler="llada", row_offset=1, mask_token_id=0)
    mdm.save(folder / "stories-mdm")
    return {"arm": str(folder / "stories-arm"), "mdm": str(folder / "stories-mdm")}


def _written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path

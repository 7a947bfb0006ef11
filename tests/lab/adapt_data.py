"""Small data, recipes and models for the tests of adaptation; nothing here needs a network."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

import floatlens as fl
from floatlens.lab.adaptation.recipe import Recipe, recipe_of

STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"
NAMES = ("Lily", "Tom", "Mia", "Ben", "Sue", "Max", "Anna", "Tim", "Sam", "Lucy", "Jack", "Amy", "Bob", "Jane", "Leo", "Ella")
PLACES = ("park", "sea", "farm", "house", "school", "shop", "zoo", "tree", "lake", "hill", "barn", "garden", "town", "cave", "boat", "wood")


def write_data(folder: Path) -> Path:
    """Questions about who lives where, in a file that is split, and stories."""
    folder.mkdir(parents=True, exist_ok=True)
    questions = []
    for number, (name, place) in enumerate(zip(NAMES, PLACES, strict=True)):
        passage = {"title": f"{name}", "text": f"{name} was a friend. {name} lived in the {place}. It was fun.", "isgold": True}
        for asked in (f"Where did {name} live?", f"What is the home of {name}?"):
            questions.append({"question": asked, "answers": [f"the {place}"], "ctxs": [passage]})
        assert number < 16
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    stories = [
        f"One day, {name} went to the {place} with a big red ball. {name} was happy. The ball rolled away, and a dog came to play. "
        f"They ran in the {other} all day. In the evening {name} went home and slept."
        for name, place, other in zip(NAMES * 2, PLACES * 2, (*PLACES[3:], *PLACES, *PLACES[:3]), strict=True)
    ]
    (folder / "stories.txt").write_text("\n<|endoftext|>\n".join(stories) + "\n<|endoftext|>\n")
    return folder


def recipe_table(**changes: Any) -> dict[str, Any]:
    """The table of a small recipe for `write_data` and stories260K."""
    table: dict[str, Any] = {
        "base": str(STORIES),
        "mask_token": "<0x01>",
        "updates": 12,
        "tokens_per_update": 96,
        "text_share": 0.35,
        "longest": 160,
        "save_every": 4,
        "adapter": {"trains": "lora+norms", "rank": 4, "alpha": 8.0},
        "optimizer": {"rate": 5e-3, "warm_up": 2},
        "questions": {"passages": [1, 2], "rooms": [8, 12]},
        "question_files": [{"file": "questions.jsonl", "kind": "lost-in-the-middle", "train": 20, "hold_out_first": 4}],
        "text_files": [{"file": "stories.txt"}],
    }
    return {**table, **changes}


def small_recipe(**changes: Any) -> Recipe:
    """A small recipe as a value."""
    return recipe_of(recipe_table(**changes), "small recipe")


def recipe_file(folder: Path, **changes: Any) -> Path:
    """A recipe as a TOML file: top-level values first, then tables."""
    table = json.loads(recipe_of(recipe_table(**changes), "recipe").model_dump_json(exclude_none=True))
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items() if not isinstance(value, dict | list)]
    for name, value in table.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                lines += [
                    f"[[{name}]]" if isinstance(value, list) else f"[{name}]",
                    *(f"{key} = {json.dumps(entry)}" for key, entry in part.items()),
                ]
    (folder / "own.toml").write_text("\n".join(lines))
    return folder / "own.toml"


def stories_model() -> fl.LanguageModel:
    """A real Llama of 260,000 parameters."""
    return fl.load(STORIES, dtype="float32")


def tiny_module(kind: str = "llama", *, tied: bool = True) -> Any:
    """A random model of a kind that can be adapted; its weights are wide, so that a wrong one cannot hide."""
    classes: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "llama": (LlamaConfig, LlamaForCausalLM, {}),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 8}),
    }
    config_class, model_class, own = classes[kind]
    torch.manual_seed(3)
    config = config_class(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        **own,
    )
    module = model_class(config).eval()
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if name.endswith("bias"):
                weights.normal_()
    return module

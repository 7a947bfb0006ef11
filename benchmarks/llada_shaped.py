"""A synthetic trace of LLaDA-8B's shape: 32 steps, 32 layers, 32 heads, 512 keys, everything that the default detail keeps.

448 tokens of prompt and 64 to write, two a step. Attention is spread like a softmax of noise, with a few keys per head that draw much of
it and move now and then, so that measures find what they look for.
"""

import numpy as np

from floatlens.trace.schema import PRESETS
from floatlens.trace.store import SampleInMemory
from floatlens.trace.trace import SampleArrays, Trace

STEPS, LAYERS, HEADS, GROUPS, KEYS = 32, 32, 32, ("masked", "unmasked", "predicting"), 512
PROMPT = KEYS - 2 * STEPS
WORDS = [" the", " of", " Anna", ".", ",", "\n", " 12", " river", " was", " painted"]

Labelled = tuple[tuple[str, ...], np.ndarray]


def llada_shaped() -> Trace:
    draw = np.random.default_rng(0)
    committed = np.full(KEYS, -1, np.int32)
    committed[PROMPT:] = draw.permutation(np.repeat(np.arange(STEPS), 2))
    when = np.arange(STEPS)[:, None]
    state = np.where(committed < when, 4, np.where(committed == when, 3, 2)).astype(np.int8)
    state[:, :PROMPT] = 1
    final = draw.integers(0, len(WORDS), KEYS).astype(np.int32)
    final[0] = len(WORDS)
    canvas = np.where(np.isin(state, (1, 4)), final, len(WORDS) + 1).astype(np.int32)
    masked = np.isin(state, (2, 3))
    of_group = np.stack([masked, ~masked, state == 3], axis=1)  # (step, group, row)
    even = of_group & (np.arange(KEYS) % 2 == 0)
    stepped: dict[str, Labelled] = {
        "canvas": (("step", "position"), canvas),
        "state": (("step", "position"), state),
        "confidence": (("step", "position"), np.where(masked, draw.random((STEPS, KEYS)), np.nan).astype(np.float32)),
        **_received(draw, of_group.sum(-1), even.sum(-1)),
        "entropy": (("step", "layer", "head", "group"), draw.random((STEPS, LAYERS, HEADS, len(GROUPS)), dtype=np.float32)),
        "query_norm": (("step", "layer", "query"), 1 + draw.random((STEPS, LAYERS, KEYS), dtype=np.float32)),
    }
    for name in ("score", "cosine", "norm_product"):
        stepped[name] = (("step", "layer", "group", "key"), draw.standard_normal((STEPS, LAYERS, len(GROUPS), KEYS), dtype=np.float32))
    for name in ("key_norm", "value_norm"):
        stepped[name] = (("step", "layer", "key"), 1 + draw.random((STEPS, LAYERS, KEYS), dtype=np.float32))
    favourites = (LAYERS, HEADS, KEYS, 8)
    whole: dict[str, Labelled] = {
        "final": (("position",), final),
        "committed": (("position",), committed),
        "char_start": (("position",), np.full(KEYS, -1, np.int32)),
        "char_stop": (("position",), np.full(KEYS, -1, np.int32)),
        "template": (("position",), np.arange(KEYS) < 6),
        "special": (("position",), np.arange(KEYS) == 0),
        "in_region": (("region", "position"), np.stack([np.arange(KEYS) < PROMPT, np.arange(KEYS) >= PROMPT])),
        "top_key": (("layer", "head", "position", "rank"), draw.integers(0, KEYS, favourites).astype(np.int32)),
        "top_weight": (("layer", "head", "position", "rank"), draw.random(favourites, dtype=np.float32)),
        "top_retained": (("layer", "head", "position"), draw.random(favourites[:3], dtype=np.float32)),
    }
    sample = SampleInMemory()
    sample.append(stepped)
    sample.finish(
        whole, {"prompt": "", "completion": "", "vocabulary": {str(at): word for at, word in enumerate([*WORDS, "<s>", "<mask>"])}}
    )
    return Trace([SampleArrays(sample.arrays, sample.attributes)], _said())


def _received(draw: np.random.Generator, rows: np.ndarray, rows_even: np.ndarray) -> dict[str, Labelled]:
    """Mass of all rows and of those at even positions: (step, layer, head, group, key)."""
    shape = (STEPS, LAYERS, HEADS, len(GROUPS), KEYS)
    mass = draw.gumbel(size=shape).astype(np.float32)
    np.exp(mass, out=mass)
    anchors = draw.integers(0, KEYS, (STEPS // 8, LAYERS, HEADS, len(GROUPS), 2)).repeat(8, axis=0)
    np.put_along_axis(mass, anchors, 400.0, axis=-1)
    mass /= mass.sum(-1, keepdims=True)
    mass *= rows[:, None, None, :, None].astype(np.float32)
    share = (rows_even / np.maximum(rows, 1)).astype(np.float32)[:, None, None, :, None]
    noise = 1 + 0.1 * draw.standard_normal(shape, dtype=np.float32)
    everyone = {"": rows, "_even": rows_even}
    counts: dict[str, Labelled] = {}
    for ending, number in everyone.items():
        seen = np.repeat(number[..., None], KEYS, axis=-1).astype(np.float32)
        counts[f"visible{ending}"] = (("step", "group", "key"), seen)
        counts[f"null{ending}"] = (("step", "group", "key"), np.where(seen > 0, np.float32(1 / KEYS), np.float32(np.nan)))
        counts[f"rows{ending}"] = (("step", "group"), number.astype(np.float32))
    counts["rows_without_keys"] = (("step", "group"), np.zeros((STEPS, len(GROUPS)), np.float32))
    axes = ("step", "layer", "head", "group", "key")
    return {"mass": (axes, mass), "mass_even": (axes, mass * share * noise), **counts}


def _said() -> dict[str, object]:
    return {
        "format": "trace",
        "schema_version": 1,
        "samples": 1,
        "model": "synthetic",
        "revision": None,
        "family": "llada",
        "row_offset": 0,
        "mask_token_id": len(WORDS) + 1,
        "sampler": {"name": "llada", "gen_length": KEYS - PROMPT, "steps": STEPS},
        "seed": 0,
        "dtype": "float32",
        "device": "cpu",
        "threads": 1,
        "versions": {},
        "edits": [],
        "layers": LAYERS,
        "heads": HEADS,
        "layer_numbers": list(range(LAYERS)),
        "modules": [f"layer {number}" for number in range(LAYERS)],
        "groups": list(GROUPS),
        "regions": ["prompt", "answer"],
        "chosen": [],
        "detail": dict(PRESETS["default"]),
    }

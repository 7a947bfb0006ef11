"""Published configs with values that nobody published: a finding or a sentence, never a traceback, and never a machine without memory."""

import json
import math
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from attack_size import tries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from published_checkpoints import DENSE_KINDS, published_config
from transformers import BertConfig, GPT2Config, LlamaConfig, ModernBertConfig, Qwen2Config

import floatlens as fl
from floatlens.models.doctor import examine

STOCK: dict[str, dict[str, Any]] = {  # what the generic families read
    "llama": LlamaConfig(architectures=["LlamaForCausalLM"]).to_dict(),
    "qwen2": Qwen2Config(architectures=["Qwen2ForCausalLM"]).to_dict(),
    "gpt2": GPT2Config(architectures=["GPT2LMHeadModel"]).to_dict(),
    "bert": BertConfig(architectures=["BertForMaskedLM"]).to_dict(),
    "modernbert": ModernBertConfig(architectures=["ModernBertForMaskedLM"]).to_dict(),
}
SAVED = {
    "family": "llada",
    "sampler": "llada",
    "row_offset": 0,
    "mask_token_id": 5,
    "end_tokens": [1],
    "suffix": [],
    "sampler_defaults": {},
}
CONFIGS = {
    **{kind: published_config(kind) | ({"block_length": 4} if kind.startswith("a2d") else {}) for kind in DENSE_KINDS},
    **STOCK,
    "saved": STOCK["llama"] | {"is_causal": False, "floatlens": SAVED},
    "twin": STOCK["llama"] | {"twin": "mdm", "is_causal": False},
}
NUMBERS = [0, -1, 1, 2, 3, 7, 10**9, 2**31, 2**63, 10**30, -(2**63), 0.0, -0.5, 0.5, 1e308, 1e-320, math.nan, math.inf, -math.inf]
OTHERS = [
    None,
    True,
    False,
    "",
    "1",
    "many",
    "\x1b[2J",
    "../..",
    "eager",
    [],
    [1],
    [4] * 40,
    [[]],
    {},
    {"a": 1},
    {"rope_type": "yarn"},
    ["x", None],
]
ANYTHING = st.sampled_from([*NUMBERS, *OTHERS]) | st.integers() | st.floats() | st.text(max_size=4)
NEW_FIELDS = [
    "quantization_config", "layer_types", "rope_scaling", "rope_parameters", "attn_implementation", "_attn_implementation", "torch_dtype",
    "dtype", "auto_map", "architectures", "model_type", "text_config", "sliding_window", "is_causal", "tie_word_embeddings",
    "floatlens", "twin", "num_experts", "head_dim", "pad_token_id", "id2label", "num_labels", "is_encoder_decoder",
    "pruned_heads", "mask_token_id", "eos_token_id", "block_size", "per_layer_config", "name_or_path",
]  # fmt: skip


@st.composite
def damaged_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A config with up to three fields changed, dropped or added, some inside of its tables."""
    config = json.loads(json.dumps(CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))]))
    for _ in range(draw(st.integers(1, 3))):
        inside = [config, *(value for value in config.values() if isinstance(value, dict))]
        table = draw(st.sampled_from(inside)) if draw(st.integers(0, 3)) == 0 else config
        field = draw(st.sampled_from(sorted(table) or ["a"]) if draw(st.booleans()) else st.sampled_from(NEW_FIELDS))
        if draw(st.integers(0, 5)) == 0:
            table.pop(field, None)
        else:
            table[field] = draw(ANYTHING)
    return config


def examined(config: Any) -> str | None:
    """What the doctor says against a config; None if it finds nothing. Anything but a Refusal comes through."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        try:
            examine(folder)
        except fl.Refusal as refusal:
            return str(refusal)
    return None


@pytest.mark.parametrize("kind", ["qwen2", "modernbert"])
def test_a_config_of_very_many_layers_is_refused_before_a_list_of_them_is_made(kind: str) -> None:
    tracemalloc.start()
    try:
        said = examined(CONFIGS[kind] | {"num_hidden_layers": 10**8})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said is not None
    assert "num_hidden_layers=100000000; that must be a whole number from 1 to 2,048." in said
    assert most < 10**8, "bytes"


@settings(max_examples=tries(60, 2000), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(damaged_configs())
@example(CONFIGS["llama"] | {"num_hidden_layers": 10**9})
@example(CONFIGS["llama"] | {"num_attention_heads": 0})
@example(CONFIGS["gpt2"] | {"n_head": 7})
@example(CONFIGS["llada-8b-instruct"] | {"n_layers": [32]})
@example(CONFIGS["llada-8b-instruct"] | {"d_model": "4096"})
def test_a_damaged_config_is_examined_or_refused(config: dict[str, Any]) -> None:
    said = examined(config)
    assert said is None or ("\n" not in said and "\x1b" not in said and said.endswith(".")), said


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_an_undamaged_config_is_not_refused_for_its_values(name: str) -> None:
    said = examined(CONFIGS[name])
    assert said is None or "names a mask token" in said, said  # there is no tokenizer here


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"x"',
        "[" * 100_000,
        '{"a": ' * 50_000,
        "\ufeff{}",
        "NaN",
        '{"model_type": "llama"',
        "{" + "1" * 6000 + "}",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_config_that_is_no_json_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(fl.Refusal, match=r"^config\.json of .* (is not JSON: .+|holds a \w+, not an object)\. Fetch the file again\.$"):
        examine(tmp_path)


def test_a_config_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\x80{}")
    with pytest.raises(fl.Refusal, match=r"^config\.json of .* is not JSON: .*Fetch the file again\.$"):
        examine(tmp_path)

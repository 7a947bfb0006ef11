"""What is said of a model before it is loaded, and small things that loading must not ignore."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published_checkpoints import DENSE_KINDS, facts, tiny_checkpoint

import floatlens as fl
from floatlens.models.doctor import examine

STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_checkpoint_is_examined_without_its_weights(kind: str, tmp_path: Path) -> None:
    whole = examine(tiny_checkpoint(kind, tmp_path / "model"))
    for shard in (tmp_path / "model").glob("*.safetensors"):
        shard.unlink()  # as the hub hands out what describes a model: the index is there, the shards are not
    described = examine(tmp_path / "model")
    assert described.obstacle is None
    assert not described.weights_here
    assert (described.family, described.layers, described.heads, described.mask_token) == (
        whole.family,
        whole.layers,
        whole.heads,
        whole.mask_token,
    )
    with pytest.raises(fl.Refusal, match="has no weights"):
        fl.load(tmp_path / "model")


def test_the_published_llada_has_eight_billion_parameters(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(facts("llada-8b-instruct", "config.json")))
    found = examine(tmp_path)
    assert (found.layers, found.heads, round(found.parameters / 1e9, 2)) == (32, 32, 8.02)


def test_a_twin_is_said_to_be_what_it_is_itself() -> None:
    said = {name: examine(name).runs_as for name in ("twin-arm", "twin-mdm", "twin-causal-mdm")}
    assert said == {
        "twin-arm": "LlamaForCausalLM, causal",
        "twin-mdm": "LlamaForCausalLM, bidirectional",
        "twin-causal-mdm": "LlamaForCausalLM, causal",
    }


def test_what_cannot_be_traced_is_said_with_the_reason(tmp_path: Path) -> None:
    from transformers import Gemma2Config

    Gemma2Config(num_hidden_layers=2, architectures=["Gemma2ForCausalLM"]).save_pretrained(tmp_path)
    with pytest.raises(fl.Refusal, match="Gemma2ForCausalLM has no attention through scaled_dot_product_attention"):
        examine(tmp_path)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_end_tokens_of_the_generation_config_end_a_text() -> None:
    assert set(fl.load(STORIES).end_tokens) == {1, 2}, "TinyStories models end a story with the next one's <s>"


@pytest.mark.usefixtures("cache")
def test_what_a_local_autoregressive_model_does_not_have_is_refused() -> None:
    with pytest.raises(fl.Refusal, match="has no revisions"):
        fl.load(STORIES, revision="main")
    with pytest.raises(fl.Refusal, match="has no mask token"):
        fl.load(STORIES, mask_token_id=3)


@pytest.mark.usefixtures("cache")
def test_token_ids_may_be_numpys() -> None:
    lm = fl.load(STORIES)
    ids = lm.encode("Once upon a time").tokens
    expected = lm.generate([ids], gen_length=4, progress=False)[0].tokens
    ways: list[Any] = [np.array(ids), [np.int64(token) for token in ids], np.array([ids]), tuple(ids)]
    for given in ways:
        assert lm.generate(given, gen_length=4, progress=False)[0].tokens == expected


@pytest.mark.usefixtures("cache")
def test_prompt_and_completion_join_to_the_text() -> None:
    lm = fl.load(STORIES)
    trace = lm.trace("Once upon a time", gen_length=8, progress=False)
    text = trace.prompt() + trace.completion()
    assert text == "Once upon a time, there was a little girl n"[: len(text)]
    sample = trace.sample(0)
    spans = [text[start:stop] for start, stop in zip(sample["char_start"].values, sample["char_stop"].values, strict=True) if start >= 0]
    assert "".join(spans) == text

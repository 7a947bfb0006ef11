"""The adapted SmolLM2 as it is bundled: it loads, writes, is traced and measured, and answers as its card says. Run by `make test-real`."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import floatlens as fl
from floatlens.measures import absorption_of_first_token
from floatlens.models.adapters import bundled_adapters, read_adapter, weights_sha256
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.registry import load_task

pytestmark = pytest.mark.real

QUESTIONS = Path(__file__).parents[1] / "data" / "nq-100-questions.jsonl.gz"
NAMES = sorted(bundled_adapters())


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_belongs_to_the_base_that_is_fetched(name: str) -> None:
    assert read_adapter(bundled_adapters()[name]).info.base_sha256 == weights_sha256(fl.load("smollm2-135m").module)


@pytest.mark.parametrize("name", NAMES)
def test_it_writes_words_and_is_traced_and_measured(name: str) -> None:
    lm = fl.load(name)
    assert type(lm.module).__name__ == "LlamaForCausalLM"
    trace = lm.trace("The sun rose over the hills, and the children", gen_length=8, detail="light", chat=False, progress=False)
    assert re.search(r"[a-z]{2}", trace.completion(0))
    assert read_adapter(bundled_adapters()[name]).info.mask_token_id not in trace.dataset["final"].values
    share = absorption_of_first_token(trace.dataset)["share"]
    assert np.isfinite(share.sel(group="predicting")).any()
    assert trace.dataset.sizes["layer"] == 30


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_as_its_card_says(name: str) -> None:
    card = (bundled_adapters()[name].parent / "README.md").read_text(encoding="utf-8")
    said = {context: int(right) for context, right in re.findall(r"^\| (closed-book|gold) \| (\d+) of 20 \|", card, flags=re.MULTILINE)}
    assert set(said) == {"closed-book", "gold"}
    torch.set_num_threads(1)
    samples = load_task("nq", QUESTIONS).samples[:20]
    options: dict[str, Any] = {"block_length": 1} if fl.load(name).sampler == "llada" else {}
    table = evaluate_model(fl.load(name), samples, ["gold"], gen_length=8, **options)
    right = {context: round(table.filter(context=context)["accuracy"].sum()) for context in said}
    assert right == pytest.approx(said, abs=1)  # another number of threads may round a near tie the other way

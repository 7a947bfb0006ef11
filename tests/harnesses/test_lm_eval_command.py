"""`floatlens lm-eval`: lm-eval's own command on tiny tasks with local data, without any network."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plain_forwards import dense_bound, next_token_sum

import floatlens as fl

pytest.importorskip("lm_eval", reason="lm-eval is not installed; `make test-harnesses` installs it")

import datasets  # pyright: ignore[reportMissingImports]  # comes with lm-eval
import lm_eval.tasks  # pyright: ignore[reportMissingImports]

Ran = tuple[int, str, str]
FILES = Path(__file__).parent / "lm_eval_files"
FACTS = [json.loads(line) for line in (FILES / "facts.jsonl").read_text().splitlines()]
PROMPTS = [f"{fact['passage']}\n{fact['question']}" for fact in FACTS]


class OwnTasksOnly(lm_eval.tasks.TaskManager):
    """lm-eval's tasks without the thousands that come with it, whose files take seconds to read."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, include_defaults=False)


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tasks with the place of their data, a cache of their own, and a network that nobody may use."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for file in FILES.glob("*.yaml"):
        (folder / file.name).write_text(file.read_text().replace("facts.jsonl", str(FILES / "facts.jsonl")))
    reached: list[Any] = []

    def refuse(_socket: socket.socket, address: Any) -> None:
        reached.append(address)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", OwnTasksOnly)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield folder
    assert reached == []


def results_of(folder: Path) -> dict[str, Any]:
    (file,) = folder.rglob("results_*.json")
    return json.loads(file.read_text())


def responses(folder: Path, task: str) -> list[Any]:
    """What the model answered to each document, in order."""
    (file,) = folder.rglob(f"samples_{task}_*.jsonl")
    documents = sorted(map(json.loads, file.read_text().splitlines()), key=lambda document: document["doc_id"])
    return [[response[0] for response in document["resps"]] for document in documents]


@pytest.mark.parametrize("name", ["twin-arm", "twin-mdm"])
def test_lm_eval_runs_all_kinds_of_tasks(name: str, floatlens: Callable[..., Ran], tasks: Path, tmp_path: Path) -> None:
    into = tmp_path / "results"
    wanted = ["--tasks", "tiny_choice,tiny_write,tiny_read", "--include_path", tasks, "--output_path", into, "--log_samples"]
    code, said, errors = floatlens("lm-eval", "--model", "floatlens", "--model_args", f"pretrained={name}", "--batch_size", 4, *wanted)
    assert code == 0, errors
    assert all(task in said for task in ("tiny_choice", "tiny_write", "tiny_read", "word_perplexity"))
    lm = fl.load(name, device="cpu")
    likelihood = next_token_sum if lm.sampler == "autoregressive" else dense_bound
    for fact, prompt, found in zip(FACTS, PROMPTS, responses(into, "tiny_choice"), strict=True):
        for choice, (value, _greedy) in zip(fact["choices"], found, strict=True):
            (answer,) = lm.tokenizer(choice, add_special_tokens=False)["input_ids"]
            assert float(value) == pytest.approx(likelihood(lm, lm.encode(prompt).tokens, [answer]), abs=1e-3)
    for prompt, (found,) in zip(PROMPTS, responses(into, "tiny_write"), strict=True):
        assert found == lm.generate(prompt, gen_length=4, progress=False)[0].text.partition(".")[0]
    for fact, (found,) in zip(FACTS, responses(into, "tiny_read"), strict=True):
        words = lm.tokenizer(fact["passage"], add_special_tokens=False)["input_ids"]
        assert float(found) == pytest.approx(likelihood(lm, [lm.tokenizer.bos_token_id], words), abs=1e-3)
    told = results_of(into)
    assert told["results"]["tiny_choice"]["acc,none"] == 1.0  # the twins learned to read
    assert told["config"]["model_family"] == "twin"
    assert told["config"]["floatlens_version"] == fl.__version__


def test_an_intervention_is_named_and_reported(floatlens: Callable[..., Ran], tasks: Path, tmp_path: Path) -> None:
    into = tmp_path / "results"
    arguments = "pretrained=twin-mdm,intervention='mask-anchors:2,layers=0-3',steps=2"
    wanted = ["--tasks", "tiny_write", "--include_path", tasks, "--output_path", into, "--log_samples"]
    code, _, errors = floatlens("lm-eval", "run", "--model", "floatlens", "--model_args", arguments, *wanted)
    assert code == 0, errors
    lm, hidden = fl.load("twin-mdm", device="cpu"), fl.MaskAnchors(2, layers=range(4))
    written = [lm.generate(prompt, gen_length=4, steps=2, intervention=hidden, progress=False)[0] for prompt in PROMPTS]
    assert [found for (found,) in responses(into, "tiny_write")] == [one.text.partition(".")[0] for one in written]
    told = results_of(into)["config"]
    assert told["interventions"] == ["mask-anchors:2,layers=0-3"]
    assert told["attention_removed"] == pytest.approx(sum(one.removed or 0 for one in written) / 2, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--model_args", "pretrained=twin-mdm,step=4", "--tasks", "tiny_write"],
            "has no 'step'. Did you mean 'steps'? It takes: ",
        ),
        (["--model_args", "steps=4", "--tasks", "tiny_write"], "--model_args names no model: write --model_args pretrained="),
        (["--model_args", "pretrained=twin-mdm", "--tasks", "tiny_wrote"], "lm-eval: Tasks not found: tiny_wrote."),
        (["--model_args", "pretrained=twin-mdm", "--tasks", "tiny_write", "--apply_chat_template"], "twin-mdm has no chat template."),
        (["--model_args", "pretrained=twin-mdm", "--tasks", "tiny_write", "--batch_size", "auto"], "--batch_size auto: floatlens takes"),
        (["--model_args", "pretrained=twin-mdm"], "lm-eval: No tasks specified, or no tasks found."),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], sentence: str, floatlens: Callable[..., Ran], tasks: Path) -> None:
    code, _, errors = floatlens("lm-eval", "--model", "floatlens", "--include_path", tasks, *arguments)
    assert code == 2
    *_, last = errors.splitlines()
    assert last.startswith("floatlens: ")
    assert sentence in last


def test_all_options_are_those_of_lm_eval(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("lm-eval", "run", "--help")
    assert code == 0
    assert all(option in said for option in ("--gen_kwargs", "--apply_chat_template", "--use_cache", "--log_samples"))
    code, _, errors = floatlens("lm-eval", "run", "--no_such_option")
    assert code == 2
    assert "unrecognized arguments: --no_such_option" in errors

"""floatlens models in inspect_ai: found by their entry point, on a tiny task, against `lm.generate`."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import floatlens as fl
from floatlens.errors import Caution, Refusal
from floatlens.tasks.world import make_tokenizer
from world_models import END, MASK, mdm

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed; `make test-harnesses` installs it")

import anyio  # pyright: ignore[reportMissingImports]
from inspect_ai import eval as evaluate  # pyright: ignore[reportMissingImports]
from inspect_ai.log import list_eval_logs, read_eval_log  # pyright: ignore[reportMissingImports]
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    GenerateConfig,
    get_model,
)

TASK = Path(__file__).parent / "inspect_files" / "tiny.py"  # inspect_ai looks for tasks below the working directory only
QUESTIONS = [
    "Ada Xu lives in Oslo.\nWhere does Ada Xu live?",
    "Ada Xu lives in Lima. Ben Xu lives in Oslo.\nWhere does Ada Xu live?",
]


def model(name: str = "twin-mdm", config: Any = None, **arguments: Any) -> Any:
    return get_model(f"floatlens/{name}", config=config or GenerateConfig(), memoize=False, device="cpu", **arguments)


def answers(log: Any) -> list[str]:
    assert log.status == "success", log.error
    return [sample.output.completion for sample in log.samples]


@pytest.mark.parametrize("name", ["twin-mdm", "twin-arm"])
def test_a_task_is_answered_as_generate_answers_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = fl.load(name, device="cpu")
    monkeypatch.chdir(TASK.parent)
    (log,) = evaluate(TASK.name, model=model(name), max_tokens=4, log_dir=str(tmp_path), display="none")
    assert answers(log) == [written.text for written in lm.generate(QUESTIONS, gen_length=4, progress=False)]
    assert log.results.scores[0].metrics["accuracy"].value == 1.0  # the twins learned to read
    output = log.samples[0].output
    written = lm.generate(QUESTIONS[0], gen_length=4, progress=False)[0]
    assert (output.usage.input_tokens, output.usage.output_tokens) == (len(written.prompt_tokens), len(written.tokens))
    ended = any(token in lm.end_tokens for token in written.tokens)
    assert output.choices[0].stop_reason == ("stop" if ended else "max_tokens")


def test_the_command_of_inspect_finds_the_provider_and_hands_arguments_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = entry_points(group="console_scripts", name="inspect")
    monkeypatch.chdir(TASK.parent)
    words = ["eval", TASK.name, "--model", "floatlens/twin-mdm", "--log-dir", str(tmp_path), "--display", "none", "--max-tokens", "4"]
    arguments = ["-M", "intervention=mask-anchors:2,layers=0-3", "-M", "steps=2", "-M", "device=cpu", "--stop-seqs", "."]
    monkeypatch.setattr(sys, "argv", ["inspect", *words, *arguments])
    with pytest.raises(SystemExit) as ended:
        command.load()()
    assert not ended.value.code
    (info,) = list_eval_logs(str(tmp_path))
    log = read_eval_log(info)
    lm, hidden = fl.load("twin-mdm", device="cpu"), fl.MaskAnchors(2, layers=range(4))
    written = lm.generate(QUESTIONS, gen_length=4, steps=2, intervention=hidden, progress=False)
    assert answers(log) == [one.text.partition(".")[0] for one in written]
    told = [sample.output.metadata for sample in log.samples]
    assert [one["attention_removed"] for one in told] == pytest.approx([one.removed for one in written], abs=1e-4)
    assert [one["steps"] for one in told] == [2, 2]


def ask(asked: Any, prompts: Sequence[Any], **how: Any) -> list[Any]:
    """All prompts at once, as the samples of a task are asked."""
    outputs: dict[int, Any] = {}

    async def one(number: int, prompt: Any) -> None:
        outputs[number] = await asked.generate(prompt, config=GenerateConfig(**how))

    async def everything() -> None:
        async with anyio.create_task_group() as group:
            for number, prompt in enumerate(prompts):
                group.start_soon(one, number, prompt)

    anyio.run(everything)
    return [outputs[number] for number in range(len(prompts))]


def test_requests_that_wait_together_are_written_together_and_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = model(batch_size=3)
    sizes: list[int] = []
    write = asked.api.model.lm.__class__.generate

    def counted(lm: Any, prompts: Any, **how: Any) -> Any:
        sizes.append(len(prompts))
        return write(lm, prompts, **how)

    monkeypatch.setattr(asked.api.model.lm.__class__, "generate", counted)
    prompts = [*QUESTIONS, *QUESTIONS, QUESTIONS[0]]
    together = [output.completion for output in ask(asked, prompts, max_tokens=4)]
    assert sum(sizes) == 5
    assert max(sizes) == 3
    alone = [ask(model(batch_size=1), [prompt], max_tokens=4)[0].completion for prompt in prompts]
    assert together == alone


def test_one_prompt_that_fails_does_not_fail_those_it_was_written_with() -> None:
    asked = model(batch_size=4)
    caught: list[Exception] = []
    outputs: list[Any] = []

    async def one(prompt: str) -> None:
        try:
            outputs.append(await asked.api.generate([ChatMessageUser(content=prompt)], [], "none", GenerateConfig(max_tokens=4)))
        except Refusal as refusal:
            caught.append(refusal)

    async def everything() -> None:
        async with anyio.create_task_group() as group:
            for prompt in (QUESTIONS[0], "Oslo " * 1100, QUESTIONS[1]):
                group.start_soon(one, prompt)

    anyio.run(everything)
    assert [output.completion for output in outputs] == [
        written.text for written in fl.load("twin-mdm", device="cpu").generate(QUESTIONS, gen_length=4, progress=False)
    ]
    assert len(caught) == 1
    assert "more than the 1024 that twin-mdm was made for" in str(caught[0])


def test_seeds_and_temperatures_are_honoured_and_epochs_draw_anew() -> None:
    how: dict[str, Any] = {"max_tokens": 8, "temperature": 3.0, "seed": 1}
    first, second = (output.completion for output in ask(model(), [QUESTIONS[0]] * 2, **how))
    assert first != second
    assert [output.completion for output in ask(model(), [QUESTIONS[0]] * 2, **how)] == [first, second]
    assert ask(model(), [QUESTIONS[0]], **{**how, "seed": 2})[0].completion != first
    greedy = ask(model(), [QUESTIONS[0]], max_tokens=8, temperature=0.0, seed=2)[0].completion
    assert greedy == fl.load("twin-mdm", device="cpu").generate(QUESTIONS[0], gen_length=8, progress=False)[0].text


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"logprobs": True}, "cannot honour logprobs=True. They take: max_tokens, temperature, .* Leave --logprobs out"),
        ({"num_choices": 2}, "cannot honour num_choices=2.*--num-choices"),
        ({"frequency_penalty": 0.5}, "cannot honour frequency_penalty=0.5"),
        ({"reasoning_effort": "high"}, "cannot honour reasoning_effort='high'"),
        ({"top_p": 0.9}, "The llada sampler has no option 'top_p'. It has: gen_length, steps"),
        ({"top_k": 5}, "The llada sampler has no option 'top_k'"),
    ],
)
def test_what_a_diffusion_model_cannot_honour_is_refused(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        model(config=GenerateConfig(**config))
    api = model().api
    with pytest.raises(Refusal, match=sentence):
        anyio.run(api.generate, [ChatMessageUser(content="Oslo")], [], "none", GenerateConfig(**config))


def test_options_that_ask_for_nothing_are_accepted_and_those_of_an_autoregressive_sampler_honoured() -> None:
    plain = ask(model("twin-arm"), QUESTIONS, max_tokens=4, num_choices=1, frequency_penalty=0.0, timeout=600)
    filtered = ask(model("twin-arm"), QUESTIONS, max_tokens=4, temperature=5.0, top_k=1, seed=3)  # one token to draw from
    assert [output.completion for output in filtered] == [output.completion for output in plain]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"step": 2}, r"-M has no 'step'. Did you mean 'steps'\? It takes: chat, revision"),
        ({"temperature": 1.0}, r"-M does not take temperature, which belongs to the requests: --temperature \.\.\."),
        ({"order": "entropy"}, "The llada sampler has no option 'order'"),
        ({"intervention": "mask-anchor:1"}, "There is no intervention 'mask-anchor'"),
        ({"batch_size": 0}, "batch_size=0: at least one prompt"),
        ({"chat": True}, "twin-mdm has no chat template"),
        ({"base_url": "here"}, "has no address. Leave --model-base-url out"),
    ],
)
def test_mistakes_in_model_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        model(**arguments)


def test_the_command_of_inspect_prints_the_sentence_alone() -> None:
    (command,) = entry_points(group="console_scripts", name="inspect")
    words = ["eval", TASK.name, "--model", "floatlens/twin-mdm", "-M", "step=[2]", "--display", "plain"]
    program = f"import sys; sys.argv = {['inspect', *words]!r}; from {command.module} import {command.attr} as run; run()"
    ran = subprocess.run([sys.executable, "-c", program], cwd=TASK.parent, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "-M has no 'step'. Did you mean 'steps'?" in " ".join(ran.stdout.split())
    assert "Traceback" not in ran.stdout + ran.stderr


def test_conversations_need_a_chat_template_and_texts_do_not(tmp_path: Path) -> None:
    turns = [ChatMessageSystem(content="Ada Xu lives in Oslo."), ChatMessageUser(content="Where does Ada Xu live?")]
    (output,) = ask(model(), [turns], max_tokens=4)
    joined = "Ada Xu lives in Oslo.\n\nWhere does Ada Xu live?"
    assert output.completion == fl.load("twin-mdm", device="cpu").generate(joined, gen_length=4, progress=False)[0].text
    answered = [*turns, ChatMessageAssistant(content="Oslo"), ChatMessageUser(content="Where?")]
    with pytest.raises(Refusal, match="cannot tell who says what in a conversation with a message of the assistant"):
        anyio.run(model().api.generate, answered, [], "none", GenerateConfig())
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    plain = mdm()
    fl.LanguageModel(plain.module, tokenizer, mask_token_id=MASK, end_tokens=(END,), name="chatty").save(tmp_path / "chatty")
    chatty = fl.load(tmp_path / "chatty", device="cpu")
    (output,) = ask(model(str(tmp_path / "chatty")), [answered], max_tokens=4)
    said = [{"role": message.role, "content": message.text} for message in answered]
    assert output.completion == chatty.generate([said], gen_length=4, progress=False)[0].text
    (raw,) = ask(model(str(tmp_path / "chatty"), chat=False), [turns], max_tokens=4)
    assert raw.completion == chatty.generate(joined, gen_length=4, chat=False, progress=False)[0].text


def test_tools_and_images_are_refused_and_unknown_words_warned_of() -> None:
    api = model().api
    with pytest.raises(Refusal, match="twin-mdm does not call tools"):
        anyio.run(api.generate, [ChatMessageUser(content="Oslo")], [object()], "auto", GenerateConfig())
    with pytest.raises(Refusal, match="A message holds image"):
        anyio.run(api.generate, [ChatMessageUser(content=[ContentImage(image="data:image/png;base64,")])], [], "none", GenerateConfig())
    with pytest.warns(Caution, match="twin-mdm does not know .*Timbuktu"):
        anyio.run(api.generate, [ChatMessageUser(content="Where is Timbuktu")], [], "none", GenerateConfig(max_tokens=2))


def test_tokens_are_counted_by_the_models_own_tokenizer() -> None:
    assert anyio.run(model().api.count_text_tokens, "Ada Xu lives in Oslo.") == 7

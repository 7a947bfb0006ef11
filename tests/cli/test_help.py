"""What `floatlens --help` shows: every name whole, with defaults, at 80 columns and narrower; the version; shell completion."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import typer

import floatlens as fl
from floatlens.cli import app

Ran = tuple[int, str, str]
GROUP: Any = typer.main.get_command(app)
STUDIES: dict[str, Any] = {f"study {name}": command for name, command in GROUP.commands["study"].commands.items()}
COMMANDS: dict[str, Any] = {**GROUP.commands, **STUDIES}
WIDTHS = [80, 60]


@pytest.fixture(params=WIDTHS)
def shown(request: pytest.FixtureRequest, floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Print the help of a command in a terminal of some width; no line may be wider."""

    def help_of(*words: str) -> str:
        monkeypatch.setenv("COLUMNS", str(request.param))
        code, said, errors = floatlens(*" ".join(words).split(), "--help")
        assert (code, errors) == (0, "")
        lines = said.splitlines()
        assert [line for line in lines if len(line) > request.param] == []
        assert not any("…" in line or line.rstrip().endswith("...") for line in lines if not line.startswith("Usage:")), "something is cut"
        return said

    return help_of


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_named_whole_with_its_meaning_and_default(name: str, shown: Callable[..., str]) -> None:
    said = shown(name)
    options = said.partition("\nOptions:\n")[2]
    starts = [place.start() for place in re.finditer(r"^  -", options, re.MULTILINE)]
    by_name = {
        option: " ".join(options[start:stop].split())
        for start, stop in zip(starts, [*starts[1:], None], strict=True)
        for option in re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", re.split(r"(?<=\S)  ", options[start:stop].splitlines()[0])[0])
    }
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "argument":
            continue
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert option in by_name, f"{option} is not shown whole"
            assert " ".join(parameter.help.split()) in by_name[option], "its help is shown whole"
            if parameter.required:
                assert "[required]" in by_name[option]
            elif isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool) and parameter.default != "":
                assert f"default: {parameter.default}" in by_name[option]


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_can_be_copied_as_they_are_printed(name: str, shown: Callable[..., str]) -> None:
    joined = re.sub(r" \\\n +", " ", shown(name))
    written = [" ".join(line.split()) for line in (COMMANDS[name].help or "").splitlines() if line.strip().startswith("floatlens ")]
    printed = [" ".join(line.split()) for line in joined.splitlines() if line.startswith("  floatlens ")]
    assert [line for line in written if line not in printed] == []


def test_the_list_of_commands_has_the_whole_first_sentence_of_each(shown: Callable[..., str]) -> None:
    lists = {"": " ".join(shown().split()), "study": " ".join(shown("study").split())}
    for whole_name, command in COMMANDS.items():
        group, _, name = whole_name.rpartition(" ")
        flat = lists[group]
        sentence = re.split(r"(?<=\.)\s", " ".join((command.help or "").split()))[0]
        assert f"{name} {sentence}" in flat


def test_options_with_choices_say_them(shown: Callable[..., str]) -> None:
    for command in ("measure", "figures"):
        said = shown(command)
        assert all(re.search(rf"\b{rule}\b", said) for rule in ("lift", "additive", "zscore", "rate", "top"))
        assert all(group in said for group in ("masked", "unmasked", "predicting", "prompt"))
    assert "arm, mdm or causal-mdm" in " ".join(shown("train").split())


def test_floatlens_alone_prints_its_help(floatlens: Callable[..., Ran]) -> None:
    code, said, errors = floatlens()
    assert code == 2
    assert said.startswith("Usage: floatlens [OPTIONS] COMMAND")
    assert errors == ""


def test_the_version_is_that_of_the_package(floatlens: Callable[..., Ran]) -> None:
    assert floatlens("--version") == (0, f"floatlens {fl.__version__}\n", "")


def test_the_shell_completes_commands(floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_FLOATLENS_COMPLETE": "complete_bash", "COMP_WORDS": "floatlens tr", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    _, said, _ = floatlens()
    assert said.split() == ["trace", "train"]


def test_a_mistyped_command_is_suggested(floatlens: Callable[..., Ran]) -> None:
    _, _, errors = floatlens("tarce")
    assert errors == "floatlens: No such command 'tarce'. Did you mean 'trace'? Run `floatlens --help` to see what it takes.\n"


def test_sentences_break_between_words_and_only_in_a_terminal(floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, _, in_a_file = floatlens("tarce")
    assert in_a_file.count("\n") == 1
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes it for a terminal
    _, _, errors = floatlens("tarce")
    assert all(0 < len(line) <= 40 for line in errors.splitlines())
    assert errors.split() == in_a_file.split()


def test_names_of_classes_are_whole_or_broken_at_a_capital(floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, table, _ = floatlens("models")
    assert all(len(line) <= 80 for line in table.splitlines())
    cells = [line.split("│")[3].strip() for line in table.splitlines() if line.startswith("│")]
    assert {"AutoModelForCausalLM", "AutoModelForMaskedLM", "DiffusionGemmaFor"} <= set(cells)
    monkeypatch.setenv("COLUMNS", "120")
    assert "DiffusionGemmaForBlockDiffusion" in floatlens("models")[1]

"""A study is read from TOML; every mistake is reported with its line and with what would be right."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floatlens.errors import Refusal
from floatlens.study.study_file import parse_study, read_study
from floatlens.study.toml_lines import line_of, lines_of

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "studies").glob("*.toml"))
STUDY = """name = "a"
seeds = [0, 1]
contexts = [
  "gold",  # first
  "noise:.4",
]
interventions = ["mask-anchors:1"]

[[models]]
name = "twin-arm"

[[models]]
name = "twin-mdm"

[[tasks]]
task = "world"
samples = 5

[[samplers]]
options.temperature = 1.0

[traces]
samples = 2
measures = [ 'movement', "score" ]

[run]
threads = 1
"""


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(entry, (*path, key))
    else:
        yield path, value


STRANGE = (
    """# a comment with [brackets] and "quotes"
'quoted key'."and # another" = 'it''s'.x = 1
""".replace("'it''s'.x = 1", "'value-1'")
    + '''
text = """
first "two" quotes
[not.a.table]
"""
nested = [[1, 2], [
  3, # three
  4]]
inline = { a = { b = "value-2" }, "c.d" = ["value-3", 'value-4'] }
[table . 'with blanks']
x = "value-5" # = "no"
[[outer]]
x = "value-6"
[[outer.inner]]
x = "value-7"
[[outer]]
[[outer.inner]]
x = "value-8"
[[outer.inner]]
[outer.inner.below]
x = "value-9"
last = 2026-11-18T00:00:00Z
'''
)


@pytest.mark.parametrize("text", [STUDY, STRANGE, *(file.read_text() for file in EXAMPLES)])
def test_every_value_is_found_on_the_line_where_it_stands(text: str) -> None:
    lines = lines_of(text)
    checked = 0
    for path, value in leaves(tomllib.loads(text)):
        assert path in lines, path
        if isinstance(value, str) and "\n" not in value:
            assert value in text.splitlines()[lines[path] - 1], path
            checked += 1
    assert checked > 3


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('"noise:.4"', '"noize:.4"', "line 5, contexts[1]: There is no context 'noize'. Did you mean 'noise'?"),
        ('"mask-anchors:1"', '"mask-anchor:1"', "line 7, interventions[0]: "),
        ('"mask-anchors:1"', '"random-keys:mass of mask-anchors:1"', "line 7, interventions[0]: 'random-keys:mass of mask-anchors:1' is a"),
        ("samples = 5", "samples = 0", "line 17, tasks[0].samples: must be at least 1 (it is 0)."),
        ("samples = 5", "sampels = 5", "line 17: [[tasks]] has no field 'sampels'. Did you mean 'samples'?"),
        ('task = "world"', 'task = "wrld"', "line 16, tasks[0].task: there is no task 'wrld'. Did you mean 'world'?"),
        ('task = "world"\n', "", "line 15: [[tasks]] does not say task."),
        ("threads = 1", "threads = 1.5", "line 27, run.threads: must be a whole number (it is 1.5)."),
        ("temperature", "temprature", "line 20, samplers[0].options: no sampler has an option 'temprature'. Did you mean 'temperature'?"),
        ("'movement'", "'movment'", "line 24, traces.measures: there is no measure 'movment'. Did you mean 'movement'?"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "line 2, seeds[1]: the seed 0 is there twice."),
        ('name = "twin-mdm"', 'name = "elsewhere/twin-arm"', "line 12, models[1]: two [[models]] are called 'twin-arm'"),
        ('name = "a"', 'name = "a/b"', "line 1, name: must be a name of letters"),
        ('name = "a"', "", "line 1: the study does not say name."),
        ('contexts = [\n  "gold",  # first\n  "noise:.4",\n]\n', "", "line 11, tasks[0]: interventions act in contexts"),
        ("[[tasks]]\n", "[[task]]\n", "line 15: the study has no field 'task'. Did you mean 'tasks'?"),
        (
            'task = "world"',
            'task = "world"\nmodels = ["twin-arm", "twin-x"]',
            "line 17, tasks[0].models[1]: there is no [[models]] 'twin-x'.",
        ),
        ("seeds = [0, 1]", "seeds = [0, 1", "a.toml is not TOML: "),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_what_would_be_right(before: str, after: str, sentence: str) -> None:
    assert before in STUDY
    parse_study(STUDY, "a.toml")
    with pytest.raises(Refusal) as refused:
        parse_study(STUDY.replace(before, after, 1), "a.toml")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("a.toml")


def test_all_mistakes_are_reported_at_once() -> None:
    wrong = STUDY.replace("samples = 5", "samples = 0").replace("threads = 1", "threads = 0").replace('name = "twin-arm"', "nam = 1")
    with pytest.raises(Refusal) as refused:
        parse_study(wrong, "a.toml")
    lines = str(refused.value).splitlines()
    assert lines[0] == "a.toml has 4 mistakes."
    assert sorted(int(line.split("line ")[1].split(",")[0].split(":")[0]) for line in lines[1:]) == [9, 10, 17, 27]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_studies_of_their_own_name(file: Path) -> None:
    assert read_study(file).name == file.stem


def test_a_path_that_is_not_there_has_the_line_of_what_it_would_stand_in() -> None:
    assert line_of(STUDY, ("tasks", 0, "data")) == 15
    assert line_of(STUDY, ("contexts", 9)) == 3

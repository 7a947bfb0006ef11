"""Programs that try to pass without being right, or to do harm.

None passes, floatlens goes on, and no process is left, whether floatlens is run by root or by an ordinary user.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from attack_size import tries
from forging_programs import FORGERIES, SLOW_FORGERIES
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.tasks import code_isolation, code_runs
from floatlens.tasks.code_runs import Outcome, run_program
from floatlens.tasks.readers import CodeTask
from jailed_programs import isolated, judged_by, processes

PROMPT = "def square(number):\n"
TESTS = "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(12) == 144\n    assert all(map(candidate, [1, 2]))\n"
TASK = CodeTask("mine/0", PROMPT, TESTS, "square", "    return number * number\n")
SLOW = dict(list(SLOW_FORGERIES.items())[: tries(2, len(SLOW_FORGERIES))])
NOBODY = 65534


@isolated
@pytest.mark.parametrize("name", [*FORGERIES, *SLOW])
def test_no_forgery_passes_and_floatlens_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_runs, "PATIENCE", 1.0)
    before = processes()
    outcome = run_program(TASK, (FORGERIES | SLOW)[name], seconds=1, memory=1 << 28)
    assert outcome.how in ("failed", "timed out", "died"), outcome
    assert processes() <= before


@isolated
def test_a_right_program_passes_whatever_else_it_tries() -> None:
    liar = "class Liar(int):\n    def __eq__(self, other): return False\n    __hash__ = None\n"
    assert run_program(TASK, f"{liar}def square(number):\n    return Liar(number * number)\n") == Outcome("passed")
    killer = (
        "import os\ndef square(number):\n    try: os.kill(-1, 9)\n    except OSError: pass\n"
        "    print('failed')\n    return number * number\n"
    )
    assert run_program(TASK, killer) == Outcome("passed")


@isolated
def test_a_program_cannot_see_the_tests_or_what_they_expect() -> None:
    """What lies in its memory, its files and its arguments is searched for a word that only the tests know."""
    search = """
import gc, os, sys
def answer(*given):
    word = "".join(["only", "-the-", "tests-", "know"])
    seen = [text for thing in gc.get_objects()
            for text in (thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ())]
    seen += [*given, *sys.orig_argv, *os.environ.values()]
    for path in [os.path.join(folder, name) for folder in ("/", "/tmp", "/jail", "/proc", "/dev")
                 if os.path.isdir(folder) for name in os.listdir(folder)]:
        if os.path.isfile(path): seen.append(open(path, errors="replace").read())
    return any(isinstance(text, str) and word in text for text in seen)
"""
    assert judged_by("expected = 'only-the-tests-know'\nassert candidate(1) is False", search, seconds=10) == Outcome("passed")
    assert judged_by("expected = 'only-the-tests-know'\nassert candidate(expected) is True", search, seconds=10) == Outcome("passed")


@isolated
@pytest.mark.parametrize(
    "returned", ["float('nan')", "float('inf')", "complex('nan')", "__import__('decimal').Decimal('sNaN')", "'9'", "True", "[9]", "None"]
)
def test_values_that_compare_oddly_pass_no_tolerance(returned: str) -> None:
    tests = "value = candidate()\nassert abs(value - 9) < 1e-6 and value is not True"
    assert judged_by(tests, f"def answer(): return {returned}").how == "failed"


@isolated
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "raise KeyboardInterrupt", "raise StopIteration", "os.closerange(3, 64)"])
def test_tests_that_catch_everything_do_not_catch_the_end_of_a_program(end: str) -> None:
    tests = "for _ in range(3):\n    try: candidate()\n    except BaseException: pass"
    program = f"import os, sys\ndef answer():\n    {end}\n"
    assert judged_by(tests, program).how in ("failed", "died")
    assert judged_by(tests, program.replace(end, "raise ValueError")) == Outcome("passed"), "that is an answer, and they expect it"


def nobodys_python() -> list[str] | None:
    """A command that runs Python with floatlens as the user nobody, if this is root and one can be had."""
    folders = os.pathsep.join(dict.fromkeys([str(Path(code_runs.__file__).parents[2]), *filter(None, sys.path)]))
    for interpreter in (os.path.realpath(sys.executable), f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        command = ["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={folders}", interpreter, "-B"]
        try:
            tried = subprocess.run(
                [*command, "-c", "import floatlens.tasks.code_runs, jailed_programs"],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                capture_output=True,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return command
    return None


@isolated
@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already")
def test_an_ordinary_user_is_protected_like_root() -> None:
    command = nobodys_python()
    if command is None:
        pytest.skip("the user nobody cannot read this interpreter or floatlens")
    chosen = dict(list(FORGERIES.items())[: tries(6, len(FORGERIES))])
    script = f"""
import json, os
from floatlens.tasks import code_runs
from floatlens.tasks.readers import CodeTask
assert os.getuid() == {NOBODY}
task = CodeTask("mine/0", {PROMPT!r}, {TESTS!r}, "square", "")
programs = {chosen!r} | {{"right": "def square(number): return number * number"}}
print(json.dumps({{name: code_runs.run_program(task, program, seconds=5, memory=1 << 28).how for name, program in programs.items()}}))
"""
    ended = subprocess.run([*command, "-c", script], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True)
    if "cannot be isolated here" in ended.stderr:
        pytest.skip(ended.stderr.splitlines()[-1])
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr[-2000:]
    outcomes = json.loads(ended.stdout)
    assert {name for name, how in outcomes.items() if how == "passed"} == {"right"}
    assert set(outcomes) == {*chosen, "right"}


@pytest.fixture(scope="module")
def jail() -> ModuleType:
    """The script inside, as a module: its decoder is what a program's answers meet first."""
    specification = importlib.util.spec_from_file_location("code_jail_to_attack", code_isolation.JAIL)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


KINDS = [
    "int",
    "tuple",
    "set",
    "frozenset",
    "dict",
    "bytes",
    "bytearray",
    "complex",
    "range",
    "Fraction",
    "Decimal",
    "iterator",
    "list",
    "object",
    "",
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["ff", "-1", "1e9", "sNaN"])
ANSWERS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KINDS), inner, min_size=1, max_size=2),
    max_leaves=12,
)
EXACT = {
    "NoneType",
    "bool",
    "int",
    "float",
    "str",
    "list",
    "tuple",
    "set",
    "frozenset",
    "dict",
    "bytes",
    "bytearray",
    "complex",
    "range",
    "Fraction",
    "Decimal",
    "list_iterator",
}


@settings(max_examples=tries(50, 20_000), deadline=None)
@given(answer=ANSWERS)
def test_whatever_json_comes_is_an_exact_builtin_value_or_an_error(jail: ModuleType, answer: object) -> None:
    try:
        value = jail.decode(json.loads(json.dumps(answer)))
    except Exception:  # any of them is a failed program; what ends an interpreter is no Exception
        return
    assert parts_of(value) <= EXACT


def parts_of(value: object) -> set[str]:
    """The names of all types in a value."""
    inside: list[object] = list(value) if type(value).__name__ in ("list", "tuple", "set", "frozenset", "list_iterator") else []  # type: ignore[call-overload]  # each can be iterated
    if type(value) is dict:
        inside = [*value.keys(), *value.values()]
    return {type(value).__name__}.union(*map(parts_of, inside))

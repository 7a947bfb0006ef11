"""The judge of a program gets data and nothing else: what can be passed to it, what it makes of exceptions and of the prompt, and tests
that cannot judge.
"""

import os
from pathlib import Path

import pytest

from floatlens.errors import Refusal
from floatlens.tasks.code_runs import Outcome, prompt_by_itself, refuse_unusable_tests, run_code_tasks, run_program, whole_program
from floatlens.tasks.readers import CodeTask, read_code_tasks
from jailed_programs import isolated, isolation_works, judged_by

PROMPT = 'def root(number):\n    """The square root, rounded down."""\n'
TESTS = "def check(candidate):\n    assert candidate(17) == 4\n"


@pytest.mark.parametrize(
    ("prompt", "alone"),
    [
        (PROMPT, f"{PROMPT}    pass"),
        ("def f():\n", "def f():\n    pass"),
        ("def f():\n  'Two blanks.'\n\n", "def f():\n  'Two blanks.'\n  pass"),
        ("def f():\n\t'A tab.'\n", "def f():\n\t'A tab.'\n\tpass"),
        ("class A:\n    def f(self):", "class A:\n    def f(self):\n        pass"),
    ],
)
def test_the_tests_get_the_prompt_with_an_empty_body(prompt: str, alone: str) -> None:
    task = CodeTask("mine/0", prompt, "def check(candidate): pass", "f", "")
    assert prompt_by_itself(task) == alone
    refuse_unusable_tests([task])


BROKEN = {
    "prompt": ("def root(number:\n", TESTS, r"SyntaxError: .* \(<unknown>, line 1\)"),
    "tests": (PROMPT, "def check(", r"SyntaxError: '\(' was never closed \(<unknown>, line 1\)"),
    "no check": (PROMPT, "pass", "they define no function 'check'"),
    "a null byte": (PROMPT, "\0", "(SyntaxError|ValueError): source code (string )?cannot contain null bytes"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_tests_that_cannot_judge_are_refused_before_and_when_a_program_runs(what: str) -> None:
    prompt, tests, why = BROKEN[what]
    right, broken = CodeTask("mine/6", PROMPT, TESTS, "root", ""), CodeTask("mine/7", prompt, tests, "root", "")
    advice = "Correct the fields 'prompt' and 'test' of that task, or leave it out."
    with pytest.raises(Refusal, match=rf"^The tests of mine/7 cannot judge any program: {why}\. {advice}$"):
        refuse_unusable_tests([right, broken])
    if isolation_works():
        with pytest.raises(Refusal, match=rf"^The tests of mine/7 cannot judge any program: .*\. {advice}$"):
            run_program(broken, "def root(number): return 2")


@isolated
def test_arguments_that_cannot_be_passed_on_are_the_tests_fault_and_refused() -> None:
    why = "they call the function with a value of type function, which cannot be passed on as data"
    with pytest.raises(Refusal, match=f"The tests of mine/1 cannot judge any program: {why}"):
        judged_by("candidate(lambda: 1)", "def answer(given): return 1")


VALUES = [
    "None", "True", "0", "-17", "10**20", "-(7**9000)", "1.5", "-0.0", "float('inf')", "1e-320", "'text'",
    "'\\ud800\\x00\\n'", "b'\\xff'", "bytearray(b'ab')", "3 - 4j", "complex('nan+infj')",
    "[]", "[1, [2.0, (3, '4')]]", "(1,)", "{1, 2}", "frozenset({(1, 2)})",
    "{'a': [1], (1, 2): None, None: 3, 2.5: {}}", "range(3, 10**30, 2)", "float('nan')",
    "__import__('fractions').Fraction(10**40, 3)", "__import__('decimal').Decimal('1.10')", "__import__('decimal').Decimal('-Infinity')",
]  # fmt: skip


@isolated
def test_what_is_passed_there_and_back_is_what_it_was() -> None:
    tests = "import sys\nsys.set_int_max_str_digits(0)\n"
    for value in VALUES:
        tests += f"value = {value}\nback = candidate(value, named=[value])\nassert ascii(back) == ascii([value, value]), value\n"
        tests += "assert type(back) is list and type(back[0]) is type(value), value\n"
    assert judged_by(tests, "def answer(given, *, named): return [given, *named]") == Outcome("passed")
    assert judged_by(tests, "def answer(given, *, named): return [given, *map(float, named)]").how == "failed"


@isolated
@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("__import__('collections').Counter('aab')", "{'a': 2, 'b': 1}"),
        ("__import__('collections').OrderedDict(a=1)", "{'a': 1}"),
        ("__import__('collections').namedtuple('Pair', 'a b')(1, 2)", "(1, 2)"),
        ("__import__('enum').IntEnum('Kind', 'one')(1)", "1"),
    ],
)
def test_a_subclass_counts_as_the_builtin_value_that_it_holds(returned: str, expected: str) -> None:
    tests = f"assert candidate() == {expected} and type(candidate()) is type({expected})"
    assert judged_by(tests, f"def answer(): return {returned}") == Outcome("passed")


@isolated
@pytest.mark.parametrize("iterator", ["(number for number in range(2))", "map(int, '01')", "iter([0, 1])"])
def test_iterators_can_be_gone_through_and_equal_no_list(iterator: str) -> None:
    tests = "assert candidate() != [0, 1]\nassert tuple(candidate()) == (0, 1)"
    assert judged_by(tests, f"def answer(): return {iterator}") == Outcome("passed")


@isolated
@pytest.mark.parametrize(
    ("returned", "kind"), [("object()", "object"), ("print", "builtin_function_or_method"), ("[{}.keys()]", "dict_keys"), ("int", "type")]
)
def test_an_object_that_is_no_data_fails_with_its_type(returned: str, kind: str) -> None:
    outcome = judged_by("candidate()", f"def answer(): return {returned}")
    assert outcome == Outcome("failed", f"its answer is a value of type {kind}, which cannot be passed on as data")


@isolated
def test_exceptions_that_tests_expect_reach_them() -> None:
    tests = "try:\n    candidate(-1)\nexcept ValueError as error:\n    assert str(error) == 'negative'\nelse:\n    assert False"
    assert judged_by(tests, "def answer(number):\n    if number < 0: raise ValueError('negative')") == Outcome("passed")
    assert judged_by(tests, "def answer(number): raise TypeError('negative')") == Outcome("failed", "TypeError: negative")
    assert judged_by(tests, "def answer(number): return 1") == Outcome("failed", "AssertionError")


@isolated
def test_arguments_are_copies() -> None:
    tests = "given = [3, 1, 2]\nassert candidate(given) == [1, 2, 3]\nassert given == [3, 1, 2]"
    assert judged_by(tests, "def answer(given):\n    given.sort()\n    return given") == Outcome("passed")


@isolated
def test_tests_use_helpers_of_the_prompt_and_the_functions_own_name() -> None:
    prompt = "def shifted(text):\n    return text[1:] + text[0]\n\n\ndef restored(text):\n    'Undo it.'\n"
    tests = "def check(candidate):\n    assert candidate(shifted('abc')) == 'abc' == restored(shifted('abc'))\n"
    task = CodeTask("mine/2", prompt, tests, "restored", "    return text[-1] + text[:-1]\n")
    assert run_program(task, whole_program(task, task.solution)) == Outcome("passed")
    assert run_program(task, whole_program(task, "    return text\n")) == Outcome("failed", "AssertionError")


PUBLISHED = Path(os.environ.get("FLOATLENS_QA_DATA", "")) / "HumanEval.jsonl.gz"
WAYS = {
    "the published solution": lambda task: task.solution,
    "the published solution, fenced": lambda task: f"Here it is:\n```python\n{task.prompt}{task.solution}\n```\n",
    "nothing": lambda _: "    pass\n",
    "None": lambda _: "    return None\n",
    "something equal to everything": lambda _: "    return type('Liar', (), {'__eq__': lambda *_: True, '__hash__': None})()\n",
}


@isolated
@pytest.mark.skipif(not PUBLISHED.is_file(), reason="FLOATLENS_QA_DATA names no folder with HumanEval.jsonl.gz")
@pytest.mark.parametrize("way", WAYS)
def test_all_published_solutions_pass_and_empty_ones_do_not(way: str) -> None:
    tasks = list(read_code_tasks(PUBLISHED))
    refuse_unusable_tests(tasks)
    runs = run_code_tasks(tasks, [WAYS[way](task) for task in tasks], allow_running=True, progress=False)
    passed = {run.task for run in runs if run.passed}
    assert passed == ({task.id for task in tasks} if "solution" in way else set())

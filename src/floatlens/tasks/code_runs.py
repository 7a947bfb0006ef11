"""HumanEval: run what a model wrote, locked in, and see from outside whether its tests pass.

Code that a model wrote can do anything, so it is run only if asked for (`allow_running=True`), and only isolated (`code_isolation`):
under `bwrap`, without network, environment, privileges or further processes, with bounded memory, processor time and files. There is the
standard library and nothing else. Where that is not to be had (macOS, Windows, many containers) it is refused; there is no unprotected
way.

A program is not asked whether it passed. Two interpreters run for it, each isolated by itself: one executes the program and answers
calls; the other, the judge, executes the task's own prompt and tests, passes the calls on, compares the answers, which it takes for data
and nothing else, and says the verdict through a pipe that the program's process never had (`code_jail`). So a program can patch, print,
kill or leave what it likes: it passes if, and only if, its answers are right.

Decided here: `seconds` are of processor time, so that a busy machine fails no one; the clock, which starts when both interpreters are
ready, stops a program that waits. pass@1 is the share of tasks that pass with one completion each.

What remains possible: a program that has learned a published task's answers by heart passes, as it would anywhere; answers may depend on
time, chance or the calls before; tests that accept too much accept it here too. A flaw of the kernel is beyond this, and what a program
computes can be timed by others on the machine. Within its seconds a program can make many empty files, which cost the kernel about a
gigabyte in ten seconds, and which are gone with it.
"""

import ast
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import IO

from floatlens.errors import Refusal
from floatlens.tasks.code_isolation import Ended, Isolated, can_be_read, not_isolated
from floatlens.tasks.readers.problems import CodeTask
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score
from floatlens.terminal import progress_bar

MOST_SECONDS = 86_400
PATIENCE = 5.0  # seconds on the clock beside three times the processor time, for a busy machine
STARTING = 120.0  # seconds on the clock for two interpreters to start, which a very busy machine may need
KILLED = 128 + 9  # what bwrap ends with if a signal that nobody can catch ended what it ran
NOTHING_TO_DO = CodeTask("nothing", "def nothing():\n", "def check(candidate):\n    assert candidate() is None\n", "nothing", "    pass\n")

FENCE = "```"
_FENCED = re.compile(rf"{FENCE}[^\n]*\n(.*?)(?:\n{FENCE}|\Z)", re.DOTALL)
_INDENTED = re.compile(r"(\s*\n)?(\t|  )")
_UNINDENTED = re.compile(r"^\S", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a program ended: "passed", "failed" (an answer was wrong or no data, or it raised), "timed out" or "died", and what there is to
    say.
    """

    how: str
    detail: str = ""


@dataclass(frozen=True)
class CodeRun:
    """One task, the program that was run for it, and how it ended."""

    task: str
    program: str
    outcome: Outcome

    @property
    def passed(self) -> bool:
        """Whether all its answers were right."""
        return self.outcome.how == "passed"


def run_code_tasks(
    tasks: Iterable[CodeTask],
    completions: Sequence[str],
    *,
    allow_running: bool = False,
    seconds: float = 10.0,
    memory: int = 1 << 30,
    progress: bool = True,
) -> list[CodeRun]:
    """Run one completion of every task against its tests, one after the other, each in isolation.

    Parameters
    ----------
    tasks
        What was to be completed (`floatlens.tasks.readers.read_code_tasks`).
    completions
        What the model wrote, in the order of the tasks.
    allow_running
        Must be True: running what a model wrote is for you to decide.
    seconds
        Processor time that each program may use; on the clock it may take three times as long and five seconds more.
    memory
        Bytes of address space that each program may use.
    progress
        Whether a bar may be shown.

    Examples
    --------
    >>> tests = "def check(candidate):\\n    assert candidate(2) == 4\\n"
    >>> task = CodeTask("mine/0", "def double(number):\\n", tests, "double", "    return 2 * number\\n")
    >>> run_code_tasks([task], [task.solution])
    Traceback (most recent call last):
    floatlens.errors.Refusal: Scoring HumanEval runs code that a model wrote. \
If you want that, pass allow_running=True; it runs isolated or not at all.
    """
    if not allow_running:
        raise Refusal(
            "Scoring HumanEval runs code that a model wrote. If you want that, pass allow_running=True; it runs isolated or not at all."
        )
    tasks = list(tasks)
    if len(tasks) != len(completions):
        raise Refusal(f"There are {len(tasks)} tasks, but {len(completions)} completions; pass@1 needs one of each.")
    runs = []
    with progress_bar(len(tasks), "Running programs", show=progress) as advance:
        for task, completion in zip(tasks, completions, strict=True):
            program = whole_program(task, completion)
            runs.append(CodeRun(task.id, program, run_program(task, program, seconds=seconds, memory=memory)))
            advance(1)
    return runs


def score_program(programs: Mapping[str, CodeTask], text: str, sample: Sample) -> Score:
    """Whether what a model wrote for the program of that id passes its tests: 1 or 0, whose mean is pass@1. Runs it, in isolation.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n", "double", "")
    >>> score_program({task.id: task}, "    return 2 * number\\n", Sample(task.id, task.prompt, ("-",))).accuracy
    1.0
    """
    task = programs[sample.id]
    outcome = run_program(task, whole_program(task, text))
    return Score(text, float(outcome.how == "passed"), None, None)


def pass_at_one(runs: Sequence[CodeRun]) -> float:
    """The share of tasks that pass; NaN if there is none, since none was tried.

    Examples
    --------
    >>> pass_at_one([CodeRun("a", "", Outcome("passed")), CodeRun("b", "", Outcome("timed out"))])
    0.5
    """
    return sum(run.passed for run in runs) / len(runs) if runs else math.nan


def whole_program(task: CodeTask, completion: str) -> str:
    """The program that is run: the prompt and what was written. The tests are not in it, since it must not see them.

    What begins indented continues the prompt, up to the first line that is no longer indented. Otherwise, if the model fenced its code,
    the first fence counts. If it wrote the function anew, that comes behind the prompt, whose imports and helpers stay.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n", "double", "")
    >>> print(whole_program(task, "    return 2 * number\\nprint(double(3))"))
    def double(number):
        return 2 * number
    <BLANKLINE>
    """
    function = re.compile(rf"^def {task.entry_point}\b", re.MULTILINE)
    written = completion if _INDENTED.match(completion) else _fenced(completion, function)
    if not _INDENTED.match(written) and function.search(written):
        body = f"    pass\n\n{written}"
    else:
        outside = _UNINDENTED.search(written)
        body = _as_indented_as(task.prompt, written[: outside.start()] if outside else written)
    return f"{task.prompt}{body.rstrip()}\n"


def _fenced(completion: str, function: re.Pattern[str]) -> str:
    """What stands in the first fence; before it, if the function is there already and the fence only closes it; everything, if there is
    none.
    """
    before, fence, _ = completion.partition(FENCE)
    fenced = _FENCED.search(completion)
    return before if not fence or fenced is None or function.search(before) else fenced.group(1)


def _as_indented_as(prompt: str, body: str) -> str:
    """A body whose first line has the blank back that a tokenizer's decoder takes from the beginning of a text."""
    last = prompt.rstrip().rpartition("\n")[2]
    indented = last[: len(last) - len(last.lstrip())]
    return f" {body}" if indented and body.startswith(indented[1:]) and not body.startswith(indented) else body


def prompt_by_itself(task: CodeTask) -> str:
    """The prompt with an empty body for its function: what the tests may use of it are its imports and helpers.

    Examples
    --------
    >>> print(prompt_by_itself(CodeTask("mine/0", "import math\\n\\ndef root(number):\\n", "", "root", "")))
    import math
    <BLANKLINE>
    def root(number):
        pass
    """
    last = task.prompt.rstrip().rpartition("\n")[2]
    indented = last[: len(last) - len(last.lstrip())]
    if last.endswith(":") or not indented:
        indented += "    "
    return f"{task.prompt.rstrip()}\n{indented}pass"


def require_isolation() -> None:
    """Refuse, with the reason, where programs cannot be run; to be called before a model writes any.

    Examples
    --------
    >>> require_isolation()
    """
    outcome = run_program(NOTHING_TO_DO, whole_program(NOTHING_TO_DO, NOTHING_TO_DO.solution))
    if outcome.how != "passed":
        raise not_isolated(f"a program that does nothing {outcome.how} ({outcome.detail})")


def run_program(task: CodeTask, program: str, *, seconds: float = 10.0, memory: int = 1 << 30) -> Outcome:
    """Run a program in isolation, judge its answers by the task's tests, and say how it ended; refused where it cannot be isolated.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4, 'no'\\n", "double", "")
    >>> run_program(task, "def double(number):\\n    return number\\n")
    Outcome(how='failed', detail='AssertionError: no')
    """
    if not 0 < seconds <= MOST_SECONDS or not 1 << 27 <= memory < 1 << 63:
        raise Refusal(
            f"A program needs some time, up to {MOST_SECONDS:,} seconds, and at least 128 MiB; "
            f"it was given {seconds} seconds and {memory:,} bytes."
        )
    limits = {"entry_point": task.entry_point, "seconds": math.ceil(seconds), "memory": memory}
    with ExitStack() as opened:
        ends = [
            opened.enter_context(open(end, mode, buffering=0)) for _ in range(3) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        ]
        calls_to_read, calls_to_write, answers_to_read, answers_to_write, verdict_to_read, verdict_to_write = ends
        tests = {**limits, "prompt": prompt_by_itself(task), "tests": task.tests}
        judge = opened.enter_context(
            closing(Isolated("judge", tests, [end.fileno() for end in (calls_to_write, answers_to_read, verdict_to_write)]))
        )
        tried = opened.enter_context(
            closing(Isolated("program", {**limits, "program": program}, [end.fileno() for end in (calls_to_read, answers_to_write)]))
        )
        for end in {*ends} - {verdict_to_read}:
            end.close()  # from here on only the two have them, so that each sees the other's end
        return _judged(task, judge, tried, verdict_to_read, seconds)


def _judged(task: CodeTask, judge: Isolated, tried: Isolated, verdict: IO[bytes], seconds: float) -> Outcome:
    """Wait for what the judge says; if it says nothing, for what the two ended of."""
    started = _said(verdict, STARTING)
    if started is None:
        raise Refusal(
            f"The isolated interpreters did not start within {STARTING:g} seconds, so nothing was run. "
            "Try again when the machine is less busy."
        )
    if started.how == "unusable":
        raise _unusable(task, started.detail)
    if started.how != "ready":
        judge.stop()
        tried.stop()
        raise not_isolated(tried.complaint() or judge.complaint() or "bwrap said nothing")
    longest = 3 * seconds + PATIENCE
    ended = _said(verdict, longest)
    if ended is None:
        tried.stop(at_once=True)
        return Outcome("timed out", f"it was still there after {longest:g} seconds")
    if ended.how == "unusable":
        raise _unusable(task, ended.detail)
    if ended.how in ("passed", "failed"):
        return ended
    return _early(tried.stop(), "it", seconds) if ended.how == "gone" else _early(judge.stop(), "the process of its tests", seconds)


def _said(verdict: IO[bytes], seconds: float) -> Outcome | None:
    """The next line of the judge, which is written whole; None if none came in time; an outcome without a name if the judge is gone."""
    if not can_be_read(verdict.fileno(), seconds):
        return None
    line = verdict.readline()
    return Outcome(**json.loads(line)) if line else Outcome("")


def _early(ended: Ended, who: str, seconds: float) -> Outcome:
    """What to say of a process that ended before there was a verdict."""
    if ended.status == KILLED and ended.processor_seconds > 0.5 * math.ceil(seconds):  # the kernel counts in ticks, and may stop it early
        return Outcome("timed out", f"{who} was stopped after {math.ceil(seconds)} s of processor time")
    return Outcome("died", f"{who} ended with status {ended.status} before its tests did")


def _unusable(task: CodeTask, why: str) -> Refusal:
    return Refusal(
        f"The tests of {task.id} cannot judge any program: {why}. Correct the fields 'prompt' and 'test' of that task, or leave it out."
    )


def refuse_unusable_tests(tasks: Iterable[CodeTask]) -> None:
    """Refuse tasks whose prompt or tests are no Python, or whose tests define no `check`; to be called before a model writes any program.

    Examples
    --------
    >>> refuse_unusable_tests([CodeTask("mine/0", "def double(number):\\n", "assert double(2) == 4\\n", "double", "")])
    Traceback (most recent call last):
    floatlens.errors.Refusal: The tests of mine/0 cannot judge any program: they define no function 'check'. \
Correct the fields 'prompt' and 'test' of that task, or leave it out.
    """
    for task in tasks:
        try:
            ast.parse(prompt_by_itself(task))
            statements = ast.parse(task.tests).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _unusable(task, f"{type(error).__name__}: {error}") from None
        if not any(isinstance(statement, ast.FunctionDef) and statement.name == "check" for statement in statements):
            raise _unusable(task, "they define no function 'check'")

"""The inside of `code_runs`: one half of a judgement, in its jail. A script that is never imported, and stands on the standard library
alone.

It is started twice for every program, each time under `bwrap` (`code_isolation`), and the two share nothing but two pipes. As the
*program* it executes what the model wrote and answers calls; as the *judge* it executes the task's own prompt and tests, whose
`candidate` passes each call on to the program, and tells floatlens the verdict through a third pipe, which the program never had. The
tests and what they expect stay with the judge; the program is told arguments and nothing else.

What comes from the program is taken for data, never for objects: JSON in which every value decodes to an exact builtin type (or a
`Decimal`, a `Fraction`, an iterator over such values), so that no method of the program's runs in the judge. Every call carries a random
token that its answer must repeat, an answer may have 4 MiB, and a program that breaks these rules, or that leaves, is judged at once: no
`except` in a test can swallow that. A subclass is passed on as the builtin value that it holds; an object that is none of these fails the
program with its type's name. An argument is a copy: what a program does to it in place, the tests do not see.
"""

import builtins
import json
import os
import resource
import sys
from collections.abc import Callable
from itertools import islice
from typing import IO, Any, NoReturn

LONGEST_ANSWER = 1 << 22  # bytes
MOST_OF_AN_ITERATOR = 1 << 20
PLAIN_NUMBER = 1 << 53  # what is larger is written in hexadecimal: Python limits the digits of decimal numbers
LONGEST_DETAIL = 300  # characters


class NotData(Exception):
    """A value that cannot be passed on."""


def encode(value: Any) -> Any:
    """A value as JSON has it: subclasses as the builtin value that they hold, whatever they override."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__add__(value, 0)
        return number if -PLAIN_NUMBER < number < PLAIN_NUMBER else {"int": format(number, "x")}
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode(item) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in tuple.__iter__(value)]}
    if isinstance(value, set):
        return {"set": [encode(item) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"frozenset": [encode(item) for item in frozenset.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in dict.items(value)]}
    return _encode_rare(value)


def _encode_rare(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {("bytes" if isinstance(value, bytes) else "bytearray"): memoryview(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [encode(number) for number in (value.start, value.stop, value.step)]}
    if _is_a(value, "fractions", "Fraction"):
        return {"Fraction": [encode(value.numerator), encode(value.denominator)]}
    if _is_a(value, "decimal", "Decimal"):
        return {"Decimal": str(value)}
    if hasattr(type(value), "__next__"):
        items = [encode(item) for item in islice(value, MOST_OF_AN_ITERATOR + 1)]
        if len(items) > MOST_OF_AN_ITERATOR:
            raise NotData(f"an iterator of more than {MOST_OF_AN_ITERATOR:,} values")
        return {"iterator": items}
    raise NotData(f"a value of type {type(value).__name__}")


def _is_a(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a class of the standard library, which is not imported for the question."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))


def decode(value: Any) -> Any:
    """The value that JSON stands for, of an exact builtin type; raises whatever it raises if it stands for none."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [decode(item) for item in value]
    [(kind, content)] = value.items()
    return _DECODERS[kind](content)


def _decode_number(content: Any, class_name: str, module: str, kinds: tuple[type, ...]) -> Any:
    parts = [decode(part) for part in content] if isinstance(content, list) else [content]
    if not all(type(part) in kinds for part in parts):
        raise TypeError(f"no {class_name}")
    return getattr(__import__(module), class_name)(*parts)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(str.__str__(content), 16),
    "tuple": lambda content: tuple(map(decode, content)),
    "set": lambda content: set(map(decode, content)),
    "frozenset": lambda content: frozenset(map(decode, content)),
    "dict": lambda content: {decode(key): decode(item) for key, item in content},
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda content: _decode_number(content, "complex", "builtins", (float,)),
    "range": lambda content: _decode_number(content, "range", "builtins", (int,)),
    "Fraction": lambda content: _decode_number(content, "Fraction", "fractions", (int,)),
    "Decimal": lambda content: _decode_number(content, "Decimal", "decimal", (str,)),
    "iterator": lambda content: iter([decode(item) for item in content]),
}


def _main() -> None:
    """Read the job, close every door that `bwrap` left open, and take the part that the job gives."""
    part, *channels = sys.argv[1:]
    job = json.loads(sys.stdin.buffer.read())
    os.environ.clear()
    os.chdir("/tmp")
    _limit(job["seconds"], job["memory"])
    os.dup2(1, 0)  # standard output is the null device; last, so that what goes wrong until here is heard outside
    os.dup2(1, 2)
    calls, answers, *verdict = (int(channel) for channel in channels)
    if part == "judge":
        Judge(job, calls, answers, verdict[0]).judge()
    else:
        _serve(job, calls, answers)
    os._exit(0)


def _limit(seconds: int, memory: int) -> None:
    """Bound memory, processor time, files; allow no further process or thread."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: 1 << 23,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def _serve(job: dict[str, Any], calls: int, answers: int) -> None:
    """The program's part: say that the doors are closed, then do what is asked until nobody asks.

    The program may change all of this; it gains nothing, since only its data count.
    """
    namespace: dict[str, Any] = {"__name__": "program"}
    with open(calls, "rb") as asked, open(answers, "wb", buffering=0) as answering:
        answering.write(b"ready\n")
        for line in asked:
            request = json.loads(line)
            reply = json.dumps({"token": request["token"], **_reply(job, request, namespace)}).encode() + b"\n"
            while reply:
                reply = reply[answering.write(reply) :]


def _reply(job: dict[str, Any], request: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    try:
        if "arguments" not in request:
            exec(compile(job["program"], "program", "exec"), namespace)
            return {"answer": None}
        name = job["entry_point"]
        if name not in namespace:
            raise NameError(f"the program has no function {name!r}")
        return {"answer": encode(namespace[name](*decode(request["arguments"]), **decode(request["named"])))}
    except NotData as error:
        return {"not_data": str(error)}
    except BaseException as error:  # SystemExit too: a program that leaves early did not pass
        try:
            return {"raised": [type(error).__name__, str(error)[:LONGEST_DETAIL]]}
        except BaseException:
            return {"raised": [type(error).__name__, ""]}


class Judge:
    """The judge's part: the prompt's helpers and the tests, with a candidate that asks the program."""

    def __init__(self, job: dict[str, Any], calls: int, answers: int, verdict: int) -> None:
        self.job = job
        self.calls: IO[bytes] = open(calls, "wb", buffering=0)  # noqa: SIM115 (open until the verdict)
        self.answers: IO[bytes] = open(answers, "rb")  # noqa: SIM115
        self.verdict = verdict

    def judge(self) -> None:
        """Start the program, run the tests, say how it ended."""
        namespace = {"__name__": "tests"}
        tests = self._prepare(namespace)
        if self.answers.readline(64) != b"ready\n":
            self.end("not started")
        self.say("ready")
        try:
            self.ask({})
            exec(tests, namespace)
            check: Any = namespace.get("check")
            if not callable(check):
                self.end("unusable", "they define no function 'check'")
            check(namespace[self.job["entry_point"]])
        except BaseException as error:
            self.end("failed", _told(type(error).__name__, str(error)))
        self.end("passed")

    def _prepare(self, namespace: dict[str, Any]) -> Any:
        """Compile the tests, and put the prompt's helpers and the candidate where the tests look for them."""

        def candidate(*arguments: Any, **named: Any) -> Any:
            try:
                request = {"arguments": encode(list(arguments)), "named": encode(named)}
            except NotData as error:
                self.end("unusable", f"they call the function with {error}, which cannot be passed on as data")
            return self.ask(request)

        try:
            exec(compile(self.job["prompt"], "prompt", "exec"), namespace)
            candidate.__name__ = candidate.__qualname__ = self.job["entry_point"]
            namespace[self.job["entry_point"]] = candidate
            return compile(self.job["tests"], "tests", "exec")
        except BaseException as error:
            self.end("unusable", _told(type(error).__name__, str(error)))

    def ask(self, request: dict[str, Any]) -> Any:
        """What the program answers, as data; what it raised, raised. Any other end is a verdict."""
        token = os.urandom(8).hex()
        call = json.dumps({"token": token, **request}).encode() + b"\n"
        try:
            while call:
                call = call[self.calls.write(call) :]
        except BrokenPipeError:
            self.end("gone")
        line = self.answers.readline(LONGEST_ANSWER + 1)
        if not line.endswith(b"\n"):
            self.end("gone") if len(line) <= LONGEST_ANSWER else self.end("failed", f"an answer of more than {LONGEST_ANSWER:,} bytes")
        try:
            reply = json.loads(line)
            token_of_reply = reply.pop("token")
            [(kind, content)] = reply.items()
            value = decode(content)
        except Exception as error:  # a RecursionError or MemoryError too
            self.end("failed", f"an answer that is not data ({type(error).__name__})")
        if token_of_reply != token:
            self.end("failed", "an answer to another question than the one asked")
        if kind == "answer":
            return value
        if kind == "raised" and type(value) is list and [type(item) for item in value] == [str, str]:
            raise self._exception(*value)
        if kind == "not_data" and type(value) is str:
            self.end("failed", f"its answer is {value}, which cannot be passed on as data")
        self.end("failed", "an answer that is not data")

    def _exception(self, name: str, message: str) -> Exception:
        """The builtin exception of that name, so that tests can expect it; of what is none, and of what would quietly end a loop of the
        tests, a verdict.
        """
        kind = getattr(builtins, name, None)
        if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, (StopIteration, StopAsyncIteration)):
            self.end("failed", _told(name, message))
        try:
            return kind(message)
        except TypeError:  # such as UnicodeDecodeError, which takes more than a message
            self.end("failed", _told(name, message))

    def say(self, how: str, detail: str = "") -> None:
        """One line for floatlens."""
        os.write(self.verdict, json.dumps({"how": how, "detail": detail[:LONGEST_DETAIL]}).encode() + b"\n")

    def end(self, how: str, detail: str = "") -> NoReturn:
        """The verdict."""
        self.say(how, detail)
        os._exit(0)


def _told(name: str, message: str) -> str:
    return f"{name}: {message}".strip().removesuffix(":")


if __name__ == "__main__":
    _main()

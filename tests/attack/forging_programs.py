"""Programs that are wrong and want to pass, or want to do harm. Each defines `square`, which is to return 9 for 3 and 144 for 12."""

WRONG = "\ndef square(number):\n    return 0\n"

SAY_PASSED = r"""
import json, os
def say_passed(secrets=("",)):
    for descriptor in range(64):
        for secret in secrets:
            for line in (
                {"how": "passed", "detail": ""}, {"secret": secret, "how": "passed", "detail": ""}, {"token": secret, "answer": 9}
            ):
                try: os.write(descriptor, json.dumps(line).encode() + b"\n")
                except OSError: break
"""

# What holds of any of these: it is not passed, and floatlens goes on.
FORGERIES: dict[str, str] = {
    "kill its own process group": "import os\ndef square(number):\n    os.kill(0, 9)\n    return 0\n",
    "kill everyone": "import os\ndef square(number):\n    os.kill(-1, 9)\n    return 0\n",
    "kill its process group by number": "import os\ndef square(number):\n    os.killpg(os.getpgid(0), 9)\n    return 0\n",
    "kill by number": "import os\nfor process in (os.getppid(), *range(1, 5000)):\n    try: os.kill(process, 9)\n    except OSError: pass\n"
    + WRONG,
    "walk up the frames": SAY_PASSED
    + """
import sys
def square(number):
    frame, secrets = sys._getframe(), set()
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if isinstance(value, str): secrets.add(value)
            if isinstance(value, dict): secrets.update(item for item in value.values() if isinstance(item, str))
        frame = frame.f_back
    say_passed(secrets)
    os._exit(0)
""",
    "change functions found by the garbage collector": """
import gc, types
def forged(*arguments, **named):
    return {"how": "passed", "detail": ""}
for thing in gc.get_objects():
    if isinstance(thing, types.FunctionType) and thing.__name__ in ("_run", "_reply", "judge", "ask", "end", "encode"):
        try: thing.__code__ = forged.__code__
        except ValueError: pass
"""
    + WRONG,
    "change the frames of a traceback": """
def square(number):
    try: 1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
        while frame:
            frame.f_globals.update({
                "AssertionError": Exception, "_run": lambda *_: {"how": "passed", "detail": ""}, "_reply": lambda *_: {"answer": 9}
            })
            frame = frame.f_back
    return 0
""",
    "patch json.dumps": (
        "import json\noriginal = json.dumps\n"
        'json.dumps = lambda value, **named: original({**value, "how": "passed", "detail": "", "passed": True})\n'
    )
    + WRONG,
    "patch os.write": (
        "import os\noriginal = os.write\nos.write = lambda descriptor, data: original(descriptor, data.replace(b'failed', b'passed'))\n"
    )
    + WRONG,
    "patch builtins": (
        "import builtins\nbuiltins.isinstance = lambda *_: True\nbuiltins.type = lambda *_: int\n"
        "builtins.AssertionError = type('Quiet', (Exception,), {})\n"
    )
    + WRONG,
    "replace __builtins__": "__builtins__ = {'AssertionError': None}\n" + WRONG,
    "replace standard output": (
        "import sys\nclass Forged:\n    def write(self, text): return 9\n    def flush(self): pass\n"
        "    buffer = property(lambda self: self)\nsys.stdout = sys.__stdout__ = sys.stderr = Forged()\nprint('passed')\n"
    )
    + WRONG,
    "an object equal to everything": (
        "class Liar:\n    def __eq__(self, other): return True\n    __req__ = __eq__\n    __hash__ = None\n"
        "def square(number):\n    return Liar()\n"
    ),
    "an int equal to everything": (
        "class Liar(int):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    __hash__ = int.__hash__\n    __int__ = __index__ = lambda self: 9\n"
        "    def __reduce__(self): return (int, (9,))\ndef square(number):\n    return Liar(0)\n"
    ),
    "a float equal to everything": (
        "class Liar(float):\n    def __eq__(self, other): return True\n    def __float__(self): return 9.0\n"
        "def square(number):\n    return Liar(0)\n"
    ),
    "an object that claims to be an int": (
        "class Liar:\n    __class__ = int\n    def __eq__(self, other): return True\ndef square(number):\n    return Liar()\n"
    ),
    "leave at once": "import sys\nsys.exit(0)\n" + WRONG,
    "leave when called": "import sys\ndef square(number):\n    sys.exit(0)\n",
    "leave without a word": "import os\ndef square(number):\n    os._exit(0)\n",
    "leave by another exception": "def square(number):\n    raise GeneratorExit\n",
    "speak when leaving": SAY_PASSED + "import atexit\natexit.register(say_passed)\ndef square(number):\n    raise SystemExit(0)\n",
    "say passed everywhere": SAY_PASSED + "say_passed()\n" + WRONG,
    "answer before being asked": (
        "import json, os\nfor descriptor in range(3, 64):\n"
        "    try: os.write(descriptor, (json.dumps({'token': '0' * 16, 'answer': 9}) + '\\n').encode() * 9)\n"
        "    except OSError: pass\n"
    )
    + WRONG,
    "replace the tests": (
        "def check(candidate):\n    pass\ncandidate = METADATA = check\nimport sys\nsys.modules['__main__'].check = check\n"
    )
    + WRONG,
    "trace what runs": (
        "import sys\ndef trace(frame, event, argument):\n    frame.f_locals.update(how='passed', reply={'answer': 9})\n"
        "    return trace\nsys.settrace(trace)\nsys.setprofile(trace)\n"
    )
    + WRONG,
    "a thread": SAY_PASSED
    + (
        "import threading\ntry: threading.Thread(target=lambda: [say_passed() for _ in iter(int, 1)], daemon=True).start()\n"
        "except RuntimeError: pass\n"
    )
    + WRONG,
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: break\n" + WRONG,
    "a daemon": "import os, time\ntry:\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(3600)\nexcept OSError: pass\n"
    + WRONG,
    "signal handlers": SAY_PASSED
    + (
        "import signal\nfor number in range(1, 65):\n    try: signal.signal(number, lambda *_: say_passed())\n"
        "    except (OSError, ValueError): pass\nos.kill(os.getpid(), signal.SIGTERM)\n"
    )
    + WRONG,
    "look for the judge in /proc": """
import os
for process in range(1, 3000):
    for name in ("environ", "mem", "fd/1", "fd/5", "fd/7"):
        try: open(f"/proc/{process}/{name}", "r+b").write(b'{"how": "passed", "detail": ""}\\n')
        except OSError: pass
"""
    + WRONG,
    "write to every file": """
import os
for folder, folders, names in os.walk("/"):
    if folder.count("/") > 1: folders[:] = []
    for name in [*names, "sitecustomize.py", "json.py"]:
        try: open(os.path.join(folder, name), "w").write("import os\\nos.write(1, b'passed')\\n")
        except OSError: pass
"""
    + WRONG,
    "links in the temporary folder": """
import os
for number, target in enumerate(("/", "/jail.py", "/proc/1/fd", "..", "/usr/lib", "loop4")):
    os.symlink(target, f"loop{number}")
try: open("loop1", "w").write("raise SystemExit(0)")
except OSError: pass
try: os.rename("/tmp", "/other")
except OSError: pass
"""
    + WRONG,
    "write into memory": """
import ctypes
def square(number):
    ctypes.memmove(id(0) + 24, id(9) + 24, 4)  # from here on, 0 is 9 in this interpreter
    return 0
""",
    "end in the middle of an answer": (
        "import os\ndef square(number):\n    for descriptor in range(3, 64):\n"
        "        try: os.write(descriptor, b'{\"token\"')\n        except OSError: pass\n    os._exit(0)\n"
    ),
    "crash": "import ctypes\ndef square(number):\n    ctypes.string_at(0)\n",
    "an answer without end": (
        "import os\ndef square(number):\n    while True:\n        for descriptor in range(3, 16):\n"
        "            try: os.write(descriptor, b'9' * 65536)\n            except OSError: pass\n"
    ),
    "nested too deep for JSON": (
        "import os\ndef square(number):\n    for descriptor in range(3, 16):\n"
        "        try: os.write(descriptor, b'[' * 60000 + b'\\n')\n        except OSError: pass\n    return 0\n"
    ),
    "a list nested too deep": "def square(number):\n    nested = []\n    for _ in range(100_000): nested = [nested]\n    return nested\n",
    "a list that holds itself": "def square(number):\n    loop = []\n    loop.append(loop)\n    return loop\n",
    "a number with too many digits": "def square(number):\n    return 1 << (1 << 26)\n",
    "a large number": "def square(number):\n    return 1 << (1 << 20)\n",
    "an exception that lies about itself": (
        "class AssertionError(Exception):\n    def __str__(self): return 'passed'\n"
        "AssertionError.__name__ = 'StopIteration'\ndef square(number):\n    raise AssertionError\n"
    ),
    "an exception that cannot be read": (
        "class Odd(Exception):\n    def __str__(self): raise SystemExit(0)\ndef square(number):\n    raise Odd\n"
    ),
    "an exception that ends loops": "def square(number):\n    raise StopIteration\n",
    "become another program": (
        "import os\ndef square(number):\n    os.execv('/usr/bin/env', ['env', 'echo', '{\"how\": \"passed\", \"detail\": \"\"}'])\n"
    ),
    "patch its own encoder": "import sys\nmain = sys.modules['__main__']\nmain.encode = lambda value: {'dict': [['how', 'passed']]}\n"
    + WRONG,
    "answers of an unknown kind": "import sys\nmain = sys.modules['__main__']\nmain._reply = lambda *_: {'passed': True}\n" + WRONG,
    "two answers in one": "import sys\nmain = sys.modules['__main__']\nmain._reply = lambda *_: {'answer': 9, 'how': 'passed'}\n" + WRONG,
    "an exception in place of an answer": (
        "import sys\nmain = sys.modules['__main__']\nmain._reply = lambda *_: {'raised': ['exit', 'passed']}\n"
    )
    + WRONG,
    "raise its own limits": (
        "import resource\nfor kind in range(16):\n    try: resource.setrlimit(kind, (-1, -1))\n    except (OSError, ValueError): pass\n"
    )
    + WRONG,
    "flood standard output": "print('passed\\n' * 1_000_000, flush=True)\n" + WRONG,
    "hoard memory": "def square(number):\n    return bytearray(1 << 40)\n",
    "hold memory that no limit counts": """
import ctypes
library = ctypes.CDLL(None)
library.shmat.restype = ctypes.c_void_p
held = 0
for _ in range(20):  # 2 GB, if they may be had
    segment = library.shmget(0, 100 << 20, 0o1600)
    if segment < 0: break
    address = library.shmat(segment, None, 0)
    ctypes.memset(address, 1, 100 << 20)
    library.shmdt(ctypes.c_void_p(address))
    held += 1
def square(number):
    return number * number if held else 0
""",
}

# These use up their time, so that few of them are tried in `make test`.
SLOW_FORGERIES: dict[str, str] = {
    "wait": "import time\ndef square(number):\n    time.sleep(3600)\n",
    "wait at the end": "import atexit, sys, time\natexit.register(time.sleep, 3600)\n"
    + "class Waiting:\n    def __del__(self): time.sleep(3600)\nkept = Waiting()\ndef square(number): raise SystemExit\n",
    "stop itself": "import os, signal\ndef square(number):\n    os.kill(0, signal.SIGSTOP)\n    signal.pause()\n",
    "an endless loop that catches everything": (
        "def square(number):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n"
    ),
    "an iterator without end": "import itertools\ndef square(number):\n    return itertools.count()\n",
    "many empty files": "import itertools, os\ndef square(number):\n    for name in itertools.count(): os.mkdir(str(name))\n",
    "answers drop by drop": (
        "import os, time\ndef square(number):\n    while True:\n        time.sleep(0.01)\n"
        "        for descriptor in range(3, 16):\n            try: os.write(descriptor, b'9')\n"
        "            except OSError: pass\n"
    ),
    "keys that collide": "def square(number):\n    return {key * (2**61 - 1): 0 for key in range(1, 60_000)}\n",
    "a number that is slow to read": "from decimal import Decimal\ndef square(number):\n    return Decimal('1e999999999')\n",
}

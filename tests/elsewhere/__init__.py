"""A device that is not the CPU, made with torch's PrivateUse1: every tensor on it is really elsewhere, and mixing devices raises. There
are two of it, as on a machine with two GPUs.

It is compiled once per machine with the compiler that is there (under a minute, then kept in ~/.cache/floatlens-tests). Operators on it
are done when they return; a copy to the host that need not be waited for is made when somebody waits for it, and not before, so that
whoever reads too early finds NaN, as does whoever lets such a copy begin too early or lets go of what it reads from. What shows besides
is where a tensor lives, and how often and how much is fetched from there: `Counted`.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from floatlens.capture import transfer

NAME = "elsewhere"
WAITING = (  # operators whose result the host must wait for
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "equal",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
)


def missing() -> str | None:
    """Why the device cannot be made here; None if it can."""
    here = str(Path(sys.executable).parent)  # ninja is installed beside the interpreter, where a shell finds it only once activated
    if here not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], here])
    absent = [program for program in ("g++", "ninja") if shutil.which(program) is None]
    return f"the device that is not the CPU must be compiled, and {' and '.join(absent)} cannot be found" if absent else None


def _compiled() -> Path:
    """The library; compiled in a folder of its own and then put in its place, so that a run that is killed leaves nothing half done."""
    from torch.utils.cpp_extension import load

    source = Path(__file__).with_name("device.cpp")
    made_of = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    place = Path.home() / ".cache" / "floatlens-tests" / f"elsewhere-{made_of}.so"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            load("elsewhere", sources=[str(source)], build_directory=folder, is_python_module=False)
            (Path(folder) / "elsewhere.so").replace(place)
    return place


@cache
def device() -> torch.device:
    """The device, made when it is first asked for."""
    torch.ops.load_library(str(_compiled()))
    module: Any = ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 2
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.manual_seed = lambda _seed: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.synchronize = lambda *_: None
    utilities: Any = torch.utils
    utilities.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module)
    utilities.generate_methods_for_privateuse1_backend()
    transfer.MEANWHILE[NAME] = False
    return torch.device(NAME, 0)


class Counted(TorchDispatchMode):
    """Counts the operators that are dispatched in here, how often the host waits for something that is elsewhere, and bytes copied to it.

    A transfer is a copy from elsewhere to the CPU, a number or a truth value that is read, and an operator whose result has a size that
    only the device knows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.transfers: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.operators[name] += 1
        here = [value for value in _tensors([args, kwargs]) if value.device.type == NAME]
        to_the_cpu = name == "_to_copy" and kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
        if name in ("copy_", "_copy_from"):
            to_the_cpu = args[0].device.type == "cpu"
        picks_by_truth = name.startswith(("index", "_index")) and any(
            value.dtype in (torch.bool, torch.uint8) for value in _tensors(args[1:2])
        )
        if here and (to_the_cpu or picks_by_truth or name in WAITING):
            self.transfers[name] += 1
            self.bytes += sum(value.nbytes for value in here) if to_the_cpu else 0
        return func(*args, **kwargs)


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    return [tensor for value in values for tensor in _tensors(value)] if isinstance(values, list | tuple) else []

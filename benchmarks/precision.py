"""How exact what is observed is, by type: against float64, computed from the very queries and keys that the kernel got.

One layer of 8 heads, 512 tokens, depth 64, with scores of ordinary size and with sharp ones (six times as large). Printed are the largest
differences: of a single weight, of a row's relative entropy, and of the mass of a key over the largest mass. Beside them, what the model's
own kernel is off by in that type: its output over the largest output. `--device cuda` measures there. `--write` also writes
docs/benchmarks/precision.md.
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import floatlens as fl
from floatlens.capture.walk import multiplies_half
from page import write_table

HEADS, LENGTH, DEPTH, TOP = 8, 512, 64, 8
TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Layer(nn.Module):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value)


def differences(dtype: torch.dtype, sharpness: float, device: str) -> list[float]:
    """The largest differences from float64: weight, entropy, mass, output of the kernel."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, LENGTH, DEPTH, generator=draw) for _ in range(3))
    query, key, value = (query * sharpness).to(dtype), key.to(dtype), value.to(dtype)
    with fl.tap(layer := Layer(), layers=1, keep=["mass", "entropy:rows", f"top_keys:{TOP}"]) as tap:
        output = layer(query.to(device), key.to(device), value.to(device)).double().cpu().numpy()
    seen = tap.dataset.isel(layer=0, sample=0)
    scores = (query[0].double() @ key[0].double().transpose(-1, -2) / DEPTH**0.5).numpy()
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mass = weights.sum(1)
    entropy = -np.where(weights > 0, weights * np.log(np.maximum(weights, 1e-300)), 0).sum(-1) / np.log(LENGTH)
    expected = weights @ value[0].double().numpy()
    return [
        float(np.abs(seen.top_weight.values - -np.sort(-weights, axis=-1)[..., :TOP]).max()),
        float(np.abs(seen.row_entropy.values - entropy).max()),
        float(np.abs(seen.mass.values[:, 0] - mass).max() / mass.max()),
        float(np.abs(output[0] - expected).max() / np.abs(expected).max()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/precision.md")
    asked = parser.parse_args()
    lines = ["| type | scores | queries and keys | a weight | entropy of a row | mass of a key | the model's own output |"]
    lines.append("|---|---|---|---|---|---|---|")
    for dtype in TYPES:
        stays = dtype == torch.float32 or multiplies_half(torch.device(asked.device), dtype)
        for named, sharpness in (("ordinary", 1.0), ("sharp", 6.0)):
            found = " | ".join(f"{value:.0e}" for value in differences(dtype, sharpness, asked.device))
            how = "multiplied as they are" if stays else "made float32 first"
            lines.append(f"| {str(dtype).removeprefix('torch.')} | {named} | {how} | {found} |")
    Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if asked.write:
        write_table("precision.md", "precision.py", lines, f", torch {torch.__version__} on {asked.device}")


if __name__ == "__main__":
    main()

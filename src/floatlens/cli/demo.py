"""`floatlens demo`: tap two small models that differ only in the direction they may look, and print what was seen."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

import floatlens as fl

if TYPE_CHECKING:
    import torch


def demo(length: int = typer.Option(96, min=32, help="How many tokens the models read."), seed: int = 0) -> None:
    """Tap two small random models, one causal, one bidirectional, and show what each key receives.

    Example: floatlens demo --length 256
    """
    import torch  # commands import what is slow to import when they run

    console = Console()
    tokens = torch.randint(0, 256, (1, length), generator=torch.Generator().manual_seed(seed))
    for name, causal in (("causal", True), ("bidirectional", False)):
        console.print(_table(name, causal, tokens, seed))
    console.print(
        "Weights are random, so attention is nearly even: entropy near 1, lifts near 1. The first token's large share in the "
        "causal model is no sink: every row can see it, and the null beside it says as much."
    )


def _table(name: str, causal: bool, tokens: "torch.Tensor", seed: int) -> Table:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)  # both models have the same weights
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config).eval()
    model.config.is_causal = causal  # what makes a stock Llama bidirectional in transformers 5
    with torch.no_grad():
        unobserved = model(tokens).logits
    with fl.tap(model) as tap:
        observed = model(tokens).logits
    seen = tap.dataset.isel(sample=0, group=0)
    share = 100 * seen.mass / seen.mass.sum("key")
    null_share = 100 * (seen.null * seen.visible) / seen.rows
    lift = (seen.mass / seen.visible / seen.null).where(seen.visible >= max(16, tokens.shape[1] / 4)).mean("head")
    same = "bit-identical to" if torch.equal(unobserved, observed) else "DIFFERENT FROM"
    table = Table(title=f"{name}: observed logits are {same} the unobserved", title_justify="left")
    for heading in ("layer", "first token %", "its null %", "strongest key", "its lift", "entropy"):
        table.add_column(heading, justify="right")
    for layer in seen.layer.values:
        here = lift.sel(layer=layer)
        table.add_row(
            str(layer),
            f"{share.sel(layer=layer).isel(key=0).mean().item():.2f}",
            f"{null_share.sel(layer=layer).isel(key=0).item():.2f}",
            str(int(here.argmax("key"))),
            f"{here.max().item():.3f}",
            f"{seen.entropy.sel(layer=layer).mean().item():.4f}",
        )
    return table

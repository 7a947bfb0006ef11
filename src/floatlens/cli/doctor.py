"""`floatlens doctor`: whether a model can be traced, and what that takes, before any heavy work."""

import typer
from rich.table import Table

from floatlens.errors import Refusal
from floatlens.terminal import make_console


def doctor(
    model: str = typer.Argument(help="A bundled model, a folder, a file, or a hub name."),
    length: int = typer.Option(512, min=1, help="Tokens of a text: prompt and answer together."),
    steps: int = typer.Option(32, min=1, help="Denoising steps, or tokens written."),
    detail: str = typer.Option("default", help="What a trace keeps: default, light, full, or geometry=head,norms=off."),
    dtype: str = typer.Option(None, help="Precision: float32, bfloat16 or float16; by default that of the checkpoint."),
    revision: str = typer.Option(None, help="A branch, tag or commit on the hub."),
    family: str = typer.Option(None, help="The adapter to use if the config does not say which; see `floatlens models`."),
    mask_token_id: int = typer.Option(None, help="The mask token, if neither config nor tokenizer names it."),
    block_length: int = typer.Option(
        None, help="Block length that an A2D or SDAR model was trained with, if its config does not say: 32 (BD3LM), 4 (OPDLM), 0 for none."
    ),
    trust_remote_code: bool = typer.Option(False, help="Run code that comes with the checkpoint."),
    measure: bool = typer.Option(False, help="Load the model and time generation with and without a trace, on your own device."),
    device: str = typer.Option(None, help="Where to measure: cpu, cuda, cuda:1, mps; by default a GPU if there is one."),
) -> None:
    """Check whether a model can be traced, and say what it is made of and what a trace takes.

    Reads no weights, except with --measure; files of other formats are converted once.

    Example: floatlens doctor smollm2-135m --length 512 --steps 32 --measure
    """
    from floatlens.cli.trace import detail_of
    from floatlens.models.doctor import examine
    from floatlens.trace.estimate import Shapes, size_in_words
    from floatlens.trace.schema import make_detail

    examination = examine(
        model,
        revision=revision,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        family=family,
        mask_token_id=mask_token_id,
        block_length=block_length,
    )
    autoregressive = examination.sampler == "autoregressive"
    kept = make_detail(detail_of(detail)).fitted(autoregressive=autoregressive)
    itemsize = 4 if dtype == "float32" else 2
    size = Shapes(examination.config, [length], steps, kept, itemsize=itemsize, autoregressive=autoregressive).estimate()
    table = Table(show_header=False, title=examination.name, title_justify="left")
    filled_from = "p - 1" if examination.row_offset else "p"
    fetched = "" if examination.weights_here else " (not fetched yet)"
    blocks = f" in blocks of {examination.block_length}" if examination.block_length else ""
    rows = {
        "can be traced": "no" if examination.obstacle else "yes",
        "family": f"{examination.family}: {examination.runs_as}",
        "decoding": f"{examination.sampler or 'its own generate'}{blocks}; position p is filled from row {filled_from}",
        "parameters": f"{examination.parameters / 1e6:,.1f} million; {size_in_words(examination.weight_bytes)}{fetched}",
        "attention": f"{examination.layers} layers, {examination.attention_calls} calls per forward; "
        f"{examination.heads} heads, {examination.kv_heads} for keys and values",
        "mask token": examination.mask_token or "none",
        "first token (BOS)": examination.first_token,
        "a text ends at": examination.end_tokens,
        "a trace takes": f"at most {size_in_words(size.disk)} on disk, {size_in_words(size.memory_if_streamed)} of memory "
        f"besides the model, for {length} tokens and {steps} steps",
    }
    if not autoregressive:  # whose steps are read off one pass over the finished text
        rows["a step holds"] = f"queries and keys: {size.held.sentence}"
    if measure and not examination.obstacle:
        from floatlens.models.doctor import measure_cost
        from floatlens.models.loading import load

        loaded = load(
            model,
            revision=revision,
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
            family=family,
            mask_token_id=mask_token_id,
            block_length=block_length,
        )
        rows["measured"] = measure_cost(loaded, length, steps, kept).sentence
    for name, value in rows.items():
        table.add_row(name, value)
    make_console().print(table)
    if examination.obstacle:
        raise Refusal(examination.obstacle)

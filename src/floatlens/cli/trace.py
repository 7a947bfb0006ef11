"""`floatlens trace`: load a model, write after each prompt, and store where it looked."""

from pathlib import Path

import typer

from floatlens.cli.name_value import pairs, sampler_options
from floatlens.errors import Refusal
from floatlens.seeds import LARGEST_SEED
from floatlens.small_language import is_number
from floatlens.terminal import make_console, say


def trace(
    model: str = typer.Option(..., "--model", "-m", help="A bundled model, a folder, a file, or a hub name."),
    prompt: list[str] = typer.Option([], "--prompt", "-p", help="What to ask; may be given several times."),
    prompt_file: Path = typer.Option(
        None, help='A file, gz or plain, with a JSON text a line, or an object: {"prompt": "...", "regions": {"doc_1": [0, 40]}}.'
    ),
    output: Path = typer.Option(..., "--output", "-o", help="The folder to write, e.g. run.zarr."),
    gen_length: int = typer.Option(32, min=0, help="Tokens to write; 0 fills masks inside the prompt."),
    steps: int = typer.Option(None, min=1, help="Denoising steps; one a token by default."),
    sampler: str = typer.Option(None, help="Another loop than the family's: llada, dream, sdar."),
    set_: list[str] = typer.Option([], "--set", "-s", help="A sampler option, name=value: temperature=0.7, threshold=0.9, block_length=8."),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Sample i draws from seed + i."),
    batch_size: int = typer.Option(
        4,
        min=1,
        help="Prompts that run together. Changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may fall differently (docs/reference/decoding.md).",
    ),
    limit: int = typer.Option(None, min=1, help="Only the first prompts of the file."),
    detail: str = typer.Option("default", help="default, light, full, or what differs from default: geometry=head,norms=off."),
    groups: str = typer.Option(None, help="Query groups: masked,unmasked,predicting,prompt."),
    top_keys: int = typer.Option(8, min=1, help="Favourite keys kept of each predicting row."),
    intervention: list[str] = typer.Option(
        [], "--intervention", help="What it may not look at, e.g. mask-anchors:5,layers=0-7; several act one after the other."
    ),
    patterns: str = typer.Option("", help="layer:head pairs whose full patterns are kept, e.g. 3:0,11:4."),
    raw: bool = typer.Option(False, help="Leave the chat template out."),
    dtype: str = typer.Option(None, help="float32, bfloat16, float16; that of the checkpoint by default."),
    device: str = typer.Option(None, help="cpu, cuda, ...; the first GPU if there is one."),
    revision: str = typer.Option(None, help="A branch, tag or commit on the hub."),
    family: str = typer.Option(None, help="The adapter, where the config does not tell."),
    mask_token_id: int = typer.Option(None, help="The mask token, where nothing names it."),
    block_length: int = typer.Option(
        None, help="The blocks an A2D or SDAR model was trained with, where its config does not say: 32 (BD3LM), 4 (OPDLM), 0 for none."
    ),
    trust_remote_code: bool = typer.Option(False, help="Run code that comes with the checkpoint."),
    allow_pickle: bool = typer.Option(False, help="Open pickled weights, which can run any code."),
) -> None:
    """Run a model on prompts and store where it looks at every step.

    Examples:

      floatlens trace -m smollm2-135m -p "What is the capital of France?" -o run.zarr

      floatlens trace -m ./LLaDA-8B-Instruct --prompt-file questions.jsonl --steps 32 -s block_length=16 --dtype bfloat16 -o run.zarr
    """
    from floatlens.decoding.prompts import Prompt
    from floatlens.folders import refuse_place
    from floatlens.interventions import from_text
    from floatlens.models.language_model import LanguageModel
    from floatlens.models.loading import load
    from floatlens.tasks.readers.own import read_prompts
    from floatlens.trace.estimate import estimate, seconds, size_in_words
    from floatlens.trace.run import region_names
    from floatlens.trace.schema import make_detail

    console = make_console()
    refuse_place(output)
    prompts = [*map(Prompt, prompt), *(read_prompts(prompt_file, limit) if prompt_file else [])]
    if not prompts:
        raise Refusal("There is nothing to ask: give --prompt or --prompt-file.")
    kept = detail_of(detail)
    interventions = [from_text(text) for text in intervention]
    chosen = layers_and_heads(patterns)
    named_groups = groups.split(",") if groups else None
    options = sampler_options(
        set_,
        LanguageModel.trace,
        "gen_length",
        "steps",
        "sampler",
        "seed",
        "batch_size",
        "chat",
        "detail",
        "groups",
        "top_keys",
        "patterns",
        "intervention",
    )
    make_detail(kept, None, top_keys, chosen, autoregressive=False)  # before anything heavy
    lm = load(
        model,
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        family=family,
        mask_token_id=mask_token_id,
        block_length=block_length,
    )
    encoded = [lm.encode(one, chat=False if raw else None) for one in prompts]
    final_detail = make_detail(kept, named_groups, top_keys, chosen, autoregressive=lm.sampler == "autoregressive")
    taken = steps or gen_length
    if lm.sampler is not None or sampler is not None:
        taken = lm.steps_at_most(encoded, lm.options(encoded, gen_length, steps, sampler, options))
    own = lm.sampler is None and sampler is None
    size = estimate(lm, encoded, gen_length, taken, final_detail, region_names(encoded), batch_size, intervention, own)
    say(console, size.sentence(seconds(lm, size) if lm.sampler is not None else None))
    trace_ = lm.trace(
        prompts,
        gen_length=gen_length,
        steps=steps,
        sampler=sampler,
        seed=seed,
        batch_size=batch_size,
        chat=False if raw else None,
        detail=kept,
        groups=named_groups,
        top_keys=top_keys,
        patterns=chosen,
        intervention=interventions or None,
        path=output,
        **options,
    )
    stored = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    for number in range(min(len(trace_), 3)):
        console.print(f"{number}: {trace_.completion(number)!r}")
    if len(trace_) > 3:
        console.print(f"... and {len(trace_) - 3} more")
    say(console, f"Wrote {output} ({size_in_words(stored)}). Look at it: floatlens show {output}")


def detail_of(text: str) -> str | dict[str, str]:
    """A preset by name, or name=value pairs."""
    return text if "=" not in text else dict(pairs(text.split(","), "--detail"))


def layers_and_heads(text: str) -> list[tuple[int, int]]:
    """The (layer, head) pairs of a text like "3:0,11:4"."""
    pairs = []
    for pair in filter(None, text.split(",")):
        layer, _, head = pair.partition(":")
        if not (is_number(layer) and is_number(head)):
            raise Refusal(f"--patterns takes layer:head pairs, e.g. 3:0,11:4; this is {pair[:40]!r}.")
        pairs.append((int(layer), int(head)))
    return pairs

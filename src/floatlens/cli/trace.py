"""`floatlens trace`: load a model, write after each prompt, and store where it looked."""

import json
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import typer

from floatlens.errors import Refusal
from floatlens.seeds import LARGEST_SEED
from floatlens.small_language import is_number
from floatlens.terminal import make_console, say

# what `--set` may not name, because it has an option of its own
_OWN_OPTIONS = ("gen_length", "steps", "sampler", "seed", "batch_size", "chat", "detail", "groups", "top_keys", "patterns", "intervention")


def trace(
    model: str = typer.Option(..., "--model", "-m", help="A bundled model, a folder, a file, or a hub name."),
    prompt: list[str] = typer.Option([], "--prompt", "-p", help="Ask this prompt; may be given several times."),
    prompt_file: Path = typer.Option(
        None,
        help="Ask the prompts in this file (plain or .gz), one per line: a JSON text, or an object: "
        '{"prompt": "...", "regions": {"doc_1": [0, 40]}}.',
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Write to this new folder, e.g. run.zarr."),
    gen_length: int = typer.Option(32, min=0, help="Tokens to write; 0 fills masks inside the prompt."),
    steps: int = typer.Option(None, min=1, help="Denoising steps; one per token by default."),
    sampler: str = typer.Option(None, help="Use another decoding loop than the family's: llada, dream, sdar."),
    set_: list[str] = typer.Option(
        [], "--set", "-s", help="Set a sampler option, name=value: temperature=0.7, threshold=0.9, block_length=8."
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed: sample i draws from seed + i."),
    batch_size: int = typer.Option(
        4,
        min=1,
        help="Prompts to run together. It changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may "
        "be decided differently (docs/reference/decoding.md).",
    ),
    limit: int = typer.Option(None, min=1, help="Ask only the first N prompts of the file."),
    detail: str = typer.Option(
        "default", help="What to keep: default, light, full, or what differs from default: geometry=head,norms=off."
    ),
    groups: str = typer.Option(None, help="Query groups to tell apart: masked,unmasked,predicting,prompt."),
    top_keys: int = typer.Option(8, min=1, help="How many of the strongest keys to keep for each predicting row."),
    intervention: list[str] = typer.Option(
        [], "--intervention", help="Change what the model can look at, e.g. mask-anchors:5,layers=0-7; several act one after the other."
    ),
    patterns: str = typer.Option("", help="Keep the full patterns of these layer:head pairs, e.g. 3:0,11:4."),
    raw: bool = typer.Option(False, help="Do not use the chat template."),
    dtype: str = typer.Option(None, help="Precision: float32, bfloat16 or float16; by default that of the checkpoint."),
    device: str = typer.Option(
        None, help="Device: cpu, cuda, ...; by default the first GPU if there is one. Several for a large model: cuda:0,cuda:1."
    ),
    revision: str = typer.Option(None, help="A branch, tag or commit on the hub."),
    family: str = typer.Option(None, help="The adapter to use if the config does not say which; see `floatlens models`."),
    mask_token_id: int = typer.Option(None, help="The mask token, if neither config nor tokenizer names it."),
    block_length: int = typer.Option(
        None, help="Block length that an A2D or SDAR model was trained with, if its config does not say: 32 (BD3LM), 4 (OPDLM), 0 for none."
    ),
    trust_remote_code: bool = typer.Option(False, help="Run code that comes with the checkpoint."),
    allow_pickle: bool = typer.Option(False, help="Open pickled weights, which can run any code."),
) -> None:
    """Run a model on prompts and store where it looks at every step.

    Examples:

      floatlens trace -m smollm2-135m -p "What is the capital of France?" -o run.zarr

      floatlens trace -m ./LLaDA-8B-Instruct --prompt-file questions.jsonl --steps 32 -s block_length=16 --dtype bfloat16 -o run.zarr
    """
    from floatlens.decoding.options import Decoding
    from floatlens.decoding.prompts import Prompt
    from floatlens.folders import refuse_place
    from floatlens.interventions import from_text
    from floatlens.models.language_model import LanguageModel
    from floatlens.models.loading import load
    from floatlens.trace.estimate import size_in_words
    from floatlens.trace.schema import make_detail

    console = make_console()
    refuse_place(output)
    prompts = [Prompt(text) for text in prompt]
    if prompt_file:
        from floatlens.tasks.readers.own import read_prompts

        prompts += read_prompts(prompt_file, limit)
    if not prompts:
        raise Refusal("There is nothing to ask: give --prompt or --prompt-file.")
    kept = make_detail(detail_of(detail), groups.split(",") if groups else None, top_keys, layers_and_heads(patterns))
    interventions = [from_text(text) for text in intervention]
    options = sampler_options(set_, LanguageModel.trace, *_OWN_OPTIONS)
    decoding = Decoding(gen_length, steps, sampler, options, seed, batch_size, chat=False if raw else None)
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
    plan = lm.plan_trace(prompts, decoding, kept, intervention=interventions or None)
    say(console, plan.size.sentence(plan.seconds()))
    trace_ = plan.run(output)
    stored = sum(file.stat().st_size for file in output.expanduser().rglob("*") if file.is_file())
    for number in range(min(len(trace_), 3)):
        final = trace_.sample(number)["final"].values.tolist()
        text = trace_.completion(number) if gen_length else lm.whole_text([token for token in final if token >= 0])
        console.print(f"{number}: {text!r}")
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


def pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Names and values of texts like "threshold=0.9".

    Examples
    --------
    >>> pairs(["threshold=0.9"], "--set")
    [('threshold', '0.9')]
    """
    for text in texts:
        if "=" not in text:
            raise Refusal(f"{option} takes name=value; this is {text!r}.")
    named = [(text.split("=", 1)[0].strip(), text.split("=", 1)[1].strip()) for text in texts]
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refusal(f"{option} gives {twice[0]!r} twice; give it once.")
    return named


def sampler_options(texts: Sequence[str], taken_by: Callable[..., Any], *others: str) -> dict[str, Any]:
    """The sampler options that `--set` names.

    Refused: `others`, which have a command-line option of their own, and whatever else the call that they go to takes.

    Examples
    --------
    >>> def write(prompt, gen_length=32, progress=True, **options): ...
    >>> sampler_options(["threshold=0.9", "remasking=low_confidence"], write, "gen_length")
    {'threshold': 0.9, 'remasking': 'low_confidence'}
    >>> sampler_options(["gen_length=8"], write, "gen_length")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --set gen_length=... is not a sampler option of its own; use --gen-length.
    >>> sampler_options(["progress=false"], write, "gen_length")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --set progress=... is not a sampler option.
    """
    options = {name: _value(value) for name, value in pairs(texts, "--set")}
    for name in others:
        if name in options:
            own = "raw" if name == "chat" else name.replace("_", "-")
            raise Refusal(f"--set {name}=... is not a sampler option of its own; use --{own}.")
    for name in signature(taken_by).parameters:
        if name in options:
            raise Refusal(f"--set {name}=... is not a sampler option.")
    return options


def _value(text: str) -> Any:
    """A number, true or false, or the word itself."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null", "none") else text) if text.lower() != "none" else None
    except (ValueError, RecursionError):
        return text

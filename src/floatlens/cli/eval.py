"""`floatlens eval`: ask models questions under several conditions, and say what came out."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from floatlens.cli.trace import sampler_options
from floatlens.errors import Caution, Refusal
from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.tasks.conditions import Condition
    from floatlens.tasks.registry import Task


def evaluate(
    model: list[str] = typer.Option(
        ..., "--model", "-m", help="A bundled model, a folder, a file, or a hub name; may be given several times."
    ),
    task: str = typer.Option(
        None,
        "--task",
        "-t",
        help="What is asked; world by default. world, world-closed, world-two-hop, world-description; nq, triviaqa, ms-marco, hotpotqa, trex, squad, rgb, key-value, poisonedrag, gsm8k, humaneval; "
        "or a format that --data is read as: plain, lost-in-the-middle, nq-open, kilt.",
    ),
    data: str = typer.Option(
        None,
        "--data",
        "-d",
        help="The file with the questions, or the folder it lies in ($FLOATLENS_QA_DATA by default); the world needs none.",
    ),
    corpus: Path = typer.Option(
        None, help="A file of passages to search, JSON lines or tab-separated; indexed once. Gives retrieved passages and distractors."
    ),
    infer_gold: bool = typer.Option(False, "--infer-gold", help="Call gold what holds an answer, where the file names no gold passages."),
    context: list[str] = typer.Option(
        [],
        "--context",
        "-c",
        help="closed-book, gold, retrieved:5, noise:.4, position:3/10, layout:far, conflict, masks:64; several times.",
    ),
    levels: str = typer.Option(None, help="Levels to try, for a context given without one, as in --context noise --levels 0,.2,.4"),
    passages: int = typer.Option(None, min=1, help="Passages in all, for noise, layout and conflict; 5 by default."),
    intervention: list[str] = typer.Option(
        [], "--intervention", help="What the model may not look at, e.g. mask-anchors:1; each runs with its controls in every --context."
    ),
    controls: bool = typer.Option(True, help="Run the random controls of each intervention."),
    likelihood: bool = typer.Option(True, help="Also take the log-likelihood of the answers (not defined for block-diffusion models)."),
    samples: int = typer.Option(100, "--samples", "-n", min=1, max=1_000_000, help="How many questions, at most."),
    leave_out: bool = typer.Option(
        False, "--leave-out", help="Leave out questions that lack what a context needs, instead of refusing; how many is said."
    ),
    gen_length: int = typer.Option(None, min=1, help="Tokens to write; the task's own by default."),
    steps: int = typer.Option(None, min=1, help="Denoising steps, at most; one a token by default."),
    sampler: str = typer.Option(None, help="Another decoding loop for the diffusion models: llada, dream, sdar."),
    batch_size: int = typer.Option(
        8,
        min=1,
        help="Prompts that run together. Changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may fall differently (docs/reference/decoding.md).",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="What questions of the world, random controls and mask sets are drawn from."),
    into: Path = typer.Option(..., "--into", "-o", help="The folder to write: results.parquet, summary.csv, pictures, traces."),
    set_: list[str] = typer.Option(
        [], "--set", "-s", help="A sampler option, name=value, for the models that have it: temperature=0.7, threshold=0.9, block_length=8."
    ),
    run_code: bool = typer.Option(
        False,
        "--run-code",
        help="Run the programs that models write for humaneval, each isolated: no network, no files, bounded time and memory.",
    ),
    trace: int = typer.Option(0, min=0, help="Also record traces of the first questions, in every --context."),
    allow_unknown: bool = typer.Option(
        False,
        "--allow-unknown",
        help="Go on where a model's tokenizer does not know words of the questions or answers, instead of refusing.",
    ),
    raw: bool = typer.Option(False, help="Leave the chat template out."),
    dtype: str = typer.Option(None, help="float32, bfloat16, float16; that of the checkpoint by default."),
    device: str = typer.Option(None, help="cpu, cuda, ...; the first GPU if there is one."),
    trust_remote_code: bool = typer.Option(False, help="Run code that comes with the checkpoint."),
    block_length: list[str] = typer.Option(
        [],
        help="MODEL=32: the blocks an A2D or SDAR model was trained with, where its config does not say (0 for none); may be given several times.",
    ),
) -> None:
    """Ask questions with and without passages: noise, position, layout, conflict, interventions with their controls. Closed-book and gold-only always run beside them. A run that was stopped goes on when the same command is given again.

    Examples:

      floatlens eval -m twin-mdm -m twin-arm --context noise --levels 0,.2,.4,.6,.8 --into noise

      floatlens eval -m twin-mdm --context position:1/6 --intervention mask-anchors:1 --samples 50 --into masked

      floatlens eval -m smollm2-135m --task nq --data nq-open-oracle.jsonl.gz --context position --levels 1/10,5/10,10/10 --into nq

      floatlens eval -m smollm2-135m --task nq --data NQ-open.dev.jsonl --corpus passages.jsonl --context retrieved:5 --into retrieved
    """
    import polars as pl

    from floatlens.decoding.options import share_out
    from floatlens.folders import refuse_place, unfinished_folder
    from floatlens.models.doctor import examine
    from floatlens.models.loading import load
    from floatlens.report.evaluation import print_evaluation, write_pictures
    from floatlens.study.evaluation import evaluate as ask
    from floatlens.study.kept import record
    from floatlens.study.outcomes import as_table, summarise
    from floatlens.tasks.conditions import complete, condition_of, plan, with_one_gold
    from floatlens.tasks.likelihood import refuse_without_likelihood
    from floatlens.tasks.registry import index_of_file, load_task

    console = make_console()
    refuse_place(into)
    if len({Path(name).name for name in model}) < len(model):
        raise Refusal(
            f"Two of the models {', '.join(model)} have one name, by which rows and traces are told apart. Name each once, or copy one."
        )
    asked = list(dict.fromkeys(condition_of(text) for text in context_texts(context, levels, passages)))
    options = sampler_options(
        set_, ask, "gen_length", "steps", "sampler", "seed", "batch_size", "chat", "likelihood", "controls", "intervention"
    )
    blocks = _block_lengths(block_length, model)
    index = None if corpus is None else index_of_file(corpus)
    if data is not None and task is None:
        raise Refusal(
            "--data names a file, and --task is missing, which says what is in it: a data set such as --task nq, or a format such as --task plain."
        )
    chosen = load_task(
        task or "world",
        data,
        conditions=asked,
        count=samples,
        seed=seed,
        corpus=index,
        infer_gold=infer_gold,
        run_code=run_code,
        leave_out=leave_out,
    )
    if chosen.passages_from:
        say(console, chosen.passages_from)
    if (with_one := with_one_gold(asked, chosen.samples)) != asked:
        asked = with_one
        say(
            console,
            "No question has more than one gold passage, so noise adds distractors to that one: "
            + ", ".join(one.text for one in asked)
            + ".",
        )
    if leave_out:
        kept, lacking = complete(chosen.samples, asked)
        without = {**chosen.left_out, **lacking}
        if not kept:
            raise Refusal(f"No question has what these contexts need: {next(iter(without.values()))}")
        chosen = replace(chosen, samples=tuple(kept))
        if without:
            say(console, f"Left out {counted(len(without), 'question')}, such as: {next(iter(without.values()))}")
    planned = plan(chosen.samples, asked, intervention, controls=controls)  # before anything heavy
    examined = [examine(name, dtype=dtype, trust_remote_code=trust_remote_code, block_length=blocks.get(name)) for name in model]
    for found in examined if likelihood else []:
        refuse_without_likelihood(found)
    for found in () if allow_unknown else examined:
        refuse_unreadable(found.name, found.tokenizer, chosen, planned, likelihood=likelihood, chat=False if raw else None)
    if sampler and all(found.sampler in (None, "autoregressive") for found in examined):
        raise Refusal(f"--sampler {sampler} is a loop of diffusion models, and none of these can be run by it. Leave it out.")
    loops = [found.sampler if found.sampler in (None, "autoregressive") else sampler or found.sampler for found in examined]
    shares = share_out(options, loops)
    for found, share in zip(examined, shares, strict=True):
        if lacking := ", ".join(name for name in options if name not in share):
            say(console, f"{found.name} has no {lacking} and runs without.")
    asking = f"{counted(len(chosen.samples), 'question')} under {counted(len(planned), 'condition')}"
    say(console, f"{asking} for {counted(len(model), 'model')}.")
    length, chat = gen_length or chosen.gen_length, False if raw else None
    with unfinished_folder(into, "floatlens eval", keeps=True) as unfinished:
        if any(unfinished.kept.iterdir()):
            say(console, f"Going on from what was done when the last run into {into} stopped.")
        tables, traced = [], []
        for name, loop, share in zip(model, loops, shares, strict=True):
            lm = load(name, dtype=dtype, device=device, trust_remote_code=trust_remote_code, block_length=blocks.get(name))
            tables.append(
                ask(
                    lm,
                    chosen.samples,
                    asked,
                    interventions=intervention,
                    controls=controls,
                    wording=chosen.wording,
                    scorer=chosen.scorer,
                    shortcut=chosen.shortcut,
                    gen_length=length,
                    steps=steps,
                    batch_size=batch_size,
                    seed=seed,
                    likelihood=likelihood,
                    chat=chat,
                    allow_unknown=allow_unknown,
                    keep=unfinished.kept,
                    sampler=loop,
                    **share,
                )
            )
            if trace:
                conditions = asked or [one for one in planned if one.intervention is None]
                how = {"gen_length": length, "steps": steps, "seed": seed, "chat": chat, "sampler": loop, **share}
                traced += record(lm, chosen.samples[:trace], conditions, unfinished.folder, wording=chosen.wording, **how)
        table = pl.concat(tables)
        summary = summarise(table)
        table.write_parquet(unfinished.folder / "results.parquet")
        as_table(summary).write_csv(unfinished.folder / "summary.csv")
        if traced:
            pl.DataFrame(traced).write_csv(unfinished.folder / "traces.csv")
        pictures, not_drawn = write_pictures(unfinished.folder, table, summary)
    print_evaluation(console, table, summary)
    for reason in not_drawn:
        say(console, reason)
    names = ["results.parquet", "summary.csv", *(path.name for path in pictures), *(["traces"] if trace else [])]
    say(console, f"Wrote {', '.join(names[:-1])} and {names[-1]} to {into}.")


def _block_lengths(texts: Sequence[str], models: Sequence[str]) -> dict[str, int]:
    """The block length of each model that --block-length names."""
    lengths = {}
    for text in texts:
        name, _, length = text.rpartition("=")
        if name not in models or not length.strip().isdecimal():
            raise Refusal(
                f"--block-length takes MODEL=LENGTH, with a MODEL that --model names and a whole number, e.g. {models[0]}=32; this is {text!r}."
            )
        lengths[name] = int(length)
    return lengths


def refuse_unreadable(
    name: str, tokenizer: Any, task: "Task", conditions: "Sequence[Condition]", *, likelihood: bool, chat: bool | None
) -> None:
    """Refuse questions that a model cannot read, before any weights are."""
    from floatlens.decoding.prompts import encode
    from floatlens.tasks.contexts import arrange
    from floatlens.tasks.wording import put, refuse_unknown_tokens

    if tokenizer is None:
        return
    contexts = dict.fromkeys(condition.context for condition in conditions)
    prompts = [put(sample, arrange(sample, context), task.wording) for context in contexts for sample in task.samples]
    encoded = [encode(prompt, tokenizer, chat=chat) for prompt in prompts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)  # said when the model is asked
        refuse_unknown_tokens(name, tokenizer, task.samples, encoded, task.wording, likelihood=likelihood)


def counted(count: int, what: str) -> str:
    """A number of things, in words.

    Examples
    --------
    >>> counted(1, "model"), counted(2, "model")
    ('1 model', '2 models')
    """
    return f"{count} {what}{'s' * (count != 1)}"


def context_texts(contexts: Sequence[str], levels: str | None, passages: int | None) -> list[str]:
    """Contexts as text, one for each level of those that are named without one."""
    takes_levels = ("noise", "position", "layout", "retrieved", "masks")
    bare = [text for text in contexts if text in takes_levels]
    if levels is not None and len(bare) != 1:
        raise Refusal("--levels are those of one --context that is named without any: noise, position, layout, retrieved or masks.")
    if levels is not None and not all(level.strip() for level in levels.split(",")):
        raise Refusal(f"--levels {levels!r} leaves a level out; separate levels by single commas, as in 0,.4,.8.")
    if bare and levels is None:
        raise Refusal(f"--context {bare[0]} needs levels: --levels, or {bare[0]}:LEVEL.")
    texts = []
    for text in contexts:
        own = [f"{text}:{level.strip()}" for level in (levels or "").split(",")] if text in takes_levels else [text]
        varied = re.split("[:,]", text)[0] in ("noise", "layout", "conflict") and "passages=" not in text
        texts += [f"{one},passages={passages}" for one in own] if varied and passages is not None else own
    return texts

"""`floatlens eval`: parse, call `floatlens.evaluate`, draw, print."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floatlens.cli.trace import sampler_options
from floatlens.errors import Refusal, shown
from floatlens.seeds import LARGEST_SEED
from floatlens.small_language import is_number
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.study.evaluation import Evaluation

OWN_OPTIONS = ("gen_length", "steps", "sampler", "seed", "batch_size", "chat", "likelihood", "controls", "draws", "intervention")
"""What `--set` refuses, because the command has an option for it."""


def evaluate(
    model: list[str] = typer.Option(
        ..., "--model", "-m", help="A bundled model, a folder, a file or a hub name; may be given several times."
    ),
    task: str = typer.Option(
        None,
        "--task",
        "-t",
        help="The questions to ask; world by default: world, world-closed, world-two-hop, world-description; nq, triviaqa, ms-marco, "
        "hotpotqa, "
        "trex, squad, rgb, key-value, poisonedrag, gsm8k, humaneval; or the format of --data: plain, lost-in-the-middle, nq-open, kilt.",
    ),
    data: str = typer.Option(
        None,
        "--data",
        "-d",
        help="The file with the questions, or the folder it lies in ($FLOATLENS_QA_DATA by default). The world needs none.",
    ),
    corpus: Path = typer.Option(
        None,
        help="A file of passages to search for retrieved passages and distractors: JSON lines or tab-separated. It is indexed once.",
    ),
    infer_gold: bool = typer.Option(
        False, "--infer-gold", help="Treat every passage that holds an answer as gold, if the file names no gold passages."
    ),
    context: list[str] = typer.Option(
        [],
        "--context",
        "-c",
        help="Passages before the question: closed-book, gold, retrieved:5, noise:.4, position:3/10, layout:far, conflict, masks:64. "
        "May be given several times.",
    ),
    levels: str = typer.Option(None, help="Levels to try, for contexts given without one (e.g. --context noise --levels 0,.4,.8)."),
    passages: int = typer.Option(None, min=1, help="How many passages to show, for noise, layout and conflict; 5 by default."),
    intervention: list[str] = typer.Option(
        [],
        "--intervention",
        help="What the model may not look at, e.g. mask-anchors:1, in every --context. May be given several times.",
    ),
    controls: bool = typer.Option(True, help="Run the random controls of each intervention."),
    draws: int = typer.Option(5, min=1, max=1000, help="Draw each random control this many times, and average them per question."),
    likelihood: bool = typer.Option(
        True, help="Compute the log-likelihood of the answers as well (not defined for block-diffusion models)."
    ),
    samples: int = typer.Option(100, "--samples", "-n", min=1, max=1_000_000, help="Ask at most this many questions."),
    leave_out: bool = typer.Option(
        False, "--leave-out", help="Leave out questions that lack what a context needs, and say how many, instead of refusing."
    ),
    gen_length: int = typer.Option(None, min=1, help="How many tokens to write; the task's own number by default."),
    steps: int = typer.Option(None, min=1, help="Use at most this many denoising steps; one per token by default."),
    sampler: str = typer.Option(None, help="Use another decoding loop for the diffusion models: llada, dream, sdar."),
    batch_size: int = typer.Option(
        8,
        min=1,
        help="How many prompts run together. Changes the speed and, in float32, never the tokens; in bfloat16 and float16 a near tie may "
        "be decided differently (docs/reference/decoding.md).",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed for the questions of the world, random controls and mask sets."),
    into: Path = typer.Option(..., "--into", "-o", help="The folder to write: results.parquet, summary.csv, figures, traces."),
    set_: list[str] = typer.Option(
        [],
        "--set",
        "-s",
        help="Set an option of the sampler, name=value, for the models that have it: temperature=0.7, threshold=0.9, block_length=8.",
    ),
    run_code: bool = typer.Option(
        False,
        "--run-code",
        help="Run the programs that models write for humaneval, each isolated: no network, no files, limited time and memory.",
    ),
    trace: int = typer.Option(0, min=0, help="Record traces of this many of the first questions, in every --context."),
    workers: int = typer.Option(
        None,
        min=0,
        max=4096,
        help="How many processes run models; by default one per GPU, or as cores and memory allow. 0 runs them in this process.",
    ),
    allow_unknown: bool = typer.Option(
        False,
        "--allow-unknown",
        help="Continue if a model's tokenizer does not know words of the questions or answers, instead of refusing.",
    ),
    raw: bool = typer.Option(False, help="Leave the chat template out."),
    dtype: str = typer.Option(None, help="float32, bfloat16 or float16; the checkpoint's own by default."),
    device: str = typer.Option(
        None, help="cpu, cuda, ...; by default the first GPU if there is one. Several for a large model: cuda:0,cuda:1."
    ),
    trust_remote_code: bool = typer.Option(False, help="Run code that comes with the checkpoint."),
    block_length: list[str] = typer.Option(
        [],
        help="MODEL=32: the block length an A2D or SDAR model was trained with, where its config does not say (0 for none). May be given "
        "several times.",
    ),
) -> None:
    """Ask models questions with and without passages: noise, position, layout, conflict, interventions with their controls.

    Closed-book and gold-only always run as well. If it is interrupted, run the same command again to resume.

    Examples:

      floatlens eval -m twin-mdm -m twin-arm --context noise --levels 0,.2,.4,.6,.8 --into noise

      floatlens eval -m twin-mdm --context position:1/6 --intervention mask-anchors:1 --samples 50 --into masked

      floatlens eval -m smollm2-135m --task nq --data nq-open-oracle.jsonl.gz --context position --levels 1/10,5/10,10/10 --into nq

      floatlens eval -m smollm2-135m --task nq --data NQ-open.dev.jsonl --corpus passages.jsonl --context retrieved:5 --into retrieved
    """
    from floatlens.report.evaluation import print_evaluation, write_pictures
    from floatlens.study.evaluation import evaluate as evaluate_models

    if data is not None and task is None:
        raise Refusal(
            "--data names a file, but --task, which says what is in it, is missing: a data set such as --task nq, "
            "or a format such as --task plain."
        )
    console = make_console()
    pictures, not_drawn = list[Path](), list[str]()

    def draw(folder: Path, evaluation: "Evaluation") -> None:
        written, reasons = write_pictures(folder, evaluation.rows, evaluation.outcomes)
        pictures.extend(written)
        not_drawn.extend(reasons)

    evaluation = evaluate_models(
        model,
        task or "world",
        context_texts(context, levels, passages),
        interventions=intervention,
        controls=controls,
        draws=draws,
        samples=samples,
        data=data,
        corpus=corpus,
        infer_gold=infer_gold,
        leave_out=leave_out,
        run_code=run_code,
        gen_length=gen_length,
        steps=steps,
        sampler=sampler,
        batch_size=batch_size,
        seed=seed,
        likelihood=likelihood,
        chat=False if raw else None,
        allow_unknown=allow_unknown,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        block_lengths=_block_lengths(block_length, model),
        trace=trace,
        workers="auto" if workers is None else workers,
        into=into,
        draw=draw,
        tell=partial(say, console),
        **sampler_options(set_, evaluate_models, *OWN_OPTIONS),
    )
    print_evaluation(console, evaluation.rows, evaluation.outcomes)
    for reason in not_drawn:
        say(console, reason)
    names = ["results.parquet", "summary.csv", *(path.name for path in pictures), *(["traces"] if trace else [])]
    say(console, f"Wrote {', '.join(names[:-1])} and {names[-1]} to {into}.")


def _block_lengths(texts: Sequence[str], models: Sequence[str]) -> dict[str, int]:
    """The block length of each model that --block-length names."""
    lengths = {}
    for text in texts:
        name, _, length = text.rpartition("=")
        if name not in models or not is_number(length.strip()):
            raise Refusal(
                f"--block-length {shown(text)!r} is not MODEL=LENGTH, with a MODEL that --model names and a whole number; "
                f"write, e.g., {models[0]}=32."
            )
        lengths[name] = int(length)
    return lengths


def context_texts(contexts: Sequence[str], levels: str | None, passages: int | None) -> list[str]:
    """The contexts as texts: one per level for those given without a level, with the number of passages where they take it."""
    takes_levels = ("noise", "position", "layout", "retrieved", "masks")
    bare = [text for text in contexts if text in takes_levels]
    if levels is not None and len(bare) != 1:
        raise Refusal("--levels needs exactly one --context that is given without a level: noise, position, layout, retrieved or masks.")
    if levels is not None and not all(level.strip() for level in levels.split(",")):
        raise Refusal(f"--levels {levels!r} leaves a level out; separate levels by single commas, as in 0,.4,.8.")
    if bare and levels is None:
        raise Refusal(f"--context {bare[0]} needs a level: write {bare[0]}:LEVEL, or give --levels.")
    texts = []
    for text in contexts:
        own = [f"{text}:{level.strip()}" for level in (levels or "").split(",")] if text in takes_levels else [text]
        varied = re.split("[:,]", text)[0] in ("noise", "layout", "conflict") and "passages=" not in text
        texts += [f"{own_text},passages={passages}" for own_text in own] if varied and passages is not None else own
    return texts

"""`floatlens demo`: published claims about attention, checked on the twins or on models and questions of your own."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floatlens.errors import Refusal
from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.lab.units import Sizes

TWINS = {"arm": "twin-arm", "mdm": "twin-mdm", "causal-mdm": "twin-causal-mdm"}
TRIPLET = {"arm": "smollm2-arm", "mdm": "smollm2-mdm", "causal-mdm": "smollm2-causal-mdm"}
DRAWS_OF_THE_WORLD, DRAWS = 1, 5
QUESTIONS_OF_THE_TRIPLET = 12
INTO, INTO_REAL = Path("floatlens-demo"), Path("floatlens-demo-real")


def demo(
    arm: str = typer.Option(None, help="The autoregressive model: a name or a folder, as for `floatlens trace`; twin-arm by default."),
    mdm: str = typer.Option(None, help="The masked diffusion model; twin-mdm by default."),
    causal_mdm: str = typer.Option(
        None,
        "--causal-mdm",
        help="The masked diffusion model with a causal attention mask, between the two; twin-causal-mdm by default, none with --task.",
    ),
    task: str = typer.Option(
        None, "--task", "-t", help="Questions with passages, as for `floatlens eval`: nq, triviaqa, hotpotqa, ...; the world by default."
    ),
    data: str = typer.Option(None, "--data", "-d", help="The file with the questions, or the folder it lies in, for --task."),
    corpus: Path = typer.Option(None, help="A file of passages to search for distractors, for --task."),
    infer_gold: bool = typer.Option(
        False, "--infer-gold", help="Treat every passage that holds an answer as gold, if the file names no gold passages."
    ),
    order: str = typer.Option(
        None,
        help="The order in which diffusion models write answers to --task: left-to-right (block_length=1, the default) or confidence "
        "(end tokens last).",
    ),
    raw: bool = typer.Option(False, help="Leave the chat template out of the questions."),
    dtype: str = typer.Option(None, help="float32, bfloat16 or float16; by default that of each checkpoint."),
    real: bool = typer.Option(
        False,
        "--real",
        help="Make the recorded part again: ask the SmolLM2 triplet questions of Natural Questions; both come with floatlens. Prints "
        "an estimate of the time first, takes hours, and can be resumed.",
    ),
    questions: int = typer.Option(
        None,
        min=1,
        help="Questions per context; everything else grows with it. By default 100 about the world (about two minutes on two cores), "
        "12 with --real, and 100 with --task (hours).",
    ),
    draws: int = typer.Option(
        None,
        min=1,
        max=1000,
        help="Draw each random control this many times, and average per question; by default 1 for the world and with --real, and 5 "
        "otherwise.",
    ),
    processes: int = typer.Option(None, min=1, max=64, help="How many processes run models; by default one per core, at most 3."),
    into: Path = typer.Option(
        None,
        help="The folder to write, floatlens-demo or (with --real) floatlens-demo-real by default. One that an earlier demo wrote is "
        "replaced if nothing was added or edited in it; any other is refused.",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Seed for the questions of the world and random controls."),
    figures: bool = typer.Option(True, "--figures/--no-figures", help="Draw figures, which takes a fifth of the time."),
    open_page: bool = typer.Option(
        True, "--open/--no-open", help="Open the page in a browser at the end, where there is a terminal and a screen, and never in CI."
    ),
) -> None:
    """Check what papers claim about attention: on three tiny models that differ only in attention mask and objective, or on your own.

    Traces the models, measures where they look, masks their strongest keys, asks them questions in many contexts, and judges each
    claim by a rule that was fixed beforehand. Prints a table of verdicts, beside those that were recorded for real models, and writes a
    page, claims, tables, figures and traces into a folder. If it is interrupted, run the same command again to resume.

    Examples:

      floatlens demo

      floatlens demo --questions 200 --into larger

      floatlens demo --real

      floatlens demo --mdm runs/my-mdm --into mine

      floatlens demo --arm smollm2-135m --mdm runs/my-mdm --task nq --data nq-100 --into nq
    """
    from floatlens.lab.demo import run_study
    from floatlens.lab.units import QUESTIONS_OF_A_FILE, Choice, Sizes, Study
    from floatlens.report.demo_page import PAGE, write_demo_page
    from floatlens.report.recorded import read_recorded
    from floatlens.report.verdict_table import print_demo
    from floatlens.terminal import progress_bar

    console, recorded = make_console(), read_recorded()
    given = {role: model for role, model in (("arm", arm), ("mdm", mdm), ("causal-mdm", causal_mdm)) if model is not None}
    if real:
        _refuse_beside_real(**given, task=task, data=data, corpus=corpus, infer_gold=infer_gold)
        given, task, data = TRIPLET, "nq", "nq-100"
        questions, draws = questions or QUESTIONS_OF_THE_TRIPLET, draws or DRAWS_OF_THE_WORLD
    into = into or (INTO_REAL if real else INTO)
    if task is not None and task != "world":
        _refuse_missing_models(given, task)
        count = questions or QUESTIONS_OF_A_FILE
        found = None if corpus is None else str(corpus)
        choice = Choice(task, count, data, found, infer_gold, order or "left-to-right", False if raw else None, dtype)
        study = Study(given, choice, Sizes(count, real=True), draws or DRAWS, seed, figures)
    else:
        _refuse_options_of_questions(data=data, corpus=corpus, infer_gold=infer_gold, order=order, raw=raw)
        sizes = Sizes() if questions is None else Sizes(questions)
        study = Study({**TWINS, **given}, Choice(most=sizes.questions, dtype=dtype), sizes, draws or DRAWS_OF_THE_WORLD, seed, figures)
    findings = run_study(
        study,
        into,
        progress_bar,
        processes=processes,
        tell=lambda sentence: say(console, sentence),
        finish=lambda folder: write_demo_page(folder, into.name, recorded),
    )
    opened = open_page and has_a_screen() and webbrowser.open((into / PAGE).absolute().as_uri())
    asked = asked_in_words(Sizes(findings.about["questions"], study.sizes.real), study.draws)
    print_demo(console, findings, recorded, asked, into, opened=opened)


def has_a_screen() -> bool:
    """Whether a browser that is opened now would be seen: somebody sits at a terminal of this machine, and nothing runs in CI."""
    if os.environ.get("CI") or not sys.stdout.isatty():
        return False
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _refuse_beside_real(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise Refusal(
                f"--real asks the SmolLM2 triplet the questions that come with floatlens, and --{name.replace('_', '-')} chooses others. "
                "Leave --real out to ask models and questions of your own."
            )


def _refuse_missing_models(given: dict[str, str], task: str) -> None:
    for role in ("arm", "mdm"):
        if role not in given:
            raise Refusal(f"--task {task} asks models of your own, and --{role} is missing: the twins read nothing but the world.")


def _refuse_options_of_questions(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise Refusal(f"--{name.replace('_', '-')} is about the questions of --task, and the world has none. Name a task, such as nq.")


def asked_in_words(sizes: "Sizes", draws: int) -> str:
    """How much was asked.

    Examples
    --------
    >>> from floatlens.lab.units import Sizes
    >>> asked_in_words(Sizes(12, real=True), 5)
    '12 questions in each context (12 under masking), 12 traced texts; each random control was drawn 5 times.'
    """
    from floatlens.terminal import counted

    drawn = f"each random control was drawn {'once' if draws == 1 else counted(draws, 'time')}"
    if sizes.real:
        return f"{sizes.questions} questions in each context ({sizes.masked} under masking), {sizes.traced} traced texts; {drawn}."
    return (
        f"{sizes.questions} questions in each context ({sizes.two_hop} with two hops; {sizes.masked} answers and {sizes.described} "
        f"descriptions under masking), {sizes.traced} traced texts; {drawn}."
    )

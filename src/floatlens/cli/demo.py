"""`floatlens demo`: the claims of two papers, checked on the twins."""

from pathlib import Path

import typer

from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say


def demo(
    arm: str = typer.Option("twin-arm", help="The autoregressive model: a name or a folder, as for `floatlens trace`."),
    mdm: str = typer.Option("twin-mdm", help="The masked diffusion model."),
    causal_mdm: str = typer.Option("twin-causal-mdm", "--causal-mdm", help="The diffusion model with a causal mask, between the two."),
    questions: int = typer.Option(
        None,
        min=1,
        help="How many questions in each context; everything else grows with it. 20 by default, for which two cores take about a minute and a half.",
    ),
    into: Path = typer.Option(
        Path("floatlens-demo"),
        help="The folder for what comes out. One that an earlier demo wrote is replaced if nothing was added or edited in it; any other is refused.",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="Another seed asks other questions."),
    figures: bool = typer.Option(True, "--figures/--no-figures", help="Whether figures are drawn, which takes a fifth of the time."),
) -> None:
    """Check the claims of two papers on three tiny models that differ in one thing only, and write down what came out.

    Traces the twins, measures where they look, masks their strongest keys, asks them questions in many contexts, and judges each claim by a rule that was fixed before. Writes traces, tables, figures and the claims into a folder.

    Examples:

      floatlens demo

      floatlens demo --questions 200 --into larger

      floatlens demo --mdm runs/my-mdm --into mine
    """
    from floatlens.lab.demo import run_study
    from floatlens.lab.units import Sizes
    from floatlens.report.claims import ONE_RUN, print_accuracies, print_claims, print_splits
    from floatlens.terminal import progress_bar

    console = make_console()
    sizes = Sizes() if questions is None else Sizes(questions)
    found = run_study({"arm": arm, "mdm": mdm, "causal-mdm": causal_mdm}, into, sizes, seed, progress_bar, figures=figures)
    print_accuracies(console, found)
    print_claims(console, found)
    print_splits(console, found)
    console.print(
        f"{sizes.questions} questions in each context ({sizes.two_hop} with two hops, {sizes.masked} answers and {sizes.described} descriptions under masking), {sizes.traced} traced texts. {ONE_RUN}"
    )
    say(
        console,
        f"Open {into}/claims.md for all numbers and rules, {into}/figures for the figures, {into}/README.md for what else is there.",
    )

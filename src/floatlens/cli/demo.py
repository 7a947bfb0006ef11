"""`floatlens demo`: published claims about attention, checked on the twins."""

from pathlib import Path

import typer

from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say


def demo(
    arm: str = typer.Option("twin-arm", help="The autoregressive model: a name or a folder, as for `floatlens trace`."),
    mdm: str = typer.Option("twin-mdm", help="The masked diffusion model."),
    causal_mdm: str = typer.Option(
        "twin-causal-mdm", "--causal-mdm", help="The masked diffusion model with a causal attention mask, between the two."
    ),
    questions: int = typer.Option(
        None,
        min=1,
        help="Questions per context; everything else grows with it. By default 20, which takes two cores about a minute and a half.",
    ),
    into: Path = typer.Option(
        Path("floatlens-demo"),
        help="The folder to write. One that an earlier demo wrote is replaced if nothing was added or edited in it; any other is refused.",
    ),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED, help="What the questions are drawn from; another seed asks other questions."),
    figures: bool = typer.Option(True, "--figures/--no-figures", help="Draw figures, which takes a fifth of the time."),
) -> None:
    """Check what papers claim about attention on three tiny models that differ only in attention mask and objective.

    Traces the twins, measures where they look, masks their strongest keys, asks them questions in many contexts, and judges each
    claim by a rule that was fixed beforehand. Writes claims, tables, figures and traces into a folder.

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
    findings = run_study({"arm": arm, "mdm": mdm, "causal-mdm": causal_mdm}, into, sizes, seed, progress_bar, figures=figures)
    print_accuracies(console, findings)
    print_claims(console, findings)
    print_splits(console, findings)
    console.print(
        f"{sizes.questions} questions in each context ({sizes.two_hop} with two hops; {sizes.masked} answers and {sizes.described} "
        f"descriptions under masking), {sizes.traced} traced texts. {ONE_RUN}"
    )
    say(console, f"Open {into}/claims.md for all numbers and rules, {into}/README.md for what else was written.")

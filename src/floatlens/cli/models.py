"""`floatlens models`: the model families, what is bundled, and how each was checked."""

from rich.table import Table

from floatlens.terminal import make_console


def models() -> None:
    """List the model families, what is bundled, and how each was checked.

    Example:

      floatlens models
    """
    from floatlens.models.checkpoint import BUNDLED
    from floatlens.models.families import FAMILIES

    console = make_console()
    table = Table(title="Families", title_justify="left", show_lines=True)
    for heading in ("family", "models", "runs as", "checked by"):
        table.add_column(heading, overflow="fold")
    for family in FAMILIES.values():
        table.add_row(family.name, family.models, family.runs_as, family.checked)
    console.print(table)
    console.print(
        f"Bundled: {', '.join(BUNDLED)} (smollm2-135m is fetched on first use). "
        "Everything else: a folder, a .gguf or llama2.c .bin file, or a hub name (owner/name)."
    )
    console.print("floatlens doctor MODEL says whether a model can be traced, and what a trace takes.")

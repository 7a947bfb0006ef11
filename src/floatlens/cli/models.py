"""`floatlens models`: the model families, what is bundled, and how each was checked."""

import re

from rich.table import Table

from floatlens.terminal import make_console

WIDE = 100  # columns of a terminal in which every class name fits on a line
LONGEST_CLASS, ROOM_FOR_CLASSES = 32, 21


def models() -> None:
    """List the model families, what is bundled, and how each was checked.

    Example:

      floatlens models
    """
    from floatlens.models.checkpoint import bundled_names
    from floatlens.models.families import FAMILIES

    console = make_console()
    room = LONGEST_CLASS if console.width >= WIDE else ROOM_FOR_CLASSES
    table = Table(title="Families", title_justify="left", show_lines=True)
    for heading in ("family", "models", "runs as", "checked by"):
        table.add_column(heading, overflow="fold", width=room if heading == "runs as" else None)
    for family in FAMILIES.values():
        table.add_row(family.name, family.models, folded_at_capitals(family.runs_as, room), family.checked)
    console.print(table)
    console.print(
        f"Bundled: {', '.join(bundled_names())} (smollm2-135m, the base of the other smollm2 models, and antiberty are fetched on first "
        "use). Everything else: a folder, an adapter, a .gguf or llama2.c .bin file, or a hub name (owner/name)."
    )
    console.print("floatlens doctor MODEL says whether a model can be traced, and what a trace takes.")


def folded_at_capitals(text: str, width: int) -> str:
    """A text whose words go on in the next line, from a capital on, where they are longer than a line.

    Examples
    --------
    >>> folded_at_capitals("DiffusionGemmaForBlockDiffusion, own generate", 21)
    'DiffusionGemmaFor\\nBlockDiffusion, own generate'
    """
    words = []
    for word in text.split(" "):
        lines = [""]
        for piece in re.split(r"(?<=[a-z])(?=[A-Z])", word) if len(word) > width else [word]:
            if lines[-1] and len(lines[-1] + piece) > width:
                lines.append("")
            lines[-1] += piece
        words.append("\n".join(lines))
    return " ".join(words)

"""Write the tables, rules and figures of twins.md from the folder of the demo that the page names.

    floatlens demo --into study
    python docs/results/twins.py study

Everything comes from the demo's own `claims.md` and `figures`; the sentences of the page have to be read again by hand.
"""

import argparse
import shutil
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
PAGE, FIGURES = HERE / "twins.md", HERE / "figures"
TABLES = ("| claim |", "| quantity |", "| experiment |", "| context |")
DRAWN = ("contexts.svg", "absorption_on_shared_rectangle.svg", "masked_descriptions-arm.svg")


def block(text: str, beginning: str) -> str:
    """The lines from the first one that begins so to the next empty line."""
    start = text.index(f"\n{beginning}") + 1
    return text[start : text.index("\n\n", start)]


def rules(text: str) -> str:
    """The list of rules, without the short names that the terminal prints."""
    lines = text[text.index("## The rules") :].strip().splitlines()[2:]
    sentences = ["- " + line.split("`: ", 1)[1].replace("* holds if", "* It holds if", 1) for line in lines]
    return "\n".join(textwrap.fill(own, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) for own in sentences)


def main() -> None:
    """Read the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that floatlens demo wrote")
    folder = parser.parse_args().folder
    claims = (folder / "claims.md").read_text(encoding="utf-8") + "\n\n"
    page = PAGE.read_text(encoding="utf-8")
    for beginning in TABLES:
        page = page.replace(block(page, beginning), block(claims, beginning))
    page = page.replace(block(page, "- *An ARM piles"), rules(claims))
    PAGE.write_text(page, encoding="utf-8")
    for name in DRAWN:
        shutil.copyfile(folder / "figures" / name, FIGURES / name)


if __name__ == "__main__":
    main()

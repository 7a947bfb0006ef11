"""`floatlens verify`: check that what floatlens wrote has not changed since."""

import typer

from floatlens.terminal import make_console, say

DAMAGED = 1


def verify(
    paths: list[str] = typer.Argument(
        help="Traces (folders or fsspec URLs), or folders that `floatlens eval` or `floatlens demo` has written.", metavar="FOLDER"
    ),
) -> None:
    """Check every file, array and chunk, and name what is damaged, one line each. Exit code 1 if anything is.

    Examples:

      floatlens verify run.zarr

      floatlens verify floatlens-demo results
    """
    from floatlens.trace import verification

    console = make_console()
    broken = False
    for path in paths:
        faults = verification.verify(path, progress=True)
        broken = broken or bool(faults)
        if faults:
            say(console, f"{path}: damaged")
        elif verification.is_protected(path):
            say(console, f"{path}: intact")
        else:
            say(console, f"{path}: readable. {verification.UNPROTECTED}")
        for fault in faults:
            say(console, f"  {fault}")
    if broken:
        raise typer.Exit(DAMAGED)

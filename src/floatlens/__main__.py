"""`python -m floatlens`: the command line, for launchers that start modules."""

from floatlens.cli import run

if __name__ == "__main__":
    run()

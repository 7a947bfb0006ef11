"""Hand over to lm-eval's own command, with `floatlens` among its models.

lm-eval discovers no entry points, so the model class is entered into its registry first. Everything else is lm-eval's: options, tasks,
tables, files. What it finds wrong with options and names before it runs anything is said in a sentence; its other errors are its own.

Refused: a missing lm-eval.
"""

import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePath

from floatlens.errors import Refusal, reason

MODEL = "floatlens.harnesses.lm_eval_model:FloatlensLM"
CHECKS = ("config/evaluate_config.py", "api/registry.py", "evaluator.py")
"""The places in lm-eval that check what was asked for."""


def register() -> None:
    """Enter `floatlens` into lm-eval's registry of models; the class is imported when it is asked for."""
    if find_spec("lm_eval") is None:
        raise Refusal("lm-eval is not installed. Install it with pip install 'floatlens[lm-eval]'.")
    from lm_eval.api.registry import model_registry  # pyright: ignore[reportMissingImports]  # an extra: floatlens[lm-eval]

    if "floatlens" not in model_registry:
        model_registry.register("floatlens", target=MODEL)


def run(arguments: Sequence[str]) -> None:
    """Run lm-eval's command with these arguments."""
    register()
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    before, sys.argv = sys.argv, ["lm-eval", *arguments]
    try:
        cli_evaluate()
    except Refusal:
        raise
    except (ValueError, TypeError, KeyError, FileNotFoundError) as error:
        raised_in = PurePath(traceback.extract_tb(error.__traceback__)[-1].filename).as_posix()
        if not raised_in.endswith(tuple(f"/lm_eval/{place}" for place in CHECKS)):
            raise
        words = error.args[0] if isinstance(error, KeyError) and error.args else error  # a KeyError shows its message in quotes
        raise Refusal(f"lm-eval: {reason(Exception(words))}. Run `floatlens lm-eval run --help` to see its options.") from error
    finally:
        sys.argv = before

"""The recipe of an adaptation: a TOML file that says everything but the objective and the mask, which are what the models of one recipe
differ in.

Decided here: the learning rate rises over `warm_up` updates, stays, and falls linearly over the last `cooling` updates to a tenth. A
recipe with more updates continues a run if no update of the run would have had another rate. Refused, with the file and the field: what
is not TOML, fields that are missing, unknown or of another type, and numbers with which nothing can be trained.
"""

import json
import re
import tomllib
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from floatlens.errors import Refusal, wanted_in_words
from floatlens.models.adapters import MaskKind, Trains
from floatlens.seeds import LARGEST_SEED

FINAL_RATE = 0.1  # the share of the learning rate that is left at the end

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
MOST_UPDATES = 10_000_000
Count = Annotated[int, Field(ge=1, le=MOST_UPDATES)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdapterSettings(_Part):
    """What is trained: LoRA on all linear maps ("lora"), the gains of the norms as well ("lora+norms"), or all weights ("all").

    `frozen_in` is the type in which the weights that are not trained are multiplied while training; bfloat16 is faster where the
    processor has instructions for it. What is trained, norms, attention and sums stay in float32, and so does the merged model.
    """

    trains: Trains = "lora+norms"
    rank: Annotated[int, Field(ge=1, le=1024)] = 8
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    frozen_in: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _refuse_nothing_frozen(self) -> "AdapterSettings":
        if self.trains == "all" and self.frozen_in != "float32":
            raise ValueError(f'frozen_in is {self.frozen_in}, but trains = "all" leaves nothing frozen')
        return self


class OptimizerSettings(_Part):
    """AdamW's settings; `warm_up` and `cooling` count updates."""

    rate: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 1e-3
    warm_up: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    cooling: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    weight_decay: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class TargetSettings(_Part):
    """Which positions are predicted, and how much each counts; the same for all objectives and masks.

    A share between `least` and `most` of an answer, or of a text, is predicted. In `passages` of the questions, up to `most_of_passage`
    of the passages is predicted too.
    """

    least: Share = 0.1
    most: Share = 1.0
    passages: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    most_of_passage: Share = 0.3
    passage_weight: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.3
    end_weight: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.25  # of end tokens behind the first
    text_weight: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = (
        0.4  # of texts in an update's loss; the rest is that of questions
    )

    @model_validator(mode="after")
    def _refuse_reversed(self) -> "TargetSettings":
        if self.least > self.most:
            raise ValueError(f"least ({self.least:g}) is above most ({self.most:g})")
        return self


class QuestionFile(_Part):
    """A file of questions with passages, below the data folder; `share` is relative to the other question files.

    `train` splits it by passage title: so many questions are trained on, the others are held out, the first `hold_out_first` among them.
    """

    file: str
    kind: str | None = None
    share: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    train: Count | None = None
    hold_out_first: Annotated[int, Field(ge=0)] = 0


class TextFile(_Part):
    """A text file, below the data folder; documents are separated by lines that are `separator`. `share` is relative to the other text
    files."""

    file: str
    share: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    separator: str = "<|endoftext|>"


class EvaluationFile(_Part):
    """A file of questions of which nothing may be trained on."""

    file: str
    kind: str | None = None


class QuestionSettings(_Part):
    """How questions are put: how many passages stand before them, how many tokens there are for the answer, how often the chat template
    is used.

    A value of `passages` or `rooms` that is listed twice is drawn twice as often. Answers that are longer than every room are refused, or
    left out and counted.
    """

    passages: Annotated[tuple[Annotated[int, Field(ge=1, le=50)], ...], Field(min_length=1)] = (1, 1, 2, 3)
    rooms: Annotated[tuple[Annotated[int, Field(ge=2, le=512)], ...], Field(min_length=1)] = (8, 16)
    long_answers: Literal["refuse", "leave out"] = "refuse"
    chat: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    targets: Literal["answer", "everything"] = "answer"


class Recipe(_Part):
    """Everything an adaptation needs but its objective and mask.

    Examples
    --------
    >>> recipe = bundled_recipe("smollm2")
    >>> recipe.updates, recipe.rate_at(10), recipe.rate_at(100), recipe.rate_at(896)
    (896, 0.0005, 0.001, 0.0001)
    """

    base: str
    mask_token: str
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    updates: Count
    tokens_per_update: Annotated[int, Field(ge=16, le=10_000_000)] = 576
    text_share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.35  # of the tokens; the rest are questions
    longest: Annotated[int, Field(ge=16, le=1_000_000)] = 1024  # tokens per sequence
    save_every: Count = 16
    annealing: Annotated[int, Field(ge=1)] | None = None  # updates until everything is visible under the annealed mask; all by default
    adapter: AdapterSettings = AdapterSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    targets: TargetSettings = TargetSettings()
    questions: QuestionSettings = QuestionSettings()
    question_files: tuple[QuestionFile, ...] = ()
    text_files: tuple[TextFile, ...] = ()
    evaluation_files: tuple[EvaluationFile, ...] = ()

    @model_validator(mode="after")
    def _refuse_impossible(self) -> "Recipe":
        if self.text_share < 1 and not self.question_files:
            raise ValueError(f"text_share is {self.text_share:g}, so the other tokens are questions, but there are no [[question_files]]")
        if self.text_share > 0 and not self.text_files:
            raise ValueError(f"text_share is {self.text_share:g}, but there are no [[text_files]]")
        if self.optimizer.warm_up + self.optimizer.cooling > self.updates:
            raise ValueError(
                f"optimizer.warm_up ({self.optimizer.warm_up}) and optimizer.cooling ({self.optimizer.cooling}) are together more "
                f"than updates ({self.updates})"
            )
        if self.text_share < 1 and min(self.questions.rooms) >= self.longest:
            raise ValueError(f"questions.rooms leave no token for a question, since sequences have at most {self.longest} tokens (longest)")
        return self

    def rate_at(self, update: int) -> float:
        """The learning rate of an update; updates count from 1."""
        settings = self.optimizer
        falling = 1.0
        if settings.cooling:
            left = min(1.0, (self.updates - update) / settings.cooling)
            falling = FINAL_RATE + (1 - FINAL_RATE) * left
        return settings.rate * min(1.0, update / settings.warm_up, falling)

    def visible_share(self, mask: MaskKind, update: int) -> float:
        """The share of later positions that a row sees in an update: 0 is causal, 1 bidirectional."""
        if mask == "annealed":
            return min(1.0, update / (self.annealing or self.updates))
        return float(mask == "bidirectional")


def read_recipe(path: str | PathLike[str]) -> Recipe:
    """The recipe in a TOML file.

    Examples
    --------
    >>> read_recipe("nowhere.toml")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no recipe nowhere.toml. Give a TOML file, or the name of a bundled recipe: smollm2.
    """
    file = Path(path)
    if "\0" in str(file) or not file.is_file():
        raise Refusal(f"There is no recipe {file}. Give a TOML file, or the name of a bundled recipe: {', '.join(bundled_names())}.")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of too many digits, too deep a nesting
        raise Refusal(f"{file} is not TOML: {error}. Correct it there.") from None
    return recipe_of(table, str(file))


def bundled_names() -> list[str]:
    """The names of the recipes that come with floatlens.

    Examples
    --------
    >>> bundled_names()
    ['smollm2']
    """
    return sorted(Path(file.name).stem for file in files("floatlens.lab.adaptation").iterdir() if file.name.endswith(".toml"))


def bundled_recipe(name: str) -> Recipe:
    """A recipe that comes with floatlens.

    Examples
    --------
    >>> bundled_recipe("smollm2").base
    'smollm2-135m'
    """
    return read_recipe(Path(str(files("floatlens.lab.adaptation"))) / f"{name}.toml")


def recipe_of(table: dict[str, Any], where: str) -> Recipe:
    """A recipe from the table of a file; `where` names the file in refusals.

    Examples
    --------
    >>> recipe_of({"base": "smollm2-135m", "mask_token": "<empty_output>", "updates": 0}, "own.toml")
    Traceback (most recent call last):
    floatlens.errors.Refusal: own.toml, updates: must be at least 1 (it is 0). Correct this field.
    """
    written = json.dumps(table, default=str)
    if re.search(r"\\ud[89a-f]", written) and any(
        0xD800 <= ord(sign) <= 0xDFFF for sign in json.dumps(table, default=str, ensure_ascii=False)
    ):
        raise Refusal(f"{where}: a text in it, or among the options, holds half of a surrogate pair. Write it as UTF-8.")
    try:
        return Recipe.model_validate_json(written, strict=True)  # from JSON, where lists may be tuples
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        sentence = wanted_in_words(first["type"], first["msg"].removeprefix("Value error, "))
        shown = f" (it is {str(first['input'])[:60]!s})" if first["type"] not in ("missing", "value_error", "extra_forbidden") else ""
        raise Refusal(
            f"{where}{f', {field}' if field else ''}: {sentence}{shown}. Correct {'this field' if field else 'the recipe'}."
        ) from None

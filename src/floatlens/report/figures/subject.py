"""What a figure is of: the arrays of one query group, the prompts they come from, and the small print that says so.

Decides, for all figures alike:

- which rows: those of the group that is asked for, otherwise of the first that a trace has of the groups a figure prefers, otherwise
  of its first group;
- where no step has more than one row of the group (predicting rows, one token per step), anchors are those of all steps pooled: a
  single row always has strongest keys, and they say little;
- intervals are over prompts: samples of a trace with the same prompt are resampled together; each sample of a dataset counts as a
  prompt.

The small print names the model, the group, the rule, the number of prompts, and the reason wherever a number is missing. Refuses a
figure of which nothing could be drawn.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from floatlens.anchor_rules import refuse_unknown_rule
from floatlens.errors import Refusal
from floatlens.measures.anchors import find_anchors
from floatlens.measures.inputs import NO_ROWS, Measurable, as_dataset, choose_group, prompts_of
from floatlens.measures.received_attention import pool_steps
from floatlens.statistics.resampling import bootstrap
from floatlens.trace.trace import Trace

LONGEST_NAME = 48


@dataclass(frozen=True, eq=False)
class Subject:
    """What a figure is of. `data` has an axis `sample` and none of groups; `prompt_of` is the prompt of each sample."""

    data: xr.Dataset
    model: str
    group: str
    prompt_of: list[str]
    one_row_per_step: bool

    @property
    def prompts(self) -> int:
        return len(set(self.prompt_of))

    def over_prompts(self, values: xr.DataArray) -> xr.Dataset:
        """The mean over samples with an interval over prompts."""
        return bootstrap(values, clusters=self.prompt_of)

    def small_print(self, *more: str, intervals: str = "bands") -> list[str]:
        """The small print: model, rows, what else is to be said, prompts, and what shows their intervals ("" if nothing does)."""
        shown = f", {intervals}: 95 % intervals over prompts" if intervals else ""
        counted = "1 prompt, so no interval" if self.prompts == 1 else f"{self.prompts} prompts{shown}"
        return [self.model, f"{self.group} rows", *more, counted]

    def said_of_anchors(self, rule: str, eps: float | None) -> str:
        """The rule in words, and whether the anchors are those of each step."""
        return f"{said_of_rule(rule, eps)}, {'of all steps pooled' if self.one_row_per_step else 'at each step'}"


def subject_of(given: Measurable, group: str | None = None, preferred: Sequence[str] = ("masked", "predicting")) -> Subject:
    """Choose the rows of a trace, or of a dataset with a trace's variables, that a figure is of.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> subject = subject_of(from_attention(np.full((4, 4), 0.25)))
    >>> subject.group, subject.prompts, subject.one_row_per_step
    ('everyone', 1, False)
    """
    data = with_samples(as_dataset(given))
    groups = [str(name) for name in data["group"].values] if "group" in data.dims else []
    chosen = group or next((name for name in preferred if name in groups), groups[0] if groups else preferred[0])
    own = choose_group(data, chosen).drop_vars("group")
    single = "rows" in own and bool((own["rows"].fillna(0) <= 1).all())
    prompts = prompts_of(given) if isinstance(given, Trace) else [str(number) for number in range(data.sizes["sample"])]
    return Subject(own, model_of(data), chosen, prompts, single and "step" in own.dims)


def said_of_rule(rule: str, eps: float | None) -> str:
    """How anchors are found, in words.

    Examples
    --------
    >>> said_of_rule("lift", None)
    'anchors by the rule lift, eps = 3'
    """
    return f"anchors by the rule {rule}, {'K' if rule == 'top' else 'eps'} = {refuse_unknown_rule(rule, eps):g}"


def with_samples(data: xr.Dataset) -> xr.Dataset:
    """The same data with an axis `sample`."""
    return data if "sample" in data.dims else data.expand_dims("sample")


def model_of(data: xr.Dataset) -> str:
    """The name of the model, and that it was edited if it was.

    Examples
    --------
    >>> model_of(xr.Dataset())
    'a model without a name'
    """
    attributes = json.loads(data.attrs["floatlens"]) if "floatlens" in data.attrs else {}
    given = str(attributes.get("model") or "a model without a name")
    name = Path(given).name if given.startswith(("/", "~", ".")) else given  # where a folder is stored says nothing about the model
    short = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
    return f"{short}, edited: {'; '.join(map(str, attributes['edits']))}" if attributes.get("edits") else short


def find_own_anchors(data: xr.Dataset, rule: str, eps: float | None, *, pooled: bool, per_head: bool = True) -> xr.Dataset:
    """The anchors of one sample, of every step or of all steps pooled."""
    return find_anchors(pool_steps(data) if pooled else data, rule=rule, eps=eps, per_head=per_head)


def mean_by(values: xr.DataArray, *axes: str) -> xr.DataArray:
    """The mean over all other axes, of what has a value.

    Examples
    --------
    >>> mean_by(xr.DataArray([[1.0, np.nan], [3.0, 5.0]], dims=("layer", "step")), "layer").values.tolist()
    [1.0, 4.0]
    """
    return values.mean([axis for axis in values.dims if axis not in axes])


def reasons_in(measured: xr.Dataset) -> str:
    """All reasons that a measure gives, joined. That a group has no rows at some step counts only if there is no other: padding has none.

    Examples
    --------
    >>> reasons_in(xr.Dataset({"reason": ("step", ["", NO_ROWS, "too few rows see any key"])}))
    'too few rows see any key'
    """
    reasons = [text for text in np.unique(measured["reason"].values.astype(str)).tolist() if text]
    return "; ".join([text for text in reasons if text != NO_ROWS] or reasons)


def notes_on_missing(values: Mapping[str, xr.DataArray], reasons: Mapping[str, xr.DataArray]) -> list[str]:
    """What to say of series (over sample and further axes) that lack values: of how many samples, and why.

    Examples
    --------
    >>> share = xr.DataArray([[1.0], [np.nan]], dims=("sample", "layer"))
    >>> notes_on_missing({"first token": share}, {"first token": xr.DataArray(["", "no rows"], dims="sample")})
    ['first token: incomplete in 1 of 2 samples (no rows)']
    """
    names: dict[str, list[str]] = {}  # of what is said of them
    for name, series in values.items():
        lacking = series.isnull().any([axis for axis in series.dims if axis != "sample"]).values
        if lacking.any():
            why = joined(reasons[name].values[lacking]) or "not recorded"
            names.setdefault(f"incomplete in {lacking.sum()} of {len(lacking)} samples ({why})", []).append(name)
    return [f"{', '.join(those)}: {reason}" for reason, those in names.items()]


def joined(reasons: np.ndarray) -> str:
    """Reasons, some of them joined already, each once.

    Examples
    --------
    >>> joined(np.array(["no rows", "", "no rows; one step"]))
    'no rows; one step'
    """
    return "; ".join(dict.fromkeys(text for several in reasons.ravel() for text in str(several).split("; ") if text))


def refuse_empty(what: str, values: Mapping[str, xr.DataArray], reasons: Mapping[str, xr.DataArray]) -> None:
    """Refuse a figure of which no series has a single value."""
    if not any(bool(series.notnull().any()) for series in values.values()):
        why = joined(np.concatenate([reason.values.ravel().astype(str) for reason in reasons.values()]))
        raise Refusal(f"There is nothing to draw in {what}: {why or 'no value was recorded'}.")

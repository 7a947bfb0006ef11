"""The page format in code: the documents and arrays that the page reads. docs/reference/page-format.md is the specification.

`python -m floatlens.report.page.typescript` writes the same as TypeScript into web/src/data/schema.ts, and a test compares the two.
What does not exist is NaN in arrays and null in documents.
"""

from dataclasses import dataclass, field

PAGE_VERSION = 1

SETS = ("first token", "strongest key", "anchors")
"""The axis `set` of absorption."""

INDICES = ("float index", "no memory", "across halves", "no movement")
"""The axis `index` of `float_index`."""

MEASURED, ANCHOR, NOT_MEASURED = range(3)
"""What `standing` holds."""

ARRAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "canvas": (("step", "position"), "int32"),
    "state": (("step", "position"), "int8"),
    "role": (("step", "position"), "int8"),
    "confidence": (("step", "position"), "float32"),
    "final": (("position",), "int32"),
    "committed": (("position",), "int32"),
    "mass": (("step", "layer", "group", "key"), "float32"),
    "visible": (("step", "layer", "group", "key"), "float32"),
    "null": (("step", "layer", "group", "key"), "float32"),
    "rows": (("step", "layer", "group"), "float32"),
    "standing": (("step", "layer", "group", "key"), "uint8"),
    "absorbed": (("step", "layer", "group", "set"), "float32"),
    "absorbed_null": (("step", "layer", "group", "set"), "float32"),
    "entropy": (("step", "layer", "group"), "float32"),
    "centroid": (("step", "layer", "group"), "float32"),
    "centroid_null": (("step", "layer", "group"), "float32"),
    "commits": (("step",), "int32"),
    "commit_confidence": (("step",), "float32"),
    "float_index": (("layer", "group", "index"), "float32"),
    "top_key": (("layer", "head", "written", "rank"), "int32"),
    "top_weight": (("layer", "head", "written", "rank"), "float32"),
    "written": (("written",), "int32"),
    "lift_by_head": (("step", "layer", "head", "group", "key"), "float32"),
    "entropy_by_head": (("step", "layer", "head", "group"), "float32"),
    "first_by_head": (("step", "layer", "head", "group"), "float32"),
    "first_by_head_null": (("step", "layer", "head", "group"), "float32"),
    "head_value": (("measure", "layer", "head", "group"), "float32"),
    "head_null": (("measure", "layer", "head", "group"), "float32"),
    "pattern": (("step", "chosen", "query", "key"), "float32"),
    "geometry": (("quantity", "layer", "group", "key"), "float32"),
    "geometry_standing": (("layer", "group", "key"), "uint8"),
    "geometry_means": (("quantity", "layer", "group", "kind"), "float32"),
    "advantage": (("layer", "group", "part"), "float32"),
    "value_norms": (("layer", "group", "kind"), "float32"),
    "role_share": (("layer", "group", "role"), "float32"),
    "role_null": (("layer", "group", "role"), "float32"),
    "role_enrichment": (("layer", "group", "role"), "float32"),
    "flow": (("layer", "region"), "float32"),
    "flow_null": (("layer", "region"), "float32"),
    "flow_fair": (("layer", "region"), "float32"),
    "rollout": (("layer", "region"), "float32"),
    "rollout_null": (("layer", "region"), "float32"),
    "curve": (("update", "curve", "measure", "depth"), "float32"),
    "curve_low": (("update", "curve", "measure", "depth"), "float32"),
    "curve_high": (("update", "curve", "measure", "depth"), "float32"),
    "curve_null": (("update", "curve", "measure", "depth"), "float32"),
}
"""Axes and dtype of every array of a sample, and of a training. `layer` has length 1 in counts that are the same for all layers."""


@dataclass(frozen=True)
class Quantised:
    """How the bytes of a quantised array become numbers. 255 is NaN.

    "log2": 0 is less than `2 ** floor`, and k is `2 ** (floor + (k - 1) * step)`. "linear": k is `k * step`.
    """

    kind: str
    step: float
    floor: float


@dataclass(frozen=True)
class SampleDocument:
    """One sample: where its arrays are, and the words that go with them."""

    path: str
    question: str
    title: str
    completion: str
    steps: int
    positions: int
    arrays: list[str]
    measures: list[str]
    measure_units: list[str]
    roles: list[str]
    regions: list[str]
    skipped: dict[str, str]


@dataclass(frozen=True)
class RunDocument:
    """One trace: what was run, and its samples."""

    name: str
    model: str
    revision: str | None
    family: str
    autoregressive: bool
    sampler: dict[str, str]
    seed: int
    dtype: str
    device: str
    versions: dict[str, str]
    edits: list[str]
    layers: list[int]
    heads: int
    groups: list[str]
    chosen: list[list[int]]
    rule: str
    eps: float
    samples: list[SampleDocument]


@dataclass(frozen=True)
class Number:
    """One number of a claim, with its interval, its line, and its null or control."""

    says: str
    value: float | None
    low: float | None
    high: float | None
    prompts: int
    side: str
    line: float
    beside: float | None
    beside_says: str
    unit: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class ClaimDocument:
    """A claim, its verdict, and where on the page one can see it."""

    name: str
    paper: str
    statement: str
    rule: str
    verdict: str
    reason: str
    numbers: list[Number]
    view: str
    models: list[str]


@dataclass(frozen=True)
class ClaimsDocument:
    """All claims of a demo."""

    source: str
    caution: str
    models: list[str]
    about: dict[str, str]
    claims: list[ClaimDocument]


@dataclass(frozen=True)
class Point:
    """One number of an evaluation. `answers` is the group that holds its questions, prompts and answers, or null."""

    quantity: str
    outcome: str
    model: str
    other: str
    context: str
    kind: str
    level: float | None
    intervention: str
    control: str
    reference: str
    estimate: float | None
    low: float | None
    high: float | None
    samples: int
    p_value: float | None
    reason: str
    shortcut: float | None
    removed: float | None
    answers: str | None


@dataclass(frozen=True)
class EvaluationDocument:
    """The summary of an evaluation, or of one experiment of a demo."""

    name: str
    models: list[str]
    points: list[Point]


@dataclass(frozen=True)
class AnswerDocument:
    """One question in one condition."""

    sample: str
    prompt: str
    prediction: str
    answer: str
    accuracy: float | None
    log_likelihood: float | None


@dataclass(frozen=True)
class CurveDocument:
    """One curve of a training: a run, or several that differ in their seed only. `count` texts or seeds (`over`) make its interval."""

    name: str
    runs: list[str]
    objective: str
    mask: str
    group: str
    over: str
    count: int
    updates: list[int]


@dataclass(frozen=True)
class TrainingDocument:
    """Measures against the update. The axis `depth` of its arrays is the mean over all layers, and then `layers`."""

    name: str
    path: str
    arrays: list[str]
    curves: list[CurveDocument]
    measures: list[str]
    updates: list[int]
    layers: list[int]
    unit: str


@dataclass(frozen=True)
class PageDocument:
    """Everything the page shows; the attribute `floatlens` of the root."""

    format: str
    version: int
    floatlens: str
    runs: list[RunDocument] = field(default_factory=list)
    claims: list[ClaimsDocument] = field(default_factory=list)
    evaluations: list[EvaluationDocument] = field(default_factory=list)
    training: list[TrainingDocument] = field(default_factory=list)


DOCUMENTS = (
    Quantised,
    SampleDocument,
    RunDocument,
    Number,
    ClaimDocument,
    ClaimsDocument,
    Point,
    EvaluationDocument,
    AnswerDocument,
    CurveDocument,
    TrainingDocument,
    PageDocument,
)

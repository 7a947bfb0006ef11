"""`floatlens figures`: draw every figure that the traces hold the numbers for, and say why the others are left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floatlens.errors import Refusal
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from floatlens.trace.trace import Trace

    Drawing = tuple[str, str, Callable[[], Figure]]


def figures(
    paths: list[str] = typer.Argument(help="Traces: folders or fsspec URLs.", metavar="TRACE"),
    output: Path = typer.Option(
        ...,
        "--output",
        "-o",
        help="The folder for the figures, created if needed. Figures that were drawn there before are replaced.",
    ),
    format_: str = typer.Option("pdf,svg,png", "--format", "-f", help="One or more of pdf, svg, png, separated by commas."),
    rule: str = typer.Option("lift", help="How anchors are found: lift, additive, zscore, rate or top."),
    eps: float = typer.Option(None, help="The threshold of the rule, or the number of keys for top; by default the rule's own."),
    sample: int = typer.Option(0, min=0, help="The sample that temporal_drift, path_by_layer and an animation show, counted from 0."),
    group: str = typer.Option(
        None, help="Rows whose attention is drawn: masked, unmasked, predicting or prompt; by default each figure's own."
    ),
    only: str = typer.Option(
        None,
        help="Only these figures, separated by commas: absorption_by_layer, absorption_on_shared_rectangle, temporal_drift, qk_geometry, "
        "roles_by_depth, retrieval_heads, region_flow, threshold_sweep, float_index_by_layer, "
        "path_by_layer, path_on_prompt. By default all.",
    ),
    gold: str = typer.Option("gold", help="The region that holds the answer, for retrieval_heads."),
    animated: bool = typer.Option(
        False, "--animate", help="Draw only the denoising of one sample, as an animation: denoising.gif, and .mp4 where ffmpeg is found."
    ),
    layer: int = typer.Option(None, min=0, help="The layer whose attention an animation shows; by default the middle one."),
) -> None:
    """Draw every figure for which the traces hold the numbers, and say why others are left out.

    With several traces, absorption and the path of the strongest key are drawn side by side: absorption once as recorded and once on the
    rectangle that models of all kinds share (predicting rows, prompt keys), the path among all keys and among those of the prompt. Every
    other figure is drawn for each trace.

    Examples:

      floatlens figures run.zarr -o figures

      floatlens figures twin-mdm.zarr twin-arm.zarr -o figures --format svg --group predicting

      floatlens figures run.zarr -o figures --only temporal_drift --sample 2 --rule rate --eps 0.3

      floatlens figures run.zarr -o figures --animate --layer 3
    """
    from floatlens.anchor_rules import refuse_unknown_rule
    from floatlens.folders import files_added_to, refuse_folder_to_fill, short_name
    from floatlens.report.figures import save_figure
    from floatlens.report.figures.style import refuse_unknown_formats
    from floatlens.terminal import progress_bar
    from floatlens.trace.trace import open_trace

    console = make_console()
    formats = [ending.strip() for ending in format_.split(",") if ending.strip()]
    refuse_unknown_formats(formats)
    refuse_unknown_rule(rule, eps)
    refuse_folder_to_fill(output, "floatlens figures")
    traces = {name: open_trace(path) for name, path in zip(short_names(paths), paths, strict=True)}
    for name, trace in traces.items():
        groups = trace.attributes["groups"]
        if group is not None and group not in groups:
            raise Refusal(f"{name} has no group {group!r}; it has {', '.join(groups)}.")
        if sample >= len(trace):
            raise Refusal(f"{name} has {len(trace)} samples, counted from 0; there is no sample {sample}.")
    if layer is not None and not animated:
        raise Refusal("--layer says which layer --animate shows; add --animate.")
    if animated:
        _animate(traces, output, _Choices(rule, eps, sample, group, gold), layer)
        return
    wanted = _chosen(list(_figures(traces, _Choices(rule, eps, sample, group, gold))), only)
    drawings = {short_name(f"{name}-{of}" if of and len(traces) > 1 else name): draw for name, of, draw in wanted}
    written: list[Path] = []
    left_out: list[str] = []
    names = [f"{file}.{ending}" for file in drawings for ending in formats]
    with files_added_to(output, "floatlens figures", names) as folder, progress_bar(len(drawings), "Drawing") as advance:
        for file, draw in drawings.items():
            try:
                written += save_figure(draw(), folder / file, formats)
            except Refusal as refusal:
                left_out.append(f"{file}: {refusal}")
            advance(1)
        if not written:
            raise Refusal(f"No figure could be drawn. {' '.join(left_out)}")
    for file in written:
        say(console, str(output / file.name))
    if left_out:
        say(console, "Left out:")
    for line in left_out:
        say(console, f"  {line}")


def _animate(traces: "dict[str, Trace]", output: Path, chosen: "_Choices", layer: int | None) -> None:
    """Write a moving picture of each trace."""
    import shutil

    from floatlens.folders import files_added_to, short_name
    from floatlens.report.figures.animation import animate

    formats = ("gif", "mp4") if shutil.which("ffmpeg") else ("gif",)
    names = {trace: short_name(f"denoising-{trace}" if len(traces) > 1 else "denoising") for trace in traces}
    with files_added_to(output, "floatlens figures", [f"{name}.{ending}" for name in names.values() for ending in formats]) as folder:
        for trace, name in names.items():
            how = {"sample": chosen.sample, "layer": layer, "group": chosen.group, "rule": chosen.rule, "eps": chosen.eps}
            animate(traces[trace], folder, name, formats=formats, **how)
    for name in names.values():
        for ending in formats:
            say(make_console(), str(output / f"{name}.{ending}"))
    if len(formats) == 1:
        say(make_console(), "No MP4 was written: ffmpeg was not found.")


def short_names(paths: Sequence[str]) -> list[str]:
    """A name for each trace: the last part of its path, with the part before it where two are the same.

    Examples
    --------
    >>> short_names(["a/run.zarr", "b/run.zarr", "c/other.zarr"])
    ['a-run', 'b-run', 'other']
    """
    parts = [path.replace("\\", "/").rstrip("/").split("/") for path in paths]
    names = [own[-1].removesuffix(".zarr") for own in parts]
    counts = Counter(names)
    longer = [f"{own[-2]}-{name}" if counts[name] > 1 and len(own) > 1 else name for own, name in zip(parts, names, strict=True)]
    if twice := [path for path, name in zip(paths, longer, strict=True) if longer.count(name) > 1]:
        raise Refusal(f"{' and '.join(twice)} would have figures of the same name. Draw them into different folders.")
    return longer


@dataclass(frozen=True)
class _Choices:
    """What the user chose for all figures."""

    rule: str
    eps: float | None
    sample: int
    group: str | None
    gold: str


def _figures(traces: "dict[str, Trace]", chosen: _Choices) -> "Iterator[Drawing]":
    """Every figure: its name, the trace it is of ("" for all of them), and what draws it."""
    from floatlens.report import figures as drawn

    anchors = {"rule": chosen.rule, "eps": chosen.eps}
    group = {"group": chosen.group}
    together = traces if len(traces) > 1 else next(iter(traces.values()))
    yield "absorption_by_layer", "", partial(drawn.absorption_by_layer, together, **group, **anchors)
    if len(traces) > 1:
        yield "absorption_on_shared_rectangle", "", partial(drawn.absorption_by_layer, together, rectangle=True, **anchors)
    for name, keys in (("path_by_layer", "all"), ("path_on_prompt", "prompt")):
        yield name, "", partial(drawn.path_by_layer, together, sample=chosen.sample, keys=keys, **group)
    for name, trace in traces.items():
        yield "temporal_drift", name, partial(drawn.temporal_drift, trace, sample=chosen.sample, **group, **anchors)
        yield "qk_geometry", name, partial(drawn.qk_geometry, trace, **group, **anchors)
        yield "roles_by_depth", name, partial(drawn.roles_by_depth, trace, **group, **anchors)
        yield "retrieval_heads", name, partial(drawn.retrieval_heads, trace, chosen.gold)
        yield "region_flow", name, partial(drawn.region_flow, trace, **group)
        yield "threshold_sweep", name, partial(drawn.threshold_sweep, trace, **group)
        yield "float_index_by_layer", name, partial(drawn.float_index_by_layer, trace, **group, **anchors)


def _chosen(drawings: "list[Drawing]", only: str | None) -> "list[Drawing]":
    """The figures that are named, or all of them."""
    if only is None:
        return drawings
    names = [name.strip() for name in only.split(",") if name.strip()]
    there = dict.fromkeys(name for name, _, _ in drawings)
    if not names:
        raise Refusal(f"--only names no figure; the figures are {', '.join(there)}.")
    if unknown := [name for name in names if name not in there]:
        raise Refusal(f"There is no figure {unknown[0]!r}; the figures are {', '.join(there)}.")
    return [drawing for drawing in drawings if drawing[0] in names]

"""`floatlens measure`: the measures of a trace, and how two traces compare."""

from typing import TYPE_CHECKING

import typer

from floatlens.errors import Refusal
from floatlens.terminal import make_console, visible

if TYPE_CHECKING:
    from floatlens.trace.trace import Trace


def measure(
    paths: list[str] = typer.Argument(help="Traces: folders or fsspec URLs; two with --compare.", metavar="TRACE"),
    compare: bool = typer.Option(False, "--compare", help="Compare two traces on the rows and keys they share."),
    unpaired: bool = typer.Option(False, "--unpaired", help="Compare traces of different prompts, as two separate sets."),
    rule: str = typer.Option("lift", help="How anchors are found: lift, additive, zscore, rate or top."),
    eps: float = typer.Option(None, help="The threshold of the rule, or the number of keys for top; by default the rule's own."),
    gold: str = typer.Option(None, help="The region that holds the answer; adds retrieval heads."),
    group: str = typer.Option(None, help="Only these rows: masked, unmasked, predicting or prompt; by default all that were traced."),
    by_layer: bool = typer.Option(False, "--by-layer", help="Print every layer instead of thirds of the depth."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print CSV, one line per number."),
) -> None:
    """Measure a trace: anchors, absorption, drift, geometry, roles and flow, each with an interval over prompts and its null.

    Examples:

      floatlens measure run.zarr

      floatlens measure run.zarr --rule additive --eps 3 --csv > run.csv

      floatlens measure llada.zarr llama.zarr --compare
    """
    from floatlens.trace.trace import open_trace

    if as_json and as_csv:
        raise Refusal("--json and --csv are both asked for; choose one.")
    if compare and len(paths) != 2:
        raise Refusal(f"--compare takes two traces, and {len(paths)} {'is' if len(paths) == 1 else 'are'} given.")
    if unpaired and not compare:
        raise Refusal("--unpaired says how two traces are compared; add --compare.")
    if compare and (gold or group or by_layer):
        raise Refusal(
            "--gold, --group and --by-layer are for one trace; a comparison is over predicting rows, prompt keys and thirds of the depth."
        )
    traces = [open_trace(path) for path in paths]
    how = "json" if as_json else "csv" if as_csv else "table"
    if compare:
        _compare(paths, traces, rule, eps, not unpaired, how)
        return
    if how != "table" and len(traces) > 1:
        raise Refusal(f"--{how} prints one trace at a time, and {len(traces)} are given.")
    for trace in traces:
        _measure(trace, rule, eps, gold, group, by_layer, how)


def _measure(trace: "Trace", rule: str, eps: float | None, gold: str | None, group: str | None, by_layer: bool, how: str) -> None:
    from floatlens.measures.summary import measure_trace
    from floatlens.report import tables

    groups = trace.attributes["groups"]
    if group is not None and group not in groups:
        raise Refusal(f"This trace has no group {group!r}; it has {', '.join(groups)}.")
    summary = measure_trace(trace, rule=rule, eps=eps, gold=gold)
    findings = [finding for finding in summary.findings(by_layer=by_layer) if group is None or finding.group in (group, "")]
    if how == "table":
        tables.print_findings(make_console(), summary, findings, [group] if group else groups)
    else:
        typer.echo(visible(tables.as_csv(findings)) if how == "csv" else tables.as_json(summary.about, findings, summary.skipped))


def _compare(paths: list[str], traces: list["Trace"], rule: str, eps: float | None, paired: bool, how: str) -> None:
    from floatlens.measures.summary import compare_traces
    from floatlens.report import tables

    a, b = traces
    contrasts, skipped = compare_traces(a, b, rule=rule, eps=eps, paired=paired)
    names = (f"{a.attributes['model']} ({paths[0]})", f"{b.attributes['model']} ({paths[1]})")
    if how == "table":
        tables.print_contrasts(make_console(), names, contrasts, skipped, paired)
    else:
        about = {"a": names[0], "b": names[1], "rule": rule, "paired": paired}
        typer.echo(visible(tables.as_csv(contrasts)) if how == "csv" else tables.as_json(about, contrasts, skipped))

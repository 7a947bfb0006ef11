"""All measures of a trace together: by sample, over prompts, by depth."""

from collections import Counter

import numpy as np
import pytest
import xarray as xr

import floatlens as fl
from floatlens import measures
from floatlens.measures.catalogue import CATALOGUE, RANGES
from floatlens.measures.inputs import prompts_of
from floatlens.measures.summary import Finding, compare_traces, measure_trace, over_depth
from writers import PROMPTS, autoregressive_model, diffusion_model


@pytest.fixture(scope="module")
def trace() -> fl.Trace:
    return diffusion_model("llada").trace([*PROMPTS, PROMPTS[0]], gen_length=6, steps=3, detail="full", progress=False)


def find(findings: list[Finding], measure: str, **labels: str) -> Finding:
    (found,) = (one for one in findings if one.measure == measure and all(getattr(one, name) == label for name, label in labels.items()))
    return found


def test_a_finding_is_the_mean_over_samples_of_the_measure(trace: fl.Trace) -> None:
    summary = measure_trace(trace, eps=0.5, progress=False)
    anchors = measures.find_anchors(trace, eps=0.5)
    share = measures.absorption_of_anchors(trace, anchors)["share"].mean(["step", "head"])
    findings = summary.findings()
    for group in ("masked", "unmasked", "predicting"):
        found = find(findings, "on the step's anchors", group=group, depth="all")
        assert found.value == pytest.approx(float(share.sel(group=group).mean(["layer", "sample"])), rel=1e-5)
        shallow = find(findings, "on the step's anchors", group=group, depth="shallow")
        assert shallow.value == pytest.approx(float(share.sel(group=group).isel(layer=0).mean("sample")), rel=1e-5)
    by_layer = summary.findings(by_layer=True)
    assert find(by_layer, "on the step's anchors", group="masked", depth="2").value == pytest.approx(
        float(share.sel(group="masked").isel(layer=2).mean("sample")), rel=1e-5
    )


def test_samples_of_one_prompt_count_as_one(trace: fl.Trace) -> None:
    assert prompts_of(trace)[0] == prompts_of(trace)[3]
    for found in measure_trace(trace, eps=0.5, progress=False).findings():
        assert found.prompts <= 3


def test_every_interval_lies_in_the_range_of_its_unit_and_holds_its_value(trace: fl.Trace) -> None:
    for found in measure_trace(trace, eps=0.5, progress=False).findings():
        least, most = RANGES[found.unit]
        if not np.isnan(found.value):
            assert least - 1e-6 <= found.value <= most + 1e-6
            assert found.low <= found.value <= found.high
        else:
            assert found.reason, f"{found.measure} is missing without a reason"


def test_every_line_is_measured_or_said_to_be_left_out(trace: fl.Trace) -> None:
    summary = measure_trace(trace, progress=False)
    asked = {line.name for line in CATALOGUE if not line.needs_gold}
    assert set(summary.values) | set(summary.skipped) == asked
    assert set(summary.values) & set(summary.skipped) == set()
    assert all("tokenizer" in reason for reason in summary.skipped.values()), (
        "a model without a tokenizer has no roles, and everything else"
    )


def test_relabelling_samples_changes_nothing() -> None:
    lm = autoregressive_model()
    here, there = (lm.trace(prompts, gen_length=6, progress=False) for prompts in (PROMPTS, PROMPTS[::-1]))
    first, second = (measure_trace(trace, eps=0.5, progress=False).findings() for trace in (here, there))
    for one, other in zip(first, second, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4, abs=1e-6, nan_ok=True)
        assert one.null == pytest.approx(other.null, rel=1e-4, abs=1e-6, nan_ok=True)


def test_one_step_leaves_out_what_needs_two() -> None:
    trace = diffusion_model("llada").trace(PROMPTS, gen_length=2, steps=1, progress=False)
    findings = measure_trace(trace, eps=0.5, progress=False).findings()
    found = find(findings, "float index (no memory)", group="masked", depth="all")
    assert np.isnan(found.value)
    assert "one step" in found.reason
    assert not np.isnan(find(findings, "on the step's anchors", group="masked", depth="all").value)


def test_the_reason_that_is_printed_is_that_of_most_heads() -> None:
    trace = fl.load("twin-mdm").trace("Where does [UNK] live?", gen_length=8, steps=3, progress=False)
    by_head = measures.float_index(trace)["reason"].sel(group="predicting").values.ravel()
    reasons = Counter(str(reason) for reason in by_head if reason)
    assert len(reasons) > 1, "with one reason only there is nothing to choose"
    movement = find(measure_trace(trace, progress=False).findings(), "movement", group="predicting", depth="all")
    assert np.isnan(movement.value)
    assert movement.reason == reasons.most_common(1)[0][0] != min(reasons)


def test_a_trace_against_itself_does_not_differ(trace: fl.Trace) -> None:
    contrasts, _ = compare_traces(trace, trace, eps=0.5, progress=False)
    assert {one.depth for one in contrasts} == {"all", "shallow", "middle", "deep"}
    for one in contrasts:
        if not np.isnan(one.difference):
            assert (one.difference, one.low, one.high, one.p_value) == (0, 0, 0, 1)


def test_depths_partition_the_layers() -> None:
    values = xr.Dataset({"value": (("sample", "layer"), np.arange(12.0).reshape(2, 6))}, coords={"layer": np.arange(6)})
    found = over_depth(values)["value"]
    np.testing.assert_allclose(found.sel(depth="all"), [2.5, 8.5])
    np.testing.assert_allclose(found.sel(depth="shallow"), [0.5, 6.5])
    np.testing.assert_allclose(found.sel(depth="deep"), [4.5, 10.5])


def test_prompts_are_what_the_user_wrote_whatever_the_template() -> None:
    """Token ids stand for themselves; texts lose what the template added."""
    trace = diffusion_model("llada").trace([PROMPTS[1]], gen_length=2, progress=False)
    assert prompts_of(trace) == ["11 12"]


def test_paths_are_reported_by_layer_and_for_layers_pooled_among_all_keys_and_those_of_the_prompt(trace: fl.Trace) -> None:
    lines = [line for line in CATALOGUE if "path" in line.name or "favourite" in line.name]
    summary = measure_trace(trace, lines=lines, progress=False)
    findings = summary.findings()
    variables = {
        "keys on the path": ("keys", "keys_null"),
        "changes of the path": ("changes", "noise"),
        "steps on the favourite key": ("share", "share_null"),
        "movement of the path": ("movement", None),
    }
    assert len(lines) == 2 * len(variables)
    for part in ("all keys", "prompt keys"):
        by_layer, pooled = (
            measures.strongest_path(trace, keys=part.split()[0], pooled=pooled).sel(group="masked") for pooled in (False, True)
        )
        for name, (variable, null) in variables.items():
            each = find(findings, name, group="masked", part=part, depth="all")
            together = find(findings, f"{name}, layers pooled", group="masked", part=part, depth="deep")
            np.testing.assert_allclose(each.value, by_layer[variable].mean(["layer", "sample"]))
            np.testing.assert_allclose(together.value, pooled[variable].sel(depth="deep").mean("sample"))
            if null is not None:
                np.testing.assert_allclose(each.null, by_layer[null].mean(["layer", "sample"]))
                np.testing.assert_allclose(together.null, pooled[null].sel(depth="deep").mean("sample"))
    single = summary.findings(by_layer=True)
    assert {finding.depth for finding in single if finding.measure == "changes of the path"} == {"0", "1", "2"}
    assert {finding.depth for finding in single if finding.measure == "changes of the path, layers pooled"} == {"all"}


def test_paths_of_two_models_are_compared_on_their_rectangle(trace: fl.Trace) -> None:
    other = autoregressive_model().trace([*PROMPTS, PROMPTS[0]], gen_length=6, progress=False)
    contrasts, skipped = compare_traces(trace, other, progress=False)
    assert not skipped
    for pooled, ending in ((False, ""), (True, ", layers pooled")):
        means = []
        for model in (trace, other):
            path = measures.strongest_path(measures.shared_rectangle(model), pooled=pooled)["changes"].squeeze("group")
            means.append(float(path.sel(depth="all").mean() if pooled else path.mean()))
        (found,) = [one for one in contrasts if one.measure == f"changes of the path{ending}" and one.depth == "all"]
        np.testing.assert_allclose([found.a, found.b, found.difference], [*means, means[0] - means[1]], rtol=1e-5)

"""What was recorded of real models: bundled from a demo, read again, and shown beside what a demo finds."""

import base64
import gzip
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_up_curves import TEXTS, made_up_curves, value_of
from rich.console import Console

import floatlens as fl
from floatlens.claims.design import one_piece
from floatlens.claims.evidence import Evidence
from floatlens.claims.findings import Findings, findings_of
from floatlens.claims.verdicts import Estimate, judge
from floatlens.folders import damage, write_manifest
from floatlens.report.claims import WRITTEN_BY, claims_json
from floatlens.report.demo_page import write_demo_page
from floatlens.report.page.gather import Choices, find_sources, write_page
from floatlens.report.page.group import InMemory
from floatlens.report.recorded import BUNDLED, Recorded, read_recorded
from floatlens.report.recorded.bundle import LARGEST, bundle
from floatlens.report.verdict_table import disagreeing, print_totals, print_verdicts
from made_up_evidence import as_published
from question_files import write_models, write_questions


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    evidence = as_published().evidence()
    design = replace(evidence.design, task="plain", not_asked=one_piece("plain").not_asked)
    models = {"arm": "stories-arm", "mdm": "stories-mdm"}
    answers = evidence.answers.with_columns(prompt=pl.lit("Where?"), prediction=pl.lit("here"), answer=pl.lit("here"))
    return replace(evidence, answers=answers, about=evidence.about | {"design": design.stored(), "models": models})


@pytest.fixture(scope="module")
def findings(evidence: Evidence) -> Findings:
    return findings_of(evidence)


def write_demo(folder: Path, evidence: Evidence, findings: Findings) -> Path:
    """The folder of a demo without traces."""
    folder.mkdir()
    evidence.save(folder / "tables")
    (folder / "claims.json").write_text(claims_json(findings))
    write_manifest(folder, WRITTEN_BY)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, evidence: Evidence, findings: Findings) -> Recorded:
    """A small recorded part, made of a demo whose claims hold, and of two tiny models."""
    folder = tmp_path_factory.mktemp("recorded")
    models = write_models(folder)
    demo = write_demo(folder / "demo", evidence, findings)
    size = bundle(demo, folder / "bundled", models=models, data=str(write_questions(folder)), title="Stories", again="floatlens demo --x")
    assert size < LARGEST
    read = read_recorded(folder / "bundled")
    assert read is not None
    return read


def test_what_is_bundled_is_what_the_demo_found_and_light_traces_of_the_same_questions(recorded: Recorded) -> None:
    assert damage(recorded.folder) == []
    assert {name: claim["verdict"] for name, claim in recorded.claims.items() if claim["verdict"] != "holds"} == {
        "flows-to-gold": "not asked"
    }
    assert recorded.said == "stories-arm and stories-mdm, after adaptation; 12 questions of plain in each context, 12 traced texts."
    arm, mdm = (fl.open_trace(recorded.folder / "traces" / f"{role}.zarr") for role in ("arm", "mdm"))
    assert len(arm) == len(mdm) == 2
    assert [arm.prompt(number) for number in range(2)] == [mdm.prompt(number) for number in range(2)]
    assert "Where is the cat?" in arm.prompt(0)
    assert mdm.attributes["sampler"]["block_length"] == 1
    assert "head" not in arm.dataset["mass"].dims


def test_curves_come_along_as_means_over_texts_with_their_intervals_over_seeds(
    tmp_path: Path, evidence: Evidence, findings: Findings
) -> None:
    runs = {f"{kind[0]}-{seed}": (*kind, seed) for kind in (("ar", "causal"), ("diffusion", "bidirectional")) for seed in range(3)}
    made_up = made_up_curves(runs)
    for name in ("curves", "traces"):
        (tmp_path / name).mkdir()
    made_up.write_parquet(tmp_path / "curves" / "curves.parquet")
    demo = write_demo(tmp_path / "demo", evidence, findings)
    bundle(demo, tmp_path / "bundled", curves=tmp_path / "curves", traces=tmp_path / "traces")
    recorded = read_recorded(tmp_path / "bundled")
    assert recorded is not None
    [light] = find_sources(recorded.sources).training.values()
    assert light.height == made_up.height / TEXTS
    of = light.filter(run="diffusion-1", update=4, group="masked", layer=2, measure="on the first token")
    assert of["value"].item() == sum(value_of("diffusion-1", 1, 4, text, 2, "on the first token") + 1 for text in range(TEXTS)) / TEXTS
    shown = [InMemory(), InMemory()]
    for sink, folder in zip(shown, (tmp_path / "curves", recorded.sources[-1]), strict=True):
        page = write_page(sink, find_sources([folder]), Choices(), progress=False)
        assert {curve.over for curve in page.training[0].curves} == {"seeds"}
    for array in ("curve", "curve_low", "curve_high", "curve_null"):
        whole, lighter = (np.frombuffer(gzip.decompress(sink.files[f"training/0/{array}/c/0/0/0/0"]), "f4") for sink in shown)
        assert lighter == pytest.approx(whole, rel=1e-5, nan_ok=True)
    with pytest.raises(fl.Refusal, match=r"holds no curves\.parquet"):
        bundle(demo, tmp_path / "other", curves=tmp_path)


def test_a_damaged_recorded_part_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "claims.json").write_text((recorded.folder / "claims.json").read_text() + " ")
    (copied / "manifest.json").write_text((recorded.folder / "manifest.json").read_text())
    with pytest.raises(fl.Refusal, match="is damaged"):
        read_recorded(copied)


def test_a_demo_that_is_no_longer_what_was_written_is_not_bundled(tmp_path: Path, evidence: Evidence, findings: Findings) -> None:
    demo = write_demo(tmp_path / "demo", evidence, findings)
    (demo / "claims.json").write_text("{}")
    with pytest.raises(fl.Refusal, match="is not a finished demo"):
        bundle(demo, tmp_path / "bundled", models={})
    assert not (tmp_path / "bundled").exists()


def test_where_twins_and_real_models_disagree_the_table_says_so(recorded: Recorded, findings: Findings) -> None:
    verdicts = []
    for verdict in findings.verdicts:
        below = [replace(part, estimate=Estimate(-0.2, -0.3, -0.1, 12), beside=0.5) for part in verdict.parts]
        verdicts.append(judge(verdict.claim, below) if verdict.claim.name == "floats-more" else verdict)
    models = {"arm": "twin-arm", "mdm": "twin-mdm"}
    findings = replace(findings, verdicts=verdicts, about=findings.about | {"models": models})
    assert disagreeing(findings, recorded.claims) == ["floats-more"]
    shown = StringIO()
    console = Console(width=80, color_system=None, file=shown)
    print_verdicts(console, findings, recorded)
    print_totals(console, findings, recorded, "")
    lines = shown.getvalue().splitlines()
    assert lines[1].split() == ["claim", "twins", "Stories", "number", "control", "arXiv"]
    apart = next(line for line in lines if "\N{NOT EQUAL TO}" in line)
    assert apart.split() == ["floats-more", "fails", "holds", "\N{NOT EQUAL TO}", "-.200", ".500", "2601.07894"]
    assert "The two disagree on 1 claim" in shown.getvalue()
    assert max(map(len, lines[:28])) <= 80
    assert len(lines) <= 40 - 5, "up to five more are printed after a demo: how much was asked, and where to look"


def test_the_page_shows_both_and_each_claim_leads_to_a_run_of_its_own(
    recorded: Recorded, tmp_path: Path, evidence: Evidence, findings: Findings
) -> None:
    demo = write_demo(tmp_path / "demo", evidence, findings)
    trace = fl.load("twin-mdm").trace(["Ben Reed lives in Rome.", "Where?"], gen_length=2, steps=2, detail="light", progress=False)
    (demo / "traces").mkdir()
    trace.save(demo / "traces" / "mdm.zarr")
    write_demo_page(demo, "mine", recorded, progress=False)
    page = (demo / "index.html").read_text()
    embedded = base64.b64decode(page.partition('data-key="zarr.json">')[2].partition("</script>")[0])
    document = json.loads(embedded)["attributes"]["floatlens"]
    assert [run["name"] for run in document["runs"]] == ["mdm", "Stories-mdm", "Stories-arm"]
    first = {claims["source"]: {claim["name"]: claim["models"] for claim in claims["claims"]} for claims in document["claims"]}
    assert first["mine"]["floats"] == ["mdm"]
    assert first[recorded.folder.name]["floats"] == ["Stories-mdm"]
    assert first[recorded.folder.name]["fixed-sink"] == ["Stories-arm"]


def test_the_recorded_part_of_the_package_is_whole_and_small() -> None:
    found = read_recorded()
    if found is None:
        pytest.skip("nothing is bundled")
    assert sum(file.stat().st_size for file in BUNDLED.rglob("*") if file.is_file()) <= LARGEST
    assert {"fixed-sink", "floats"} <= found.claims.keys()

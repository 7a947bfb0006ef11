"""Retrieval measured on traces of tiny models of every way to write, against eager attention on the canvas of each step."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import floatlens as fl
from floatlens.measures.gold_span import gold_attention, gold_lift_by_sample
from floatlens.measures.retrieval import retrieval_by_step, retrieval_scores
from writers import autoregressive_model, diffusion_model
from zoo import eager_calls

WRITERS = ("llada", "dream", "autoregressive")
PROMPTS = [[5, 6, 7, 5, 5, 7, 6, 6, 5, 7, 6, 5, 7, 7, 5, 6], [7, 6, 5, 6, 6, 7, 5, 5, 6, 7], [6, 5, 7, 7, 6, 5, 5, 6, 7, 5, 7, 6, 5]]
NEEDLES = [list(range(1, 15)), list(range(10)), list(range(3, 12))]
LENGTH = 8


def traced(writer: str) -> tuple[fl.LanguageModel, fl.Trace, xr.DataArray]:
    """A model that can only write what its prompts hold, so that it copies; its trace; the needles."""
    lm = autoregressive_model() if writer == "autoregressive" else diffusion_model(writer)
    never = torch.full((96,), -1e4)
    never[5:8] = 0
    head: Any = lm.module.lm_head
    head.bias = torch.nn.Parameter(never)
    options: dict[str, Any] = {} if writer == "autoregressive" else {"steps": 5}
    trace = lm.trace(PROMPTS, gen_length=LENGTH, temperature=1.0, seed=1, progress=False, **options)
    longest = trace.dataset.sizes["position"]
    return lm, trace, xr.DataArray(np.stack([np.isin(np.arange(longest), needle) for needle in NEEDLES]), dims=("sample", "position"))


def rows_that_wrote(lm: fl.LanguageModel, sample: xr.Dataset) -> list[tuple[int, int, np.ndarray]]:
    """Of every position that was written: its step, itself, and the weights (layer, head, key) of the row whose logits filled it."""
    rows = []
    for step in range(sample.sizes["step"]):
        canvas, state = sample["canvas"].values[step], sample["state"].values[step]
        calls = eager_calls(lm.module, input_ids=torch.tensor(canvas[None, canvas >= 0]), use_cache=False)
        for position in np.flatnonzero(state == 3):
            row = max(int(position) - lm.row_offset, 0)
            rows.append((step, int(position), np.stack([call.weights[0][:, row] for call in calls])))
    return rows


@pytest.mark.parametrize("writer", WRITERS)
def test_a_trace_gives_what_eager_attention_gives_at_the_step_that_commits(writer: str) -> None:
    lm, trace, gold = traced(writer)
    scores, by_step = retrieval_scores(trace, gold), retrieval_by_step(trace, gold)
    attention, lifts = gold_attention(trace, gold), gold_lift_by_sample(trace, gold)
    for number, needle in enumerate(NEEDLES):
        sample = trace.sample(number)
        final = sample["final"].values
        rows = rows_that_wrote(lm, sample)
        assert len(rows) == LENGTH
        steps = sample.sizes["step"]
        sets: list[set[tuple[int, int]]] = [set() for _ in range(steps)]
        shares: list[list[np.ndarray]] = [[] for _ in range(steps)]
        evenly: list[list[float]] = [[] for _ in range(steps)]
        copies = np.zeros((3, 4, len(needle)))
        missed = np.ones(len(needle))
        for step, position, weights in rows:
            shares[step].append(weights[..., needle].sum(-1))
            evenly[step].append(len(needle) / weights.shape[-1])
            for at, key in enumerate(needle):
                if final[key] == final[position]:
                    missed[at] *= 1 - 1 / weights.shape[-1]
            for layer in range(3):
                for head in range(4):
                    favourite = int(np.argmax(weights[layer, head]))
                    if favourite in needle and final[favourite] == final[position]:
                        copies[layer, head, needle.index(favourite)] += 1
                        sets[step].add((layer, head))
        assert copies.sum() > 5, "too few copies to show anything"
        found = scores.isel(sample=number)
        np.testing.assert_allclose(found["score"].values, (copies > 0).mean(-1))
        np.testing.assert_allclose(found["published"].values, copies.mean(-1))
        np.testing.assert_allclose(found["null"].values, (1 - missed).mean(), rtol=1e-5)
        answer, asked = [int(final[position]) for _, position, _ in rows], [int(final[key]) for key in needle]
        assert float(found["recall"]) == pytest.approx(sum(min(answer.count(token), asked.count(token)) for token in {*asked}) / len(asked))
        here = by_step.isel(sample=number)
        for step in range(steps):
            assert {(int(layer), int(head)) for layer, head in np.argwhere(here["copies"].values[step])} == sets[step]
            mass, null = np.mean(shares[step], axis=0), np.mean(evenly[step])
            np.testing.assert_allclose(attention["mass"].values[number, step], mass, atol=1e-5)
            np.testing.assert_allclose(attention["lift"].values[number, step], mass / null, rtol=1e-4, atol=1e-4)
        possible = sorted({step for step, position, _ in rows if final[position] in final[needle]})
        jaccards = [len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in pairwise(possible) if sets[a] | sets[b]]
        assert float(here["mean_jaccard"]) == pytest.approx(np.mean(jaccards))
        assert int(here["pairs"]) == len(jaccards)
        means = [np.mean(np.mean(share, axis=0)) / np.mean(null) for share, null in zip(shares, evenly, strict=True)]
        assert float(lifts["lift"][number]) == pytest.approx(np.mean(means), rel=1e-4)


def test_a_trace_on_disk_and_one_sample_of_it_give_the_same(tmp_path: Path) -> None:
    _, trace, gold = traced("dream")
    trace.save(tmp_path / "run.zarr")
    stored = fl.open_trace(tmp_path / "run.zarr")
    for measure in (retrieval_scores, retrieval_by_step, gold_attention, gold_lift_by_sample):
        whole = measure(trace, gold)
        xr.testing.assert_identical(measure(stored, gold), whole)
        assert whole["sample"].values.tolist() == [0, 1, 2]
        own = trace.sample(1)
        alone = measure(own, gold.isel(sample=1, position=slice(0, own.sizes["position"])))
        one = whole.isel(sample=1).isel({axis: slice(0, own.sizes[axis]) for axis in ("step",) if axis in whole.dims})
        xr.testing.assert_allclose(one.drop_vars(["sample", "reason"]), alone.drop_vars(["sample", "reason"], errors="ignore"))


def test_regions_of_a_trace_are_spans_by_name() -> None:
    _, trace, _ = traced("llada")
    prompt = xr.DataArray(trace.dataset["in_region"].sel(region="prompt").values, dims=("sample", "position"))
    xr.testing.assert_identical(retrieval_scores(trace, "prompt"), retrieval_scores(trace, prompt))
    xr.testing.assert_identical(gold_attention(trace, "prompt"), gold_attention(trace, prompt))
    with pytest.raises(fl.Refusal, match="which is not in the prompt"):
        retrieval_scores(trace, "answer")
    with pytest.raises(fl.Refusal, match=r"no region 'doc_1'\. This needs a region with the answer; .* Regions: "):
        gold_attention(trace, "doc_1")


def test_what_a_trace_left_out_is_named() -> None:
    lm = diffusion_model("llada")
    without = lm.trace(PROMPTS[:1], gen_length=4, detail={"top_keys": "off"}, progress=False)
    with pytest.raises(fl.Refusal, match=r"needs top_key, .* Record it with detail=\{'top_keys': 'head'\}"):
        retrieval_scores(without, "prompt")
    only = lm.trace(PROMPTS[:1], gen_length=4, detail=dict.fromkeys(("mass", "entropy", "geometry", "norms"), "off"), progress=False)
    with pytest.raises(fl.Refusal, match=r"needs mass, .* Record it with detail=\{'mass': 'head'\}"):
        gold_attention(only, "prompt")
    assert np.isnan(retrieval_scores(only, "prompt")["null"]).all()

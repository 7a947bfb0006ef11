"""What a run under interventions reports, what several of them make together, and what is refused."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import floatlens as fl
from floatlens.cli import run as command_line
from floatlens.interventions import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
    to_text,
)
from writers import PROMPTS, autoregressive_model, diffusion_model
from zoo import eager_calls

STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"
HEADS, LAYERS = 4, 3


def removed(lm: fl.LanguageModel, intervention: Any, prompts: Any = (PROMPTS[2],), **options: Any) -> np.ndarray:
    with lm.intervene(intervention) as run:
        lm.generate(list(prompts), **{"gen_length": 4, "progress": False, **options})
    return run.removed.values


def even_model(causal: bool) -> fl.LanguageModel:
    """Every query looks evenly at what it sees."""
    lm = autoregressive_model() if causal else diffusion_model("llada")
    module: Any = lm.module
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    return lm


def test_under_even_attention_each_key_holds_its_share_and_none_stands_out() -> None:
    lm, n = even_model(causal=False), len(PROMPTS[2]) + 4
    assert (removed(lm, MaskAbove(0.0)) == 0).all()
    for intervention, share in (
        (MaskAnchors(3), 3 / n),
        (ZeroAnchorValues(2), 2 / n),
        (RandomKeys(MaskAnchors(3)), 3 / n),
        (RandomKeys(MaskAnchors(3), equal="mass"), 3 / n),
        (ExtraSinkToken(), 1 / (n + 1)),
        (KeepSinks(0, k=1), (n - 2 + 1 / n) / n),  # each row keeps itself and the anchor, which for one row are the same
    ):
        values = removed(lm, intervention)
        first = 0 if isinstance(intervention, ExtraSinkToken) else 1
        np.testing.assert_allclose(values[:, first:], share, rtol=1e-5, err_msg=to_text(intervention))
        assert (values[:, :first] == 0).all()


def test_of_even_keys_of_a_causal_model_the_first_is_the_anchor() -> None:
    lm = even_model(causal=True)
    prompt = PROMPTS[2]
    sample = lm.trace([prompt], gen_length=4, intervention=MaskAnchors(1), progress=False).sample(0)
    for step in range(1, 4):
        assert (sample["visible"].sel(group="predicting").values[step, ..., 0] == 0).all()
        np.testing.assert_allclose(sample["removed"].values[step], 1 / (len(prompt) + step), rtol=1e-5)


def test_a_run_holds_every_sample_that_ran_inside_it_in_order() -> None:
    lm = diffusion_model("llada")
    with lm.intervene(MaskAnchors(1, layers=[0, 2])) as run:
        with pytest.raises(fl.Refusal, match="Nothing has run"):
            _ = run.removed
        written = lm.generate(PROMPTS, gen_length=4, batch_size=2, progress=False)
        trace = lm.trace(PROMPTS[:1], gen_length=6, steps=3, progress=False)
    assert run.removed.dims == ("sample", "step", "layer", "head")
    assert run.removed.shape == (4, 4, LAYERS, HEADS)
    assert run.removed["layer"].values.tolist() == [0, 1, 2]
    assert run.removed.attrs["interventions"] == ["mask-anchors:1,layers=0+2"]
    assert (run.removed.values[:3, :, 1] == 0).all()
    assert np.isnan(run.removed.values[3, 3]).all(), "the trace took three steps"
    for number, one in enumerate(written):
        assert one.removed == pytest.approx(float(run.removed[number].mean()), abs=1e-6)
    np.testing.assert_array_equal(trace.sample(0)["removed"].values, run.removed.values[3, :3])
    assert lm.generate(PROMPTS[:1], gen_length=2, progress=False)[0].removed is None
    with pytest.raises(fl.Refusal, match="Only a control of equal mass can fall short"):
        _ = run.shortfall


def test_interventions_of_one_model_leave_another_alone() -> None:
    lm, other = diffusion_model("llada"), diffusion_model("dream")
    with lm.intervene(MaskAnchors(1)), other.intervene(ExtraSinkToken()) as inner:
        lm.generate(PROMPTS[:1], gen_length=3, progress=False)
        with pytest.raises(fl.Refusal, match="Nothing has run"):
            _ = inner.removed
    third = diffusion_model("llada")
    with lm.intervene(MaskAnchors(1)):
        assert third.generate(PROMPTS[:1], gen_length=3, progress=False)[0].removed is None


def test_after_a_failure_the_model_is_free_again() -> None:
    lm = diffusion_model("llada")
    free = lm.generate(PROMPTS[:1], gen_length=3, progress=False)
    with pytest.raises(fl.Refusal, match="names layer 9; the layers of this model are 0 to 2"), lm.intervene(MaskAnchors(1, layers=9)):
        lm.generate(PROMPTS[:1], gen_length=3, progress=False)
    assert lm.generate(PROMPTS[:1], gen_length=3, progress=False) == free


def test_a_plain_function_is_an_intervention_and_accounts_for_what_it_hides() -> None:
    lm = diffusion_model("llada")

    def hide_the_first(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call.hide(torch.arange(call.keys) == 0) if call.layer == 0 else call

    sample = lm.trace([PROMPTS[2]], gen_length=4, intervention=hide_the_first, progress=False).sample(0)
    for step in range(4):
        weights = eager_calls(lm.module, input_ids=torch.tensor(sample["canvas"].values[step][None]), use_cache=False)[0].weights[0]
        np.testing.assert_allclose(sample["removed"].values[step, 0], weights[:, :, 0].mean(1), rtol=1e-5)
    assert (sample["removed"].values[:, 1:] == 0).all()
    assert (sample["mass"].values[:, 0, ..., 0] == 0).all()


def test_a_plain_function_still_gets_the_statistics_it_asks_for() -> None:
    lm, seen = diffusion_model("llada"), []

    def look(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        assert before.now is not None
        seen.append((call.layer, before.previous is None, float(before.now.mass[0].sum())))
        return call

    lm.generate([PROMPTS[2]], gen_length=3, intervention=[MaskHeads([(0, 0)]), look], progress=False)
    assert [(layer, first) for layer, first, _ in seen] == [(layer, step == 0) for step in range(3) for layer in range(LAYERS)]
    assert all(total == pytest.approx(HEADS * 10, rel=1e-5) for _, _, total in seen)


def test_several_act_one_after_the_other_and_nothing_is_counted_twice() -> None:
    lm = diffusion_model("llada")
    two = removed(lm, MaskAnchors(2))
    np.testing.assert_array_equal(removed(lm, [MaskAnchors(1), MaskAnchors(2)]), two)
    np.testing.assert_array_equal(removed(lm, [MaskAnchors(2), MaskAnchors(1)]), two)
    for order in ([ZeroAnchorValues(2), MaskAnchors(1)], [MaskAnchors(1), ZeroAnchorValues(2)]):
        np.testing.assert_allclose(removed(lm, order)[:, 1, 0], two[:, 1, 0], rtol=1e-6)
    with_heads = removed(lm, [MaskAnchors(2, layers=[0]), MaskHeads([(0, 3), (2, 1)], steps=[1])])
    assert (with_heads[:, 1, [0, 2], [3, 1]] == 1).all()
    np.testing.assert_allclose(with_heads[:, 1, 0, :3], two[:, 1, 0, :3], rtol=1e-6)


def test_a_query_from_which_all_would_be_hidden_keeps_itself() -> None:
    lm = diffusion_model("llada")
    sample = lm.trace(
        [PROMPTS[0]], gen_length=3, intervention=MaskAbove(0.0, rule="rate"), patterns=[(0, 0), (2, 3)], progress=False
    ).sample(0)
    n = sample.sizes["position"]
    for step in (1, 2):
        np.testing.assert_allclose(sample["pattern"].values[step], np.broadcast_to(np.eye(n), (2, n, n)), atol=1e-6)
    assert (sample["rows_without_keys"] == 0).all()


def test_another_seed_draws_other_keys_and_other_heads() -> None:
    lm = diffusion_model("llada")
    for control in (
        lambda seed: RandomKeys(MaskAnchors(1), seed=seed),
        lambda seed: RandomHeads(MaskHeads([(0, 0), (1, 1), (2, 2)]), seed=seed),
    ):
        runs = [removed(lm, control(seed)) for seed in (0, 0, 1)]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert not np.array_equal(runs[0], runs[2])


def test_random_heads_are_as_many_others_of_the_same_layers() -> None:
    lm, named = diffusion_model("llada"), ((0, 1), (2, 0), (2, 3))
    silenced = removed(lm, RandomHeads(MaskHeads(named)), PROMPTS)
    assert (silenced == silenced[0, 0]).all(), "the same ones throughout"
    assert set(np.unique(silenced)) == {0, 1}
    assert silenced[0, 0].sum(-1).tolist() == [1, 0, 2]
    assert all(silenced[0, 0, layer, head] == 0 for layer, head in named)
    everywhere = set()
    for seed in range(20):
        everywhere |= set(np.flatnonzero(removed(lm, RandomHeads(MaskHeads([(0, 1)]), seed=seed), gen_length=1)[0, 0, 0]).tolist())
    assert everywhere == {0, 2, 3}


def test_random_keys_come_from_everywhere_alike() -> None:
    """Structureless: over many seeds every other key is drawn as often as any other."""
    lm, prompt = even_model(causal=False), PROMPTS[0]
    n = len(prompt) + 2
    drawn = np.zeros(n)
    for seed in range(12):
        sample = lm.trace(
            [prompt], gen_length=2, intervention=RandomKeys(MaskAnchors(1), seed=seed), detail="light", groups=["masked"], progress=False
        ).sample(0)
        drawn += (sample["visible"].values[1].reshape(-1, n) == 0).sum(0)
    assert drawn[0] == 0, "the anchor is never drawn"
    assert drawn.sum() == 12 * LAYERS * HEADS
    expected = drawn.sum() / (n - 1)
    assert ((drawn[1:] - expected) ** 2 / expected).sum() < 20.5, "chi-square with 5 degrees of freedom, one in a thousand"


@pytest.mark.parametrize("sampler", ["llada", "autoregressive"])
def test_more_keys_than_there_are_is_refused_with_their_number(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model("llada")
    n = 5 if sampler == "autoregressive" else 8
    for made in (MaskAnchors, ZeroAnchorValues):
        most = n if sampler == "autoregressive" else n - 1
        lm.generate([PROMPTS[0]], gen_length=3, intervention=made(most), progress=False)
        with pytest.raises(
            fl.Refusal, match=rf"picks {most + 1} keys, but at step 1 in layer 0 .* at most {most} can be picked. Choose a smaller k"
        ):
            lm.generate([PROMPTS[0]], gen_length=3, intervention=made(most + 1), progress=False)
    lm.generate([PROMPTS[0]], gen_length=3, intervention=KeepSinks(0, k=n), progress=False)
    with pytest.raises(fl.Refusal, match=rf"keep-sinks:0,k={n + 1} picks {n + 1} keys"):
        lm.generate([PROMPTS[0]], gen_length=3, intervention=KeepSinks(0, k=n + 1), progress=False)


@pytest.mark.parametrize(
    ("intervention", "sentence"),
    [
        ("mask-anchors:1", r"'mask-anchors:1' is not an intervention.*Write floatlens.interventions.from_text\('mask-anchors:1'\)"),
        (MaskAnchors, "is not an intervention"),
        (3, "3 is not an intervention"),
        (Intervention(), "is not an intervention"),
        ([], "is an empty list; leave it out"),
        (MaskHeads([(0, 7)]), r"names head 7 of layer 0 .*, which has heads 0 to 3"),
        (MaskHeads([(7, 0)]), r"mask-heads:7:0 names layer 7; the layers of this model are 0 to 2"),
        (MaskHeads([(0, 0)], layers="0-8"), "names layer 3; the layers"),
        (RandomHeads(MaskHeads([(0, 0), (0, 1), (0, 2)])), "to silence 3 other heads of layer 0 .*, and there are only 1"),
        (RandomKeys(MaskAnchors(5)), "random-keys is to take 5 other keys in layer 0 .*, and there are only 3"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_in_a_sentence(intervention: Any, sentence: str) -> None:
    lm = diffusion_model("llada")
    with pytest.raises(fl.Refusal, match=sentence):
        lm.generate([PROMPTS[0]], gen_length=3, intervention=intervention, progress=False)
    with pytest.raises(fl.Refusal, match=sentence):
        lm.trace([PROMPTS[0]], gen_length=3, intervention=intervention, progress=False)


def test_interventions_come_from_one_place_at_a_time() -> None:
    lm = diffusion_model("llada")
    with lm.intervene(MaskAnchors(1)):
        with pytest.raises(fl.Refusal, match="in force for model already"), lm.intervene(MaskAnchors(2)):
            pass
        for write in (lm.generate, lm.trace):
            with pytest.raises(fl.Refusal, match=r"where mask-anchors:1 is in force; give all of them to one lm\.intervene"):
                write([PROMPTS[0]], gen_length=3, intervention=MaskAnchors(2), progress=False)


def test_a_specification_is_no_edit() -> None:
    lm = diffusion_model("llada")
    edit: Any = MaskAnchors(1)
    with pytest.raises(fl.Refusal, match=r"is not an edit.*lm\.generate\(\.\.\., intervention=\.\.\.\)"):
        fl.tap(lm.module, edits=[edit])
    with pytest.raises(fl.Refusal, match="is not an edit"):
        lm.trace([PROMPTS[0]], gen_length=3, edits=[edit], progress=False)


@pytest.fixture
def floatlens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))

    def command(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["floatlens", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command_line()
        return int(ended.value.code or 0), capsys.readouterr().err

    return command


def test_the_command_line_traces_under_interventions(floatlens: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    asked = ["trace", "-m", STORIES, "-p", "Once upon a time", "--gen-length", 6, "-o", tmp_path / "run.zarr"]
    code, errors = floatlens(*asked, "--intervention", "mask-anchors:1,layers=0-2", "--intervention", "extra-sink-token:layers=4")
    assert code == 0, errors
    trace = fl.open_trace(tmp_path / "run.zarr")
    assert trace.attributes["edits"] == ["mask-anchors:1,layers=0-2", "extra-sink-token:layers=4"]
    assert (trace.dataset["removed"].values[0, 1:, 4] > 0).all()
    assert (trace.dataset["removed"].values[0, :, 3] == 0).all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--intervention", "mask-anchor"], "There is no intervention 'mask-anchor'. Did you mean 'mask-anchors'? There are: mask-anchors"),
        (["--intervention", "mask-anchors:99"], "Choose a smaller k"),
        (["-s", "intervention=mask-anchors"], "use --intervention"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    floatlens: Callable[..., tuple[int, str]], tmp_path: Path, words: list[str], sentence: str
) -> None:
    code, errors = floatlens("trace", "-m", STORIES, "-p", "Once", "--gen-length", 4, "-o", tmp_path / "run.zarr", *words)
    assert code == 2
    assert sentence in errors
    assert not (tmp_path / "run.zarr").exists()

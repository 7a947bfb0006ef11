"""What a trace takes is said before it is begun: never less than is written, and not much more."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

import floatlens as fl
from floatlens.capture.reduction import SeenStep
from floatlens.decoding.options import Decoding
from floatlens.decoding.plan import plan_writing
from floatlens.interventions import MaskAnchors, RandomKeys
from floatlens.trace.estimate import estimate, size_in_words
from floatlens.trace.schema import make_detail
from writers import MASK, PROMPTS, autoregressive_model, diffusion_model

Ran = tuple[int, str, str]
STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"


def written(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def uncompressed(folder: Path) -> int:
    """What would be written if nothing could be compressed: every number, and the metadata as they are."""
    samples = [zarr.open_group(sample, mode="r") for sample in sorted((folder / "samples").iterdir()) if sample.is_dir()]
    return sum(array.nbytes for sample in samples for _, array in sample.arrays()) + sum(
        file.stat().st_size for file in folder.rglob("*.json")
    )


def promised(lm: fl.LanguageModel, prompts: list[Any], gen_length: int, **options: Any) -> int:
    """What `lm.trace` promises, from the same arguments."""
    detail = make_detail(
        options.get("detail", "default"),
        options.get("groups"),
        options.get("top_keys", 8),
        options.get("patterns", ()),
        autoregressive=lm.sampler == "autoregressive",
    )
    plan = plan_writing(lm, prompts, Decoding(gen_length, batch_size=options.get("batch_size", 1)))
    return estimate(plan, detail, ["an intervention"] if "intervention" in options else []).disk


@pytest.mark.parametrize("sampler", ["llada", "dream", "sdar", "autoregressive"])
@pytest.mark.parametrize(
    ("gen_length", "options"),
    [
        (1, {"detail": "light"}),
        (5, {"detail": "full", "patterns": [(0, 1), (2, 3)], "groups": ["predicting", "prompt"]}),
        (7, {"detail": {"mass": "layer", "geometry": "off"}, "top_keys": 1, "intervention": RandomKeys(MaskAnchors(1), equal="mass")}),
        (33, {"detail": "default"}),
        (40, {"detail": "light", "patterns": [(1, 1)]}),
    ],
    ids=str,
)
def test_no_trace_takes_more_than_was_said_nor_much_less(sampler: str, gen_length: int, options: dict[str, Any], tmp_path: Path) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    batch_size = 1 if "intervention" in options else 3
    lm.trace(PROMPTS, gen_length=gen_length, batch_size=batch_size, path=tmp_path / "run.zarr", progress=False, **options)
    bound = promised(lm, PROMPTS, gen_length, batch_size=batch_size, **options)
    assert written(tmp_path / "run.zarr") <= bound <= 1.5 * uncompressed(tmp_path / "run.zarr")


@pytest.mark.parametrize(
    "prompts", [["Once upon a time"], ["Lily", "Once upon a time there was a dog who was very happy"], ["é " * 60, "\n\n\t"]], ids=str
)
@pytest.mark.parametrize("detail", ["default", "light", "full"])
def test_texts_are_counted(prompts: list[str], detail: str, tmp_path: Path) -> None:
    lm = fl.load(STORIES)
    lm.trace(prompts, gen_length=20, detail=detail, path=tmp_path / "run.zarr", progress=False)
    bound = promised(lm, prompts, 20, detail=detail)
    assert written(tmp_path / "run.zarr") <= bound <= 1.5 * uncompressed(tmp_path / "run.zarr")


def test_longer_texts_of_as_many_tokens_are_promised_more_room_by_as_much_as_they_take(tmp_path: Path) -> None:
    """Arrays are as large for short tokens as for long ones, so nothing but the texts can make the difference."""
    lm = fl.load(STORIES)
    pieces = sorted((piece, token) for piece, token in lm.tokenizer.get_vocab().items() if piece.isascii() and piece.isalpha())
    by_length = [token for _, token in sorted(pieces, key=lambda entry: len(entry[0]))]
    taken, said = [], []
    for number, tokens in enumerate((by_length[:50], by_length[-50:])):
        lm.trace([tokens], gen_length=1, detail="light", path=tmp_path / f"{number}.zarr", progress=False)
        taken.append(sum(file.stat().st_size for file in (tmp_path / f"{number}.zarr").rglob("zarr.json")))
        said.append(promised(lm, [tokens], 1, detail="light"))
    assert taken[1] - taken[0] > 200
    assert said[1] - said[0] >= taken[1] - taken[0] - 100, "a hundred bytes for the token that each of them writes"


def test_masks_inside_the_prompt_are_counted(tmp_path: Path) -> None:
    lm = diffusion_model("llada")
    prompts = [[5, MASK, 7, MASK, MASK, 9]]
    lm.trace(prompts, gen_length=0, path=tmp_path / "run.zarr", progress=False)
    assert written(tmp_path / "run.zarr") <= promised(lm, prompts, 0)


def test_the_arrays_are_estimated_exactly() -> None:
    lm = fl.load(STORIES)
    for preset in ("default", "light", "full"):
        trace = lm.trace("Once upon a time", gen_length=20, detail=preset, progress=False)
        plan = plan_writing(lm, "Once upon a time", Decoding(gen_length=20, batch_size=1))
        size = estimate(plan, make_detail(preset, autoregressive=True))
        assert size.arrays == sum(variable.nbytes for variable in trace.dataset.data_vars.values()), preset


def test_what_a_step_holds_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, held, add = diffusion_model("llada"), [], SeenStep.add

    def watched(self: SeenStep, layers: Any) -> None:
        add(self, layers)
        held.append(self.bytes)

    monkeypatch.setattr(SeenStep, "add", watched)
    lm.trace(PROMPTS[:1], gen_length=6, progress=False)
    said = estimate(plan_writing(lm, PROMPTS[:1], Decoding(6)), make_detail("default")).held
    assert max(held) == said.predicting == said.queries + said.keys
    assert 0 < said.candidates < said.queries


def test_the_command_says_at_most_what_it_then_writes(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    code, said, _ = floatlens(
        "trace", "-m", "twin-mdm", "-p", "Where does Ben live?", "--gen-length", 3, "--detail", "light", "-o", tmp_path / "run.zarr"
    )
    assert code == 0
    at_most, wrote = re.search(r"at most ([\d.]+ kB) on disk", said), re.search(r"\(([\d.]+ kB)\)", said)
    assert at_most is not None
    assert wrote is not None
    assert wrote[1] == size_in_words(written(tmp_path / "run.zarr"))
    assert float(wrote[1].split()[0]) <= float(at_most[1].split()[0])

"""AntiBERTy arrives whole and as safetensors, reads and fills sequences as its own package does, and never runs a pickle.

The offline tests fetch a tiny BERT from a wheel of the same layout: the same tensor names, leftover heads included, in a torch file.
"""

import hashlib
import json
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

import floatlens as fl
from floatlens.decoding.tokens import writes_words
from floatlens.measures import measure_trace
from floatlens.measures.roles import token_roles
from floatlens.models.sources import antiberty
from floatlens.report.figures import roles_by_depth

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
PAD, UNK, CLS, SEP, MASK = range(5)
SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
CONFIG = {
    "_name_or_path": "/home/somebody/checkpoint-1160000/",
    "architectures": ["AntiBERTy"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.5.1",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 25,
    **SIZE,
}
TRASTUZUMAB = json.loads((Path(__file__).parents[1] / "data" / "antibodies.jsonl").read_text().splitlines()[0])["prompt"]


def ids(sequence: str) -> list[int]:
    """What the package's own code makes of a sequence, letter by letter."""
    letters = [("[MASK]" if letter == "_" else letter) for letter in sequence if not letter.isspace()]
    return [CLS, *(TOKENS.index(letter) if letter in TOKENS else UNK for letter in letters), SEP]


def tiny_bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(vocab_size=25, **SIZE)).eval()


def published_tensors(module: BertForMaskedLM) -> dict[str, Any]:
    """The tensors as they are published: with the heads for species, chain and graft, the pooler and the positions."""
    tensors: dict[str, Any] = {"bert.embeddings.position_ids": torch.arange(64)[None], **module.state_dict()}
    for head, labels in {"bert.pooler.dense": 32, "cls.species": 6, "cls.chain": 2, "cls.graft": 2}.items():
        tensors |= {f"{head}.weight": torch.randn(labels, 32), f"{head}.bias": torch.randn(labels)}
    return tensors


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Let pip find a wheel with these tensors, whose hash floatlens knows; the cache that it is converted into."""
    cache, wheel = tmp_path / "cache", tmp_path / "antiberty-0.1.3-py3-none-any.whl"
    monkeypatch.setenv("FLOATLENS_CACHE", str(cache))

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        assert command[command.index("-d") + 2] == "antiberty==0.1.3"
        Path(command[command.index("-d") + 1], wheel.name).write_bytes(wheel.read_bytes())
        return SimpleNamespace(returncode=0, stderr="")

    def published(tensors: Any, *, known: bool = True) -> Path:
        torch.save(tensors, tmp_path / "weights.bin")
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(tmp_path / "weights.bin", "antiberty/trained_models/AntiBERTy_md_smooth/pytorch_model.bin")
            archive.writestr("antiberty/trained_models/AntiBERTy_md_smooth/config.json", json.dumps(CONFIG))
            archive.writestr("antiberty/trained_models/vocab.txt", "\n".join(TOKENS))
        if known:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            monkeypatch.setattr(antiberty, "_WHEEL", replace(antiberty._WHEEL, sha256=digest))
        monkeypatch.setattr(subprocess, "run", run)
        return cache

    return published


def logits(module: Any, tokens: list[int]) -> Tensor:
    with torch.no_grad():
        return module(input_ids=torch.tensor([tokens])).logits[0]


# -- weights ----------------------------------------------------------------------------------------------------------------------------


def test_the_torch_file_becomes_a_stock_bert_in_safetensors(publish: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    original = tiny_bert()
    cache = publish(published_tensors(original))
    lm = fl.load("antiberty")
    assert type(lm.module) is BertForMaskedLM
    assert (lm.family, lm.sampler, lm.mask_token_id, lm.suffix) == ("masked-lm", "llada", MASK, (SEP,))
    assert torch.equal(logits(lm.module, ids(TRASTUZUMAB[:60])), logits(original, ids(TRASTUZUMAB[:60])))

    (folder,) = cache.iterdir()
    names = ["config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(file.name for file in folder.iterdir()) == names
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    left_out = {name for name in published_tensors(original) if name not in stored}
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    heads = {f"{head}.{part}" for head in ("bert.pooler.dense", "cls.species", "cls.chain", "cls.graft") for part in ("weight", "bias")}
    assert left_out == {"bert.embeddings.position_ids", *tied, *heads}

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was fetched twice"))
    assert torch.equal(logits(fl.load("antiberty").module, ids("EV")), logits(original, ids("EV")))


class Hostile:
    """An object whose pickle writes a file when it is opened."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.place, "opened"))


@pytest.mark.parametrize("among_tensors", [True, False])
def test_a_pickle_that_would_run_code_is_refused_and_not_run(publish: Callable[..., Path], tmp_path: Path, among_tensors: bool) -> None:
    hostile = Hostile(tmp_path / "was-run")
    cache = publish({**published_tensors(tiny_bert()), "extra": hostile} if among_tensors else hostile)
    with pytest.raises(fl.Refusal, match=r"^pytorch_model\.bin is not a torch file of tensors alone, and nothing in it was run: .*\.$"):
        fl.load("antiberty")
    assert not (tmp_path / "was-run").exists()
    assert list(cache.iterdir()) == []
    torch.load(tmp_path / "weights.bin", weights_only=False)  # it is what it is said to be
    assert (tmp_path / "was-run").read_text() == "opened"


def test_a_wheel_with_another_hash_is_refused_before_it_is_opened(publish: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = publish(published_tensors(tiny_bert()), known=False)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(
        fl.Refusal, match=r"antiberty==0\.1\.3 that was fetched is not the one floatlens knows \(sha256 .*, not 30d910992b19"
    ):
        fl.load("antiberty")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"bert": {"weight": torch.zeros(2)}}, {"epoch": 3}])
def test_a_torch_file_of_anything_but_tensors_by_name_is_refused(publish: Callable[..., Path], content: Any) -> None:
    publish(content)
    with pytest.raises(fl.Refusal, match=r"^pytorch_model\.bin holds something else than tensors by name"):
        fl.load("antiberty")


@pytest.mark.parametrize("change", ["missing", "surplus", "shape"])
def test_tensors_that_do_not_fit_the_config_are_refused(publish: Callable[..., Path], change: str) -> None:
    tensors = published_tensors(tiny_bert())
    name = "bert.encoder.layer.1.attention.self.key.weight"
    if change == "missing":
        del tensors[name]
    else:
        tensors["cls.extra.weight" if change == "surplus" else name] = torch.zeros(3, 3)
    cache = publish(tensors)
    with pytest.raises(fl.Refusal, match=r"^The weights in pytorch_model\.bin do not fit config\.json: "):
        fl.load("antiberty")
    assert list(cache.iterdir()) == []


# -- tokens -----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(publish: Callable[..., Path]) -> fl.LanguageModel:
    publish(published_tensors(tiny_bert()))
    return fl.load("antiberty")


@pytest.mark.parametrize("sequence", [TRASTUZUMAB[:60], "EV_LVX-eB*", "_", "E V\nQ\tL", "é", ""])
def test_tokens_are_those_of_the_package(tiny: fl.LanguageModel, sequence: str) -> None:
    assert tiny.tokenizer(sequence).input_ids == ids(sequence)


def test_every_token_knows_its_character(tiny: fl.LanguageModel) -> None:
    text = "EV_Q [MASK]X"
    encoded = tiny.encode(text)
    pieces = [text[start:stop] for start, stop in zip(encoded.starts, encoded.stops, strict=True) if stop > start]
    assert pieces == ["E", "V", "_", "Q", "[MASK]", "X"]
    assert encoded.tokens == [CLS, TOKENS.index("E"), TOKENS.index("V"), MASK, TOKENS.index("Q"), MASK, UNK]


def test_letters_that_it_does_not_know_are_warned_of(tiny: fl.LanguageModel) -> None:
    with pytest.warns(fl.errors.Caution, match=r"antiberty does not know 2 of 6 tokens \(33\.3 %\), such as 'X', and reads \[UNK\] there"):
        tiny.generate("EXV-_", gen_length=0, progress=False)


# -- writing and tracing ----------------------------------------------------------------------------------------------------------------


def test_masks_inside_a_sequence_are_filled_and_the_whole_sequence_comes_back(tiny: fl.LanguageModel) -> None:
    sequence = "EV_LVE[MASK]GG__"
    (at_once,) = tiny.generate(sequence, gen_length=0, steps=1, progress=False)
    tokens = ids("EV_LVE_GG__")
    best = logits(tiny.module, tokens).argmax(-1).tolist()
    filled = [guess if token == MASK else token for token, guess in zip(tokens, best, strict=True)]
    assert at_once.tokens == [best[position] for position, token in enumerate(tokens) if token == MASK]
    assert at_once.whole_text == "".join(TOKENS[token] for token in filled[1:-1] if token > MASK)

    (step_by_step,) = tiny.generate(sequence, gen_length=0, progress=False)
    assert step_by_step.steps == 4


def test_what_follows_a_sequence_is_written_before_its_closing_token(tiny: fl.LanguageModel) -> None:
    (written,) = tiny.generate("EVQL", gen_length=3, progress=False)
    assert len(written.tokens) == 3
    assert written.whole_text.startswith("EVQL")


def test_amino_acids_have_no_roles_and_everything_else_is_measured(tiny: fl.LanguageModel) -> None:
    trace = tiny.trace(["EVQL__SGG_LVQ", "DIQ__QSPSS"], gen_length=0, progress=False)
    assert trace.attributes["writes_words"] is False
    summary = measure_trace(trace, progress=False)
    about_roles = {"anchor mass by role", "enrichment of roles", "structure over depth"}
    assert about_roles <= set(summary.skipped)
    assert not about_roles & set(summary.values)
    assert {"on the first token", "float index (no movement)", "movement"} <= set(summary.values)
    for measure in (token_roles, roles_by_depth):
        with pytest.raises(fl.Refusal, match=r"^The tokens of this trace are letters of a biological sequence and not words"):
            measure(trace)


def test_a_vocabulary_of_words_still_has_roles() -> None:
    twin = fl.load("twin-mdm")
    assert writes_words(twin.tokenizer)
    assert writes_words(None)


def test_the_commands_fill_show_and_measure_an_antibody(
    publish: Callable[..., Path], floatlens: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    publish(published_tensors(tiny_bert()))
    code, said, _ = floatlens("doctor", "antiberty")
    assert code == 0
    assert "4 '[MASK]'" in said
    assert "2 '[CLS]', added before every text" in said

    code, said, _ = floatlens("trace", "-m", "antiberty", "-p", "EVQL__SGG_LVQ", "--gen-length", 0, "-o", tmp_path / "run.zarr")
    assert code == 0
    (written,) = fl.load("antiberty").generate("EVQL__SGG_LVQ", gen_length=0, progress=False)
    assert f"0: '{written.whole_text}'" in said

    code, said, _ = floatlens("show", tmp_path / "run.zarr", "--prompt")
    assert code == 0
    assert "[CLS]EVQL" in said

    code, said, _ = floatlens("measure", tmp_path / "run.zarr")
    assert code == 0
    flat = " ".join(said.split())
    assert "letters of a biological sequence and not words, so they have no roles" in flat
    assert "function" not in said
    assert "content" not in said


# -- the model itself -------------------------------------------------------------------------------------------------------------------

# The example of the package's own README, and what its `fill_masks` makes of it (antiberty 0.1.3 under transformers 4.46).
MASKED_EXAMPLE = (
    "____VQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGN_NYAQKFQERVTITRDM__STAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFD____GTMVTVS"
)
FILLED_EXAMPLE = (
    "QMQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIWGQGTMVTVS"
)


@pytest.mark.real
def test_antiberty_computes_and_fills_what_its_own_package_does() -> None:
    lm = fl.load("antiberty", device="cpu")
    assert (lm.config.num_hidden_layers, lm.config.num_attention_heads, lm.config.vocab_size) == (8, 8, 25)
    first = [-23.107063, -13.904594, -13.224874, -15.156115, -15.134434, 0.360478]  # of trastuzumab's first residue, from the package
    torch.testing.assert_close(logits(lm.module, ids(TRASTUZUMAB))[1, :6], torch.tensor(first), atol=1e-4, rtol=1e-4)
    for steps in (1, None):
        (written,) = lm.generate(MASKED_EXAMPLE, gen_length=0, steps=steps, progress=False)
        assert written.whole_text == FILLED_EXAMPLE


@pytest.mark.real
def test_antiberty_knows_most_masked_residues_of_therapeutic_antibodies() -> None:
    lm = fl.load("antiberty", device="cpu")
    chains = [json.loads(line)["prompt"] for line in (Path(__file__).parents[1] / "data" / "antibodies.jsonl").read_text().splitlines()]
    generator = torch.Generator().manual_seed(0)
    for share, least in ((0.15, 0.8), (0.5, 0.75), (0.9, 0.5)):
        right, count = 0, 0
        for chain in chains:
            tokens = torch.tensor(ids(chain))
            hidden = torch.randperm(len(chain), generator=generator)[: round(share * len(chain))] + 1
            guesses = logits(lm.module, tokens.index_fill(0, hidden, MASK).tolist()).argmax(-1)
            right += int((guesses[hidden] == tokens[hidden]).sum())
            count += len(hidden)
        assert right / count > least, (share, right / count)


@pytest.mark.real
def test_antiberty_is_traced_while_it_fills_an_antibody(tmp_path: Path) -> None:
    lm = fl.load("antiberty", device="cpu")
    hidden = TRASTUZUMAB[:96] + "_" * 13 + TRASTUZUMAB[109:]  # the third loop of the heavy chain
    trace = lm.trace(hidden, gen_length=0, path=tmp_path / "run.zarr", progress=False)
    (written,) = lm.generate(hidden, gen_length=0, progress=False)
    assert trace.completion(0) == written.text
    data = trace.sample(0)
    assert (data.sizes["step"], data.sizes["layer"], data.sizes["head"]) == (13, 8, 8)
    mass = data["mass"].sel(group=["masked", "unmasked"]).sum(["group", "key"])
    torch.testing.assert_close(
        torch.tensor(mass.values).double(), torch.full((13, 8, 8), float(len(hidden) + 2)).double(), atol=0, rtol=1e-6
    )
    values = measure_trace(trace, progress=False).values
    assert float(values["on the first token"]["value"].sel(group="unmasked").mean()) < 10  # per cent: no sink on the first token

"""A2D models that see block by block: told apart from those that see the whole text, and run with the mask they were trained with."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from published_checkpoints import A2D_KINDS, HEAD_DIM, HEADS, LAYERS, published_config, tiny_checkpoint, write_json
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

import floatlens as fl
from floatlens.cli import app
from floatlens.decoding.options import Decoding
from floatlens.decoding.plan import plan_writing
from floatlens.models.doctor import examine

QWEN3 = "a2d-qwen3-0.6b"
PROMPT = [5, 6, 7, 8, 9, 10]
SILENT = (
    r"The config of .* \(model_type 'a2d-[a-z0-9]+'\) does not say whether it was trained to see the whole text or block by block, and "
    r"with the wrong mask it gives plausible but wrong numbers\. "
    r"Pass block_length=\.\.\. \(--block-length\): 0 for the whole text \(MDLM\), 32 for the published BD3LM, "
    r"4 for OPDLM\."
)


def checkpoint(folder: Path, kind: str = QWEN3, **fields: Any) -> Path:
    """As published, config silent about blocks; `fields` are added to it."""
    tiny_checkpoint(kind, folder, dtype=torch.float32)
    config = json.loads((folder / "config.json").read_text())
    del config["block_length"]
    write_json(folder / "config.json", config | fields)
    return folder


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(fl.Refusal) as refused:
        fl.load(folder, **options)
    return str(refused.value)


def dense_logits(folder: Path, tokens: list[int], visible: Tensor) -> Tensor:
    """Qwen3 in a straight line from the tensors of the files, under a mask of who sees whom: (row, vocabulary)."""
    weights = {name: tensor.double() for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    config = json.loads((folder / "config.json").read_text())
    eps, theta, kv_heads = config["rms_norm_eps"], config["rope_theta"], config["num_key_value_heads"]

    def normed(rows: Tensor, name: str) -> Tensor:
        return rows / (rows.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weights[f"{name}.weight"]

    angles = torch.arange(len(tokens)).double()[:, None] * theta ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)

    def rotated(rows: Tensor) -> Tensor:  # head, row, dimension
        first, second = rows.chunk(2, -1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)

    hidden = weights["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        rows = normed(hidden, f"{at}input_layernorm")
        query, key, value = (
            (rows @ weights[f"{at}self_attn.{part}_proj.weight"].T).view(len(tokens), -1, HEAD_DIM).transpose(0, 1) for part in "qkv"
        )
        query, key = rotated(normed(query, f"{at}self_attn.q_norm")), rotated(normed(key, f"{at}self_attn.k_norm"))
        key, value = (part.repeat_interleave(HEADS // kv_heads, 0) for part in (key, value))
        scores = (query @ key.transpose(1, 2)) / HEAD_DIM**0.5
        attended = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ value
        hidden = hidden + attended.transpose(0, 1).reshape(len(tokens), -1) @ weights[f"{at}self_attn.o_proj.weight"].T
        rows = normed(hidden, f"{at}post_attention_layernorm")
        gate, up = (rows @ weights[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        hidden = hidden + (gate * gate.sigmoid() * up) @ weights[f"{at}mlp.down_proj.weight"].T
    return normed(hidden, "model.norm") @ weights["lm_head.weight"].T


def passes(lm: fl.LanguageModel, gen_length: int, **options: Any) -> Iterator[tuple[list[int], list[int], Tensor]]:
    """Each denoising pass of one text: all tokens up to its end, and some rows with their logits."""
    plan = plan_writing(lm, PROMPT, Decoding(gen_length, options=options))
    (batch,) = plan.batches()
    canvas = plan.canvas(batch)
    seen: list[tuple[list[int], list[int], Tensor]] = []

    def run(asked: Any) -> Tensor:
        logits = lm.run_pass(asked)
        if asked.is_step:
            stop = asked.past + asked.tokens.shape[1]
            rows = range(asked.past, stop) if asked.wanted_rows is None else asked.wanted_rows.tolist()
            seen.append((canvas.tokens[0, :stop].tolist(), list(rows), logits[0]))
        return logits

    for _ in plan.loop(run, canvas):
        yield seen.pop()


def by_blocks(length: int, block: int) -> Tensor:
    number = torch.arange(length) // block
    return number[:, None] >= number


@pytest.mark.parametrize("block", [4, 32])
def test_a_block_model_computes_what_a_dense_pass_under_the_block_mask_computes(block: int, tmp_path: Path) -> None:
    lm = fl.load(checkpoint(tmp_path), block_length=block)
    assert (lm.family, lm.sampler) == ("a2d", "sdar")
    taken, differs = 0, False
    for tokens, rows, logits in passes(lm, 2 * block):
        expected = dense_logits(tmp_path, tokens, by_blocks(len(tokens), block))[rows]
        torch.testing.assert_close(logits.double(), expected, atol=1e-4, rtol=1e-4)
        everything = dense_logits(tmp_path, tokens, torch.ones(len(tokens), len(tokens), dtype=torch.bool))[rows]
        differs |= float((everything - expected).abs().max()) > 0.1
        taken += 1
    assert taken >= 2 * block
    assert differs, "the mask must matter, or nothing was tested"


def test_a_model_said_to_have_no_blocks_sees_the_whole_text(tmp_path: Path) -> None:
    lm = fl.load(checkpoint(tmp_path), block_length=0)
    assert (lm.family, lm.sampler, lm.sampler_defaults) == ("a2d", "llada", {})
    whole = torch.ones(10, 10, dtype=torch.bool)
    for tokens, rows, logits in passes(lm, 4):
        torch.testing.assert_close(logits.double(), dense_logits(tmp_path, tokens, whole)[rows], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", A2D_KINDS)
def test_a_config_that_does_not_name_its_blocks_is_refused(kind: str, tmp_path: Path) -> None:
    assert not {"block_size", "block_length"} & set(published_config(kind)), "no published config does"
    folder = checkpoint(tmp_path, kind)
    assert re.fullmatch(SILENT, refusal(folder))
    with pytest.raises(fl.Refusal, match=SILENT):
        examine(folder)


@pytest.mark.parametrize("field", ["block_size", "block_length"])
def test_the_block_length_of_the_config_is_taken(field: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {field: 8}
    folder = checkpoint(tmp_path, **fields)
    lm = fl.load(folder)
    assert lm.sampler_defaults == {"order": "low_confidence_static", "block_length": 8}
    assert examine(folder).block_length == 8
    assert fl.load(folder, block_length=8).sampler == "sdar"
    assert re.search(
        r"says that it was trained with a block length of 8, not 4\. Leave block_length \(--block-length\) out, or correct the config\.$",
        refusal(folder, block_length=4),
    )


def test_two_fields_that_disagree_are_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, block_size=4, block_length=32)
    assert re.search(r"names two block lengths, block_size=4 and block_length=32\. Correct it\.$", refusal(folder))


@pytest.mark.parametrize("length", [-1, True, 4.0, "32", [4], 1 << 40])
def test_a_block_length_that_is_none_is_refused(length: Any, tmp_path: Path) -> None:
    said = (
        r"The block length of .* is .*; it must be a whole number from 0 to 65536\. "
        r"Pass the right one as block_length=\.\.\. \(--block-length\), or correct the config\."
    )
    assert re.fullmatch(said, refusal(checkpoint(tmp_path), block_length=length))
    assert re.fullmatch(said, refusal(checkpoint(tmp_path, block_size=length)))


def test_a_block_length_is_refused_where_the_family_has_no_blocks(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path)
    assert re.search(
        r"is a llada model, which needs no block length to be loaded; leave block_length \(--block-length\) out\. To write in blocks, "
        r"pass block_length to generate or "
        r"trace \(--set block_length=\.\.\.\)\.$",
        refusal(folder, block_length=4),
    )


def test_sdar_takes_another_block_length_than_the_published_one(tmp_path: Path) -> None:
    folder = tiny_checkpoint("sdar-1.7b-chat", tmp_path)
    assert fl.load(folder).sampler_defaults == {"block_length": 4}
    assert fl.load(folder, block_length=8).sampler_defaults == {"block_length": 8}
    assert re.search(r"is 0; it must be a whole number from 1 to 65536\.", refusal(folder, block_length=0))


@pytest.mark.parametrize("sampler", ["llada", "dream"])
def test_a_block_model_is_not_run_by_a_loop_without_blocks(sampler: str, tmp_path: Path) -> None:
    lm = fl.load(checkpoint(tmp_path), block_length=4)
    with pytest.raises(
        fl.Refusal, match=rf"was trained to see block by block, and the {sampler} sampler lets every row see the whole text"
    ):
        lm.generate([PROMPT], gen_length=4, sampler=sampler, progress=False)


def test_a_saved_block_model_keeps_its_blocks(tmp_path: Path) -> None:
    lm = fl.load(checkpoint(tmp_path / "published"), block_length=4)
    lm.save(tmp_path / "saved")
    again = fl.load(tmp_path / "saved")
    assert (again.sampler, again.sampler_defaults) == (lm.sampler, lm.sampler_defaults)
    wrote = [one.generate([PROMPT], gen_length=8, progress=False)[0].tokens for one in (lm, again)]
    assert wrote[0] == wrote[1]


def test_the_command_line_takes_the_block_length(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    told = CliRunner().invoke(app, shlex.split(f"doctor {folder} --block-length 32"), env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert "sdar in blocks of 32; position p is filled from row p" in told.output
    words = f"trace -m {folder} --block-length 4 --gen-length 4 -p cat --raw -o {tmp_path / 'run.zarr'}"
    assert CliRunner().invoke(app, shlex.split(words)).exit_code == 0
    sampler = fl.open_trace(tmp_path / "run.zarr").attributes["sampler"]
    assert (sampler["name"], sampler["block_length"], sampler["order"]) == ("sdar", 4, "low_confidence_static")
    for wrong in (f"{folder}", f"{folder}=many", "other=4", "=4"):
        words = ["eval", "-m", str(folder), "--block-length", wrong, "--into", str(tmp_path / "results")]
        said = CliRunner().invoke(app, words).exception
        assert isinstance(said, fl.Refusal)
        assert f"--block-length {wrong!r} is not MODEL=LENGTH, with a MODEL that --model names and a whole number" in str(said)
    words = ["eval", "-m", str(folder), "--block-length", f"{folder}=4", "--into", str(tmp_path / "results")]
    assert "Leave likelihood out" in str(CliRunner().invoke(app, words).exception), "taken, and known to write by blocks"

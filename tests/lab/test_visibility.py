"""Lifting a causal mask: shares equal dense attention under the same mask, and the ends are the causal and the bidirectional mask."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from adapt_data import STORIES, write_data
from typer.testing import CliRunner

import floatlens as fl
from floatlens.cli import app
from floatlens.errors import Refusal
from floatlens.lab.adaptation.objective import annealed_mask
from floatlens.lab.adaptation.visibility import lift_masks, over_sink_layers, sink_layers
from floatlens.report.figures import against_visible_share

LENGTH = 40
FIRST, STRONGEST = "on the first token", "on the strongest key"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("visibility")) / "stories.txt"


@pytest.fixture(scope="module")
def table(text: Path) -> pl.DataFrame:
    return lift_masks([str(STORIES)], text, shares=(0.0, 0.1, 1.0), texts=3, length=LENGTH)


def dense(module: Any, tokens: torch.Tensor, sees: torch.Tensor) -> list[float]:
    """Percent of attention on key 0 by layer, from transformers' eager attention under a mask of this test's own."""
    module.set_attn_implementation("eager")
    mask = torch.where(sees, 0.0, -torch.inf)[None, None]
    with torch.no_grad():
        attentions = module(input_ids=tokens[None], attention_mask=mask, output_attentions=True, use_cache=False).attentions
    return [100 * float(layer[0, :, :, 0].mean()) for layer in attentions]


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("number", [0, 2])
def test_the_first_token_draws_what_dense_attention_gives_it(text: Path, table: pl.DataFrame, share: float, number: int) -> None:
    lm = fl.load(STORIES)
    tokens = torch.tensor(lm.tokenizer(text.read_text().split("\n<|endoftext|>\n")[number])["input_ids"][:LENGTH])
    causal = torch.ones(LENGTH, LENGTH).tril().bool()
    sees = {0.0: causal, 0.1: annealed_mask(LENGTH, 0.1, seed=number)[0, 0] == 0, 1.0: torch.ones_like(causal)}[share]
    own = table.filter(share=share, text=number, measure=FIRST).sort("layer")
    assert own["value"].to_list() == pytest.approx(dense(lm.module, tokens, sees), rel=1e-4)


def test_each_text_has_pairs_of_its_own() -> None:
    one, other = (annealed_mask(LENGTH, 0.1, seed=number) for number in (0, 1))
    assert not torch.equal(one, other)


def cells(values: dict[float, list[float]], layers: int = 2) -> pl.DataFrame:
    """A table in which layer 1 draws `values` (share: one per text), and layer 0 a tenth of it."""
    rows = []
    for share, of_texts in values.items():
        for number, value in enumerate(of_texts):
            for layer in range(layers):
                drawn = value if layer == 1 else value / 10
                rows += [
                    {"model": "m", "share": share, "text": number, "group": "all", "layer": layer, "measure": measure, "value": drawn}
                    for measure in (FIRST, STRONGEST)
                ]
    return pl.DataFrame(rows).with_columns(null=pl.lit(2.0), key=0, token=pl.lit("a"))


def test_sink_layers_are_those_of_the_causal_mask_and_means_are_taken_over_them_alone() -> None:
    table = cells({0.0: [30.0, 40.0, 50.0], 1.0: [1.0, 2.0, 3.0]})
    assert sink_layers(table, "m") == [1]
    drawn = over_sink_layers(table).filter(measure=FIRST).sort("share")
    assert drawn["value"].to_list() == pytest.approx([40.0, 2.0])
    assert all(drawn["low"] < drawn["value"])
    assert all(drawn["value"] < drawn["high"])
    assert sink_layers(cells({0.0: [19.0]}), "m") == []  # 10 % is not enough where the null is 2 %


def test_the_figure_has_a_line_per_model_and_refuses_what_is_not_there() -> None:
    drawn = over_sink_layers(cells({0.0: [30.0, 40.0], 0.01: [9.0, 8.0], 1.0: [1.0, 2.0]}))
    figure = against_visible_share(drawn, (FIRST, STRONGEST))
    assert [axes.get_title() for axes in figure.axes[:2]] == [FIRST, STRONGEST]
    with pytest.raises(Refusal, match="no measure 'on nothing'"):
        against_visible_share(drawn, ("on nothing",))


def test_what_cannot_be_lifted_is_refused(text: Path) -> None:
    with pytest.raises(Refusal, match="whose mask is not lifted"):
        lift_masks(["twin-mdm"], text)
    with pytest.raises(Refusal, match="Two models are called model"):
        lift_masks(["a/model", "b/model"], text)
    with pytest.raises(Refusal, match=r"has 32 documents of 20 tokens or more, not 40"):
        lift_masks([str(STORIES)], text, texts=40, length=20)


def test_the_command_says_where_no_sink_is_and_writes_the_table(text: Path, tmp_path: Path) -> None:
    into = tmp_path / "visibility"
    arguments = ["visibility", str(STORIES), "--text", str(text), "--texts", "2", "--length", "32", "--shares", "0,1", "-o", str(into)]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "no layer in which the first token is a sink" in " ".join(ran.output.split())
    assert sorted(pl.read_parquet(into / "visibility.parquet")["share"].unique()) == [0.0, 1.0]
    for shares, said in (("0,x", "not a list of numbers"), (".1,1", "0 among them"), ("0,2", "from 0 to 1")):
        with pytest.raises(Refusal, match=said):
            CliRunner().invoke(app, [*arguments[:-4], "--shares", shares], catch_exceptions=False)

"""Each refusal says what is wrong and what to do."""

import threading
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BartConfig, BartModel, Gemma2Config, Gemma2ForCausalLM, GptOssConfig, GptOssForCausalLM

import floatlens as fl
import zoo

SMALL: dict[str, Any] = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.mark.parametrize("implementation", ["eager", "flash_attention_2", "flex_attention"])
def test_other_attention_kernels_are_refused_with_an_offer_of_sdpa(implementation: str) -> None:
    model = zoo.build("llama")
    model.config._attn_implementation = implementation
    message = rf"runs its attention as '{implementation}'.*Call model\.set_attn_implementation\(\"sdpa\"\)"
    with pytest.raises(fl.Refusal, match=message):
        fl.tap(model)


def test_an_unseen_kernel_shows_as_missing_calls() -> None:
    """A module that computes attention by itself never passes SDPA; the count notices."""

    class ByHand(nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return torch.softmax(hidden @ hidden.transpose(-1, -2), -1) @ hidden

    with (
        pytest.raises(fl.Refusal, match=r"1 attention layers were expected and 0 were seen.*attn_implementation=\"sdpa\""),
        fl.tap(model := ByHand(), layers=1),
    ):
        model(torch.randn(1, 4, 8))


def test_a_forward_in_another_thread_is_refused() -> None:
    model = zoo.build("llama")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            model(zoo.tokens(1, 4))
        except fl.Refusal as refusal:
            raised.append(refusal)

    with fl.tap(model):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        model(zoo.tokens(1, 4))
    assert "run in another thread" in str(raised[0])
    assert "Open the tap in the thread that runs the model" in str(raised[0])


def test_gradients_are_refused_inside_and_left_alone_outside() -> None:
    model = zoo.build("llama")
    with pytest.raises(fl.Refusal, match=r"Gradients are required here.*Remove torch\.enable_grad\(\)"), fl.tap(model), torch.enable_grad():
        model(zoo.tokens(1, 4))
    assert model(zoo.tokens(1, 4)).logits.requires_grad


def test_attention_dropout_is_refused() -> None:
    model = zoo.build("llama")
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    with pytest.raises(fl.Refusal, match=r"dropout_p=0\.5.*Call model\.eval\(\) first"), fl.tap(model.train()):
        model(zoo.tokens(1, 4))


@pytest.mark.parametrize("where", ["query", "key", "mask"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rows_that_are_not_a_number_are_refused_by_name(where: str, dtype: torch.dtype) -> None:
    query, key = torch.randn(2, 2, 6, 4, dtype=dtype), torch.randn(2, 2, 6, 4, dtype=dtype)
    mask = torch.zeros(2, 1, 6, 6, dtype=dtype)
    {"query": query, "key": key, "mask": mask}[where][1, 0, 3] = float("nan")
    row = "3" if where != "key" else "0"
    message = rf"layer 0 \(the model itself\), sample 1, head 0, query {row} is not a number.*float16: try bfloat16"
    with pytest.raises(fl.Refusal, match=message), fl.tap(module := zoo.Direct(), layers=1):
        module(query, key, key, mask)


@pytest.mark.parametrize("fused", [nn.MultiheadAttention(8, 2), nn.TransformerEncoderLayer(8, 2), nn.TransformerDecoderLayer(8, 2)])
def test_torchs_own_attention_classes_are_refused(fused: nn.Module) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = fused

    with pytest.raises(fl.Refusal, match=rf"inner is a torch\.nn\.{type(fused).__name__}.*scaled_dot_product_attention instead"):
        fl.tap(Wrapped(), layers=1)


def test_soft_caps_are_refused_by_config() -> None:
    model = Gemma2ForCausalLM(Gemma2Config(**SMALL, num_key_value_heads=1, head_dim=8))
    with pytest.raises(fl.Refusal, match=r"caps its attention scores \(attn_logit_softcapping=50\.0\).*cannot be tapped"):
        fl.tap(model)


def test_sink_logits_are_refused_by_their_parameter() -> None:
    model = GptOssForCausalLM(GptOssConfig(**SMALL, num_key_value_heads=1, head_dim=8, num_local_experts=2, num_experts_per_tok=1))
    with pytest.raises(fl.Refusal, match=r"layers\.0\.self_attn\.sinks adds a learned sink logit.*cannot be tapped"):
        fl.tap(model)


def test_encoder_decoder_models_are_refused_and_their_encoder_is_not() -> None:
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = BartModel(BartConfig(vocab_size=64, d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, **sizes))
    with pytest.raises(fl.Refusal, match=r"reads one text from another.*fl\.tap\(model\.get_encoder\(\)\)"):
        fl.tap(model)
    encoder = model.get_encoder().eval()
    with fl.tap(encoder) as tap:  # the way out that the message names
        encoder(torch.arange(4, 10)[None])
    assert tap.dataset.sizes["layer"] == 2


def test_keys_of_other_samples_are_refused() -> None:
    message = r"Queries of shape \(2, 2, 5, 4\) meet keys of shape \(1, 2, 5, 4\)"
    with pytest.raises(fl.Refusal, match=message), fl.tap(module := zoo.Direct(), layers=1):
        module(torch.randn(2, 2, 5, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4))


def test_a_compiled_model_is_refused() -> None:
    with pytest.raises(fl.Refusal, match=r"torch\.compile.*model\._orig_mod"):
        fl.tap(torch.compile(zoo.build("llama")))  # type: ignore[arg-type]  # compile's return type is a callable


def test_one_name_and_one_pair_are_taken_as_they_are() -> None:
    model, tokens = zoo.build("llama"), zoo.tokens(1, 4)
    with fl.tap(model, keep="mass", patterns=(2, 1)) as one:
        model(tokens)
    with fl.tap(model, keep=["mass"], patterns=[(2, 1)]) as several:
        model(tokens)
    assert one.dataset.identical(several.dataset)
    assert one.dataset["pattern"].sizes["chosen"] == 1


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(fl.Refusal, match=r"fl\.tap takes a torch module; this is a str"):
        fl.tap("gpt2")  # type: ignore[arg-type]  # the mistake under test


def test_a_tap_inside_a_tap_is_refused() -> None:
    model = zoo.build("llama")
    with fl.tap(model):
        with pytest.raises(fl.Refusal, match="Another tap is open in this thread"), fl.tap(zoo.build("gpt2")):
            pass
        model(zoo.tokens(1, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": ["masses"]}, "keep does not know 'masses'"),
        ({"keep": 3}, r'^keep=3: 3 is not a name; write keep=\["mass", "entropy"\], or one of '),
        (
            {"patterns": 3},
            r"^patterns=3: 3 is not a \(layer, head\) pair of whole numbers from 0 on; write patterns=\[\(3, 0\), \(11, 4\)\]\.$",
        ),
        ({"samples": 3}, r"^samples=3 does not say which samples are recorded; pass a slice, such as slice\(0, 4\)\.$"),
        ({"block_entries": 0}, r"^block_entries=0: at least one attention weight must be held at a time\.$"),
        ({"layers": "3"}, r"^layers='3' is not a number of attention layers; it must be at least 1\.$"),
        ({"samples": slice(5, 7)}, r"^samples=slice\(5, 7, None\) records none of the 2 samples of this forward\. Choose some of them\.$"),
        ({"padding": True}, r"^The padding is \(\) \(sample, position\), but layer 0 .* up to position 8"),
        ({"keep": ["top_keys:2", "top_keys:3@all"]}, "names top_keys twice"),
        ({"keep": ["top_keys:0"]}, "keep does not know 'top_keys:0'"),
        ({"keep": ["top_keys:2@nobody"]}, r"names no group; the groups are 'all'"),
        ({"keep": ["flow"]}, r"keep=\['flow'\] needs regions"),
        ({"patterns": [(9, 0)]}, "patterns asks for layer 9; the layers of this model are 0 to 2"),
        ({"patterns": [(0, 9)]}, r"patterns asks for head 9 of layer 0 .*, which has heads 0 to 3"),
        ({"groups": {}}, "groups is empty"),
        (
            {"groups": 3},
            r"^groups=3 are not groups; pass \{name: boolean tensor over \(sample, query\), \.\.\.\}, or a function that gives them\.$",
        ),
        ({"groups": {"a": "x"}}, r"^Group 'a' is 'x'; a group is a boolean tensor over \(sample, query\) = \(2, 8\)\.$"),
        (
            {"keep": "top_keys:99999999"},
            r"^keep='top_keys:99999999': at most 4096 favourite keys of a row are kept\. For all of a head's weights, use patterns=\.$",
        ),
        ({"edits": 3}, "^3 is not an edit"),
        ({"regions": 3}, r"^regions=3 are not regions; pass \{name: \(start, stop\), \.\.\.\}, or a function that gives them\.$"),
        ({"regions": {"r": "text"}}, r"^Region 'r' is 'text'; a region is \(start, stop\) or a boolean tensor over positions\.$"),
        ({"regions": {"r": (1, 2, 3)}}, r"^Region 'r' is \(1, 2, 3\); a span is \(start, stop\), two whole numbers\.$"),
        *(
            (
                {"regions": {"r": span}},
                rf"^Region 'r' spans the positions {start} to {stop}, but this forward has 8; a region lies inside them and is not empty "
                r"\(0 <= start < stop <= 8\)\. Where the text grows from step to step, pass regions as a function of the forward\.$",
            )
            for span, start, stop in (
                ((0, 9), 0, 9),
                ((8, 12), 8, 12),
                ((3, 3), 3, 3),
                ((5, 2), 5, 2),
                ((-3, 8), -3, 8),
                (slice(8, None), 8, 8),
                (slice(None, 99), 0, 99),
            )
        ),
        ({"groups": {"a": torch.ones(1, 3, dtype=torch.bool)}}, r"Group 'a' is torch.bool of shape \(1, 3\).*= \(2, 8\)"),
        ({"groups": {"a": torch.ones(2, 8)}}, "Group 'a' is torch.float32"),
        ({"regions": {"r": torch.ones(3, dtype=torch.bool)}, "keep": ["flow"]}, r"Region 'r' is torch.bool of shape \(3,\)"),
        ({"padding": torch.ones(2, 3)}, r"The padding is \(2, 3\) \(sample, position\), but layer 0 .* up to position 8"),
    ],
)
def test_mistaken_options_are_refused_with_a_sentence(options: dict[str, Any], message: str) -> None:
    model = zoo.build("llama")
    with pytest.raises(fl.Refusal, match=message), fl.tap(model, **options):
        model(zoo.tokens(2, 8))

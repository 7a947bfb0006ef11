"""Objectives and masks: they share their targets, predict from the row before, and the annealed mask runs from causal to bidirectional."""

from pathlib import Path
from typing import Any

import pytest
import torch
from adapt_data import small_recipe, stories_model, tiny_module, write_data
from hypothesis import given
from hypothesis import strategies as st

from floatlens.lab.adaptation.adapter import LoraMap
from floatlens.lab.adaptation.objective import Predictor, annealed_mask, backward, visible_tokens
from floatlens.lab.adaptation.sequences import TrainingSequence
from floatlens.lab.adaptation.training import begin

MASK = 63
SEQUENCE = TrainingSequence((5, 9, 11, 4, 7, 20, 33, 2), (2, 3, 6), (0.25, 0.25, 0.5), "text")
ROWS = torch.arange(8)


def predictor(module: Any, mask: Any) -> Predictor:
    return Predictor(module, torch.full((32,), 0.3), MASK, mask)


def test_the_annealed_mask_at_its_ends_equals_causal_and_bidirectional_attention() -> None:
    tokens = torch.tensor(SEQUENCE.tokens)
    with torch.no_grad():
        for mask, share in (("causal", 0.0), ("bidirectional", 1.0)):
            stock = predictor(tiny_module(), mask).logits(tokens, ROWS)
            annealed = predictor(tiny_module(), "annealed").logits(tokens, ROWS, share)
            torch.testing.assert_close(annealed, stock, rtol=1e-5, atol=1e-5)
        half = predictor(tiny_module(), "annealed").logits(tokens, ROWS, 0.5)
        for mask in ("causal", "bidirectional"):
            assert (half - predictor(tiny_module(), mask).logits(tokens, ROWS))[:, :MASK].abs().max() > 1e-2


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
def test_what_the_annealed_mask_shows_only_grows_and_does_not_depend_on_the_length(
    length: int, one: float, other: float, seed: int
) -> None:
    fewer, more = (annealed_mask(length, share, seed)[0, 0] == 0 for share in sorted((one, other)))
    assert bool((more | ~fewer).all())
    assert bool(fewer[torch.tril_indices(length, length).unbind()].all())
    assert torch.equal(annealed_mask(length + 7, one, seed)[..., :length, :length], annealed_mask(length, one, seed))


def test_the_visible_share_of_the_upper_triangle_is_the_share_that_is_asked_for() -> None:
    later = torch.ones(200, 200).triu(1).bool()
    for share in (0.1, 0.5, 0.9):
        visible = (annealed_mask(200, share)[0, 0] == 0)[later].double().mean().item()
        assert visible == pytest.approx(share, abs=0.02)


def test_all_objectives_and_masks_share_sequences_targets_and_weights(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    triplet: Any = (("ar", "causal"), ("diffusion", "bidirectional"), ("diffusion", "causal"))
    drawn = []
    for objective, mask in triplet:
        adaptation = begin(stories_model(), small_recipe(), objective, mask, data)
        drawn.append([adaptation.draw(update) for update in range(1, 9)])
    assert drawn[0] == drawn[1] == drawn[2]
    assert len({str(sequences) for sequences in drawn[0]}) == 8  # and updates differ
    for sequence in (sequence for sequences in drawn[0] for sequence in sequences):
        hidden = visible_tokens(sequence, "diffusion", 1)
        changed = [position for position in range(len(hidden)) if hidden[position] != sequence.tokens[position]]
        assert tuple(changed) == sequence.targets
        assert visible_tokens(sequence, "ar", 1).tolist() == list(sequence.tokens)


@pytest.mark.parametrize(("objective", "mask"), [("ar", "causal"), ("diffusion", "bidirectional"), ("diffusion", "causal")])
def test_position_p_is_predicted_from_row_p_minus_1(objective: Any, mask: Any) -> None:
    module = tiny_module()
    losses = predictor(module, mask).losses(SEQUENCE, objective)
    read = visible_tokens(SEQUENCE, objective, MASK)
    embedded = module.get_input_embeddings()(read) + (read == MASK)[:, None] * 0.3
    logits = module(inputs_embeds=embedded[None]).logits[0].detach().clone()
    logits[:, MASK] = -torch.inf
    expected = [-logits[target - 1].log_softmax(-1)[SEQUENCE.tokens[target]].item() for target in SEQUENCE.targets]
    assert losses.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_causal_diffusion_model_sees_nothing_behind_the_predicting_row() -> None:
    other = TrainingSequence((*SEQUENCE.tokens[:7], 40), SEQUENCE.targets, SEQUENCE.weights, "text")
    for mask, blind in (("causal", True), ("bidirectional", False)):
        one = predictor(tiny_module(), mask)
        same = torch.allclose(one.losses(SEQUENCE, "diffusion"), one.losses(other, "diffusion"), atol=1e-6)
        assert same == blind


def test_the_mask_token_is_never_an_output() -> None:
    logits = predictor(tiny_module(), "bidirectional").logits(torch.tensor(SEQUENCE.tokens), ROWS)
    assert bool((logits[:, MASK] == -torch.inf).all())
    assert bool(logits[:, :MASK].isfinite().all())


def test_the_loss_of_an_update_is_the_weighted_sum_over_its_sequences() -> None:
    module = tiny_module()
    one = predictor(module, "bidirectional")
    losses = one.losses(SEQUENCE, "diffusion")
    expected = 2 * (losses * torch.tensor(SEQUENCE.weights)).sum()
    assert backward(one, [SEQUENCE, SEQUENCE], "diffusion") == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_the_gradients_of_a_low_rank_map_are_those_of_autograd(bias: bool) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(6, 5, bias=bias).double()
    linear.requires_grad_(False)
    lora = LoraMap(linear, torch.randn(2, 6).double(), torch.randn(5, 2).double(), 1.5)
    inputs = torch.randn(2, 3, 6, dtype=torch.double, requires_grad=True)
    own = lora(inputs)
    plain = linear(inputs) + 1.5 * inputs @ lora.lora_a.t() @ lora.lora_b.t()
    torch.testing.assert_close(own, plain)
    weights = torch.randn_like(own)
    for mine, theirs in zip(
        torch.autograd.grad((own * weights).sum(), (inputs, lora.lora_a, lora.lora_b)),
        torch.autograd.grad((plain * weights).sum(), (inputs, lora.lora_a, lora.lora_b)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)

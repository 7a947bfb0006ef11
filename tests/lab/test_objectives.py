"""What the twins are trained to do, against loops over single tokens."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from floatlens.lab.scores import guesses
from floatlens.lab.sequences import TOKEN_ID, Batch
from floatlens.lab.updates import ELSEWHERE, batch_loss, draw_masks
from floatlens.tasks.world.words import MASK

WORDS = 12


class Table:
    """A model that looks at nothing but the row's own token; it remembers what it was given."""

    def __init__(self) -> None:
        self.logits = torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(0))
        self.given = torch.empty(0)

    def __call__(self, input_ids: Tensor) -> SimpleNamespace:
        self.given = input_ids
        return SimpleNamespace(logits=self.logits[input_ids])

    def surprise(self, seen: int, true: int) -> float:
        """- log p(true | the row's own token), from scratch."""
        row = self.logits[seen].double().tolist()
        return math.log(sum(math.exp(score) for score in row)) - row[true]


@pytest.fixture
def batch() -> Batch:
    tokens = torch.randint(2, WORDS, (6, 20), generator=torch.Generator().manual_seed(1))
    answers = torch.zeros(6, 20, dtype=torch.bool)
    answers[:, 7:9] = answers[:, 15:] = True
    return Batch(tokens, answers)


def test_an_arm_is_trained_on_the_next_token_with_answers_weighing_most(batch: Batch) -> None:
    model, total, weights = Table(), 0.0, 0.0
    for sequence in range(6):
        for position in range(1, 20):
            weight = 1.0 if batch.answers[sequence, position] else 0.15
            total += weight * model.surprise(int(batch.tokens[sequence, position - 1]), int(batch.tokens[sequence, position]))
            weights += weight
    assert batch_loss(model, "arm", batch, torch.Generator()).item() == pytest.approx(total / weights, rel=1e-5)
    assert ELSEWHERE == 0.15


@pytest.mark.parametrize("kind", ["mdm", "causal-mdm"])
def test_the_others_are_trained_on_what_stands_behind_the_masks(kind: str, batch: Batch) -> None:
    model = Table()
    loss = batch_loss(model, kind, batch, torch.Generator().manual_seed(5)).item()
    hidden = draw_masks(batch, torch.Generator().manual_seed(5))
    total, weights, mask = 0.0, 0.0, TOKEN_ID[MASK]
    for sequence in range(6):
        for position in range(20):
            own, shown = int(batch.tokens[sequence, position]), int(model.given[sequence, position])
            assert shown == (mask if hidden[sequence, position] else own)
            if hidden[sequence, position]:
                weight = 1.0 if batch.answers[sequence, position] else 0.15
                total += weight * model.surprise(mask, own)
                weights += weight
    assert loss == pytest.approx(total / weights, rel=1e-5)


def test_a_batch_with_nothing_hidden_gives_no_loss_and_no_nan(batch: Batch) -> None:
    nothing = Batch(batch.tokens[:1, :1], torch.zeros(1, 1, dtype=torch.bool))  # the first token is never hidden
    assert batch_loss(Table(), "mdm", nothing, torch.Generator()).item() == 0


def test_mask_ratios_of_answers_are_spread_evenly_and_a_third_is_masked_whole() -> None:
    answers = torch.zeros(12, 8000, dtype=torch.bool)
    answers[:, 4000:] = True
    for seed in range(5):
        hidden = draw_masks(Batch(torch.ones(12, 8000, dtype=torch.long), answers), torch.Generator().manual_seed(seed))
        share = sorted(hidden[:, 4000:].float().mean(-1).tolist())
        assert share[8:] == [1.0] * 4  # a third, whole
        for place, found in enumerate(share[:8]):  # one in every eighth of (0, 1]; 4,000 draws scatter by less than .03
            assert place / 8 - 0.03 <= found <= (place + 1) / 8 + 0.03
        elsewhere = hidden[:, 1:4000].float().mean(-1)
        assert elsewhere.max() <= 0.33
        assert not hidden[:, 0].any()


def test_other_tokens_are_masked_in_half_of_the_sequences_only() -> None:
    batch = Batch(torch.ones(400, 200, dtype=torch.long), torch.zeros(400, 200, dtype=torch.bool))
    hidden = draw_masks(batch, torch.Generator().manual_seed(0))
    untouched = (~hidden).all(-1).float().mean().item()
    assert 0.42 < untouched < 0.6
    assert 0.05 < hidden.float().mean().item() < 0.1  # half of them, up to .3: .075 on average


def test_guesses_stand_where_their_token_stands(batch: Batch) -> None:
    model = Table()
    found = guesses(model, "arm", batch)
    for position in range(1, 20):
        assert found[0, position] == model.logits[batch.tokens[0, position - 1]].argmax()
    found = guesses(model, "mdm", batch)
    assert (model.given[batch.answers] == TOKEN_ID[MASK]).all()
    assert (model.given[~batch.answers] == batch.tokens[~batch.answers]).all()
    assert (found[batch.answers] == model.logits[TOKEN_ID[MASK]].argmax()).all()

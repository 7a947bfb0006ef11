"""The anchor rules give numpy arrays and torch tensors the same anchors, and both those of a loop over plain numbers."""

import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from floatlens import anchor_rules
from floatlens.errors import Refusal

MARGINS = ["lift", "additive", "zscore", "rate"]
ROUNDING = 1e-5


@dataclass(frozen=True)
class Received:
    """What the keys of several heads received: mass (head, key); visible and null (1, key); rows (1,)."""

    mass: np.ndarray
    visible: np.ndarray
    null: np.ndarray
    rows: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.mass, self.visible, self.null, self.rows

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(values) for values in self.arrays)


@st.composite
def received(draw: st.DrawFn) -> Received:
    """Attention of a few heads, reduced; some keys do not exist (NaN), some are seen by few rows or by none, some draw the same."""
    heads, queries, keys = draw(st.integers(1, 3)), draw(st.integers(1, 70)), draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["all", "causal", "random", "one key"]))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    seen = {
        "all": np.ones((queries, keys), bool),
        "causal": np.arange(queries)[:, None] >= queries * np.arange(keys) / keys,
        "random": generator.random((queries, keys)) < 0.5,
        "one key": np.arange(keys)[None].repeat(queries, 0) == keys // 2,
    }[kind]
    weights = (
        generator.integers(1, 4, (heads, queries, keys)) if draw(st.booleans()) else generator.exponential(size=(heads, queries, keys))
    )
    weights = np.where(seen, weights, 0.0)
    if draw(st.booleans()):
        weights[:] = weights[:, :, :1] * seen  # every key draws what the first one does: ties
    totals = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    visible = seen.sum(0).astype(float)
    shares = np.divide(seen, seen.sum(-1, keepdims=True), out=np.zeros(seen.shape), where=seen.any(-1, keepdims=True))
    null = np.divide(shares.sum(0), visible, out=np.full(keys, np.nan), where=visible > 0)
    mass = weights.sum(1)
    absent = generator.random(keys) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    mass[:, absent] = visible[absent] = null[absent] = np.nan
    if draw(st.booleans()):
        mass[0] = np.nan  # a head that this layer does not have
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Received(mass.astype(dtype), visible[None].astype(dtype), null[None].astype(dtype), np.array([queries], dtype))


def margins_of_head(rule: str, mass: list[float], visible: list[float], null: list[float], rows: float) -> list[float]:
    """The margin of every key by the definition of the rule; NaN where there is none."""
    existing = [value for value in mass if not math.isnan(value)]
    margins = []
    for j, own in enumerate(mass):
        value = math.nan
        if math.isnan(own):
            pass
        elif rule == "lift" and visible[j] > 0 and null[j] > 0:
            value = own / visible[j] / null[j] - 1
        elif rule == "rate" and visible[j] > 0:
            value = own / visible[j]
        elif rule == "additive" and len(existing) > 1:
            shares = [other * len(existing) / rows for other in existing]
            share = own * len(existing) / rows
            value = share - (sum(shares) - share) / (len(existing) - 1)
        elif rule == "zscore":
            shares = [other / rows for other in existing]
            mean = sum(shares) / len(shares)
            spread = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
            value = (own / rows - mean) / spread if spread > ROUNDING * mean else math.nan
        margins.append(value)
    return margins


def heads(data: Received) -> list[tuple[list[float], list[float], list[float], float]]:
    """Each head as lists of numbers."""
    return [(mass.tolist(), data.visible[0].tolist(), data.null[0].tolist(), data.rows.item()) for mass in data.mass]


def expected_margins(rule: str, data: Received) -> np.ndarray:
    """The margins of all heads, by the loop. Cases in which rounding decides whether keys differ at all are left out."""
    for mass, *_ in heads(data):
        existing = [value for value in mass if not math.isnan(value)]
        if rule == "zscore" and existing:
            relative_spread = np.std(existing) / max(np.mean(existing), 1e-30)
            assume(relative_spread < ROUNDING / 10 or relative_spread > ROUNDING * 10)
    return np.array([margins_of_head(rule, *head) for head in heads(data)])


@given(data=received(), rule=st.sampled_from(MARGINS))
def test_arrays_tensors_and_a_loop_agree_on_every_margin(data: Received, rule: str) -> None:
    expected = expected_margins(rule, data)
    of_arrays, of_tensors = anchor_rules.margin(rule, *data.arrays), anchor_rules.margin(rule, *data.tensors)
    assert isinstance(of_arrays, np.ndarray)
    assert isinstance(of_tensors, torch.Tensor)
    tolerance = 1e-4 if data.mass.dtype == np.float32 else 1e-9
    for margins in (of_arrays, of_tensors.numpy()):
        assert margins.dtype == data.mass.dtype
        np.testing.assert_allclose(margins, expected, atol=tolerance, rtol=tolerance)


@given(data=received(), rule=st.sampled_from(MARGINS), eps=st.floats(0.01, 4))
def test_arrays_tensors_and_a_loop_agree_on_what_exceeds_a_threshold(data: Received, rule: str, eps: float) -> None:
    expected = expected_margins(rule, data)
    clear = np.isnan(expected) | (np.abs(expected - eps) > 1e-4 * np.maximum(1, np.abs(expected)))
    for above in (anchor_rules.exceeds(rule, eps, *data.arrays), anchor_rules.exceeds(rule, eps, *data.tensors).numpy()):
        np.testing.assert_array_equal(above[clear], (expected > eps)[clear])


@given(data=received())
def test_arrays_tensors_and_a_loop_agree_on_which_keys_enough_rows_see(data: Received) -> None:
    rows = data.rows.item()
    expected = [count > 0 and count >= min(rows, max(16, rows / 4)) for count in data.visible[0].tolist()]
    assert anchor_rules.eligible(data.visible, data.rows)[0].tolist() == expected
    assert anchor_rules.eligible(torch.from_numpy(data.visible), torch.from_numpy(data.rows))[0].tolist() == expected


def ranks_of_head(strength: list[float], count: int, rounding: float) -> list[int]:
    """Take the strongest key `count` times, the leftmost of those that differ by less than rounding."""
    ranks, left = [len(strength)] * len(strength), [j for j, value in enumerate(strength) if math.isfinite(value)]
    for number in range(count):
        if not left:
            break
        best = max(strength[j] for j in left)
        chosen = min(j for j in left if strength[j] >= best - rounding * abs(best))
        ranks[chosen] = number
        left.remove(chosen)
    return ranks


strengths = st.lists(
    st.sampled_from([0.0, 0.1, 0.25, 0.25 * (1 + 2e-6), 0.25 * (1 + 1e-4), 0.7, -0.3, math.nan, -math.inf]), min_size=1, max_size=9
)


@given(strength=strengths, count=st.integers(1, 12), rounding=st.sampled_from([0.0, ROUNDING]))
@example(strength=[math.nan], count=3, rounding=0.0)
@example(strength=[0.25, 0.25], count=1, rounding=0.0)
def test_arrays_tensors_and_a_loop_agree_on_the_strongest_keys(strength: list[float], count: int, rounding: float) -> None:
    expected = ranks_of_head(strength, count, rounding)
    array = np.array([strength, strength[::-1]])
    for values in (array, torch.from_numpy(array)):
        ranks = anchor_rules.rank(values, count, rounding=rounding)
        assert ranks.tolist() == [expected, ranks_of_head(strength[::-1], count, rounding)]
        chosen = anchor_rules.strongest(values, count, rounding=rounding)
        assert chosen[0].tolist() == [number < len(strength) for number in expected]


def test_top_has_no_margin() -> None:
    one = np.ones(1)
    with pytest.raises(Refusal, match="The rule 'top' has no margin"):
        anchor_rules.margin("top", one, one, one, one[0])


def test_a_trace_can_be_measured_without_torch() -> None:
    program = "import sys; import floatlens.anchor_rules; assert not {'torch', 'xarray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)

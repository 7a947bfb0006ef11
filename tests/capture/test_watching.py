"""Attention calls are seen however a model came by torch's function; once it is known how, no other function is slowed down."""

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack as modes

import floatlens as fl
from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before
from floatlens.capture.watching import ATTENTION

HIDDEN = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))


class Layer(nn.Module):
    """Looks the function up by its name where `by_name` says so for its run, and has it at hand otherwise."""

    def __init__(self, *by_name: bool) -> None:
        super().__init__()
        self.by_name, self.runs, self.in_modes = by_name, 0, []

    def forward(self, hidden: Tensor) -> Tensor:
        by_name = self.by_name[min(self.runs, len(self.by_name) - 1)]
        self.runs += 1
        self.in_modes.append(len(modes()))
        return (F.scaled_dot_product_attention if by_name else ATTENTION)(hidden, hidden.roll(1, 2), hidden * 1.1)


class Layers(nn.Module):
    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def seen(model: Layers, steps: int = 3) -> Any:
    with fl.tap(model, layers=len(model.layers), step_on=model, keep=["mass"]) as tap:
        for step in range(steps):
            model(HIDDEN * (1 + step))
    return tap.dataset.mass


@pytest.mark.parametrize(
    ("by_name", "in_modes"),
    [
        (((True,), (True,)), [1, 0, 0]),
        (((False,), (False,)), [1, 1, 1]),
        (((True,), (False,)), [1, 1, 1]),
        (((False,), (True,)), [1, 1, 1]),
        (((False, True), (False, True)), [1, 1, 1]),
    ],
    ids=["by name", "at hand", "by name and at hand", "at hand and by name", "at hand, later by name"],
)
def test_every_call_of_every_step_is_seen_and_the_mode_stays_only_where_it_is_needed(
    by_name: tuple[tuple[bool, ...], tuple[bool, ...]], in_modes: list[int]
) -> None:
    mass = seen(model := Layers(*(Layer(*of_layer) for of_layer in by_name)))
    assert model.layers[1].in_modes == in_modes
    for step in range(3):
        with fl.tap(model, layers=2, keep=["mass"]) as alone:
            model(HIDDEN * (1 + step))
        assert (alone.dataset.mass.values == mass.isel(step=step).values).all()


def test_a_model_that_no_longer_looks_the_function_up_is_refused_and_never_overlooked() -> None:
    with pytest.raises(fl.Refusal, match=r"2 attention layers were expected and 1 were seen: nothing came from layer 1"):
        seen(Layers(Layer(True), Layer(True, True, False)))


def test_the_next_tap_on_a_model_begins_with_what_is_known_of_it() -> None:
    model = Layers(Layer(True), Layer(True))
    first = seen(model)
    again = seen(model)
    assert model.layers[1].in_modes == [1, 0, 0, 0, 0, 0]
    assert (first.values == again.values).all()
    model.layers.append(Layer(False))
    assert seen(model).sizes["layer"] == 3
    assert model.layers[2].in_modes == [1, 1, 1], "with other modules, nothing is known of it"


class Turning(nn.Module):
    """Leaves attention to a part of it; from its third run on it calls the function itself, and has it at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.runs = Layer(True), 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.runs += 1
        return self.part(hidden) if self.runs < 3 else ATTENTION(hidden, hidden.roll(1, 2), hidden * 1.1)


def test_a_known_model_that_calls_otherwise_is_refused_once_and_seen_from_then_on() -> None:
    def mass(of: nn.Module) -> Any:
        with fl.tap(of, layers=1, keep=["mass"]) as tap:
            of(HIDDEN)
        return tap.dataset.mass.values

    model = Turning()
    first, second = mass(model), mass(model)
    with pytest.raises(fl.Refusal, match="1 attention layers were expected and 0 were seen"):
        mass(model)
    for again in (second, mass(model), mass(model)):
        assert (again == first).all()


def test_the_name_is_put_back_when_the_last_tap_closes_whatever_happened_in_it() -> None:
    def fail_in_a_tap() -> None:
        with fl.tap(model := Layers(Layer(True)), layers=1):
            model(HIDDEN)
            assert F.scaled_dot_product_attention is not ATTENTION
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail_in_a_tap()
    assert F.scaled_dot_product_attention is ATTENTION


def test_a_tap_that_closes_leaves_the_one_of_another_thread_open() -> None:
    model, closed, found = Layers(Layer(True)), threading.Event(), []
    is_open = threading.Event()

    def elsewhere() -> None:
        with fl.tap(model, layers=1, step_on=model, keep=["mass"]) as tap:
            model(HIDDEN)
            is_open.set()
            closed.wait(60)
            model(HIDDEN)
        found.append(tap.dataset.sizes["step"])

    thread = threading.Thread(target=elsewhere)
    with fl.tap(other := Layers(Layer(True)), layers=1, step_on=other, keep=["mass"]) as tap:
        thread.start()
        assert is_open.wait(60)
        for _ in range(2):
            other(HIDDEN)
    closed.set()
    thread.join(60)
    assert (found, tap.dataset.sizes["step"]) == ([2], 2)
    assert F.scaled_dot_product_attention is ATTENTION


def test_a_function_that_another_program_put_there_is_left_alone_and_its_calls_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def theirs(*args: Any, **kwargs: Any) -> Tensor:
        ran.append(len(modes()))
        return ATTENTION(*args, **kwargs)

    seen(model := Layers(Layer(True)))
    monkeypatch.setattr(F, "scaled_dot_product_attention", theirs)
    mass = seen(model)
    assert F.scaled_dot_product_attention is theirs
    assert ran == [1, 1, 1]
    monkeypatch.undo()
    assert (mass.values == seen(Layers(Layer(True))).values).all()


@pytest.mark.parametrize("by_name", [True, False])
def test_what_an_edit_computes_with_the_function_is_no_call_of_the_model(by_name: bool) -> None:
    def edit(call: AttentionCall, before: Before) -> AttentionCall:
        other = F.scaled_dot_product_attention(call.query, call.key, call.value)
        return call.with_keys(call.key, call.value + 0 * other)

    model = Layers(Layer(by_name), Layer(by_name))
    with fl.tap(model, layers=2, step_on=model, keep=["mass"], edits=[edit]) as tap:
        for _ in range(3):
            model(HIDDEN)
    assert tap.dataset.sizes["step"] == 3

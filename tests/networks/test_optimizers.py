"""Valid settings of optimizers, and the learning rate of each step."""

from __future__ import annotations

from math import sqrt
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.errors import BadInput
from polybench.networks import MODELS
from polybench.networks.optimizers import OPTIMIZERS, Optimizer, apply_update
from polybench.planning.plan import resolve
from polybench.schema.options import Study

RESNET = Optimizer("momentum", 0.1, lr_schedule=((40_000, 0.01), (60_000, 0.001), (80_000, 0.0001)))


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.1), (39_999, 0.1), (40_000, 0.01), (79_999, 0.001), (80_000, 1e-4), (10**6, 1e-4)]
)
def test_a_change_applies_from_its_step_on(step: int, rate: float) -> None:
    assert RESNET.learning_rate_at(step) == rate


def test_segments_end_where_the_rate_changes() -> None:
    optimizer = Optimizer("sgd", 1.0, lr_schedule=((2, 0.5), (3, 0.25), (9, 0.1)))
    assert optimizer.constant_rate_segments(0, 5) == [(range(2), 1.0), (range(2, 3), 0.5), (range(3, 5), 0.25)]
    assert optimizer.constant_rate_segments(2, 1) == [(range(2, 3), 0.5)]
    assert optimizer.constant_rate_segments(3, 6) == [(range(3, 9), 0.25)]
    assert Optimizer("sgd", 1.0).constant_rate_segments(7, 100) == [(range(7, 107), 1.0)]


COSINE = Optimizer("adamw", 1e-3, warmup_steps=100, cosine_steps=2000, min_learning_rate=1e-4)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 1e-3 / 101), (99, 1e-3 * 100 / 101), (100, 1e-3), (1050, 5.5e-4), (2000, 1e-4), (10**6, 1e-4)],
)
def test_the_rate_rises_then_follows_half_a_cosine(step: int, rate: float) -> None:
    assert COSINE.learning_rate_at(step) == pytest.approx(rate, rel=1e-12)


def test_each_step_of_a_moving_rate_is_a_segment() -> None:
    assert COSINE.constant_rate_segments(98, 3) == [
        (range(step, step + 1), COSINE.learning_rate_at(step)) for step in (98, 99, 100)
    ]
    assert COSINE.constant_rate_segments(1999, 50) == [
        (range(1999, 2000), COSINE.learning_rate_at(1999)),
        (range(2000, 2049), 1e-4),
    ]
    assert COSINE.changes == [100, 1050, 2000]
    warmup = Optimizer("sgd", 1.0, warmup_steps=3)
    assert [steps for steps, _ in warmup.constant_rate_segments(0, 9)] == [
        range(1),
        range(1, 2),
        range(2, 3),
        range(3, 9),
    ]
    assert warmup.changes == [3]


def test_clipping_scales_gradients_that_are_too_large() -> None:
    optimizer = Optimizer("sgd", gradient_clip=2.0)
    assert optimizer.clip_factor(1.0) == 1
    assert optimizer.clip_factor(8.0) == pytest.approx(0.25, rel=1e-6)
    assert Optimizer("sgd").clip_factor(1e9) == 1


def test_only_matrices_decay_and_outside_of_the_gradient() -> None:
    optimizer = Optimizer("adamw", 0.1, weight_decay=0.5, betas=(0.5, 0.75))
    matrix, _ = apply_update(optimizer, 0.1, np.ones((1, 1)), np.full((1, 1), 4.0), {})
    vector, state = apply_update(optimizer, 0.1, np.ones(1), np.full(1, 4.0), {})
    assert matrix.item() == pytest.approx(1 - 0.05 - 0.1, rel=1e-8)  # the first step is the rate times the sign
    assert vector.item() == pytest.approx(1 - 0.1, rel=1e-8)
    second, _ = apply_update(optimizer, 0.1, vector, np.zeros(1), state)
    m, v = 0.5 * 2.0 / (1 - 0.25), 0.75 * 4.0 / (1 - 0.75**2)
    assert (vector - second).item() == pytest.approx(0.1 * m / sqrt(v), rel=1e-7)


def test_only_momentum_and_nesterov_have_a_momentum() -> None:
    assert {name: optimizer.momentum for name, optimizer in OPTIMIZERS.items()} == {
        "sgd": None, "momentum": 0.9, "nesterov": 0.9, "adam": None, "adamw": None, "rmsprop": None,
    }  # fmt: skip
    with pytest.raises(BadInput, match="adam has no momentum; drop --momentum"):
        Optimizer("adam", 0.001, momentum=0.9)


@pytest.mark.parametrize("steps", [(3, 2), (2, 2)])
def test_steps_of_a_schedule_must_ascend(steps: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="expected ascending steps"):
        Optimizer(lr_schedule=tuple((step, 0.1) for step in steps))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "adamx"},
        {"betas": [0.9, 1.0]},
        {"gradient_clip": -1.0},
        {"weight_decay": -1.0},
        {"lr_schedule": [[0, 0.1]]},
        {"lr_schedule": [[1, 0.0]]},
        {"beta": 1.0},
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Optimizer)


def test_an_optimizer_is_the_same_after_json() -> None:
    for optimizer in (RESNET, *OPTIMIZERS.values()):
        assert msgspec.json.decode(msgspec.json.encode(optimizer), type=Optimizer) == optimizer
    short = b'{"name": "momentum", "learning_rate": 0.01, "momentum": 0.9}'
    assert msgspec.json.decode(short, type=Optimizer) == Optimizer()


def test_a_study_overrides_the_models_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = msgspec.structs.replace(
        MODELS["lenet"], optimizer=msgspec.structs.replace(RESNET, momentum=0.8, weight_decay=1e-4)
    )
    monkeypatch.setitem(MODELS, "lenet", model)

    def optimizer(**fields: object) -> Optimizer:
        return resolve(Study(**fields)).workload.optimizer  # type: ignore[arg-type]

    assert optimizer() == model.optimizer
    assert optimizer(momentum=0.5) == msgspec.structs.replace(model.optimizer, momentum=0.5)
    assert optimizer(weight_decay=0.0) == msgspec.structs.replace(model.optimizer, weight_decay=0.0)
    # Another learning rate is constant, unless a schedule is given as well.
    assert optimizer(learning_rate=0.2) == Optimizer("momentum", 0.2, 0.8, 1e-4)
    assert optimizer(learning_rate=0.2, lr_schedule=((5, 0.1),)).lr_schedule == ((5, 0.1),)
    assert optimizer(lr_schedule=()).lr_schedule == ()
    assert optimizer(optimizer="momentum") == model.optimizer  # its own
    # Another optimizer ignores the model's settings.
    assert optimizer(optimizer="adam") == Optimizer("adam", 0.001)
    with pytest.raises(BadInput, match="--momentum"):
        optimizer(optimizer="adam", momentum=0.9)


KNOWN_VALUES = [
    (Optimizer("sgd"), [0.8, 0.7]),
    (Optimizer("momentum", momentum=0.9), [0.8, 0.8 - 0.1 * (0.9 * 2 + 1)]),
    (Optimizer("nesterov", momentum=0.5), [1 - 0.1 * (2 + 0.5 * 2), 0.7 - 0.1 * (1 + 0.5 * (0.5 * 2 + 1))]),
    # s is 0.1 x 4, then 0.9 x 0.4 + 0.1 x 1
    (Optimizer("rmsprop"), [w := 1 - 0.2 / (sqrt(0.4) + 1e-7), w - 0.1 / (sqrt(0.46) + 1e-7)]),
    # m and v, bias-corrected: 2 and 4, then (0.18 + 0.1) / 0.19 and (0.003996 + 0.001) / 0.001999
    (Optimizer("adam"), [w := 1 - 0.2 / (2 + 1e-8), w - 0.1 * (0.28 / 0.19) / (sqrt(0.004996 / 0.001999) + 1e-8)]),
    (Optimizer("sgd", weight_decay=0.5), [w := 1 - 0.1 * (2 + 0.5), w - 0.1 * (1 + 0.5 * w)]),
    # The first gradient is 2 + 0.5, the second 1 + 0.5 w.
    (Optimizer("momentum", momentum=0.9, weight_decay=0.5), [w := 0.75, w - 0.1 * (0.9 * 2.5 + 1 + 0.5 * w)]),
    (Optimizer("rmsprop", weight_decay=0.5), [1 - 0.25 / (sqrt(0.625) + 1e-7), None]),
    (Optimizer("adam", weight_decay=0.5), [1 - 0.25 / (2.5 + 1e-8), None]),
]


@pytest.mark.parametrize(("optimizer", "expected"), KNOWN_VALUES)
def test_two_steps_have_known_values(optimizer: Optimizer, expected: list[float | None]) -> None:
    w, state = np.array([1.0]), {}
    for gradient, reached in zip((2.0, 1.0), expected, strict=True):
        w, state = apply_update(optimizer, 0.1, w, np.array([gradient]), state)
        assert reached is None or w.item() == pytest.approx(reached, rel=1e-14)


@pytest.mark.parametrize("name", ["momentum", "nesterov", "rmsprop", "adam"])
def test_the_state_does_not_contain_the_rate(name: Any) -> None:
    w, gradient = np.array([1.0, -1.0]), np.array([2.0, 0.5])
    _, state = apply_update(Optimizer(name), 0.1, w, gradient, {})
    _, other = apply_update(Optimizer(name), 0.001, w, gradient, {})
    assert state.keys() == other.keys()
    assert all(np.array_equal(state[key], other[key]) for key in state)


def test_epsilon_is_added_to_the_root() -> None:
    # The gradient is as small as epsilon; under the root, the result would be 1e-7 / sqrt(1e-15 + 1e-7).
    w, tiny = np.zeros(1), np.array([1e-7])
    assert apply_update(Optimizer("rmsprop"), 1.0, w, tiny, {})[0].item() == pytest.approx(-1 / (sqrt(0.1) + 1))
    # The result would be 1e-8 / (sqrt(0.001) 1e-8 + 1e-8) if it were added before the bias correction.
    assert apply_update(Optimizer("adam"), 1.0, w, tiny / 10, {})[0].item() == pytest.approx(-1 / 2)

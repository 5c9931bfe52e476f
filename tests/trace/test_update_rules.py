"""Update rules: the same steps as the optimizers of the parity check, and what the settings of a framework declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import polybench
from polybench.networks.optimizers import Optimizer, State, apply_update
from polybench.trace.file import Array, Trace
from polybench.trace.update_rules import _SAMPLES, Clip, Rule, Samples, declared_rule, take_samples, updates

RATES = (0.1, 0.05, 0.02)


def train(optimizer: Optimizer) -> Samples:
    """Train a matrix of six values and a bias of two for three steps, at three learning rates."""
    random = np.random.default_rng(0)
    weights: dict[str, Array] = {"matrix": random.normal(size=(2, 3)), "bias": random.normal(size=2)}
    states: dict[str, State] = {"matrix": {}, "bias": {}}
    before, gradients = [], []
    for rate in RATES:
        drawn = {name: random.normal(size=value.shape) for name, value in weights.items()}
        before.append(np.concatenate([value.ravel() for value in weights.values()]))
        gradients.append(np.concatenate([value.ravel() for value in drawn.values()]))
        for name, gradient in drawn.items():
            weights[name], states[name] = apply_update(optimizer, rate, weights[name], gradient, states[name])
    after = [*before[1:], np.concatenate([value.ravel() for value in weights.values()])]
    tensors = np.array([0] * 6 + [1] * 2)
    zeros = np.zeros((3, 2))
    return Samples(
        np.array(before), np.array(gradients), np.array(after) - before, tensors, tensors == 0, zeros, zeros
    )  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [
        (Optimizer("sgd", weight_decay=0.1), Rule(family="sgd", weight_decay=0.1)),
        (Optimizer("momentum", momentum=0.8), Rule(family="sgd", momentum=0.8)),
        (Optimizer("nesterov", momentum=0.8), Rule(family="sgd", momentum=0.8, nesterov=True)),
        (Optimizer("adam", betas=(0.8, 0.95)), Rule(family="adam", betas=(0.8, 0.95))),
        (Optimizer("rmsprop"), Rule(family="rmsprop", epsilon=1e-7)),
        (
            Optimizer("adamw", weight_decay=0.1),
            Rule(family="adam", weight_decay=0.1, decoupled=True, decays="matrices"),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Optimizer) else "",
)
def test_a_rule_takes_the_steps_of_its_optimizer(optimizer: Optimizer, rule: Rule) -> None:
    samples = train(optimizer)
    assert updates(rule, samples, np.array(RATES)) == pytest.approx(samples.updates, rel=1e-9)


def test_dampening_reduces_later_gradients() -> None:
    samples = train(Optimizer("sgd"))
    first, second, _ = -updates(Rule(family="sgd", momentum=0.5, dampening=0.2), samples)
    assert first == pytest.approx(samples.gradients[0])
    assert second == pytest.approx(0.5 * samples.gradients[0] + 0.8 * samples.gradients[1])


def test_the_norm_of_a_sampled_tensor_is_that_of_all_its_values(tmp_path: Path) -> None:
    weights, gradients = ({"w": one} for one in np.random.default_rng(0).normal(size=(2, 50, 50)))
    with polybench.record(tmp_path / "a", model=weights) as recorder:
        recorder.step(loss=1.0, gradients=gradients, weights={"w": weights["w"] - 0.1 * gradients["w"]})
    with Trace(tmp_path / "a") as trace:
        samples = take_samples(trace)
    assert samples is not None
    assert samples.gradients.size == _SAMPLES < gradients["w"].size
    assert samples.norms == pytest.approx(np.linalg.norm(gradients["w"]))


def test_each_form_of_clipping_has_its_own_norm() -> None:
    gradients, tensors = np.array([[3.0, 4.0, 12.0]]), np.array([0, 0, 1])
    norms = np.array([[5.0, 12.0]])
    assert Clip(6.5, "all").apply(gradients, norms, tensors) == pytest.approx(gradients / 2, rel=1e-6)
    assert Clip(6.0, "tensor").apply(gradients, norms, tensors) == pytest.approx(np.array([[3.0, 4.0, 6.0]]), rel=1e-6)
    assert Clip(3.5, "value").apply(gradients, norms, tensors).tolist() == [[3.0, 3.5, 3.5]]


@pytest.mark.parametrize(
    ("framework", "settings", "rule"),
    [
        ("torch", {}, Rule(family="adam", epsilon=1e-8)),
        ("torch", {"lr": 0.3, "betas": [0.8, 0.9]}, Rule(family="adam", learning_rate=0.3, betas=(0.8, 0.9))),
        (
            "keras on jax",
            {"beta_1": 0.8, "beta_2": 0.9, "clipnorm": 2.0},
            Rule(
                family="adam", betas=(0.8, 0.9), epsilon=1e-7, epsilon_place="before correction",
                clip=Clip(2.0, "tensor"), scaled_velocity=True,
            ),
        ),
    ],
)  # fmt: skip
def test_settings_that_are_not_recorded_are_the_defaults_of_the_framework(
    framework: str, settings: dict[str, Any], rule: Rule, tmp_path: Path
) -> None:
    with polybench.record(tmp_path / "a", model={"w": np.ones(2)}) as recorder:
        recorder.step(loss=1.0, weights={"w": np.ones(2)})
    with Trace(tmp_path / "a") as trace:
        trace.header = msgspec.structs.replace(
            trace.header, framework=framework, optimizer_name="Adam", optimizer=settings
        )
        assert declared_rule(trace) == rule

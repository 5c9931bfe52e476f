"""Comparison of every engine and variant with the reference, tensor by tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polybench.networks.lenet import LENET
from tests.engine_matrix import CHAINED, LENET_CELLS
from tests.engines.conftest import Outcome, RunLenet


def _cases(*without: str) -> list[Any]:
    names = [name for name in LENET_CELLS if name not in without]
    return [pytest.param(name, marks=pytest.mark.wide if name in CHAINED else ()) for name in names]


NAMES = _cases()
every_engine = pytest.mark.parametrize("name", NAMES)
# In float32, each variant is tested by itself; float64 tests combinations with a tighter tolerance.
in_float32 = pytest.mark.parametrize("name", _cases(*CHAINED))


@pytest.fixture
def reference(run_lenet: RunLenet) -> Outcome:
    return run_lenet("reference", "float64")


def errors(outcome: Outcome, expected: Outcome, prefix: str) -> dict[str, float]:
    """Compute norm(a - b) / max(norm(b), 1e-6 norm(all gradients)) of each entry under `prefix`."""
    gradients = [value.ravel() for key, value in expected.items() if key.startswith("first/gradient/")]
    floor = 1e-6 * np.linalg.norm(np.concatenate(gradients))
    return {
        key: float(np.linalg.norm(outcome[key] - value) / max(np.linalg.norm(value), floor))
        for key, value in expected.items()
        if key.startswith(prefix)
    }


@every_engine
@pytest.mark.parametrize("step", ["first", "step1", "step3"])
def test_float64_losses_gradients_and_weights_equal_the_reference(
    run_lenet: RunLenet, reference: Outcome, name: str, step: str
) -> None:
    by_tensor = errors(run_lenet(name, "float64"), reference, f"{step}/")
    assert len(by_tensor) == 1 + 2 * len(LENET.weight_shapes())
    assert max(by_tensor.values()) < 1e-9, by_tensor


@in_float32
def test_float32_losses_and_gradients_are_close_to_the_reference(
    run_lenet: RunLenet, reference: Outcome, name: str
) -> None:
    outcome = run_lenet(name, "float32")
    assert max(errors(outcome, reference, "first/loss").values()) < 1e-5
    assert max(errors(outcome, reference, "first/gradient/").values()) < 5e-2
    assert outcome["losses"] == pytest.approx(reference["losses"], rel=1e-5)


@pytest.mark.parametrize("name", ["torch", "tf", "jax"])
def test_bfloat16_loss_is_less_accurate_but_correct(run_lenet: RunLenet, reference: Outcome, name: str) -> None:
    outcome = run_lenet(name, "float32", "bf16")
    loss_error = errors(outcome, reference, "first/loss")["first/loss"]
    assert 1e-7 < loss_error < 2e-2
    assert outcome["first/weight/conv1.weight"].dtype == np.float32


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_a_snapshot_changes_no_state(run_lenet: RunLenet, name: str) -> None:
    outcome = run_lenet(name, "float64")
    again = {key: value for key, value in outcome.items() if key.startswith("again/")}
    assert max(errors(outcome, {k.replace("again", "first"): v for k, v in again.items()}, "first/").values()) < 1e-14
    # The first training recorded snapshots between its steps, the training after the reset did not.
    np.testing.assert_allclose(outcome["losses"], outcome["losses_after_reset"], rtol=1e-14)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_reset_and_build_restart_training_exactly(run_lenet: RunLenet, name: str) -> None:
    outcome = run_lenet(name, "float64")
    for tensor in LENET.weight_shapes():
        np.testing.assert_array_equal(outcome[f"reset/weight/{tensor}"], outcome[f"first/weight/{tensor}"])
    np.testing.assert_allclose(outcome["losses"], outcome["losses_after_build"], rtol=1e-14)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_a_block_of_three_steps_equals_three_single_steps(run_lenet: RunLenet, name: str) -> None:
    outcome = run_lenet(name, "float64")
    for tensor in LENET.weight_shapes():
        single_steps = outcome[f"step3/weight/{tensor}"]
        np.testing.assert_allclose(outcome[f"block/weight/{tensor}"], single_steps, rtol=0, atol=1e-14)
    # model.fit reports the mean loss of its steps.
    expected = outcome["losses"].mean() if "keras_fit" in name else outcome["losses"][-1]
    assert outcome["loss_of_block"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_the_first_batch_follows_the_last(run_lenet: RunLenet, name: str) -> None:
    outcome = run_lenet(name, "float64")
    assert outcome["loss_of_next_epoch"] == pytest.approx(outcome["losses"][0], rel=1e-14)


@every_engine
def test_training_from_other_weights_and_evaluation_equal_the_reference(
    run_lenet: RunLenet, reference: Outcome, name: str
) -> None:
    outcome = run_lenet(name, "float64")
    losses = outcome["losses_of_other_weights"]
    np.testing.assert_allclose(losses, reference["losses_of_other_weights"], rtol=1e-9)
    assert losses[0] != pytest.approx(outcome["losses"][0], rel=1e-3)
    for evaluation in ("evaluation_of_other_weights", "evaluation_after_training"):
        assert 0 < sum(correct for correct, _ in reference[evaluation][:4]) < 32
        np.testing.assert_allclose(outcome[evaluation], reference[evaluation], rtol=1e-9)


@in_float32
def test_snapshots_are_in_the_canonical_layout(run_lenet: RunLenet, name: str) -> None:
    outcome = run_lenet(name, "float32")
    for tensor, shape in LENET.weight_shapes().items():
        for kind in ("gradient", "weight"):
            value = outcome[f"first/{kind}/{tensor}"]
            assert value.shape == shape
            assert value.dtype == np.float32
            assert value.flags.c_contiguous

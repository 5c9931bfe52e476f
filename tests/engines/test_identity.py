"""Every engine and variant against the reference, tensor by tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polybench.models.lenet import LENET
from tests.engines.conftest import Drive, Outcome
from tests.matrix import CHAINED, LENET_CELLS, SLOW_CELLS


def _cases(*without: str) -> list[Any]:
    names = [name for name in LENET_CELLS if name not in without]
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW_CELLS else name for name in names]


NAMES = _cases()
every_engine = pytest.mark.parametrize("name", NAMES)
# In float32 each of the variants is there by itself; that they go together, float64 shows more sharply.
in_float32 = pytest.mark.parametrize("name", _cases(*CHAINED))


@pytest.fixture
def reference(drive: Drive) -> Outcome:
    return drive("reference", "float64")


def errors(found: Outcome, expected: Outcome, prefix: str) -> dict[str, float]:
    """norm(a - b) / max(norm(b), 1e-6 norm(all gradients)) of each entry under `prefix`."""
    gradients = [value.ravel() for key, value in expected.items() if key.startswith("first/gradient/")]
    floor = 1e-6 * np.linalg.norm(np.concatenate(gradients))
    return {
        key: float(np.linalg.norm(found[key] - value) / max(np.linalg.norm(value), floor))
        for key, value in expected.items()
        if key.startswith(prefix)
    }


@every_engine
@pytest.mark.parametrize("step", ["first", "step1", "step3"])
def test_in_float64_losses_gradients_and_weights_are_those_of_the_reference(
    drive: Drive, reference: Outcome, name: str, step: str
) -> None:
    found = errors(drive(name, "float64"), reference, f"{step}/")
    assert len(found) == 1 + 2 * len(LENET.weight_shapes())
    assert max(found.values()) < 1e-9, found


@in_float32
def test_in_float32_the_first_loss_and_gradients_are_close(
    drive: Drive, reference: Outcome, name: str
) -> None:
    found = drive(name, "float32")
    assert max(errors(found, reference, "first/loss").values()) < 1e-5
    assert max(errors(found, reference, "first/gradient/").values()) < 5e-2
    assert found["losses"] == pytest.approx(reference["losses"], rel=1e-5)


@pytest.mark.parametrize("name", ["torch", "tf", "jax"])
def test_bfloat16_is_coarse_but_not_wrong(drive: Drive, reference: Outcome, name: str) -> None:
    found = drive(name, "float32", "bf16")
    loss_error = errors(found, reference, "first/loss")["first/loss"]
    assert 1e-7 < loss_error < 2e-2
    assert found["first/weight/conv1.weight"].dtype == np.float32


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_a_snapshot_changes_nothing(drive: Drive, name: str) -> None:
    found = drive(name, "float64")
    again = {key: value for key, value in found.items() if key.startswith("again/")}
    assert (
        max(errors(found, {k.replace("again", "first"): v for k, v in again.items()}, "first/").values())
        < 1e-14
    )
    # The losses of the first run were taken between snapshots, those after the reset without.
    np.testing.assert_allclose(found["losses"], found["losses_after_reset"], rtol=1e-14)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_reset_and_build_start_over_exactly(drive: Drive, name: str) -> None:
    found = drive(name, "float64")
    for tensor in LENET.weight_shapes():
        np.testing.assert_array_equal(found[f"reset/weight/{tensor}"], found[f"first/weight/{tensor}"])
    np.testing.assert_allclose(found["losses"], found["losses_after_build"], rtol=1e-14)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_a_block_of_three_steps_is_three_steps(drive: Drive, name: str) -> None:
    found = drive(name, "float64")
    for tensor in LENET.weight_shapes():
        one_by_one = found[f"step3/weight/{tensor}"]
        np.testing.assert_allclose(found[f"block/weight/{tensor}"], one_by_one, rtol=0, atol=1e-14)
    # model.fit reports the mean of its steps.
    expected = found["losses"].mean() if "keras_fit" in name else found["losses"][-1]
    assert found["loss_of_block"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["reference", *NAMES])
def test_after_the_last_batch_comes_the_first(drive: Drive, name: str) -> None:
    found = drive(name, "float64")
    assert found["loss_of_next_epoch"] == pytest.approx(found["losses"][0], rel=1e-14)


@every_engine
def test_other_initial_weights_and_evaluation_are_those_of_the_reference(
    drive: Drive, reference: Outcome, name: str
) -> None:
    found = drive(name, "float64")
    losses = found["losses_of_other_weights"]
    np.testing.assert_allclose(losses, reference["losses_of_other_weights"], rtol=1e-9)
    assert losses[0] != pytest.approx(found["losses"][0], rel=1e-3)
    for when in ("correct_of_other_weights", "correct_after_training"):
        assert 0 < sum(reference[when][:4]) < 32
        np.testing.assert_array_equal(found[when], reference[when])


@in_float32
def test_snapshots_are_canonical(drive: Drive, name: str) -> None:
    found = drive(name, "float32")
    for tensor, shape in LENET.weight_shapes().items():
        for kind in ("gradient", "weight"):
            value = found[f"first/{kind}/{tensor}"]
            assert value.shape == shape
            assert value.dtype == np.float32
            assert value.flags.c_contiguous

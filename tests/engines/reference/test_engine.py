from __future__ import annotations

import msgspec
import numpy as np

from polybench.engines.job import Job, NumericalConventions
from polybench.engines.reference.engine import ReferenceEngine
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import Dense, Residual
from polybench.networks.lenet import LENET
from polybench.networks.optimizers import Optimizer, State, apply_update
from polybench.schema.options import Workload
from tests.example_networks import EVERYTHING

WORKLOAD = Workload("lenet", "noise", 4, Optimizer(), "fp32", 1)


def engine(conventions: NumericalConventions) -> ReferenceEngine:
    random = np.random.default_rng(1)
    # Few grey levels, as in real images: many pooling windows have equal or nearly equal values.
    images = (random.integers(100, 104, (2, 4, 3, 32, 32)) / 255).astype(np.float32)
    reference = ReferenceEngine()
    reference.build(Job(LENET, WORKLOAD, "cpu", "float32", (), conventions), initial_weights(LENET, 0))
    reference.load(images, random.integers(0, 10, (2, 4)))
    return reference


def test_a_declared_convention_changes_gradients_but_not_the_loss() -> None:
    exact = engine(NumericalConventions()).snapshot(0)
    near = engine(NumericalConventions(3.45e-4)).snapshot(0)
    assert exact.loss == near.loss
    assert not np.array_equal(exact.gradients["conv1.weight"], near.gradients["conv1.weight"])
    for name in ("dense1.weight", "dense1.bias", "dense2.weight", "dense3.bias"):
        np.testing.assert_array_equal(exact.gradients[name], near.gradients[name])


def test_it_computes_in_float64_and_returns_the_conventions_of_its_job() -> None:
    reference = engine(NumericalConventions(0.5, sources={"max_pool_within": "here"}))
    assert reference.conventions() == NumericalConventions(0.5, sources={"max_pool_within": "here"})
    assert {value.dtype for value in reference.snapshot(0).weights.values()} == {np.dtype(np.float64)}


def test_snapshots_are_copies() -> None:
    reference = engine(NumericalConventions())
    before = reference.snapshot(0).weights
    first = {name: value.copy() for name, value in before.items()}
    assert reference.run_steps(0, 2) > 0
    for name, value in first.items():
        np.testing.assert_array_equal(before[name], value)


def test_a_step_clips_and_follows_the_schedule_and_a_restored_training_continues() -> None:
    optimizer = Optimizer("momentum", 0.1, lr_schedule=((1, 0.03), (2, 0.01)), gradient_clip=0.2)
    model = msgspec.structs.replace(LENET, layers=(Dense("dense", 4, 3),), input_shape=(4,), classes=3)
    random, workload = np.random.default_rng(0), msgspec.structs.replace(WORKLOAD, optimizer=optimizer)
    reference, images, labels = ReferenceEngine(), random.random((3, 5, 4)), random.integers(0, 3, (3, 5))
    reference.build(Job(model, workload, "cpu", "float64"), initial_weights(model, 0))
    reference.load(images, labels)
    states: dict[str, State] = {"dense.weight": {}, "dense.bias": {}}
    for step, rate in enumerate((0.1, 0.03, 0.01)):
        _, gradients, weights = reference.snapshot(step)
        norm = np.sqrt(sum((one**2).sum() for one in gradients.values()))
        assert norm > 0.2
        saved = reference.training_state()
        reference.run_steps(step, 1)
        for name, gradient in gradients.items():
            expected, states[name] = apply_update(optimizer, rate, weights[name], 0.2 / norm * gradient, states[name])
            np.testing.assert_allclose(reference.snapshot(step).weights[name], expected, rtol=1e-5)
    after = reference.training_state()
    reference.restore_training_state(saved)
    reference.run_steps(2, 1)
    for name, value in after.items():
        np.testing.assert_array_equal(reference.training_state()[name], value)


def test_layer_tensors_have_the_right_shapes_and_gradients() -> None:
    random = np.random.default_rng(0)
    reference, weights = ReferenceEngine(), initial_weights(EVERYTHING, 0)
    workload = Workload("everything", "noise", 4, EVERYTHING.optimizer, "fp32", 1)
    reference.build(Job(EVERYTHING, workload, "cpu", "float32"), weights)
    images, labels = random.random((1, 4, *EVERYTHING.input_shape), np.float32), random.integers(0, 3, (1, 4))
    reference.load(images, labels)
    tensors = reference.layer_tensors(0)
    gradients = reference.snapshot(0).gradients
    np.testing.assert_array_equal(tensors[0].x, images[0])
    for (layer, shape), recorded in zip(EVERYTHING.activations(), tensors, strict=True):
        inputs = recorded.x.shape[1:]
        assert (inputs if isinstance(layer, Residual) else layer.output_shape(inputs)) == shape
        assert (recorded.y.shape, recorded.dy.shape) == ((4, *shape), (4, *shape))
        assert (recorded.x.shape, recorded.dx.shape) == ((4, *inputs), (4, *inputs))
        for name, value in recorded.gradients.items():
            np.testing.assert_array_equal(value, gradients[f"{layer.name}.{name}"])
    np.testing.assert_array_equal(tensors[-2].y, tensors[-1].x)
    np.testing.assert_array_equal(tensors[-1].dx, tensors[-2].dy)

"""The program that JAX gives XLA for CUDA, without a GPU: the CPU's, which the parity check runs.

So the check in float64 covers a GPU up to XLA's own back end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from polybench.engines.base import Engine
from polybench.engines.job import Job
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights
from polybench.networks.keras_examples import MNIST_CNN
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.schema.options import Precision, Workload
from tests import small_datasets
from tests.engines.engine_fixtures import EngineFixture, FrameworkMissing, in_process_of
from tests.example_networks import EVERYTHING, PATCHED, SEQUENCES, TEXT

NETWORKS = (LENET, EVERYTHING, SEQUENCES, TEXT, PATCHED)
"""Together they have every layer."""

PRODUCT = re.compile(r"stablehlo\.(?:convolution|dot_general).*")
OPERANDS = re.compile(r": \(tensor<[\dx]*x(\w+)>, tensor<[\dx]*x(\w+)>\)")
BF16_ATTENTION = "algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,"
"""What JAX's attention asks for; in its backward pass, one operand can be float32."""


class Programs(NamedTuple):
    """StableHLO of a training step for both devices, and the number of arrays of the state."""

    cpu: str
    cuda: str
    state_arrays: int


def programs(
    engine: Any, model: Model, precision: Precision = "fp32", dtype: Any = "float32", dropout: Any = "given"
) -> Programs:
    """Lower the engine's own step; nothing is compiled. Skips the test if JAX is older than 0.10."""
    import jax

    if jax.__version_info__ < (0, 10):
        raise FrameworkMissing("these tests read programs as JAX 0.10 prints them")
    workload = Workload(model.name, "noise", 2, model.optimizer, precision, 2)
    engine.build(Job(model, workload, "cpu", dtype, dropout=dropout), initial_weights(model, 0))
    data = small_datasets.dataset(2, model=model)
    images = data.images if model.vocabulary_size else data.images.astype(np.float32)
    engine.load(images[None], data.labels[None].astype(np.int64))
    arguments = (engine._state, *engine._batch(0))
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arguments)
    step = engine._program.update.trace(*shapes)
    cpu, cuda = (step.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda"))
    return Programs(cpu, cuda, len(jax.tree.leaves(engine._state)))


def check_network(engine: Engine, model: Model) -> None:
    """Compare both programs in float64 and as timed, and read what the GPU's asks for."""
    cases: tuple[tuple[Precision, str, str, str], ...] = (
        ("fp32", "float64", "HIGHEST", "f64"),
        ("fp32", "float32", "HIGHEST", "f32"),
        ("tf32", "float32", "HIGH", "f32"),  # XLA's name for TensorFloat-32
        ("bf16", "float32", "HIGHEST", "bf16"),
    )
    for precision, dtype, name, operands in cases:
        found = programs(engine, model, precision, dtype)
        case = model.name, precision, dtype
        assert found.cuda == found.cpu, case
        assert ("f64" in found.cuda) == (dtype == "float64"), case
        products = PRODUCT.findall(found.cuda)
        assert products, case
        for product in products:
            if precision == "bf16" and BF16_ATTENTION in product:
                continue
            assert set(re.findall(r"\bHIGH\w*|\bDEFAULT\b", product)) == {name}, (case, product)
            assert OPERANDS.findall(product) == [(operands, operands)], (case, product)
        # Each donates its buffer to the array of the new state.
        assert found.cuda.count("tf.aliasing_output") == found.state_arrays, case


@pytest.mark.cuda_level("jax", "lowered for CUDA")
@in_process_of("jax")
def test_the_step_for_cuda_is_that_of_the_cpu(fixture: EngineFixture) -> None:
    for model in NETWORKS:
        check_network(fixture.engine, model)


@pytest.mark.wide
@pytest.mark.cuda_level("jax", "lowered for CUDA")
@in_process_of("jax")
def test_the_step_of_every_network_for_cuda_is_that_of_the_cpu(fixture: EngineFixture) -> None:
    for model in MODELS.values():
        check_network(fixture.engine, model)


def functions(program: str) -> Iterator[str]:
    """Yield the program's functions, without the numbers in their names."""
    for function in re.split(r"(?=  func\.func )", re.sub(r"(@\w*?)_\d+\b", r"\1", program)):
        if not re.match(r"  func\.func private @(threefry2x32|closed_call)\b", function):
            yield function


@in_process_of("jax")
def test_only_random_numbers_have_another_program_on_cuda(fixture: EngineFixture) -> None:
    """On CUDA, JAX unrolls the loop of its generator."""
    found = programs(fixture.engine, MNIST_CNN, dropout="own")
    assert found.cuda != found.cpu
    assert set(functions(found.cuda)) == set(functions(found.cpu))


@in_process_of("jax")
def test_the_gradient_of_max_pooling_goes_to_the_first_maximum_on_cuda(fixture: EngineFixture) -> None:
    cuda = programs(fixture.engine, LENET).cuda
    pools = re.findall(r"stablehlo\.select_and_scatter(?:.*\n)+?.*stablehlo\.compare *(\w+)", cuda)
    assert pools == ["GE", "GE"]

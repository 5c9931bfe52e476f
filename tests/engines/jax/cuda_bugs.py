"""The jax engine with bugs in its CUDA code: each class has one, and the check that finds it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import jax

from polybench.engines.base import Array, Weights
from polybench.engines.jax import engine, training
from polybench.engines.jax.engine import JaxEngine
from polybench.engines.job import Job
from polybench.networks.lenet import LENET
from tests.engines.engine_fixtures import Check, EngineFixture
from tests.engines.jax import test_cuda_calls as calls
from tests.engines.jax.test_cuda_programs import check_network

FOUND_BY: dict[type[JaxEngine], Check] = {}


def _found_by(check: Check) -> Any:
    def register(bug: type[JaxEngine]) -> type[JaxEngine]:
        FOUND_BY[bug] = check
        return bug

    return register


def _check_program(fixture: EngineFixture) -> None:
    check_network(fixture.engine, LENET)


_program = _found_by(_check_program)
_placement = _found_by(calls.test_weights_batches_and_step_are_on_the_requested_device.check)
_allocations = _found_by(calls.test_allocations_and_peak_memory_come_from_the_device_allocator.check)


@_program
class TF32LeftOn(JaxEngine):
    """Leaves TensorFloat-32 on in fp32."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        jax.config.update("jax_default_matmul_precision", "tensorfloat32")


@_program
class DefaultPrecision(JaxEngine):
    """Leaves the precision to JAX, which chooses TensorFloat-32 on a GPU and float32 on the CPU."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        jax.config.update("jax_default_matmul_precision", None)


@_program
class NoBFloat16(JaxEngine):
    """Computes in float32 if bf16 is requested."""

    def build(self, job: Job, weights: Weights) -> None:
        correct = training.compile_functions
        in_dtype_of_job = lambda model, optimizer, _, *rest: correct(model, optimizer, job.dtype, *rest)  # noqa: E731
        with patch.object(engine, "compile_functions", in_dtype_of_job):
            super().build(job, weights)


@_program
class NoDonation(JaxEngine):
    """Keeps the buffers of the old state."""

    def build(self, job: Job, weights: Weights) -> None:
        jit = jax.jit
        with patch.object(jax, "jit", lambda function, donate_argnums=None, **options: jit(function, **options)):
            super().build(job, weights)


@_placement
class FirstDevice(JaxEngine):
    """Ignores the device of the job."""

    def build(self, job: Job, weights: Weights) -> None:
        correct = engine.find_placement
        on_cpu = Job(job.model, job.workload, "cpu", job.dtype)
        with patch.object(engine, "find_placement", lambda _: correct(on_cpu)):
            super().build(job, weights)


@_placement
class BatchesOnCPU(JaxEngine):
    """Leaves the batches on the CPU, so each step copies one."""

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        self._batches = [tuple(map(jax.device_get, batch)) for batch in self._batches]


@_allocations
class PeakOfOtherDevice(JaxEngine):
    """Reads the peak of the first device."""

    def device_peak_bytes(self) -> int | None:
        stats = jax.devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else None

"""The jax engine with bugs in its CUDA code: each class has one, and the check that finds it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import jax

from polybench.engines.base import Array, Weights
from polybench.engines.jax import engine
from polybench.engines.jax.emitter import emit
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


class _OtherProgram(JaxEngine):
    """Changes the text of the program."""

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", self._emit):
            super().build(job, weights)

    def _emit(self, job: Job) -> str:
        raise NotImplementedError


@_program
class NoBFloat16(_OtherProgram):
    """Computes in float32 if bf16 is requested."""

    def _emit(self, job: Job) -> str:
        return emit(job).replace("jnp.bfloat16", "jnp.float32")


@_program
class NoDonation(_OtherProgram):
    """Keeps the buffers of the old state."""

    def _emit(self, job: Job) -> str:
        return emit(job).replace("@partial(jax.jit, donate_argnums=0)", "@jax.jit")


@_placement
class FirstDevice(_OtherProgram):
    """Ignores the device of the job."""

    def _emit(self, job: Job) -> str:
        return emit(job).replace('jax.devices("cuda")[0]', 'jax.devices("cpu")[0]')


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

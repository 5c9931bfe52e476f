"""The torch engine with bugs in its CUDA code: each class has one, and the check that finds it."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar
from unittest.mock import patch

import torch

from polybench.engines.base import Array, Weights
from polybench.engines.job import Job
from polybench.engines.shared import python_engine
from polybench.engines.torch import engine
from polybench.engines.torch.emitter import emit
from polybench.engines.torch.engine import TorchEngine
from polybench.schema.resources import Allocations
from tests.engines.engine_fixtures import Check
from tests.engines.torch import test_cuda_calls as checks

FOUND_BY: dict[type[TorchEngine], Check] = {}


def _found_by(test: Any) -> Any:
    def register(bug: type[TorchEngine]) -> type[TorchEngine]:
        FOUND_BY[bug] = test.check
        return bug

    return register


_calls = _found_by(checks.test_all_gpu_calls_exist_in_the_installed_pytorch)
_order = _found_by(checks.test_the_device_is_synchronized_only_before_and_after_a_block)
_tensors = _found_by(checks.test_tensors_of_a_step_have_the_right_device_dtype_and_memory_format)
_graph = _found_by(checks.test_a_graph_is_captured_after_a_warm_up_on_its_own_stream)


@_order
class NoSynchronization(TorchEngine):
    """Stops the clock while the device computes."""

    def _synchronize(self, result: object = None) -> None:
        pass


@_order
class SynchronizedSteps(TorchEngine):
    """Waits for the device after each step."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        step = self._train_step
        self._train_step = lambda *arguments: (step(*arguments), self._synchronize())[0]


@_order
class ClockBeforeSynchronization(TorchEngine):
    """Stops the clock before it waits for the device."""

    def run_steps(self, first: int, n: int) -> float:
        self._synchronize()
        start = python_engine.perf_counter()
        for step in range(first, first + n):
            self._loss = self._train_step(self._state, self._batch(step)).detach()
        seconds = python_engine.perf_counter() - start
        self._synchronize()
        return seconds


@_order
class LossOnHost(TorchEngine):
    """Copies the loss of each step to the host, which waits for the device."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        step = self._train_step
        self._train_step = lambda *arguments: torch.tensor(step(*arguments).item())


@_tensors
class BatchesOnHost(TorchEngine):
    """Copies each batch to the device inside of the timed part."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        step = self._train_step
        self._train_step = lambda state, batch: step(state, tuple(tensor.to(self._device) for tensor in batch))

    def load(self, images: Array, labels: Array) -> None:
        super().load(images, labels)
        self._batches = [(x.cpu(), y.cpu()) for x, y in self._batches]


@_tensors
class TF32Products(TorchEngine):
    """Leaves TensorFloat-32 on in matrix products."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        torch.set_float32_matmul_precision("high")


@_tensors
class TF32Convolutions(TorchEngine):
    """Leaves TensorFloat-32 on in convolutions, which is PyTorch's default."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        torch.backends.cudnn.allow_tf32 = True


class _OtherProgram(TorchEngine):
    """Changes the text of the program."""

    changed: ClassVar[tuple[str, str]]

    def build(self, job: Job, weights: Weights) -> None:
        with patch.object(engine, "emit", lambda job: emit(job).replace(*self.changed)):
            super().build(job, weights)


@_tensors
class NoAutocast(_OtherProgram):
    """Computes in float32 if bf16 is requested."""

    changed = ("dtype=torch.bfloat16)", "dtype=torch.bfloat16, enabled=False)")


@_tensors
class AutocastOfCPU(_OtherProgram):
    """Turns autocast on for the CPU only."""

    changed = ('torch.autocast("cuda"', 'torch.autocast("cpu"')


@_tensors
class NoChannelsLast(_OtherProgram):
    """Moves batches to the device in the memory format of the file."""

    changed = ("        DEVICE, DTYPE, memory_format=torch.channels_last\n", "        DEVICE, DTYPE\n")


@_tensors
class FirstDevice(TorchEngine):
    """Ignores the index of the device."""

    def build(self, job: Job, weights: Weights) -> None:
        correct = engine.find_device
        with patch.object(engine, "find_device", lambda _: correct("cuda")):
            super().build(job, weights)


@_calls
class CountsFirstDevice(TorchEngine):
    """Counts the allocations of another device."""

    def count_allocations(self, first: int, n: int) -> Allocations:
        return engine.count_allocations(lambda: self.run_steps(first, n), n, torch.device("cuda", 0))


@_calls
class PeakOfFirstDevice(TorchEngine):
    """Reads the peak of another device."""

    def device_peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(torch.device("cuda", 0))


@_graph
class WarmUpOnDefaultStream(TorchEngine):
    """Warms a CUDA graph up on the stream of other work."""

    def load(self, images: Array, labels: Array) -> None:
        with patch.object(torch.cuda, "stream", lambda _: contextlib.nullcontext()):
            super().load(images, labels)


@_graph
class NoWarmUp(_OtherProgram):
    """Captures a CUDA graph without warm-up, so it contains one-time work."""

    changed = ("range(3)", "range(0)")

"""Idiomatic PyTorch: an eager `nn.Sequential`, NCHW, with a `torch.optim` optimizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch

from polybench.engines.base import Array, Engine, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.job import COLD_START, EngineInfo, Job, Rank
from polybench.engines.shared.batches import Batch, BufferedBatches, as_dtype, dropout_masks, prefault, scheduled_steps
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.pytorch import build_info, count_allocations, find_allocation_sites, set_threads
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.engines.torch.device import find_device, set_fused_attention, set_tf32
from polybench.engines.torch.layers import build_network
from polybench.engines.torch.operations import layer_operations, step_operations
from polybench.engines.torch.pipeline import open_batches
from polybench.engines.torch.replicas import Replicas
from polybench.engines.torch.training import (
    GraphedStep,
    check_cudagraph_support,
    compiled_graphs,
    make_forward_pass,
    make_loss_function,
    make_optimizer,
    make_training_step,
    make_update,
    restore,
    set_learning_rate,
    training_state,
)
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TorchEngine(Engine):
    """Eager training; the variants can be combined."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | BufferedBatches = []
        self._replicas = Replicas()
        # Benchmark cuDNN's algorithms, as TensorFlow does by default and PyTorch does not.
        torch.backends.cudnn.benchmark = True

    def join_process_group(self, rank: Rank) -> None:
        self._replicas = Replicas(rank)

    def probe(self) -> EngineInfo:
        cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
        return EngineInfo({"torch": str(torch.__version__)}, build_info(), ("cpu", *cuda))

    def build(self, job: Job, weights: Weights) -> None:
        self._job = job
        self._replicas.check(job)
        self._uses_cudagraph = "cudagraph" in job.variants
        if self._uses_cudagraph:
            check_cudagraph_support(job)
        self._device = find_device(self._replicas.device(job))
        # Users do not synchronize a GPU after each step, so single steps cannot be timed there.
        self.timing_resolution = "block" if self._device.type == "cuda" else "step"
        self._dtype = getattr(torch, job.dtype)
        channels_last = "channels_last" in job.variants
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        set_threads(self._replicas.threads(job))
        set_tf32(job.workload.precision == "tf32")
        set_fused_attention("math_attention" not in job.variants)

        self._network = build_network(job.model.layers, job.model.input_shape, fixed_masks=job.dropout == "given")
        model = self._network.module
        model.to(self._device, self._dtype, memory_format=self._memory_format)
        self._parameters = self._network.tensors(job.model.weight_shapes())
        self._state = self._network.tensors(job.model.state_shapes())
        self.set_initial_weights(weights)
        self._optimizer = make_optimizer(job.workload.optimizer, model.parameters(), foreach="foreach" in job.variants)
        self._autocast = autocast = job.workload.precision == "bf16" and job.dtype == "float32"
        self.is_forward_pass = job.workload.is_forward_pass
        wrapped = self._replicas.wrap(model, self._device)
        self._compute_loss = (
            make_forward_pass(wrapped, self._device.type, autocast=autocast)
            if self.is_forward_pass
            else make_loss_function(wrapped, job.model, self._device.type, autocast=autocast)
        )
        if "compile" in job.variants:
            # In float64, compiled code may read a max-pool's gradient before it is written, as zero:
            # https://github.com/pytorch/pytorch/issues/185509, torch 2.13. This happens only if the compiler
            # chooses the memory layout of convolutions. Timed steps use float32, which is not affected.
            options = {"layout_optimization": False} if job.dtype == "float64" else None
            self._compute_loss = torch.compile(self._compute_loss, dynamic=False, options=options)
        self._update = make_update(job.workload.optimizer, self._optimizer)
        self._train_step = (
            torch.inference_mode()(self._compute_loss)
            if self.is_forward_pass
            else make_training_step(self._compute_loss, self._update, self._optimizer)
        )
        self.reset()

    def load(self, images: Array, labels: Array) -> None:
        prefault(images)
        with warnings.catch_warnings():
            # The memory-mapped file is read-only and used in place: nothing writes to a batch.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._batches = [
                # On the CPU, in float32 and NCHW, this does not copy.
                (self._to_device(torch.from_numpy(x)), torch.from_numpy(y).to(self._device))
                for x, y in zip(images, labels, strict=True)
            ]
        self._capture_cudagraph()

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        self._batches = open_batches(source, self._device, self._dtype, self._memory_format)
        self._capture_cudagraph()

    def _capture_cudagraph(self) -> None:
        """Capture the CUDA graph, which needs a batch, and undo the training that the capture did."""
        if self._uses_cudagraph:
            self._train_step = GraphedStep(self._compute_loss, self._update, self._optimizer, self._batches[0])
            self.reset()

    def reset(self) -> None:
        with torch.no_grad():
            for name, tensor in (self._parameters | self._state).items():
                tensor.copy_(self._initial[name])
        # PyTorch's dropout draws the same masks after every reset.
        torch.manual_seed(self._job.seed + self._replicas.rank.number)
        self._optimizer.zero_grad()
        # Zero state is equivalent to missing state. A CUDA graph needs it zeroed in place.
        for state in self._optimizer.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    def set_initial_weights(self, weights: Weights) -> None:
        self._initial = {
            name: torch.from_numpy(value).to(self._device) for name, value in as_dtype(weights, self._job.dtype).items()
        }

    def training_state(self) -> Weights:
        return training_state(self._parameters | self._state, self._optimizer, self._device)

    def restore_training_state(self, state: Weights) -> None:
        tensors, rank = self._parameters | self._state, self._replicas.rank.number
        restore(state, tensors, self._optimizer, self._device, rank=rank)

    def run_steps(self, first: int, n: int) -> float:
        batches, train_step = self._batches, self._train_step
        set_rate = partial(set_learning_rate, self._optimizer)
        steps = scheduled_steps(self._job.workload.optimizer, first, n, set_rate)
        self._synchronize()
        start = perf_counter()
        for step in self._with_masks(steps):
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss.detach()
        return seconds

    def inactive_variant(self) -> str:
        if "compile" not in self._job.variants or compiled_graphs():
            return ""
        return explain_eager("torch.compile ran the step eagerly", "TORCHDYNAMO_", "TORCH_COMPILE_")

    def run_steps_without_allreduce(self, first: int, n: int) -> float | None:
        with self._replicas.no_sync():
            return self.run_steps(first, n)

    def loss(self) -> float:
        return float(self._replicas.mean(self._loss).item())

    def step_logits(self) -> Array:
        return _to_canonical(self._loss.float() if self._loss.dtype == torch.bfloat16 else self._loss)

    def logits(self, images: Array) -> Array:
        model = self._network.module.eval()
        with torch.inference_mode():
            # A copy, since PyTorch warns about read-only arrays such as the memory-mapped file.
            logits = model(self._to_device(torch.tensor(images)))
        model.train()
        return _to_canonical(logits)

    def snapshot(self, step: int) -> Snapshot:
        (step,) = self._with_masks([step])
        state = {name: _to_canonical(tensor) for name, tensor in self._state.items()}
        loss = self._compute_loss(*self._batches[step % len(self._batches)])
        gradients = self._network.gradients(self._parameters, partial(self._replicas.gradients, loss))
        for name, value in state.items():  # the forward pass has changed it
            self._state[name].copy_(torch.from_numpy(value))
        return Snapshot(
            self._replicas.mean(loss.detach()).item(),
            {name: _to_canonical(gradient) for name, gradient in gradients.items()},
            {name: _to_canonical(parameter) for name, parameter in self._parameters.items()} | state,
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _to_canonical(images.float()), _to_canonical(labels)

    def drain_pipeline(self, first: int, n: int) -> float:
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
            self._batches[step % len(self._batches)]
        self._synchronize()
        return perf_counter() - start

    def data_wait_seconds(self) -> float | None:
        return self._batches.wait_seconds if isinstance(self._batches, BufferedBatches) else None

    def count_allocations(self, first: int, n: int) -> Allocations:
        return count_allocations(lambda: self.run_steps(first, n), n, self._device)

    def allocation_sites(self, first: int, n: int) -> AllocationProfile:
        return find_allocation_sites(lambda step: self.run_steps(step, 1), range(first, first + n), self._device)

    def build_layer_operations(
        self, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
    ) -> Mapping[Operation, TimedOperation]:
        x_tensor, dy_tensor = (self._to_device(torch.from_numpy(array)) for array in (x, dy))
        calls = layer_operations(
            timed_layer,
            weights,
            x_tensor,
            dy_tensor,
            self._memory_format,
            is_forward_pass=self.is_forward_pass,
            autocast=self._autocast,
        )
        return make_timed_operations(calls, self._synchronize)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        images, labels = self._batches[0]
        logits, smoothing = self._network.module(images), self._job.model.label_smoothing
        calls = step_operations(logits, labels, self._optimizer, self._update, smoothing)
        return make_timed_operations(calls, self._synchronize)

    def device_peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def startup_detail(self) -> dict[str, float]:
        compiled = "compile" in self._job.variants
        return {"cached_code": 1.0} if compiled and COLD_START not in os.environ else {}

    def close(self) -> None:
        self._batches = []  # stops the pipeline's worker processes
        self._replicas.leave_group()

    def _with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """Yield the same steps; if the job fixes the dropout masks, set each step's masks first."""
        return map(self._set_masks, steps) if self._job.dropout == "given" else steps

    def _set_masks(self, step: int) -> int:
        rank = self._replicas.rank
        batch_size = rank.count * len(self._batches[step % len(self._batches)][1])
        for name, mask in dropout_masks(self._job.model, batch_size, self._job.seed, step).items():
            shard = torch.from_numpy(mask[rank.shard(batch_size)])
            self._network.named_modules[name].mask = shard.to(self._device, self._dtype)
        return step

    def _to_device(self, batch: Any) -> Any:
        """Move a batch to the device: images in the job's dtype and memory format, features in its dtype."""
        if not batch.is_floating_point():
            return batch.to(self._device, torch.int64)
        if batch.ndim != 4:
            return batch.to(self._device, self._dtype)
        return batch.to(self._device, self._dtype, memory_format=self._memory_format)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _to_canonical(tensor: Any) -> Array:
    """Copy to NumPy in C order; the shape is canonical in every memory format."""
    return np.array(tensor.cpu().numpy(), order="C")

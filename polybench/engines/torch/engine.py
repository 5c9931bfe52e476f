"""PyTorch: runs the program of its emitter."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from msgspec.structs import replace
from torch.nn.utils import clip_grad_norm_

from polybench.engines.base import Array, PipelineInput, Snapshot, TimedOperation, Weights
from polybench.engines.job import COLD_START, EngineInfo, Job, Rank
from polybench.engines.shared.batches import dropout_masks, prefault
from polybench.engines.shared.frameworks import explain_eager
from polybench.engines.shared.program import import_program
from polybench.engines.shared.python_engine import PythonEngine
from polybench.engines.shared.pytorch import build_info, count_allocations, find_allocation_sites, set_threads
from polybench.engines.shared.timed_operations import make_timed_operations
from polybench.engines.torch.device import find_device, set_fused_attention, set_tf32
from polybench.engines.torch.emitter import emit
from polybench.engines.torch.operations import layer_operations, step_operations
from polybench.engines.torch.pipeline import open_batches
from polybench.engines.torch.replicas import Replicas
from polybench.engines.torch.training import check_cudagraph_support, compiled_graphs, restore, training_state
from polybench.networks.layers import LSTM, Operation, walk
from polybench.networks.timed_layers import TimedLayer
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocations


class TorchEngine(PythonEngine):
    """Eager training; the variants can be combined."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self) -> None:
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
        # PyTorch's settings may be those of an earlier program of this process; the program changes what it needs.
        set_tf32(allowed=False)
        set_fused_attention(allowed=True)

        self._replicas.join_group(self._device)
        self.is_forward_pass = job.workload.is_forward_pass
        self.program = emit(replace(job, device=str(self._device)))
        self._program = import_program(self.program, self.folder)
        self.set_initial_weights(weights)
        self._state = self._program.setup(self._initial)
        self._tensors = self._canonical(self._network.state_dict())
        self._train_step = self._program.forward_pass if self.is_forward_pass else self._program.train_step
        self.reset()

    @property
    def _network(self) -> Any:
        """The program's network, without its wrapper for several processes."""
        return self._replicas.network(self._state.model)

    @property
    def _optimizer(self) -> Any:
        return self._state.optimizer

    def _canonical(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Name tensors of the network's state dictionary as polybench does, without those that it does not know."""
        named = getattr(self._program, "canonical", dict)(tensors)
        return {name: named[name] for name in self._job.model.tensor_shapes() if name in named}

    def load(self, images: Array, labels: Array) -> None:
        prefault(images)
        with warnings.catch_warnings():
            # The memory-mapped file is read-only and used in place: nothing writes to a batch.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            # On the CPU, in float32 and NCHW, this does not copy.
            super().load(images, labels)
        self._capture_cudagraph()

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        self._batches = open_batches(source, self._device, self._dtype, self._memory_format)
        self._capture_cudagraph()

    def _capture_cudagraph(self) -> None:
        """Capture the CUDA graph, which needs a batch, and undo the training that the capture did."""
        if self._uses_cudagraph:
            self._train_step(self._state, self._batches[0])
            self.reset()

    def reset(self) -> None:
        super().reset()
        if self._replicas.is_distributed:  # each rank draws masks of its own
            torch.manual_seed(self._job.seed + self._replicas.rank.number)

    def training_state(self) -> Weights:
        return training_state(self._tensors, self._optimizer, self._device)

    def restore_training_state(self, state: Weights) -> None:
        restore(state, self._tensors, self._optimizer, self._device, rank=self._replicas.rank.number)

    def run_steps(self, first: int, n: int) -> float:
        seconds = super().run_steps(first, n)
        self._loss = self._loss.detach()  # from its graph, which would stay until the next step
        return seconds

    def _batch(self, step: int) -> tuple[Any, ...]:
        """Return a step's batch, with the masks of dropout if the job gives them."""
        batch = self._batches[step % len(self._batches)]
        return (*batch, self._masks(step)) if self._job.dropout == "given" else batch

    def inactive_variant(self) -> str:
        if "compile" not in self._job.variants or compiled_graphs():
            return ""
        problem = "torch.compile ran the step eagerly"
        if self.is_forward_pass and any(isinstance(layer, LSTM) for layer in walk(self._job.model.layers)):
            # torch 2.13; Dynamo leaves everything after it in the same call eager as well.
            return f"{problem}: PyTorch does not compile nn.LSTM: use torch without this variant"
        return explain_eager(problem, "TORCHDYNAMO_", "TORCH_COMPILE_")

    def run_steps_without_allreduce(self, first: int, n: int) -> float | None:
        with self._state.model.no_sync():
            return self.run_steps(first, n)

    def loss(self) -> float:
        return float(self._replicas.mean(self._loss).item())

    def step_logits(self) -> Array:
        return _to_canonical(self._loss.float() if self._loss.dtype == torch.bfloat16 else self._loss)

    def logits(self, images: Array) -> Array:
        model = self._network.eval()
        with torch.inference_mode():
            # A copy, since PyTorch warns about read-only arrays such as the memory-mapped file.
            logits = model(self._to_device(torch.tensor(images)))
        model.train()
        return _to_canonical(logits)

    def snapshot(self, step: int) -> Snapshot:
        images, labels, *masks = self._batch(step)
        if masks:
            self._program.set_masks(self._state, *masks)
        before = {name: _to_canonical(tensor) for name, tensor in self._tensors.items()}
        loss = self._program.compute_loss(self._state.model, images, labels)
        trained = {name: weight for name, weight in self._network.named_parameters() if weight.requires_grad}
        computed = self._replicas.gradients(loss, list(trained.values()))
        gradients = self._canonical(dict(zip(trained, computed, strict=True)))
        for name in self._job.model.state_shapes():  # the forward pass has changed it
            self._tensors[name].copy_(torch.from_numpy(before[name]))
        return Snapshot(
            self._replicas.mean(loss.detach()).item(),
            {name: _to_canonical(gradient) for name, gradient in gradients.items()},
            before,
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _to_canonical(images.float()), _to_canonical(labels)

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
            folder=self.folder,
            is_forward_pass=self.is_forward_pass,
            autocast=self._job.workload.precision == "bf16",
        )
        return make_timed_operations(calls, self._synchronize)

    def build_step_operations(self) -> Mapping[Operation, TimedOperation]:
        images, labels = self._batches[0]
        logits, smoothing = self._network(images), self._job.model.label_smoothing
        calls = step_operations(logits, labels, self._optimizer, self._update, smoothing)
        return make_timed_operations(calls, self._synchronize)

    def device_peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def device_bytes_in_use(self) -> int | None:
        return torch.cuda.memory_allocated(self._device) if self._device.type == "cuda" else None

    def startup_detail(self) -> dict[str, float]:
        compiled = "compile" in self._job.variants
        return {"cached_code": 1.0} if compiled and COLD_START not in os.environ else {}

    def close(self) -> None:
        super().close()
        self._replicas.leave_group()

    def _update(self) -> None:
        """Clip the gradients, if the program does so, and update the weights."""
        if limit := self._job.workload.optimizer.gradient_clip:
            clip_grad_norm_(self._network.parameters(), limit)
        self._optimizer.step()

    def _masks(self, step: int) -> dict[str, Any]:
        """Return this rank's masks of a step."""
        rank = self._replicas.rank
        batch_size = rank.count * len(self._batches[step % len(self._batches)][1])
        masks = dropout_masks(self._job.model, batch_size, self._job.seed, step)
        return {
            name: torch.from_numpy(mask[rank.shard(batch_size)]).to(self._device, self._dtype)
            for name, mask in masks.items()
        }

    def _to_device(self, batch: Any) -> Any:
        """Move a batch to the device: images in the job's dtype and memory format, features in its dtype."""
        if not batch.is_floating_point():
            return batch.to(self._device, torch.int64)
        if batch.ndim != 4:
            return batch.to(self._device, self._dtype)
        return batch.to(self._device, self._dtype, memory_format=self._memory_format)

    def _synchronize(self, result: object = None) -> None:  # noqa: ARG002
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _to_canonical(tensor: Any) -> Array:
    """Copy to NumPy in C order; the shape is canonical in every memory format."""
    return np.array(tensor.cpu().numpy(), order="C")

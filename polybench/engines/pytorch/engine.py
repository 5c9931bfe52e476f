"""PyTorch as its users write it: an eager `nn.Sequential`, NCHW, with an optimizer of `torch.optim`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal

from polybench.core.document.layers import Part
from polybench.core.document.places import Places
from polybench.core.document.resources import Allocations
from polybench.core.job import COLD_START, EXACT, Conventions, Job, Probe, Rank
from polybench.core.pieces import Piece
from polybench.engines.base import Array, Engine, Replayed, Snapshot, Stream, Weights
from polybench.engines.pytorch import optimizers as pytorch_optimizers
from polybench.engines.pytorch.cudagraph import GraphedStep, check_graphable
from polybench.engines.pytorch.device import find_device, set_tf32
from polybench.engines.pytorch.replicas import Replicas
from polybench.engines.pytorch.training_step import loss_of_batch, training_step
from polybench.engines.support.arrays import as_dtype, touch
from polybench.engines.support.drawn_batches import Batch, DrawnBatches
from polybench.engines.support.dropout_masks import dropout_masks
from polybench.engines.support.frameworks import import_framework
from polybench.engines.support.rates import at_rates
from polybench.engines.support.replay import timed
from polybench.engines.support.torch.allocations import allocations, places
from polybench.engines.support.torch.build_facts import build_facts
from polybench.engines.support.torch.threads import set_threads


class TorchEngine(Engine):
    """Eager by default; `channels_last`, `compile`, `cudagraph` and `foreach` are variants, and chain."""

    sample_kind: Literal["step", "block"] = "step"

    def __init__(self) -> None:
        self._batches: list[Batch] | DrawnBatches = []
        self._replicas = Replicas()

    def load_framework(self) -> None:
        if COLD_START in os.environ:
            # `compile` keeps on disk what it made, and the identity check has made it; read at import.
            os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        import_framework("torch", "PyTorch", "torch")
        import torch

        # cuDNN's algorithms are chosen by trying them, which TensorFlow does by default, and PyTorch doesn't.
        torch.backends.cudnn.benchmark = True

    def join(self, rank: Rank) -> None:
        self._replicas = Replicas(rank)

    def probe(self) -> Probe:
        import torch

        cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
        return Probe({"torch": str(torch.__version__)}, build_facts(), ("cpu", *cuda))

    def build(self, job: Job, weights: Weights) -> None:
        import torch

        from polybench.engines.pytorch.layers import network

        self._job = job
        self._replicas.check(job)
        self._graphed = "cudagraph" in job.variants
        if self._graphed:
            check_graphable(job)
        self._device = find_device(self._replicas.device(job))
        # Nobody synchronizes a GPU after each step, so there a single step has no time of its own.
        self.sample_kind = "block" if self._device.type == "cuda" else "step"
        self._dtype = getattr(torch, job.dtype)
        channels_last = "channels_last" in job.variants
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        set_threads(self._replicas.threads(job))
        set_tf32(job.workload.precision == "tf32")

        self._network = network(job.model.layers, job.model.input_shape, given_masks=job.dropout == "given")
        model = self._network.module
        model.to(self._device, self._dtype, memory_format=self._memory_format)
        self._parameters = self._network.tensors(job.model.weight_shapes())
        self._state = self._network.tensors(job.model.state_shapes())
        self.start_from(weights)
        self._optimizer = pytorch_optimizers.make(
            job.workload.optimizer, model.parameters(), foreach="foreach" in job.variants
        )
        autocast = job.workload.precision == "bf16" and job.dtype == "float32"
        self._loss_of = loss_of_batch(
            self._replicas.parallel(model, self._device), self._device.type, autocast
        )
        if "compile" in job.variants:
            # In float64 the compiler may read a max-pool's gradient before it is written, and takes it for
            # zero: https://github.com/pytorch/pytorch/issues/185509, torch 2.13. It does so only where it
            # picks the convolutions' memory layout itself. float32, which is what is timed, is not affected.
            options = {"layout_optimization": False} if job.dtype == "float64" else None
            self._loss_of = torch.compile(self._loss_of, dynamic=False, options=options)
        self._train_step = training_step(self._loss_of, self._optimizer)
        self.reset()

    def conventions(self) -> Conventions:
        return EXACT

    def load(self, images: Array, labels: Array) -> None:
        import torch

        touch(images)
        with warnings.catch_warnings():
            # The file is mapped read-only and used in place: nothing writes to a batch.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._batches = [
                # On the CPU, in float32 and NCHW, this has nothing to do and copies nothing.
                (self._placed(torch.from_numpy(x)), torch.from_numpy(y).to(self._device))
                for x, y in zip(images, labels, strict=True)
            ]
        self._capture()

    def open_stream(self, stream: Stream) -> None:
        from polybench.engines.pytorch.pipeline import draw_from

        self.sample_kind = "block"
        self._batches = draw_from(stream, self._device, self._dtype, self._memory_format)
        self._capture()

    def _capture(self) -> None:
        """Make the CUDA graph here, since that needs a batch; what it trained meanwhile is undone."""
        if self._graphed:
            self._train_step = GraphedStep(self._loss_of, self._optimizer, *self._batches[0])
            self.reset()

    def reset(self) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in (self._parameters | self._state).items():
                tensor.copy_(self._initial[name])
        # Dropout of its own draws the same masks after every reset.
        torch.manual_seed(self._job.seed + self._replicas.rank.number)
        self._optimizer.zero_grad()
        # Zero state is what missing state means. In place: a CUDA graph has the addresses.
        for state in self._optimizer.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    def start_from(self, weights: Weights) -> None:
        import torch

        self._initial = {
            name: torch.from_numpy(value).to(self._device)
            for name, value in as_dtype(weights, self._job.dtype).items()
        }

    def training_state(self) -> Weights:
        from polybench.engines.pytorch.kept_training import training_state

        return training_state(self._parameters | self._state, self._optimizer, self._device)

    def go_on_from(self, state: Weights) -> None:
        from polybench.engines.pytorch.kept_training import put_back

        tensors, rank = self._parameters | self._state, self._replicas.rank.number
        put_back(state, tensors, self._optimizer, self._device, rank=rank)

    def run_steps(self, first: int, n: int) -> float:
        batches, train_step = self._batches, self._train_step
        set_rate = partial(pytorch_optimizers.set_rate, self._optimizer)
        steps = at_rates(self._job.workload.optimizer, first, n, set_rate)
        self._synchronize()
        start = perf_counter()
        for step in self._with_masks(steps):
            images, labels = batches[step % len(batches)]
            loss = train_step(images, labels)
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss.detach()
        return seconds

    def run_steps_apart(self, first: int, n: int) -> float | None:
        with self._replicas.apart():
            return self.run_steps(first, n)

    def loss(self) -> float:
        return float(self._replicas.mean(self._loss).item())

    def correct(self, images: Array, labels: Array) -> int:
        import torch

        model = self._network.module.eval()
        with torch.inference_mode():
            # A copy, since the mapped file is read-only, which PyTorch warns of.
            logits = model(self._placed(torch.tensor(images)))
            right = logits.argmax(dim=1).cpu() == torch.tensor(labels)
        model.train()
        return int(right.sum())

    def snapshot(self, step: int) -> Snapshot:
        import torch

        (step,) = self._with_masks([step])
        state = {name: _canonical(tensor) for name, tensor in self._state.items()}
        loss = self._loss_of(*self._batches[step % len(self._batches)])
        gradients = self._replicas.gradients(loss, list(self._parameters.values()))
        for name, value in state.items():  # the forward pass has moved it
            self._state[name].copy_(torch.from_numpy(value))
        return Snapshot(
            self._replicas.mean(loss.detach()).item(),
            {name: _canonical(gradient) for name, gradient in zip(self._parameters, gradients, strict=True)},
            {name: _canonical(parameter.detach()) for name, parameter in self._parameters.items()} | state,
        )

    def batch(self, step: int) -> tuple[Array, Array]:
        images, labels = self._batches[step % len(self._batches)]
        return _canonical(images.float()), _canonical(labels)

    def draw_batches(self, first: int, n: int) -> float:
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
            self._batches[step % len(self._batches)]
        self._synchronize()
        return perf_counter() - start

    def waited(self) -> float | None:
        return self._batches.waited if isinstance(self._batches, DrawnBatches) else None

    def count_allocations(self, first: int, n: int) -> Allocations:
        return allocations(lambda: self.run_steps(first, n), n, self._device)

    def allocation_places(self, first: int, n: int) -> Places:
        return places(lambda step: self.run_steps(step, 1), range(first, first + n), self._device)

    def replay(self, piece: Piece, weights: Weights, x: Array, dy: Array) -> Mapping[Part, Replayed]:
        import torch

        from polybench.engines.pytorch.replay import calls

        x_placed, dy_placed = (self._placed(torch.from_numpy(array)) for array in (x, dy))
        found = calls(piece, weights, x_placed, dy_placed, self._memory_format)
        return timed(found, self._synchronize)

    def replay_step(self) -> Mapping[Part, Replayed]:
        from polybench.engines.pytorch.replay import step_calls

        images, labels = self._batches[0]
        return timed(step_calls(self._network.module(images), labels, self._optimizer), self._synchronize)

    def device_peak_bytes(self) -> int | None:
        import torch

        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def startup_detail(self) -> dict[str, float]:
        compiled = "compile" in self._job.variants
        return {"cached_code": 1.0} if compiled and COLD_START not in os.environ else {}

    def close(self) -> None:
        self._batches = []  # ends the pipeline's worker processes
        self._replicas.leave()

    def _with_masks(self, steps: Iterable[int]) -> Iterable[int]:
        """The same steps; where dropout masks are given, each one's are put in place before it."""
        return map(self._give_masks, steps) if self._job.dropout == "given" else steps

    def _give_masks(self, step: int) -> int:
        import torch

        rank = self._replicas.rank
        batch_size = rank.count * len(self._batches[step % len(self._batches)][1])
        for name, mask in dropout_masks(self._job.model, batch_size, self._job.seed, step).items():
            own = torch.from_numpy(mask[rank.part(batch_size)])
            self._network.named[name].mask = own.to(self._device, self._dtype)
        return step

    def _placed(self, batch: Any) -> Any:
        """Images in this engine's type and memory format, features in its type, tokens as integers."""
        import torch

        if not batch.is_floating_point():
            return batch.to(self._device, torch.int64)
        if batch.ndim != 4:
            return batch.to(self._device, self._dtype)
        return batch.to(self._device, self._dtype, memory_format=self._memory_format)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)


def _canonical(tensor: Any) -> Array:
    """A copy in C order; the shape is canonical already, in whatever memory format."""
    import numpy as np

    return np.array(tensor.cpu().numpy(), order="C")

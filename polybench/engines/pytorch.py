"""PyTorch as its users write it: an eager `nn.Sequential`, NCHW, with `torch.optim.SGD`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Literal

from polybench.engines.base import (
    EXACT,
    Array,
    Conventions,
    Engine,
    Job,
    Probe,
    Snapshot,
    Weights,
    as_dtype,
    cuda_index,
    import_framework,
    touch,
)
from polybench.engines.dropout_masks import dropout_masks

CUDA_INSTALL = "pip install --force-reinstall torch"  # on Linux the index has the CUDA build


class TorchEngine(Engine):
    """Eager by default; `compile` and `channels_last` are variants, and chain."""

    sample_kind: Literal["step", "block"] = "step"

    def load_framework(self) -> None:
        import_framework("torch", "PyTorch", "torch")

    def probe(self) -> Probe:
        import torch

        cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
        return Probe({"torch": str(torch.__version__)}, _build_facts(), ("cpu", *cuda))

    def build(self, job: Job, weights: Weights) -> None:
        import torch

        from polybench.engines.pytorch_layers import network

        self._job = job
        self._device = _device(job.device)
        # Nobody synchronizes a GPU after each step, so there a single step has no time of its own.
        self.sample_kind = "block" if self._device.type == "cuda" else "step"
        self._dtype = getattr(torch, job.dtype)
        channels_last = "channels_last" in job.variants
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        _set_threads(job.workload.threads)
        _set_tf32(job.workload.precision == "tf32")

        self._network = network(job.model, given_masks=job.dropout == "given")
        model = self._network.module
        model.to(self._device, self._dtype, memory_format=self._memory_format)
        self._parameters = self._network.tensors(job.model.weight_shapes())
        self._state = self._network.tensors(job.model.state_shapes())
        self._initial = {
            name: torch.from_numpy(value).to(self._device)
            for name, value in as_dtype(weights, job.dtype).items()
        }
        optimizer = job.workload.optimizer
        self._optimizer = torch.optim.SGD(
            model.parameters(), lr=optimizer.learning_rate, momentum=optimizer.momentum
        )
        autocast = job.workload.precision == "bf16" and job.dtype == "float32"
        self._loss_of = _loss_of_batch(model, self._device.type, autocast)
        if "compile" in job.variants:
            # In float64 the compiler may read a max-pool's gradient before it is written, and takes it for
            # zero: https://github.com/pytorch/pytorch/issues/185509, torch 2.13. It does so only where it
            # picks the convolutions' memory layout itself. float32, which is what is timed, is not affected.
            options = {"layout_optimization": False} if job.dtype == "float64" else None
            self._loss_of = torch.compile(self._loss_of, dynamic=False, options=options)
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
                (
                    # On the CPU, in float32 and NCHW, `to` has nothing to do and copies nothing.
                    torch.from_numpy(x).to(self._device, self._dtype, memory_format=self._memory_format),
                    torch.from_numpy(y).to(self._device),
                )
                for x, y in zip(images, labels, strict=True)
            ]

    def reset(self) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in (self._parameters | self._state).items():
                tensor.copy_(self._initial[name])
        # Dropout of its own draws the same masks after every reset.
        torch.manual_seed(self._job.seed)
        self._optimizer.zero_grad()
        # Without a buffer SGD takes the first gradient for the velocity, which is what zero momentum gives.
        self._optimizer.state.clear()

    def run_steps(self, first: int, n: int) -> float:
        batches, loss_of, optimizer = self._batches, self._loss_of, self._optimizer
        self._synchronize()
        start = perf_counter()
        for step in self._steps(first, n):
            images, labels = batches[step % len(batches)]
            optimizer.zero_grad()
            loss = loss_of(images, labels)
            loss.backward()
            optimizer.step()
        self._synchronize()
        seconds = perf_counter() - start
        self._loss = loss.detach()
        return seconds

    def loss(self) -> float:
        return float(self._loss.item())

    def snapshot(self, step: int) -> Snapshot:
        import torch

        (step,) = self._steps(step, 1)
        state = {name: _canonical(tensor) for name, tensor in self._state.items()}
        loss = self._loss_of(*self._batches[step % len(self._batches)])
        # Unlike `backward`, `grad` leaves nothing behind in the parameters.
        gradients = torch.autograd.grad(loss, list(self._parameters.values()))
        for name, value in state.items():  # the forward pass has moved it
            self._state[name].copy_(torch.from_numpy(value))
        return Snapshot(
            loss.item(),
            {name: _canonical(gradient) for name, gradient in zip(self._parameters, gradients, strict=True)},
            {name: _canonical(parameter.detach()) for name, parameter in self._parameters.items()} | state,
        )

    def close(self) -> None:
        pass

    def _steps(self, first: int, n: int) -> Iterable[int]:
        """The steps' numbers; where dropout masks are given, each step's are put in place before it."""
        steps = range(first, first + n)
        return map(self._give_masks, steps) if self._job.dropout == "given" else steps

    def _give_masks(self, step: int) -> int:
        import torch

        batch_size = len(self._batches[0][1])
        for name, mask in dropout_masks(self._job.model, batch_size, self._job.seed, step).items():
            self._network.named[name].mask = torch.from_numpy(mask).to(self._device, self._dtype)
        return step

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)


def _loss_of_batch(model: Any, device_type: str, autocast: bool) -> Any:
    """The function (images, labels) -> mean loss, a tensor; with `autocast` the model runs in bfloat16."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - the name that all of PyTorch's users know

    def loss_of(images: Any, labels: Any) -> Any:
        return F.cross_entropy(model(images), labels)

    def autocast_loss_of(images: Any, labels: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            logits = model(images)
        return F.cross_entropy(logits.float(), labels)

    return autocast_loss_of if autocast else loss_of


def _device(device: str) -> Any:
    import torch

    if device == "cpu":
        return torch.device("cpu")
    cuda_build = torch.version.cuda is not None
    index = cuda_index(device, torch.cuda.device_count(), cuda_build=cuda_build, install=CUDA_INSTALL)
    return torch.device("cuda", index)


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    # The inter-op pool can be sized only once in a process, even to the size that it has.
    if torch.get_num_interop_threads() != threads:
        torch.set_num_interop_threads(threads)


def _set_tf32(allowed: bool) -> None:
    """TensorFloat-32 for products and convolutions alike; PyTorch's default is convolutions only."""
    import torch

    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def _canonical(tensor: Any) -> Array:
    """A copy in C order; the shape is canonical already, in whatever memory format."""
    import numpy as np

    return np.array(tensor.cpu().numpy(), order="C")


def _build_facts() -> dict[str, str]:
    """What this build was made with, in short."""
    import torch

    shown = torch.__config__.show()
    facts = {
        "blas": r"BLAS_INFO=(\w+)",
        "mkl": r"oneAPI Math Kernel Library Version (\S+)",
        "onednn": r"MKL-DNN v(\S+)",
        "openmp": r"OpenMP (\d+)",
    }
    build = {fact: match[1] for fact, pattern in facts.items() if (match := re.search(pattern, shown))}
    backend = re.search(r"ATen parallel backend: (\S+)", torch.__config__.parallel_info())
    if backend:
        build["parallel_backend"] = backend[1]
    build["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    if torch.version.cuda:
        build["cuda"] = torch.version.cuda
        build["cudnn"] = str(torch.backends.cudnn.version())
    return build

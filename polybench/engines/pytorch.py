"""PyTorch as its users write it: an eager `nn.Sequential`, NCHW, with `torch.optim.SGD`."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from time import perf_counter
from typing import Any, Literal

from polybench.core.layers import Conv, Dense, Flatten, Layer, MaxPool, ReLU
from polybench.core.model import Model
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
    no_such_layer,
    touch,
)

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

        self._job = job
        self._device = _device(job.device)
        # Nobody synchronizes a GPU after each step, so there a single step has no time of its own.
        self.sample_kind = "block" if self._device.type == "cuda" else "step"
        self._dtype = getattr(torch, job.dtype)
        channels_last = "channels_last" in job.variants
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        _set_threads(job.workload.threads)
        _set_tf32(job.workload.precision == "tf32")

        model = sequential(job.model)
        model = model.to(self._device, self._dtype, memory_format=self._memory_format)
        # The modules have the layers' names, so PyTorch's names are the canonical ones.
        self._parameters = dict(model.named_parameters())
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
            for name, parameter in self._parameters.items():
                parameter.copy_(self._initial[name])
        self._optimizer.zero_grad()
        # Without a buffer SGD takes the first gradient for the velocity, which is what zero momentum gives.
        self._optimizer.state.clear()

    def run_steps(self, first: int, n: int) -> float:
        batches, loss_of, optimizer = self._batches, self._loss_of, self._optimizer
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
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

        images, labels = self._batches[step % len(self._batches)]
        loss = self._loss_of(images, labels)
        # Unlike `backward`, `grad` leaves nothing behind in the parameters.
        gradients = torch.autograd.grad(loss, list(self._parameters.values()))
        return Snapshot(
            loss.item(),
            {name: _canonical(gradient) for name, gradient in zip(self._parameters, gradients, strict=True)},
            {name: _canonical(parameter.detach()) for name, parameter in self._parameters.items()},
        )

    def close(self) -> None:
        pass

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)


def sequential(model: Model) -> Any:
    """`model` as an `nn.Sequential`; layers with weights keep their names."""
    from torch import nn

    return nn.Sequential(
        OrderedDict(
            (getattr(layer, "name", f"layer{i}"), _module(layer)) for i, layer in enumerate(model.layers)
        )
    )


def _module(layer: Layer) -> Any:
    from torch import nn

    match layer:
        case Conv(stride=1, pad=0, bias=True):
            return nn.Conv2d(layer.inputs, layer.outputs, layer.kernel)
        case Dense():
            return nn.Linear(layer.inputs, layer.outputs)
        case MaxPool() if layer.size == layer.stride:
            return nn.MaxPool2d(layer.size)
        case ReLU():
            return nn.ReLU()
        case Flatten():
            return nn.Flatten()
        case _:
            raise no_such_layer("torch", layer)


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

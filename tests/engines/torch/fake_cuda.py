"""Fake GPU for testing PyTorch's CUDA path without a GPU.

Functions of `torch.cuda` are mocks with the signatures of the installed version (autospec). A misspelled or
removed function raises AttributeError, and wrong arguments raise TypeError.

Tensors for a CUDA device go to PyTorch's device `meta`: they have shape, dtype and memory format, but no data.
The whole step runs on them, and operations that mix them with CPU tensors fail as on a GPU. (`FakeTensorMode`
supports the name `cuda`, but in a build without CUDA its backward pass aborts the process; torch 2.13.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import DEFAULT, Mock, patch

from polybench.engines.shared import frameworks

STATS = (
    "allocation.all.allocated", "requested_bytes.all.allocated", "allocated_bytes.all.allocated",
    "reserved_bytes.all.current", "num_device_alloc", "num_alloc_retries",
)  # fmt: skip
PEAK, IN_USE = 12_345, 6_789


class Cuda(NamedTuple):
    """Two fake GPUs.

    Attributes:
        mocks: mocks by function name.
        order: names of called functions, in order.
        devices: CUDA devices on which tensors were placed.
    """

    mocks: dict[str, Mock]
    order: list[str]
    devices: set[Any]

    @property
    def called(self) -> set[str]:
        """Names of the functions that were called."""
        return {name for name, mock in self.mocks.items() if mock.called}


@contextlib.contextmanager
def fake_cuda() -> Iterator[Cuda]:
    """Install two fake GPUs until the context ends."""
    cuda = Cuda({}, [], set())

    def memory_stats(device: Any = None) -> dict[str, int]:
        return dict.fromkeys(STATS, 8 * len(cuda.order))

    import torch

    results: dict[str, Any] = {
        "device_count": lambda: 2,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "max_memory_allocated": lambda device=None: PEAK,
        "memory_allocated": lambda device=None: IN_USE,
        "memory_stats": memory_stats,
    }
    names = (
        "set_device", "synchronize", "Stream", "stream", "current_stream", "CUDAGraph", "graph",
        "set_rng_state",
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name in (*results, *names):
            mock = stack.enter_context(patch(f"torch.cuda.{name}", autospec=True))
            mock.side_effect = _record_call(cuda.order, name, results.get(name))
            cuda.mocks[f"torch.cuda.{name}"] = mock
        stack.enter_context(patch("torch.version.cuda", "13.0"))
        stack.enter_context(patch.object(frameworks, "has_cuda_driver", lambda: True))
        stack.enter_context(_redirect_to_meta(cuda.devices))
        yield cuda


def _redirect_to_meta(devices: set[Any]) -> Any:
    """Make a function mode that redirects tensors from CUDA devices to `meta`, and records these devices."""
    import torch
    from torch.overrides import TorchFunctionMode

    def redirect(value: Any) -> Any:
        device = torch.device(value) if isinstance(value, str) and value.startswith("cuda") else value
        if isinstance(device, torch.device) and device.type == "cuda":
            devices.add(device)
            return torch.device("meta")
        return value

    class MetaMode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.device:
                return function(*args, **(kwargs or {}))
            redirected = {name: redirect(value) for name, value in (kwargs or {}).items()}
            if function is torch.Tensor.cpu and args[0].device.type == "meta":
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
            return function(*map(redirect, args), **redirected)

    return MetaMode()


def _record_call(order: list[str], name: str, result: Any) -> Any:
    def record(*args: Any, **kwargs: Any) -> Any:
        order.append(name)
        return DEFAULT if result is None else result(*args, **kwargs)

    return record

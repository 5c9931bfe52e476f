"""PyTorch's CUDA path where there is no GPU.

Calls of the device are stand-ins with the signatures of the installed `torch.cuda` (autospec): what is
misspelled, or was removed, is not among them and raises AttributeError, and wrong arguments raise TypeError.
What is put on a CUDA device is put on PyTorch's device `meta` instead: its tensors have a shape, a type and a
memory format, and nothing in them; the whole step runs on them, and an operation that mixes them with
tensors of the CPU fails as it would on a GPU. (`FakeTensorMode` knows the name `cuda`, but in a build without
CUDA the backward pass asks for the real device and ends the process; torch 2.13.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import DEFAULT, Mock, patch

from polybench.engines.support import frameworks

STATS = (
    "allocation.all.allocated", "requested_bytes.all.allocated", "allocated_bytes.all.allocated",
    "reserved_bytes.all.current", "num_device_alloc", "num_alloc_retries",
)  # fmt: skip
PEAK = 12_345


class Cuda(NamedTuple):
    """Two GPUs; `mocks` by their names, `order` is what was called in order, `devices` what was put on."""

    mocks: dict[str, Mock]
    order: list[str]
    devices: set[Any]

    @property
    def called(self) -> set[str]:
        """The names of those that were."""
        return {name for name, mock in self.mocks.items() if mock.called}


@contextlib.contextmanager
def cuda_stand_in() -> Iterator[Cuda]:
    """Two GPUs, for as long as it is open."""
    cuda = Cuda({}, [], set())

    def memory_stats(device: Any = None) -> dict[str, int]:
        return dict.fromkeys(STATS, 8 * len(cuda.order))

    import torch

    answers: dict[str, Any] = {
        "device_count": lambda: 2,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "max_memory_allocated": lambda device=None: PEAK,
        "memory_stats": memory_stats,
    }
    names = (
        "set_device", "synchronize", "Stream", "stream", "current_stream", "CUDAGraph", "graph",
        "set_rng_state",
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name in (*answers, *names):
            mock = stack.enter_context(patch(f"torch.cuda.{name}", autospec=True))
            mock.side_effect = _noting(cuda.order, name, answers.get(name))
            cuda.mocks[f"torch.cuda.{name}"] = mock
        stack.enter_context(patch("torch.version.cuda", "13.0"))
        stack.enter_context(patch.object(frameworks, "driver_is_there", lambda: True))
        stack.enter_context(_placing(cuda.devices))
        yield cuda


def _placing(devices: set[Any]) -> Any:
    """What puts tensors on `meta` that are put on a CUDA device, and notes which."""
    import torch
    from torch.overrides import TorchFunctionMode

    def placed(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            devices.add(value)
            return torch.device("meta")
        return value

    class Placing(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = {name: placed(value) for name, value in (kwargs or {}).items()}
            if function is torch.Tensor.cpu and args[0].device.type == "meta":
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
            return function(*map(placed, args), **named)

    return Placing()


def _noting(order: list[str], name: str, answer: Any) -> Any:
    def note(*given: Any, **named: Any) -> Any:
        order.append(name)
        return DEFAULT if answer is None else answer(*given, **named)

    return note

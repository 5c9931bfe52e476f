"""Device lookup and TensorFloat-32 in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from polybench.engines.shared.frameworks import cuda_index

CUDA_INSTALL = "pip install --force-reinstall torch"  # on Linux the index has the CUDA build


def find_device(device: str) -> Any:
    """Return the torch.device of `cpu`, `cuda` or `cuda:1`; raise EngineUnavailable if it does not exist."""
    if device == "cpu":
        return torch.device("cpu")
    cuda_build = torch.version.cuda is not None
    index = cuda_index(device, torch.cuda.device_count(), cuda_build=cuda_build, install=CUDA_INSTALL)
    torch.cuda.set_device(index)  # streams and graphs are made on the current device
    return torch.device("cuda", index)


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TensorFloat-32 in products and convolutions; PyTorch's default is convolutions only."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed

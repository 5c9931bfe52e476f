"""Device lookup and TensorFloat-32 in PyTorch, and the compiler that `torch.compile` needs."""

from __future__ import annotations

import os
import shutil
from typing import Any

from polybench.engines.shared.frameworks import cuda_index
from polybench.errors import EngineUnavailable

CUDA_INSTALL = "pip install --force-reinstall torch"  # on Linux the index has the CUDA build

_CPP_COMPILER = "g++"
"""The compiler of TorchInductor on Linux, unless CXX names another one."""


def find_device(device: str) -> Any:
    """Return the torch.device of `cpu`, `cuda` or `cuda:1`; raise EngineUnavailable if it does not exist."""
    import torch

    if device == "cpu":
        return torch.device("cpu")
    cuda_build = torch.version.cuda is not None
    index = cuda_index(device, torch.cuda.device_count(), cuda_build=cuda_build, install=CUDA_INSTALL)
    torch.cuda.set_device(index)  # streams and graphs are made on the current device
    return torch.device("cuda", index)


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TensorFloat-32 in products and convolutions; PyTorch's default is convolutions only."""
    import torch

    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for the compiler that torch.compile needs; see `EngineSpec.requirement_check`."""
    compiler = os.environ.get("CXX") or _CPP_COMPILER
    if "compile" in variants and shutil.which(compiler) is None:
        raise EngineUnavailable(f"the C++ compiler {compiler} is not installed", f"apt-get install {_CPP_COMPILER}")

"""Build details of PyTorch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re


def build_info() -> dict[str, str]:
    """Return libraries, thread backend, CPU capability, and CUDA and cuDNN versions."""
    import torch

    config = torch.__config__.show()
    patterns = {
        "blas": r"BLAS_INFO=(\w+)",
        "mkl": r"oneAPI Math Kernel Library Version (\S+)",
        "onednn": r"MKL-DNN v(\S+)",
        "openmp": r"OpenMP (\d+)",
    }
    build = {name: match[1] for name, pattern in patterns.items() if (match := re.search(pattern, config))}
    backend = re.search(r"ATen parallel backend: (\S+)", torch.__config__.parallel_info())
    if backend:
        build["parallel_backend"] = backend[1]
    build["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        build["triton"] = importlib.metadata.version("triton")  # not imported: plain steps do not use it
    if torch.version.cuda:
        build["cuda"] = torch.version.cuda
        build["cudnn"] = str(torch.backends.cudnn.version())
        build["cudnn_autotune"] = "on" if torch.backends.cudnn.benchmark else "off"
    return build

"""What this build of PyTorch was made with."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re


def build_facts() -> dict[str, str]:
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
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        build["triton"] = importlib.metadata.version("triton")  # not imported: a plain step does without
    if torch.version.cuda:
        build["cuda"] = torch.version.cuda
        build["cudnn"] = str(torch.backends.cudnn.version())
        build["cudnn_autotune"] = "on" if torch.backends.cudnn.benchmark else "off"
    return build

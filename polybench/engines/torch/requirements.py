"""Software that PyTorch's variants need, checked without importing PyTorch."""

from __future__ import annotations

import os
import shutil

from polybench.errors import EngineUnavailable

_CPP_COMPILER = "g++"
"""The compiler of TorchInductor on Linux, unless CXX names another one."""


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for the compiler that torch.compile needs; see `EngineSpec.requirement_check`.

    Raises:
        EngineUnavailable: it is missing.
    """
    compiler = os.environ.get("CXX") or _CPP_COMPILER
    if "compile" in variants and shutil.which(compiler) is None:
        raise EngineUnavailable(f"the C++ compiler {compiler} is not installed", f"apt-get install {_CPP_COMPILER}")

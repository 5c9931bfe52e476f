"""PyTorch: its engine, and the compiler that a variant requires. This module does not import PyTorch."""

from __future__ import annotations

import os
import shutil

from polybench.engines.base import Engine
from polybench.engines.shared.frameworks import import_framework
from polybench.errors import EngineUnavailable

_CPP_COMPILER = "g++"
"""The compiler of TorchInductor on Linux, unless CXX names another one."""


def make_engine() -> Engine:
    """Import PyTorch and make the engine; raises EngineUnavailable."""
    import_framework("torch", "PyTorch", "torch")
    from polybench.engines.torch.engine import TorchEngine

    return TorchEngine()


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for the compiler that torch.compile needs; see `EngineSpec.requirement_check`."""
    compiler = os.environ.get("CXX") or _CPP_COMPILER
    if "compile" in variants and shutil.which(compiler) is None:
        raise EngineUnavailable(f"the C++ compiler {compiler} is not installed", f"apt-get install {_CPP_COMPILER}")

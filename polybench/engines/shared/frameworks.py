"""Checks for a framework, device or layer; each raises `EngineUnavailable` with a hint."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from polybench.errors import EngineUnavailable, install_command
from polybench.networks.layers import Layer, Named


def unsupported_layer(engine: str, layer: Layer, *missing: str) -> EngineUnavailable:
    """Make the exception for a layer, or for options of it, that an engine does not support yet.

    Args:
        engine: the engine's product name.
        layer: unsupported layer.
        missing: unsupported options, spelled as in a network file; none means the whole layer.
    """
    name = f" ({layer.name})" if isinstance(layer, Named) else ""
    kind = layer.__struct_config__.tag
    options = f" with {' and '.join(missing)}" if missing else ""
    reason = f"{engine} has no {kind}{options} in polybench{name}"
    return EngineUnavailable(reason, "choose other engines, or change that layer")


def import_framework(module: str, product: str, extra: str) -> ModuleType:
    """Import `module` of the framework `product`, which polybench's extra `extra` installs.

    Raises:
        EngineUnavailable: the module is not installed, or importing it fails.
    """
    hint = install_command(extra)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise EngineUnavailable(f"{product} is not installed", hint) from None
        raise EngineUnavailable(f"{product} is installed, but a module is missing: {error}", hint) from error
    except (ImportError, OSError) as error:
        raise EngineUnavailable(
            f"{product} is installed, but importing it fails: {error}",
            f"pip install --force-reinstall {module}",
        ) from error


def has_cuda_driver() -> bool:
    """Return True if NVIDIA's driver is loaded, judging by its device file.

    /dev/dxg is the counterpart of /dev/nvidiactl in the Windows Subsystem for Linux.
    """
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg"))


def cuda_index(device: str, visible: int, *, cuda_build: bool, install: str) -> int:
    """Return the index of a CUDA device: 0 for `cuda`, 1 for `cuda:1`.

    Args:
        device: device name, as in a Job.
        visible: number of CUDA devices visible to the framework.
        cuda_build: True if this build of the framework supports CUDA.
        install: command that installs a CUDA build.

    Raises:
        EngineUnavailable: driver, CUDA build or device is missing; the message names the first of these.
    """
    if not has_cuda_driver():
        raise EngineUnavailable("no NVIDIA driver", "use --devices cpu, or install the NVIDIA driver")
    if not cuda_build:
        raise EngineUnavailable("the installed build does not support CUDA", install)
    index = int(device.partition(":")[2] or 0)
    if index >= visible:
        raise EngineUnavailable(
            f"no device {device}: {visible} CUDA devices visible",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    return index

"""What an engine needs and may lack: framework, device, layer. Each is `Unavailable`, with its remedy."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from polybench.core.errors import Unavailable
from polybench.core.layers import Layer, Named


def no_such_layer(engine: str, layer: Layer, *lacks: str) -> Unavailable:
    """What to raise for a layer, or options of it, that an engine cannot make yet.

    Args:
        engine: as its users call it.
        layer: which it is to make.
        lacks: what of it the engine does not have, an option as a network file says it; nothing is the whole
            layer.
    """
    name = f" ({layer.name})" if isinstance(layer, Named) else ""
    kind = layer.__struct_config__.tag
    with_these = f" with {' and '.join(lacks)}" if lacks else ""
    reason = f"{engine} has no {kind}{with_these} in polybench{name}"
    return Unavailable(reason, "ask for other engines, or change that layer")


def import_framework(module: str, product: str, extra: str) -> ModuleType:
    """Import `module` of the framework `product`, which the extra `extra` of polybench installs.

    Raises:
        Unavailable: it is not installed, or it is and breaks while it is imported.
    """
    remedy = f"pip install 'polybench[{extra}]'"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise Unavailable(f"{product} is not installed", remedy) from None
        raise Unavailable(f"{product} is installed, but lacks a module: {error}", remedy) from error
    except (ImportError, OSError) as error:
        raise Unavailable(
            f"{product} is installed, but does not import: {error}", f"pip install --force-reinstall {module}"
        ) from error


def driver_is_there() -> bool:
    """Whether NVIDIA's driver is loaded.

    It has a control device; /dev/dxg is its counterpart in the Windows Subsystem for Linux.
    """
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg"))


def cuda_index(device: str, visible: int, *, cuda_build: bool, install: str) -> int:
    """The number of a CUDA device: 0 for `cuda`, 1 for `cuda:1`.

    Args:
        device: as in a Job.
        visible: how many CUDA devices the framework sees.
        cuda_build: whether this build of the framework has CUDA at all.
        install: the command that installs one which has.

    Raises:
        Unavailable: the device is not there. The reason is the first thing to mend: driver, build, device.
    """
    if not driver_is_there():
        raise Unavailable("no NVIDIA driver", "use --devices cpu, or install the NVIDIA driver")
    if not cuda_build:
        raise Unavailable("the installed build has no CUDA", install)
    index = int(device.partition(":")[2] or 0)
    if index >= visible:
        raise Unavailable(
            f"no device {device}: {visible} CUDA devices visible",
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    return index

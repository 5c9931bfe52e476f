"""Checks for a framework, device or layer; each raises `EngineUnavailable` with a hint."""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from polybench.engines.job import Job
from polybench.errors import EngineUnavailable, install_command
from polybench.networks.layers import Layer, Named


def unsupported_layer(engine: str, layer: Layer, *missing: str) -> EngineUnavailable:
    """Make the exception for a layer that an engine does not support yet, or for the options `missing` of it."""
    name = f" ({layer.name})" if isinstance(layer, Named) else ""
    kind = layer.__struct_config__.tag
    options = f" with {' and '.join(missing)}" if missing else ""
    reason = f"{engine} has no {kind}{options} in polybench{name}"
    return EngineUnavailable(reason, "choose other engines, or change that layer")


def import_framework(module: str, product: str, extra: str) -> ModuleType:
    """Import `module` of the framework `product`, which polybench's `extra` installs; raises EngineUnavailable."""
    hint = install_command(extra)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise EngineUnavailable(f"{product} is not installed", hint) from None
        raise EngineUnavailable(f"{product} is installed, but a module is missing: {error}", hint) from error
    except (ImportError, OSError) as error:
        raise EngineUnavailable(
            f"{product} is installed, but importing it fails: {error}", f"pip install --force-reinstall {module}"
        ) from error


def explain_eager(problem: str, *variables: str) -> str:
    """Return a problem and its fix: the environment variables with these prefixes, or else code that runs at start."""
    found = sorted(name for name in os.environ if name.startswith(variables)) if variables else []
    fix = f"unset {', '.join(found)}" if found else "remove the sitecustomize.py or .pth file that turns it off"
    return f"{problem}: expected compiled code: {fix}"


def has_cuda_driver() -> bool:
    """Return True if NVIDIA's driver is loaded, judging by its device file.

    /dev/dxg is the counterpart of /dev/nvidiactl in the Windows Subsystem for Linux.
    """
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg"))


def cuda_index(device: str, visible: int, *, cuda_build: bool, install: str) -> int:
    """Return the index of a CUDA device, 0 for `cuda`, 1 for `cuda:1`, among those visible to the framework.

    Raises EngineUnavailable if driver, CUDA build (hint `install`) or device is missing; the message names the first.
    """
    if not has_cuda_driver():
        raise EngineUnavailable("no NVIDIA driver", "use --devices cpu, or install the NVIDIA driver")
    if not cuda_build:
        raise EngineUnavailable("the installed build does not support CUDA", install)
    index = int(device.partition(":")[2] or 0)
    if index >= visible:
        raise EngineUnavailable(
            f"no device {device}: {visible} CUDA devices visible", "check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    return index


def reject_batch_norm(job: Job, source: str) -> None:
    """Raise EngineUnavailable for batch norm, whose statistics would come from a replica's shard only (`source`).

    The result would differ from training in one process, so the parity check could not verify it.
    """
    if job.model.has_statistics:
        raise EngineUnavailable(
            f"{job.model.name} has batch norm, and each replica would compute its statistics from its own"
            f" shard of the batch ({source}), unlike a single process",
            "omit --replicas, or choose a network without batch norm: --model lenet",
        )


def reject_variants(job: Job, supported: Collection[str]) -> None:
    """Raise EngineUnavailable for variants without data-parallel training."""
    for variant in job.variants:
        if variant not in supported:
            raise EngineUnavailable(
                f"+{variant} has no data-parallel training in polybench", f"omit +{variant} or --replicas"
            )

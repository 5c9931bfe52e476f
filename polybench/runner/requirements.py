"""Requirements of engines and variants on this machine, checked without starting a framework."""

from __future__ import annotations

import ctypes.util
import functools
import importlib
import importlib.util
from importlib import metadata

import msgspec

from polybench.engines import ALLOCATOR_VARIANTS, EngineSpec
from polybench.errors import EngineUnavailable, install_command
from polybench.machine import host
from polybench.protocol.environment import PRELOADED_ALLOCATORS


class RequirementStatus(msgspec.Struct, frozen=True):
    """Requirement of an engine or variant, and whether this machine meets it.

    Attributes:
        requires: software or device; None if the engine's own are enough.
        install: command that installs it; None for a device.
        installed: the machine meets the requirement.
        hint: command that fixes the problem; None if installed.
    """

    requires: str | None
    install: str | None
    installed: bool
    hint: str | None = None


def engine_requirement(spec: EngineSpec) -> RequirementStatus:
    """Check the packages and other software that an engine needs."""
    commands = [install_command(spec.extra)] if spec.extra else []
    commands += [spec.requires.install] if spec.requires else []
    names = [*spec.packages, *([spec.requires.name] if spec.requires else [])]
    problem = _engine_problem(spec)
    return RequirementStatus(
        ", ".join(names) or None,
        "; ".join(commands) or None,
        problem is None,
        problem.hint if problem else None,
    )


def variant_requirements(spec: EngineSpec) -> dict[str, RequirementStatus]:
    """Check what each variant of an engine needs in addition to the engine, allocators included."""
    return {name: _variant_requirement(spec, name) for name in spec.variants | ALLOCATOR_VARIANTS}


def _variant_requirement(spec: EngineSpec, name: str) -> RequirementStatus:
    variant = (spec.variants | ALLOCATOR_VARIANTS)[name]
    if variant.cuda_only:
        has_gpu = bool(host.gpu_names())
        return RequirementStatus(
            "a CUDA device", None, has_gpu, None if has_gpu else "use a machine with an NVIDIA GPU"
        )
    if variant.requires is None:
        problem = _engine_problem(spec)
        return RequirementStatus(None, None, problem is None, problem.hint if problem else None)
    if name in PRELOADED_ALLOCATORS:
        installed = _has_library(name)
        hint = None if installed else variant.requires.install
    else:
        problem = _engine_problem(spec, (name,))
        installed, hint = problem is None, problem.hint if problem else None
        if not installed and _engine_problem(spec) is not None:
            hint = variant.requires.install  # which installs the engine as well, or names the other extra
    return RequirementStatus(variant.requires.name, variant.requires.install, installed, hint)


@functools.cache
def _has_library(allocator: str) -> bool:
    names, _ = PRELOADED_ALLOCATORS[allocator]
    return any(map(ctypes.util.find_library, names))


def _engine_problem(spec: EngineSpec, variants: tuple[str, ...] = ()) -> EngineUnavailable | None:
    """Return the first missing piece of software of an engine with these variants."""
    missing = [package for package in spec.packages if not _is_installed(package)]
    if missing:
        hint = install_command(spec.extra) if spec.extra else f"pip install {' '.join(missing)}"
        return EngineUnavailable(f"{', '.join(missing)} is not installed", hint)
    if spec.requirement_check is None:
        return None
    module, _, function = spec.requirement_check.partition(":")
    try:
        getattr(importlib.import_module(module), function)(variants)
    except EngineUnavailable as problem:
        return problem
    return None


def _is_installed(package: str) -> bool:
    """Check for a package by the name of its module, or by that of its distribution."""
    if importlib.util.find_spec(package.replace("-", "_")) is not None:
        return True
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True

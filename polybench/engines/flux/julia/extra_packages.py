"""Julia packages of some variants: their names, checks, and the commands that add them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from polybench.engines.flux.julia.discovery import Julia, check, check_bounds, find, installed, require
from polybench.errors import EngineUnavailable

REQUESTED_PACKAGES = "POLYBENCH_JULIA_PACKAGES"
"""Variable with the packages that a worker should load, separated by commas."""

PACKAGE_BY_VARIANT = {"enzyme": "Enzyme", "lux": "Lux", "mkl": "MKL", "mooncake": "Mooncake", "reactant": "Reactant"}
"""Package by variant (or engine). PolyBench's methods for a package are in its extension `PolyBench{package}Ext`."""

STEP_MODES = ("train", "enzyme", "mooncake", "reactant", "lux")
"""Variants that replace the whole step, which is `withgradient` with Zygote by default."""

LOAD_EXTENSIONS = """
function (file)
    isfile(file) || return nothing
    name = Symbol(first(splitext(basename(file))))
    isnothing(Base.get_extension(Main.PolyBench, name)) || return nothing
    include_string(Main, replace(read(file, String), "using PolyBench" => "using Main.PolyBench"), file)
    return nothing
end
"""
"""Loads the file of an extension unless Julia has loaded it. Julia does so if the manifest's entry of PolyBench
names the extension.
"""

_FLUX_WITH_TRAINSTEP = (0, 16, 11)


def required(variants: Iterable[str]) -> dict[str, str]:
    """Return the variable with the packages to load for these variants; empty without any."""
    names = [PACKAGE_BY_VARIANT[name] for name in variants if name in PACKAGE_BY_VARIANT]
    return {REQUESTED_PACKAGES: ",".join(names)} if names else {}


def requested() -> tuple[str, ...]:
    """Return the packages that this worker should load."""
    return tuple(filter(None, os.environ.get(REQUESTED_PACKAGES, "").split(",")))


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for Julia, its packages and those of these variants without starting Julia.

    Raises:
        EngineUnavailable: something is missing.
    """
    check(julia := find())
    check_packages(julia, [PACKAGE_BY_VARIANT[name] for name in variants if name in PACKAGE_BY_VARIANT])


def check_packages(julia: Julia, names: Sequence[str]) -> dict[str, str]:
    """Return versions in the project by lower-case name.

    Raises:
        EngineUnavailable: a package is missing or of an unsupported version, or Flux is too old for it.
    """
    require(julia, names, julia.add_command(names))
    check_bounds(julia, names, julia.add_command(names))
    versions = installed(julia)
    flux = versions.get("Flux", "")
    if "Reactant" in names and flux and tuple(map(int, flux.split("."))) < _FLUX_WITH_TRAINSTEP:
        raise EngineUnavailable(
            f"{julia.description} has Flux {flux}, but Reactant needs its `trainstep!`, from 0.16.11 on",
            f"{julia.executable} --project={julia.project} -e 'using Pkg; Pkg.update(\"Flux\")'",
        )
    return {name.lower(): versions[name] for name in names}

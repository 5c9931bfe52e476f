"""The Julia packages that some variants need besides: which, whether they are there, and what adds them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import Julia, check_bounds, installed, require

WANTED = "POLYBENCH_JULIA_PACKAGES"
"""Tells a worker which of them it is to load, with commas between them."""

NEEDED = {"enzyme": "Enzyme", "lux": "Lux", "mkl": "MKL", "mooncake": "Mooncake", "reactant": "Reactant"}
"""Variant, or engine of its own -> package. PolyBench's methods for one are its extension,
`PolyBench{package}Ext`.
"""

STEPS = ("train", "enzyme", "mooncake", "reactant", "lux")
"""Variants of which each makes the whole step, in place of `withgradient` with Zygote."""

EXTEND = """
function (file)
    isfile(file) || return nothing
    name = Symbol(first(splitext(basename(file))))
    isnothing(Base.get_extension(Main.PolyBench, name)) || return nothing
    include_string(Main, replace(read(file, String), "using PolyBench" => "using Main.PolyBench"), file)
    return nothing
end
"""
"""Loads the file of an extension, if there is one and Julia has not: it does where PolyBench is a package
whose entry in the manifest names that extension.
"""

_FLUX_WITH_TRAINSTEP = (0, 16, 11)


def needed(variants: Iterable[str]) -> dict[str, str]:
    """The variable that tells a worker with these variants what to load; none where that is nothing."""
    names = [NEEDED[name] for name in variants if name in NEEDED]
    return {WANTED: ",".join(names)} if names else {}


def wanted() -> tuple[str, ...]:
    """What this worker is to load."""
    return tuple(filter(None, os.environ.get(WANTED, "").split(",")))


def check_packages(julia: Julia, names: Sequence[str]) -> dict[str, str]:
    """Their versions in the project, by names in small letters.

    Raises:
        Unavailable: one is not there, or in another version, or Flux is too old for it.
    """
    require(julia, names, julia.adding(names))
    check_bounds(julia, names, julia.adding(names))
    there = installed(julia)
    flux = there.get("Flux", "")
    if "Reactant" in names and flux and tuple(map(int, flux.split("."))) < _FLUX_WITH_TRAINSTEP:
        raise Unavailable(
            f"{julia.described} has Flux {flux}, and Reactant's steps are made by its `trainstep!`, from"
            " 0.16.11 on",
            f"{julia.executable} --project={julia.project} -e 'using Pkg; Pkg.update(\"Flux\")'",
        )
    return {name.lower(): there[name] for name in names}

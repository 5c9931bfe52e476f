"""Which versions polybench takes, from one place: `[compat]` of the Julia package."""

from __future__ import annotations

import functools
import tomllib

from polybench.engines.flux.julia.package import package_folder

PACKAGES = ("Flux", "JSON", "PythonCall", "PrecompileTools")
"""What the project must have. Everything else that PolyBench needs comes with Julia."""
INDIRECT = ("JSON", "PrecompileTools")
"""Those of them that PolyBench alone loads: another package may bring them, as JSON in juliapkg's project."""
SCRIPTS = ("NPZ",)
"""What the plain scripts of `--describe` and `layers --script` need besides, and no worker does."""
CUDA = ("CUDA", "cuDNN")
"""What training on CUDA needs besides."""
OF_VARIANTS = ("Enzyme", "Lux", "MKL", "Mooncake", "Reactant")
"""What only a cell that needs it loads: a version that polybench does not take is in nobody else's way."""
ADDED = (*CUDA, *OF_VARIANTS)
"""What `polybench setup flux` adds where it is told to."""


@functools.cache
def bounds() -> dict[str, str]:
    """Name -> bound as Julia writes it: of Julia itself (`julia`), and of packages that have one."""
    project = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    found: dict[str, str] = project["compat"]
    return found


@functools.cache
def uuids() -> dict[str, str]:
    """Name -> UUID of the packages that PolyBench names, and of PolyBench."""
    project = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    found: dict[str, str] = project["deps"] | project["weakdeps"] | {project["name"]: project["uuid"]}
    return found


def within(name: str, version: str) -> bool:
    """Whether polybench takes this version of a package, or of `julia`; it takes any that is not known."""
    from juliapkg.compat import Compat, Version  # late: it brings all of juliapkg

    bound = bounds().get(name)
    return not version or bound is None or Version.parse(version.partition("+")[0]) in Compat.parse(bound)

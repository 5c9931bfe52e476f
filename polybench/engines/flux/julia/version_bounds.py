"""Supported versions of Julia and its packages, from `[compat]` of the Julia package."""

from __future__ import annotations

import functools
import tomllib

from polybench.engines.flux.julia.package import package_folder

PACKAGES = ("Flux", "JSON", "PythonCall", "PrecompileTools")
"""Packages that the project must have. Everything else that PolyBench needs comes with Julia."""
INDIRECT = ("JSON", "PrecompileTools")
"""Packages of these that only PolyBench loads. Another package may provide them, such as JSON in juliapkg's project."""
SCRIPT_PACKAGES = ("NPZ",)
"""Packages that only the plain programs need (`polybench scripts`, `layers --scripts`)."""
CUDA_PACKAGES = ("CUDA", "cuDNN")
"""Packages for training on CUDA."""
VARIANT_PACKAGES = ("Enzyme", "Lux", "MKL", "Mooncake", "Reactant")
"""Packages that only some configurations load; an unsupported version does not affect others."""
OPTIONAL_PACKAGES = (*CUDA_PACKAGES, *VARIANT_PACKAGES)
"""Packages that `polybench setup flux` adds on request."""


@functools.cache
def bounds() -> dict[str, str]:
    """Return version bounds in Julia's syntax by name: of Julia itself (`julia`) and of packages."""
    project = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    found: dict[str, str] = project["compat"]
    return found


@functools.cache
def uuids() -> dict[str, str]:
    """Return UUIDs by name: of PolyBench and the packages in its Project.toml."""
    project = tomllib.loads((package_folder() / "Project.toml").read_text("utf-8"))
    found: dict[str, str] = project["deps"] | project["weakdeps"] | {project["name"]: project["uuid"]}
    return found


def satisfies(name: str, version: str) -> bool:
    """True if polybench supports this version of a package, or of `julia`; unknown versions pass."""
    from juliapkg.compat import Compat, Version  # late: imports all of juliapkg

    bound = bounds().get(name)
    return not version or bound is None or Version.parse(version.partition("+")[0]) in Compat.parse(bound)

"""Finds Julia and its project without downloading or starting it.

The order is: both variables of juliacall; the paths saved by `polybench setup flux`; juliapkg's Julia.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polybench.engines.flux.julia import saved_config
from polybench.engines.flux.julia.package import NAME, SETUP, package_folder
from polybench.engines.flux.julia.version_bounds import (
    CUDA_PACKAGES,
    INDIRECT,
    PACKAGES,
    VARIANT_PACKAGES,
    bounds,
    satisfies,
)
from polybench.errors import EngineUnavailable, install_command

EXECUTABLE, PROJECT = "PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"
VARIABLES = f"{EXECUTABLE} and {PROJECT}"
FOUND_BY = "POLYBENCH_JULIA_FOUND_BY"
"""Variable with the source of the other two, which a worker always gets."""

ENVIRONMENT = "--env"
"""Source of a project that is a study's environment."""

_INSTALL_JULIACALL = install_command("flux")
_VERSION_SECONDS = 20.0


class Julia(NamedTuple):
    """An executable, the project (folder) whose packages it loads, and how polybench found them.

    `library` and `bindir` are the paths of its libjulia and its executable's folder, if setup saved them.
    Without them, each worker starts a second Julia to find them.
    """

    executable: str
    project: str
    found_by: str
    library: str | None = None
    bindir: str | None = None

    @property
    def description(self) -> str:
        """Describe the project for messages."""
        return f"the Julia project {self.project} (from {self.found_by})"

    @property
    def other_julia(self) -> str:
        """Fix that selects a different Julia."""
        return f"correct {VARIABLES}, or unset both" if self.found_by == VARIABLES else SETUP

    @property
    def other_julia_version(self) -> str:
        """Fix that selects a newly installed Julia at `PATH`."""
        if self.found_by == VARIABLES:
            return f"set {EXECUTABLE} to it"
        if self.found_by == "juliapkg":
            return SETUP
        return f"{SETUP} --julia PATH" + (
            "" if self.found_by == ENVIRONMENT else f" --project {shlex.quote(self.project)}"
        )

    @property
    def setup(self) -> str:
        """Command that completes the installation of this Julia."""
        if self.found_by == "juliapkg":
            return SETUP
        if self.found_by == ENVIRONMENT:  # setup would change the default Julia
            return self.add_command(PACKAGES)
        return f"{SETUP} --julia {shlex.quote(self.executable)} --project {shlex.quote(self.project)}"

    def add_command(self, names: Iterable[str]) -> str:
        """Return the command that adds these packages to this project."""
        if self.found_by == ENVIRONMENT:
            code = f"using Pkg; {pkg_add_call(names)}"
            return shlex.join([self.executable, f"--project={self.project}", "-e", code])
        return " ".join([self.setup, *(f"--add-package {name}" for name in names)])


def find() -> Julia:
    """Find the Julia to use; `check` verifies it.

    Raises:
        EngineUnavailable: Julia is not installed, or its settings are inconsistent.
    """
    executable, project = os.environ.get(EXECUTABLE), os.environ.get(PROJECT)
    if executable and project:
        return Julia(executable, project, os.environ.get(FOUND_BY, VARIABLES))
    if executable or project:
        present, missing = (EXECUTABLE, PROJECT) if executable else (PROJECT, EXECUTABLE)
        raise EngineUnavailable(
            f"{present} is set, but {missing} is not: juliacall needs both", f"set {missing}, or unset {present}"
        )
    if saved := saved_config.load():
        return Julia(
            saved["julia"], saved["project"], str(saved_config.configuration_file()),
            saved.get("library"), saved.get("bindir"),
        )  # fmt: skip
    return _from_juliapkg()


def for_project(project: str) -> Julia:
    """Return the same Julia with an environment of a study as its project; raise like `find`."""
    return find()._replace(project=project, found_by=ENVIRONMENT)


def _from_juliapkg() -> Julia:
    if importlib.util.find_spec("juliapkg") is None:
        raise EngineUnavailable("juliacall is not installed", _INSTALL_JULIACALL)
    try:
        from juliapkg.deps import can_skip_resolve
        from juliapkg.state import STATE

        resolved = can_skip_resolve()  # read-only: `resolve` would wait for a lock and download
    except Exception as error:
        raise EngineUnavailable(f"juliapkg cannot say which Julia to use: {error}", SETUP) from error
    if not resolved:
        raise EngineUnavailable("Julia is not set up for polybench", SETUP)
    return Julia(resolved["executable"], STATE["project"], "juliapkg", resolved.get("libjulia"), resolved.get("bindir"))


def pkg_add_call(names: Iterable[str]) -> str:
    """Return the Pkg call that adds supported versions of these packages, and juliacall's version of PythonCall."""
    return f"Pkg.add([{', '.join(map(_spec, names))}])"


def _spec(name: str) -> str:
    if name == "PythonCall":
        return f'PackageSpec(name="{name}", version="{importlib.metadata.version("juliacall")}")'
    bound = bounds().get(name)
    version = f', version=Pkg.Types.semver_spec("{bound}")' if bound else ""
    return f'PackageSpec(name="{name}"{version})'


def check_juliacall() -> None:
    """Raise EngineUnavailable if juliacall is not installed."""
    if importlib.util.find_spec("juliacall") is None:
        raise EngineUnavailable("juliacall is not installed", _INSTALL_JULIACALL)


def check_version(julia: Julia) -> None:
    """Raise EngineUnavailable if this version of Julia is not supported."""
    version = ".".join(map(str, version_of(julia)))
    if not satisfies("julia", version):
        raise EngineUnavailable(
            f"Julia {version} is not supported: expected {bounds()['julia']}"
            f" ({julia.executable}, from {julia.found_by})",
            f"install a supported version, for example with juliaup, then: {julia.other_julia_version}",
        )


def check_bounds(julia: Julia, names: Iterable[str], hint: str) -> None:
    """Raise EngineUnavailable if the version of one of these packages is not supported."""
    packages = installed(julia)
    if outside := [name for name in names if name in packages and not satisfies(name, packages[name])]:
        versions = ", ".join(f"{name} {packages[name]} (expected {bounds()[name]})" for name in outside)
        raise EngineUnavailable(f"{julia.description} has unsupported versions: {versions}", hint)


def require(julia: Julia, names: Iterable[str], hint: str) -> None:
    """Raise EngineUnavailable if `using` would not find one of these packages in the project."""
    present, found = loadable(julia), installed(julia)
    if missing := [name for name in names if name not in present]:
        others = " (it is only an indirect dependency)"
        listed = ", ".join(name + others * (name in found) for name in missing)
        raise EngineUnavailable(f"{julia.description} lacks {listed}", hint)


def check(julia: Julia, needed: Sequence[str] = PACKAGES) -> None:
    """Check a Julia by its files and version; `needed` are the required packages.

    Raises:
        EngineUnavailable: it cannot work; with the first problem and its fix.
    """
    check_juliacall()
    check_version(julia)
    require(julia, needed, julia.setup)
    packages = loadable(julia)
    check_bounds(julia, [name for name in packages if name not in VARIANT_PACKAGES], julia.setup)
    pythoncall, juliacall = packages["PythonCall"], importlib.metadata.version("juliacall")
    if pythoncall not in ("", juliacall):
        raise EngineUnavailable(
            f"juliacall is {juliacall}, but PythonCall in {julia.project} is {pythoncall}: the versions must be equal",
            julia.setup if julia.found_by == ENVIRONMENT else f"pip install juliacall=={pythoncall}",
        )


@functools.cache
def version_of(julia: Julia) -> tuple[int, ...]:
    """Return the version from `julia --version`; raise EngineUnavailable if that fails."""
    origin = f"{julia.executable} (from {julia.found_by})"
    try:
        run = subprocess.run(
            [julia.executable, "--version"],
            capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise EngineUnavailable(f"no Julia at {origin}", julia.other_julia) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{origin} does not run: {error}", julia.other_julia) from error
    match = re.match(r"julia version (\d+)\.(\d+)\.(\d+)", run.stdout)
    if run.returncode or match is None:
        raise EngineUnavailable(f"{origin} is not Julia: --version printed {run.stdout[:60]!r}", julia.other_julia)
    return tuple(map(int, match.groups()))


def installed(julia: Julia) -> dict[str, str]:
    """Return versions of all packages in the manifest by name, "" if unknown; includes indirect ones."""
    return {name: str(entry.get("version", "")) for name, entry in manifest(julia).items()}


def loadable(julia: Julia) -> dict[str, str]:
    """Return the installed packages that polybench can load: the project's and PolyBench's direct dependencies."""
    direct = _direct(julia)
    return {name: version for name, version in installed(julia).items() if name in direct or name in INDIRECT}


def has_cuda(julia: Julia) -> bool:
    """True if this Julia can load the packages for CUDA."""
    return loadable(julia).keys() >= set(CUDA_PACKAGES)


def _direct(julia: Julia) -> set[str]:
    """Return the names in the project's [deps], which are the only ones that `using` accepts."""
    names = ("JuliaProject.toml", "Project.toml")  # same order as base/loading.jl
    file = next((Path(julia.project, name) for name in names if Path(julia.project, name).is_file()), None)
    return set() if file is None else set(_read(file).get("deps", {}))


def package_path(julia: Julia) -> Path | None:
    """Return the path of PolyBench in the manifest, or None."""
    path = manifest(julia).get(NAME, {}).get("path")
    return None if path is None else Path(julia.project, path).resolve()


def is_other_checkout(julia: Julia) -> bool:
    """True if the project has the PolyBench package of another checkout."""
    return package_path(julia) not in (None, package_folder().resolve())


def manifest_file(julia: Julia) -> Path | None:
    """Return the manifest that this Julia reads, or None."""
    major, minor, _ = version_of(julia)
    versioned = f"Manifest-v{major}.{minor}.toml"
    names = (f"Julia{versioned}", versioned, "JuliaManifest.toml", "Manifest.toml")  # same order as base/loading.jl
    return next((Path(julia.project, name) for name in names if Path(julia.project, name).is_file()), None)


def manifest(julia: Julia) -> dict[str, dict[str, Any]]:
    """Return the first entry of each package in the manifest by name."""
    file = manifest_file(julia)
    if file is None:
        return {}
    packages: dict[str, list[dict[str, Any]]] = _read(file).get("deps", {})
    return {name: entries[0] for name, entries in packages.items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{file} cannot be read: {error}", SETUP) from error

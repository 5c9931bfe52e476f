"""Which Julia, in which project: found without a download, and judged without starting it.

In this order: both variables of juliacall; what `polybench setup flux` remembered; what juliapkg installed.
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

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.bounds import CUDA, INDIRECT, OF_VARIANTS, PACKAGES, bounds, within
from polybench.engines.flux.julia.package import NAME, SETUP, package_folder
from polybench.engines.flux.julia.remembered import configuration_file, recall

EXECUTABLE, PROJECT = "PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"
VARIABLES = f"{EXECUTABLE} and {PROJECT}"
FOUND_BY = "POLYBENCH_JULIA_FOUND_BY"
"""Tells a worker, which is always given both variables, who found them."""

ENVIRONMENT = "--env"
"""What a project that is a study's environment was found by."""

_INSTALL_JULIACALL = "pip install 'polybench[flux]'"
_VERSION_SECONDS = 20.0


class Julia(NamedTuple):
    """An executable, the project (folder) whose packages it loads, and how polybench came by them.

    `library` and `bindir` are its libjulia and the folder of its program, where whoever set it up asked it:
    without them each worker starts a second Julia to learn that.
    """

    executable: str
    project: str
    found_by: str
    library: str | None = None
    bindir: str | None = None

    @property
    def described(self) -> str:
        """The project, in a sentence."""
        return f"the Julia project {self.project} (from {self.found_by})"

    @property
    def another(self) -> str:
        """What to do to have another Julia."""
        return f"correct {VARIABLES}, or unset both" if self.found_by == VARIABLES else SETUP

    @property
    def with_another_julia(self) -> str:
        """What to do once another version of Julia is installed; `PATH` is where that is."""
        if self.found_by == VARIABLES:
            return f"set {EXECUTABLE} to it"
        if self.found_by == "juliapkg":
            return SETUP
        return f"{SETUP} --julia PATH" + (
            "" if self.found_by == ENVIRONMENT else f" --project {shlex.quote(self.project)}"
        )

    @property
    def setup(self) -> str:
        """The command that completes the installation of this very Julia."""
        if self.found_by == "juliapkg":
            return SETUP
        if self.found_by == ENVIRONMENT:  # to set it up would make it everybody's
            return self.adding(PACKAGES)
        return f"{SETUP} --julia {shlex.quote(self.executable)} --project {shlex.quote(self.project)}"

    def adding(self, names: Iterable[str]) -> str:
        """The command that adds these packages to this very project."""
        if self.found_by == ENVIRONMENT:
            code = f"using Pkg; {add(names)}"
            return shlex.join([self.executable, f"--project={self.project}", "-e", code])
        return " ".join([self.setup, *(f"--with {name}" for name in names)])


def find() -> Julia:
    """The Julia to use; whether it works is for `check` to say.

    Raises:
        Unavailable: there is none, or what says where it is contradicts itself.
    """
    executable, project = os.environ.get(EXECUTABLE), os.environ.get(PROJECT)
    if executable and project:
        return Julia(executable, project, os.environ.get(FOUND_BY, VARIABLES))
    if executable or project:
        there, missing = (EXECUTABLE, PROJECT) if executable else (PROJECT, EXECUTABLE)
        raise Unavailable(
            f"{there} is set and {missing} is not: juliacall needs both", f"set {missing}, or unset {there}"
        )
    if remembered := recall():
        return Julia(
            remembered["julia"], remembered["project"], str(configuration_file()),
            remembered.get("library"), remembered.get("bindir"),
        )  # fmt: skip
    return _from_juliapkg()


def in_project(project: str) -> Julia:
    """The same Julia in another project, which is an environment of a study; raises as `find` does."""
    return find()._replace(project=project, found_by=ENVIRONMENT)


def _from_juliapkg() -> Julia:
    if importlib.util.find_spec("juliapkg") is None:
        raise Unavailable("juliacall is not installed", _INSTALL_JULIACALL)
    try:
        from juliapkg.deps import can_skip_resolve
        from juliapkg.state import STATE

        resolved = can_skip_resolve()  # only looks: `resolve` would wait for a lock, and download
    except Exception as error:
        raise Unavailable(f"juliapkg cannot say which Julia to use: {error}", SETUP) from error
    if not resolved:
        raise Unavailable("no Julia is set up for polybench yet", SETUP)
    return Julia(
        resolved["executable"], STATE["project"], "juliapkg", resolved.get("libjulia"), resolved.get("bindir")
    )


def add(names: Iterable[str]) -> str:
    """The call of Pkg that adds these packages in versions polybench takes, PythonCall in juliacall's."""
    return f"Pkg.add([{', '.join(map(_spec, names))}])"


def _spec(name: str) -> str:
    if name == "PythonCall":
        return f'PackageSpec(name="{name}", version="{importlib.metadata.version("juliacall")}")'
    bound = bounds().get(name)
    version = f', version=Pkg.Types.semver_spec("{bound}")' if bound else ""
    return f'PackageSpec(name="{name}"{version})'


def check_juliacall() -> None:
    """Raises Unavailable where it is not installed."""
    if importlib.util.find_spec("juliacall") is None:
        raise Unavailable("juliacall is not installed", _INSTALL_JULIACALL)


def check_version(julia: Julia) -> None:
    """Raises Unavailable where it is no Julia that polybench takes."""
    version = ".".join(map(str, version_of(julia)))
    if not within("julia", version):
        raise Unavailable(
            f"Julia {version} is none that polybench takes, which is {bounds()['julia']}"
            f" ({julia.executable}, from {julia.found_by})",
            f"install one of these, for example with juliaup, then: {julia.with_another_julia}",
        )


def check_bounds(julia: Julia, names: Iterable[str], remedy: str) -> None:
    """Raises Unavailable where one of these is there in a version that polybench does not take."""
    packages = installed(julia)
    if outside := [name for name in names if name in packages and not within(name, packages[name])]:
        told = ", ".join(f"{name} {packages[name]} (polybench takes {bounds()[name]})" for name in outside)
        raise Unavailable(f"{julia.described} has {told}", remedy)


def require(julia: Julia, names: Iterable[str], remedy: str) -> None:
    """Raises Unavailable where `using` would not find one of these in the project."""
    there, found = loadable(julia), installed(julia)
    if missing := [name for name in names if name not in there]:
        others = " (it is there for other packages only)"
        told = ", ".join(name + others * (name in found) for name in missing)
        raise Unavailable(f"{julia.described} lacks {told}", remedy)


def check(julia: Julia, needed: Sequence[str] = PACKAGES) -> None:
    """Judge what was found by its files and its version; `needed` are the packages that it must have.

    Raises:
        Unavailable: it cannot work: the first thing to mend, and how.
    """
    check_juliacall()
    check_version(julia)
    require(julia, needed, julia.setup)
    packages = loadable(julia)
    check_bounds(julia, [name for name in packages if name not in OF_VARIANTS], julia.setup)
    pythoncall, juliacall = packages["PythonCall"], importlib.metadata.version("juliacall")
    if pythoncall not in ("", juliacall):
        raise Unavailable(
            f"juliacall is {juliacall}, but PythonCall in {julia.project} is {pythoncall}:"
            " they must be the same version",
            julia.setup if julia.found_by == ENVIRONMENT else f"pip install juliacall=={pythoncall}",
        )


@functools.cache
def version_of(julia: Julia) -> tuple[int, ...]:
    """What `julia --version` says; raises Unavailable if it says nothing of the kind."""
    origin = f"{julia.executable} (from {julia.found_by})"
    try:
        run = subprocess.run(
            [julia.executable, "--version"],
            capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise Unavailable(f"there is no Julia at {origin}", julia.another) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{origin} does not run: {error}", julia.another) from error
    match = re.match(r"julia version (\d+)\.(\d+)\.(\d+)", run.stdout)
    if run.returncode or match is None:
        raise Unavailable(f"{origin} is no Julia: --version gives {run.stdout[:60]!r}", julia.another)
    return tuple(map(int, match.groups()))


def installed(julia: Julia) -> dict[str, str]:
    """Packages in the project's manifest, indirect ones too: name -> version, "" where none is recorded."""
    return {name: str(entry.get("version", "")) for name, entry in manifest(julia).items()}


def loadable(julia: Julia) -> dict[str, str]:
    """Those of them that polybench can load: what the project itself depends on, and PolyBench's own."""
    direct = _direct(julia)
    return {name: it for name, it in installed(julia).items() if name in direct or name in INDIRECT}


def has_cuda(julia: Julia) -> bool:
    """Whether it can load what training on CUDA needs."""
    return loadable(julia).keys() >= set(CUDA)


def _direct(julia: Julia) -> set[str]:
    """Names in the project's [deps]: `using` takes no other, whatever the manifest has."""
    names = ("JuliaProject.toml", "Project.toml")  # as in base/loading.jl
    file = next((Path(julia.project, name) for name in names if Path(julia.project, name).is_file()), None)
    return set() if file is None else set(_read(file).get("deps", {}))


def developed_at(julia: Julia) -> Path | None:
    """Where the project has PolyBench from, if it has it as a package."""
    path = manifest(julia).get(NAME, {}).get("path")
    return None if path is None else Path(julia.project, path).resolve()


def belongs_to_another(julia: Julia) -> bool:
    """Whether the project has PolyBench as a package, and from another polybench than this one."""
    return developed_at(julia) not in (None, package_folder().resolve())


def manifest_file(julia: Julia) -> Path | None:
    """The project's manifest, if it has one. Of several, it is the one that this Julia reads."""
    major, minor, _ = version_of(julia)
    versioned = f"Manifest-v{major}.{minor}.toml"
    names = (f"Julia{versioned}", versioned, "JuliaManifest.toml", "Manifest.toml")  # as in base/loading.jl
    return next((Path(julia.project, name) for name in names if Path(julia.project, name).is_file()), None)


def manifest(julia: Julia) -> dict[str, dict[str, Any]]:
    """The project's manifest: name -> its first entry."""
    file = manifest_file(julia)
    if file is None:
        return {}
    packages: dict[str, list[dict[str, Any]]] = _read(file).get("deps", {})
    return {name: entries[0] for name, entries in packages.items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Unavailable(f"{file} cannot be read: {error}", SETUP) from error

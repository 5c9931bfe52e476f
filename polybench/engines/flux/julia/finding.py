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
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.package import SETUP
from polybench.engines.flux.julia.remembered import configuration_file, recall

EXECUTABLE, PROJECT = "PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"
VARIABLES = f"{EXECUTABLE} and {PROJECT}"
FOUND_BY = "POLYBENCH_JULIA_FOUND_BY"
"""Tells a worker, which is always given both variables, who found them."""

ENVIRONMENT = "--env"
"""What a project that is a study's environment was found by."""

OLDEST = (1, 10)
PACKAGES = ("Flux", "PythonCall", "PrecompileTools")
"""What the project must have. Everything else that PolyBench needs comes with them."""

_INSTALL_JULIACALL = "pip install 'polybench[flux]'"
_VERSION_SECONDS = 20.0
_MANIFESTS = ("Manifest.toml", "JuliaManifest.toml")


class Julia(NamedTuple):
    """An executable, the project (folder) whose packages it loads, and how polybench came by them."""

    executable: str
    project: str
    found_by: str

    @property
    def another(self) -> str:
        """What to do to have another Julia."""
        return f"correct {VARIABLES}, or unset both" if self.found_by == VARIABLES else SETUP

    @property
    def setup(self) -> str:
        """The command that completes the installation of this very Julia."""
        if self.found_by == "juliapkg":
            return SETUP
        if self.found_by == ENVIRONMENT:  # to set it up would make it everybody's
            plain = ", ".join(f'PackageSpec("{name}")' for name in PACKAGES if name != "PythonCall")
            python = f'PackageSpec(name="PythonCall", version="{importlib.metadata.version("juliacall")}")'
            code = f"using Pkg; Pkg.add([{plain}, {python}])"
            return shlex.join([self.executable, f"--project={self.project}", "-e", code])
        return f"{SETUP} --julia {shlex.quote(self.executable)} --project {shlex.quote(self.project)}"


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
        return Julia(*remembered, str(configuration_file()))
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
    return Julia(resolved["executable"], STATE["project"], "juliapkg")


def check(julia: Julia) -> None:
    """Judge what was found by its files and its version.

    Raises:
        Unavailable: it cannot work: the first thing to mend, and how.
    """
    if importlib.util.find_spec("juliacall") is None:
        raise Unavailable("juliacall is not installed", _INSTALL_JULIACALL)
    version = version_of(julia)
    if version < OLDEST:
        raise Unavailable(
            f"Julia {'.'.join(map(str, version))} is too old, polybench needs {'.'.join(map(str, OLDEST))}"
            f" or newer ({julia.executable}, from {julia.found_by})",
            "install a newer Julia, for example with juliaup, then: " + SETUP,
        )
    packages = installed(julia.project)
    if missing := [name for name in PACKAGES if name not in packages]:
        raise Unavailable(
            f"the Julia project {julia.project} (from {julia.found_by}) lacks {', '.join(missing)}",
            julia.setup,
        )
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


def installed(project: str) -> dict[str, str]:
    """Packages in the project's manifest, indirect ones too: name -> version, "" where none is recorded."""
    names = (*sorted(path.name for path in Path(project).glob("Manifest-v*.toml")), *_MANIFESTS)
    manifest = next((Path(project, name) for name in names if Path(project, name).is_file()), None)
    if manifest is None:
        return {}
    try:
        packages: dict[str, list[dict[str, Any]]] = tomllib.loads(manifest.read_text("utf-8")).get("deps", {})
    except (OSError, ValueError) as error:
        raise Unavailable(f"{manifest} cannot be read: {error}", SETUP) from error
    return {name: str(entries[0].get("version", "")) for name, entries in packages.items()}

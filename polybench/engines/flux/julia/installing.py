"""Making a Julia complete: the packages that it lacks, and their compiled code."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import platformdirs

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import PACKAGES, Julia, find, installed, version_of
from polybench.engines.flux.julia.package import SETUP, package_folder
from polybench.engines.flux.julia.remembered import forget

Say = Callable[[str], None]

_STANDARD_ERROR = 2
_PACKAGE_SERVER = "https://pkg.julialang.org"
_OFFLINE = (
    "connect to a network and try again, or name an installed Julia: "
    + SETUP
    + " --julia PATH --project FOLDER"
)


def choose(executable: str | None, project: str | None, say: Say) -> Julia:
    """The Julia to set up: as told, else as found, else what juliapkg finds or downloads.

    Raises:
        Unavailable: none is there, and none can be downloaded.
    """
    if executable or project:
        return _as_told(executable, project)
    try:
        julia = find()
        version_of(julia)
        return julia
    except Unavailable as missing:
        if missing.remedy != SETUP:
            raise
        if os.environ.get("PYTHON_JULIAPKG_OFFLINE") != "yes":
            require_network()
        say(f"{missing.reason}: juliapkg looks for juliaup or julia, and downloads Julia if there is none")
        say("(about 200 MB), then Flux and what it needs (about 100 packages, 100 MB)")
    forget()
    _resolve_with_juliapkg()
    return find()


def _as_told(executable: str | None, project: str | None) -> Julia:
    found = shutil.which(executable or "julia")
    if found is None:
        reason = f"there is no Julia at {executable}" if executable else "there is no julia on the PATH"
        raise Unavailable(reason, f"{SETUP} --julia PATH")
    folder = Path(project) if project else Path(platformdirs.user_data_dir("polybench")) / "julia-project"
    return Julia(str(Path(found).absolute()), str(folder.absolute()), "the command line")


def _resolve_with_juliapkg() -> None:
    try:
        import juliapkg

        juliapkg.resolve()
    except Exception as error:  # juliapkg raises plain Exceptions, and what its downloads raise
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise Unavailable(
            f"juliapkg could not install Julia or its packages: {first[0]}", _OFFLINE
        ) from error


def require_network() -> None:
    """Find out in seconds what would otherwise be minutes of retries.

    Raises:
        Unavailable: Julia's package server cannot be reached.
    """
    server = os.environ.get("JULIA_PKG_SERVER", _PACKAGE_SERVER) or _PACKAGE_SERVER
    server = server if "://" in server else f"https://{server}"
    try:
        urllib.request.urlopen(server, timeout=10).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"no network: {server} cannot be reached ({reason})", _OFFLINE) from error


def add_packages(julia: Julia, say: Say) -> None:
    """Install what the project lacks, PythonCall in the version of juliacall."""
    version_of(julia)
    there, juliacall = installed(julia.project), importlib.metadata.version("juliacall")
    wanted = {name: "" for name in PACKAGES if name not in there}
    if there.get("PythonCall", "") not in ("", juliacall):
        wanted["PythonCall"] = ""
    if not wanted:
        return
    if "PythonCall" in wanted:
        wanted["PythonCall"] = juliacall
    require_network()
    say(f"installing {', '.join(wanted)} and what they need in {julia.project} (about 100 packages, 100 MB)")
    specs = ", ".join(
        f'PackageSpec(name="{name}"' + (f', version="{version}")' if version else ")")
        for name, version in wanted.items()
    )
    run(julia, f"using Pkg; Pkg.add([{specs}])", "the packages could not be installed")


def precompile(julia: Julia, say: Say) -> None:
    """Compile the project's packages and PolyBench, with what `lenet` needs for its first step."""
    say("precompiling the packages (minutes the first time, seconds after that)")
    load = f"push!(LOAD_PATH, raw{str(package_folder())!r}); using PolyBench".replace("'", '"')
    run(julia, f"using Pkg; Pkg.precompile(); {load}", "the packages could not be precompiled")


def run(julia: Julia, code: str, failure: str) -> None:
    """Run Julia code in the project, its output on standard error.

    Raises:
        Unavailable: with `failure`; what Julia said stands above it.
    """
    # PythonCall must take this Python and not install one of its own.
    own = {"JULIA_CONDAPKG_BACKEND": "Null", "JULIA_PYTHONCALL_EXE": sys.executable}
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", code]
    done = subprocess.run(command, env=os.environ | own, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        reason = f"{failure}: Julia ended with code {done.returncode}"
        raise Unavailable(reason, f"read what it said, then: {julia.setup}")

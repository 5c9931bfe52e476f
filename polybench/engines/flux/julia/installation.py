"""Installs and precompiles the packages of a Julia project, including PolyBench."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import platformdirs

from polybench.engines.flux.julia import saved_config
from polybench.engines.flux.julia.discovery import Julia, find, loadable, package_path, pkg_add_call, version_of
from polybench.engines.flux.julia.managed_project import is_manifest_current
from polybench.engines.flux.julia.package import NAME, SETUP, package_folder, sources_sha256
from polybench.engines.flux.julia.version_bounds import PACKAGES, SCRIPT_PACKAGES, satisfies
from polybench.errors import EngineUnavailable

PrintFunction = Callable[[str], None]

OTHER_FOLDER = f"{SETUP} --julia PATH --project FOLDER"
"""Fix for a folder that is not writable."""

_STANDARD_ERROR = 2
_PACKAGE_SERVER = "https://pkg.julialang.org"
_NO_NETWORK = f"connect to a network and try again, or name an installed Julia: {OTHER_FOLDER}"


def choose(executable: str | None, project: str | None) -> Julia | None:
    """Choose the Julia to set up: the given one, or an existing one; None if juliapkg must find or download one.

    Raises:
        EngineUnavailable: the given or configured path is not Julia.
    """
    if executable or project:
        return _from_arguments(executable, project)
    try:
        julia = find()
        version_of(julia)
    except EngineUnavailable as missing:
        if missing.hint != SETUP:
            raise
        return None
    return julia


def _from_arguments(executable: str | None, project: str | None) -> Julia:
    found = shutil.which(executable or "julia")
    if found is None:
        reason = f"Julia not found at {executable}" if executable else "julia is not on the PATH"
        raise EngineUnavailable(reason, f"{SETUP} --julia PATH")
    folder = Path(project) if project else own_project()
    return Julia(str(Path(found).absolute()), str(folder.absolute()), "the command line")


def own_project() -> Path:
    """Return polybench's own project in the user's data folder, for a Julia without a project."""
    return Path(platformdirs.user_data_dir("polybench")) / "julia-project"


def require_network() -> None:
    """Check the network, to avoid minutes of retries.

    Raises:
        EngineUnavailable: Julia's package server cannot be reached.
    """
    server = os.environ.get("JULIA_PKG_SERVER", _PACKAGE_SERVER)
    if not server:
        return  # an empty value disables the package server
    server = server if "://" in server else f"https://{server}"
    try:
        urllib.request.urlopen(server, timeout=10).close()
    except urllib.error.HTTPError:
        pass  # the server responds
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise EngineUnavailable(f"no network: {server} cannot be reached ({reason})", _NO_NETWORK) from error


def missing_packages(julia: Julia, more: Sequence[str] = ()) -> list[str]:
    """Return packages (with `more`) that the project lacks or has in unsupported versions."""
    present, juliacall = loadable(julia), importlib.metadata.version("juliacall")
    required = (*PACKAGES, *SCRIPT_PACKAGES, *more)
    valid = {name for name in required if name in present and satisfies(name, present[name])}
    if present.get("PythonCall", "") not in ("", juliacall):
        valid.discard("PythonCall")
    return [name for name in required if name not in valid]


def add_packages(julia: Julia, print_line: PrintFunction, *, more: Sequence[str] = (), offline: bool = False) -> None:
    """Install missing packages, the matching PythonCall, and PolyBench as a package.

    With PolyBench in the project, Pkg enforces its version bounds.
    """
    version_of(julia)
    if not needs_changes(julia, print_line, more=more):
        return
    calls = []
    if not _has_the_package(julia):
        calls.append(f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))')
    if missing := missing_packages(julia, more):
        calls.append(pkg_add_call(missing))
        if not offline:  # PolyBench's other dependencies come with Julia
            require_network()
    if listed := ", ".join([*missing, *([] if _is_developed(julia) else [NAME])]):
        print_line(f"installing {listed} with dependencies in {julia.project} (at most 100 packages, 100 MB)")
    if is_outdated(julia):
        print_line(f"resolving {julia.project} again, because {NAME} has changed")
    run(julia, "; ".join(["using Pkg", *calls]), "the packages could not be installed", offline=offline)


def needs_changes(julia: Julia, print_line: PrintFunction, *, more: Sequence[str] = ()) -> bool:
    """True if the project must be changed; print a message if it should be but is not writable.

    Raises:
        EngineUnavailable: the project is not writable and lacks required packages.
    """
    missing = missing_packages(julia, more)
    if not missing and _has_the_package(julia):
        return False
    if _writable(Path(julia.project)):
        return True
    reason = f"the Julia project {julia.project} is not writable"
    if needed := [name for name in missing if name not in SCRIPT_PACKAGES]:
        raise EngineUnavailable(f"{reason}, and lacks {', '.join(needed)}", OTHER_FOLDER)
    if not _is_developed(julia):
        print_line(f"{reason}: {NAME} is loaded from outside of it, which is harmless")
    if is_outdated(julia):
        print_line(f"{reason}: it has an older {NAME} and cannot be resolved again")
    if missing:
        print_line(f"{reason}, and lacks {', '.join(missing)}: flux runs, but the plain programs do not")
    return False


def precompile(julia: Julia, print_line: PrintFunction, *, offline: bool = False) -> None:
    """Compile the project's packages and PolyBench, including the first step of `lenet`."""
    print_line("precompiling the packages (minutes the first time, seconds after that)")
    load = f'push!(LOAD_PATH, raw"{package_folder()}"); using PolyBench'
    run(
        julia,
        f"using Pkg; Pkg.precompile(); {load}",
        "the packages could not be precompiled",
        offline=offline,
    )
    saved_config.save_precompiled(julia.project, sources_sha256())


def library_of(julia: Julia) -> dict[str, str]:
    """Run Julia to get the paths of libjulia and of its executable's folder."""
    code = 'using Libdl; print(abspath(Libdl.dlpath("libjulia")), "\\0", Sys.BINDIR)'
    command = [julia.executable, "--startup-file=no", "-O0", "--compile=min", "-e", code]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\0")
    return dict(zip(("library", "bindir"), output, strict=True)) if len(output) == 2 else {}


def planned_steps(julia: Julia | None, *, more: Sequence[str] = ()) -> Iterator[str]:
    """Yield a sentence per step that setup would do."""
    if julia is None:
        yield "juliapkg would look for juliaup or julia, and otherwise download Julia (about 200 MB)"
        yield "then it would install Flux with dependencies (about 100 packages, 100 MB)"
    else:
        if missing := missing_packages(julia, more):
            yield f"would install {', '.join(missing)} with dependencies in {julia.project}"
        if not _is_developed(julia):
            yield f"would add {NAME} from {package_folder()} to {julia.project}"
        if is_outdated(julia):
            yield f"would resolve {julia.project} again, because {NAME} has changed"
    yield "would precompile the packages, and train two steps"


def run(julia: Julia, code: str, failure: str, *, offline: bool = False) -> None:
    """Run Julia code in the project, with its output on standard error.

    Raises:
        EngineUnavailable: with `failure`; Julia's output is above it.
    """
    # PythonCall must use this Python and not install another one.
    own = {"JULIA_CONDAPKG_BACKEND": "Null", "JULIA_PYTHONCALL_EXE": sys.executable}
    own |= {"JULIA_PKG_OFFLINE": "true"} if offline else {}
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", code]
    done = subprocess.run(command, env=os.environ | own, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        reason = f"{failure}: Julia ended with code {done.returncode}"
        raise EngineUnavailable(reason, f"read its output above, then: {julia.setup}")


def is_outdated(julia: Julia) -> bool:
    """True if the project has this checkout's PolyBench, resolved before it changed."""
    return _is_developed(julia) and not is_manifest_current(julia)


def _has_the_package(julia: Julia) -> bool:
    """True if the project has this checkout's PolyBench, resolved as it is now."""
    return _is_developed(julia) and is_manifest_current(julia)


def _is_developed(julia: Julia) -> bool:
    """True if the project has this checkout's PolyBench."""
    return package_path(julia) == package_folder().resolve()


def _writable(folder: Path) -> bool:
    """True if the folder, or its nearest existing parent, is writable."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(existing, os.W_OK | os.X_OK)

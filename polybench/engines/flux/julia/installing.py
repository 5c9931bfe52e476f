"""Making a Julia complete: the packages that it lacks, PolyBench among them, and their compiled code."""

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

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.bounds import PACKAGES, SCRIPTS, within
from polybench.engines.flux.julia.finding import Julia, add, developed_at, find, loadable, version_of
from polybench.engines.flux.julia.own_project import resolved_as_it_is
from polybench.engines.flux.julia.package import NAME, SETUP, package_folder, sources_sha256
from polybench.engines.flux.julia.remembered import remember_precompiled

Say = Callable[[str], None]

OTHER_FOLDER = f"{SETUP} --julia PATH --project FOLDER"
"""What to do where a folder cannot be written."""

_STANDARD_ERROR = 2
_PACKAGE_SERVER = "https://pkg.julialang.org"
_NO_NETWORK = f"connect to a network and try again, or name an installed Julia: {OTHER_FOLDER}"


def choose(executable: str | None, project: str | None) -> Julia | None:
    """The Julia to set up: as told, else as found; None where juliapkg has to find or download one.

    Raises:
        Unavailable: what was told, or what says where it is, is no Julia.
    """
    if executable or project:
        return _as_told(executable, project)
    try:
        julia = find()
        version_of(julia)
    except Unavailable as missing:
        if missing.remedy != SETUP:
            raise
        return None
    return julia


def _as_told(executable: str | None, project: str | None) -> Julia:
    found = shutil.which(executable or "julia")
    if found is None:
        reason = f"there is no Julia at {executable}" if executable else "there is no julia on the PATH"
        raise Unavailable(reason, f"{SETUP} --julia PATH")
    folder = Path(project) if project else own_project()
    return Julia(str(Path(found).absolute()), str(folder.absolute()), "the command line")


def own_project() -> Path:
    """Polybench's own project in the user's data, where somebody names a Julia and no project."""
    return Path(platformdirs.user_data_dir("polybench")) / "julia-project"


def require_network() -> None:
    """Find out in seconds what would otherwise be minutes of retries.

    Raises:
        Unavailable: Julia's package server cannot be reached.
    """
    server = os.environ.get("JULIA_PKG_SERVER", _PACKAGE_SERVER)
    if not server:
        return  # packages come from elsewhere: Julia's own way to say so
    server = server if "://" in server else f"https://{server}"
    try:
        urllib.request.urlopen(server, timeout=10).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"no network: {server} cannot be reached ({reason})", _NO_NETWORK) from error


def lacking(julia: Julia, more: Sequence[str] = ()) -> list[str]:
    """Packages that the project lacks, `more` among them, or has in versions polybench does not take."""
    there, juliacall = loadable(julia), importlib.metadata.version("juliacall")
    wanted = (*PACKAGES, *SCRIPTS, *more)
    right = {name for name in wanted if name in there and within(name, there[name])}
    if there.get("PythonCall", "") not in ("", juliacall):
        right.discard("PythonCall")
    return [name for name in wanted if name not in right]


def add_packages(julia: Julia, say: Say, *, more: Sequence[str] = (), offline: bool = False) -> None:
    """Install what the project lacks, PythonCall in the version of juliacall, and PolyBench as a package.

    With PolyBench in the project, Pkg itself holds all packages to its bounds.
    """
    version_of(julia)
    if not has_to_change(julia, say, more=more):
        return
    calls = []
    if not _has_the_package(julia):
        calls.append(f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))')
    if wanted := lacking(julia, more):
        calls.append(add(wanted))
        if not offline:  # what else PolyBench needs comes with Julia
            require_network()
    if what := ", ".join([*wanted, *([] if _is_developed(julia) else [NAME])]):
        say(f"installing {what} and what they need in {julia.project} (at most 100 packages, 100 MB)")
    if resolved_earlier(julia):
        say(f"resolving {julia.project} again, for what {NAME} has got since")
    run(julia, "; ".join(["using Pkg", *calls]), "the packages could not be installed", offline=offline)


def has_to_change(julia: Julia, say: Say, *, more: Sequence[str] = ()) -> bool:
    """Whether something is to be installed or resolved in the project; where it cannot be, that is said.

    Raises:
        Unavailable: the project cannot be written, and lacks what training needs.
    """
    wanted = lacking(julia, more)
    if not wanted and _has_the_package(julia):
        return False
    if _writable(Path(julia.project)):
        return True
    reason = f"the Julia project {julia.project} cannot be written"
    if needed := [name for name in wanted if name not in SCRIPTS]:
        raise Unavailable(f"{reason}, and lacks {', '.join(needed)}", OTHER_FOLDER)
    if not _is_developed(julia):
        say(f"{reason}: {NAME} stays outside of it, which does no harm")
    if resolved_earlier(julia):
        say(f"{reason}: {NAME} is there as it was earlier, and it cannot be resolved again")
    if wanted:
        say(f"{reason}, and lacks {', '.join(wanted)}: the plain scripts do not run in it, flux does")
    return False


def precompile(julia: Julia, say: Say, *, offline: bool = False) -> None:
    """Compile the project's packages and PolyBench, with what `lenet` needs for its first step."""
    say("precompiling the packages (minutes the first time, seconds after that)")
    load = f'push!(LOAD_PATH, raw"{package_folder()}"); using PolyBench'
    run(
        julia,
        f"using Pkg; Pkg.precompile(); {load}",
        "the packages could not be precompiled",
        offline=offline,
    )
    remember_precompiled(julia.project, sources_sha256())


def library_of(julia: Julia) -> dict[str, str]:
    """Where libjulia and the folder of the program are, as this Julia itself says."""
    code = 'using Libdl; print(abspath(Libdl.dlpath("libjulia")), "\\0", Sys.BINDIR)'
    command = [julia.executable, "--startup-file=no", "-O0", "--compile=min", "-e", code]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\0")
    return dict(zip(("library", "bindir"), said, strict=True)) if len(said) == 2 else {}


def steps(julia: Julia | None, *, more: Sequence[str] = ()) -> Iterator[str]:
    """What setup would do, in sentences; nothing is done."""
    if julia is None:
        yield "juliapkg would look for juliaup or julia, and download Julia if there is none (about 200 MB)"
        yield "then it would install Flux and what it needs (about 100 packages, 100 MB)"
    else:
        if wanted := lacking(julia, more):
            yield f"would install {', '.join(wanted)} and what they need in {julia.project}"
        if not _is_developed(julia):
            yield f"would add {NAME} from {package_folder()} to {julia.project}"
        if resolved_earlier(julia):
            yield f"would resolve {julia.project} again, for what {NAME} has got since"
    yield "would precompile the packages, and train two steps"


def run(julia: Julia, code: str, failure: str, *, offline: bool = False) -> None:
    """Run Julia code in the project, its output on standard error.

    Raises:
        Unavailable: with `failure`; what Julia said stands above it.
    """
    # PythonCall must take this Python and not install one of its own.
    own = {"JULIA_CONDAPKG_BACKEND": "Null", "JULIA_PYTHONCALL_EXE": sys.executable}
    own |= {"JULIA_PKG_OFFLINE": "true"} if offline else {}
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", code]
    done = subprocess.run(command, env=os.environ | own, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        reason = f"{failure}: Julia ended with code {done.returncode}"
        raise Unavailable(reason, f"read what it said, then: {julia.setup}")


def resolved_earlier(julia: Julia) -> bool:
    """Whether PolyBench is there from this polybench's folder, as that was once."""
    return _is_developed(julia) and not resolved_as_it_is(julia)


def _has_the_package(julia: Julia) -> bool:
    """Whether PolyBench is there from this polybench's folder, as that is now."""
    return _is_developed(julia) and resolved_as_it_is(julia)


def _is_developed(julia: Julia) -> bool:
    """Whether PolyBench is there from this polybench's folder, whenever that was resolved."""
    return developed_at(julia) == package_folder().resolve()


def _writable(folder: Path) -> bool:
    """Whether the folder, or where it would be made, can be written."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return os.access(there, os.W_OK | os.X_OK)

"""Sets Julia and its packages up, through juliapkg.

juliapkg finds or downloads Julia and keeps the packages of its own project, or takes an installed Julia and project
by its settings. PolyBench is not one of these packages: each checkout has its own environment on top of the project
(`own_environment`), so several checkouts can share it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import platformdirs

from polybench.data import supervisor
from polybench.data.disk import only_process
from polybench.engines.flux.julia import discovery
from polybench.engines.flux.julia.discovery import SETUP, Julia, find, first_error_line, save_julia
from polybench.engines.flux.julia.environment import environments_folder, own_environment
from polybench.engines.flux.julia.program import LIBRARIES
from polybench.errors import EngineUnavailable

PrintFunction = Callable[[str], None]

_OTHER_FOLDER = f"{SETUP} --julia PATH --project FOLDER"
"""Fix for a folder that is not writable."""
_STANDARD_ERROR = 2
_PROBE_SECONDS = 60.0
_PACKAGE_SERVER = "https://pkg.julialang.org"


def choose(executable: str | None, project: str | None) -> Julia | None:
    """Choose the Julia to set up: the given one, or an existing one; None if juliapkg must find or download one."""
    discovery.check_juliacall()
    julia = _from_arguments(executable, project) if executable or project else _existing()
    if julia:
        discovery.check_version(julia)  # before anything is installed for it
    return julia


def _from_arguments(executable: str | None, project: str | None) -> Julia:
    found = shutil.which(executable or "julia")
    if found is None:
        reason = f"Julia not found at {executable}" if executable else "julia is not on the PATH"
        raise EngineUnavailable(reason, f"{SETUP} --julia PATH")
    folder = Path(project) if project else own_project()
    return Julia(str(Path(found).absolute()), str(folder.absolute()), "the command line")


def _existing() -> Julia | None:
    try:
        julia = find()
        version = discovery.version_of(julia)
    except EngineUnavailable as missing:
        if missing.hint.startswith(SETUP):  # nothing is set up, or the saved Julia is gone
            return None
        raise
    supported = discovery.satisfies("julia", ".".join(map(str, version)))
    return julia if supported or julia.found_by != "juliapkg" else None  # juliapkg replaces its own Julia


def own_project() -> Path:
    """Return polybench's own project in the user's data folder, for a Julia without a project."""
    return Path(platformdirs.user_data_dir("polybench")) / "julia-project"


def planned_steps(julia: Julia | None, more: Sequence[str] = ()) -> Iterator[str]:
    """Yield a sentence per step that setup would do."""
    if julia is None:
        yield "juliapkg would look for juliaup or julia, and otherwise download Julia (about 200 MB)"
        yield "then it would install Flux with dependencies (about 100 packages, 100 MB)"
    else:
        yield f"Julia: {julia.executable}, project {julia.project}, from {julia.found_by}"
        if missing := missing_packages(julia, more):
            yield f"would install {', '.join(missing)} with dependencies in {julia.project}"
    yield "would precompile the packages, and train two steps"
    yield f"would write: {', '.join(_written_files(julia, more))}"


def _written_files(julia: Julia | None, more: Sequence[str]) -> list[str]:
    """List the files that setup would write, or folders whose files have names of juliapkg and Julia."""
    from juliapkg.state import STATE

    managed = julia is None or julia.found_by == "juliapkg"
    project = Path(STATE["project"] if julia is None else julia.project)
    files = []
    if julia is None or missing_packages(julia, more):
        files = [project / name for name in ("Project.toml", "Manifest.toml", "lock.pid", "pyjuliapkg/meta.json")]
        files += [project / "pyjuliapkg/juliapkg.json"] if more else []
    files += [environments_folder()]
    files += [] if managed and not discovery.saved_julia() else [discovery.configuration_file()]
    depot = os.environ.get(discovery.DEPOT) or (julia and julia.depot) or str(Path.home() / ".julia")
    return [*map(str, files), f"packages and compiled code in {depot.split(os.pathsep)[0]}"]


def missing_packages(julia: Julia, more: Sequence[str] = ()) -> list[str]:
    """Return packages (with `more`) that the project lacks or has in unsupported versions."""
    present, juliacall = discovery.loadable(julia), importlib.metadata.version("juliacall")
    required = (*discovery.PACKAGES, *discovery.SCRIPT_PACKAGES, *more)
    valid = {name for name in required if name in present and discovery.satisfies(name, present[name])}
    if present.get("PythonCall", "") not in ("", juliacall):
        valid.discard("PythonCall")
    return [name for name in required if name not in valid]


@contextlib.contextmanager
def set_up(
    julia: Julia | None, print_line: PrintFunction, *, more: Sequence[str] = (), offline: bool = False
) -> Iterator[Julia]:
    """Install missing packages, also the optional packages `more`, and precompile all; provide the Julia for a test.

    If anything fails, also in the body, the project is as it was. Only one process of the user is in this context.
    """
    folder = platformdirs.user_data_path("polybench")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = partial(print_line, f"waiting for another `{SETUP}`")
    lock = only_process(folder, waiting) if folder.is_dir() else contextlib.nullcontext()
    with lock, _restored_on_failure(julia):
        if julia is None or _needs_packages(julia, print_line, more):
            _install(julia, print_line, more, offline=offline)
            julia = julia if julia and julia.found_by != "juliapkg" else find()
        version = ".".join(map(str, discovery.version_of(julia)))
        print_line(f"Julia {version}: {julia.executable}, project {julia.project}, from {julia.found_by}")
        discovery.check(julia)
        discovery.check_packages(julia, more)
        print_line("precompiling the packages (minutes the first time, seconds after that)")
        _precompile(own_environment(julia), offline=offline)
        yield julia


def _needs_packages(julia: Julia, print_line: PrintFunction, more: Sequence[str]) -> bool:
    """True if the project lacks packages; if it is not writable, print a message or raise EngineUnavailable."""
    missing, folder = missing_packages(julia, more), Path(julia.project)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not missing or os.access(existing, os.W_OK | os.X_OK):
        return bool(missing)
    reason = f"the Julia project {julia.project} is not writable, and lacks"
    if needed := [name for name in missing if name not in discovery.SCRIPT_PACKAGES]:
        raise EngineUnavailable(f"{reason} {', '.join(needed)}", _OTHER_FOLDER)
    print_line(f"{reason} {', '.join(missing)}: flux runs, but the plain programs do not")
    return False


def _install(julia: Julia | None, print_line: PrintFunction, more: Sequence[str], *, offline: bool) -> None:
    """Let juliapkg install the packages of polybench, juliacall and `more`, and Julia if it is None."""
    import juliapkg

    offline = offline or os.environ.get("PYTHON_JULIAPKG_OFFLINE") == "yes"
    if not offline:
        _require_network(julia)
    if julia is None:
        if offline:
            raise EngineUnavailable(
                "juliapkg cannot install Julia without a network", f"name an installed Julia: {_OTHER_FOLDER} --offline"
            )
        print_line("juliapkg looks for juliaup or julia, and downloads Julia if it is not installed (about 200 MB),")
        print_line("then Flux with dependencies (about 100 packages, 100 MB), and compiles them; this takes minutes")
    else:
        missing = ", ".join(missing_packages(julia, more))
        print_line(f"installing {missing} with dependencies in {julia.project} (at most 100 packages, 100 MB)")
    settings = {"PYTHON_JULIAPKG_OFFLINE": "no"}  # otherwise juliapkg leaves the packages alone
    settings |= julia.variables if julia else {}
    if julia and julia.found_by != "juliapkg":
        settings |= {"PYTHON_JULIAPKG_EXE": julia.executable, "PYTHON_JULIAPKG_PROJECT": julia.project}
    identifiers = {**LIBRARIES, **discovery.package_project()["weakdeps"]}
    try:
        # Its output is not a result.
        with _juliapkg_settings(settings | _pkg_variables(offline)), contextlib.redirect_stdout(sys.stderr):
            for name in more:  # juliapkg removes packages that its list lacks from its own project
                juliapkg.add(name, identifiers[name], version=discovery.bounds().get(name))
            juliapkg.resolve(force=True)  # it detects changes of its list, but not of its project
    except Exception as error:  # juliapkg raises plain Exceptions and errors of its downloads
        if julia and (unknown := _unregistered(julia, more)):
            raise EngineUnavailable(
                f"no package registry of this Julia has {', '.join(unknown)}",
                f"add a registry that has them, or add them to {julia.project} with Pkg.develop, then: {julia.setup}",
            ) from error
        if isinstance(error, subprocess.CalledProcessError):  # its message contains the whole script
            message = f"Julia ended with code {error.returncode}"
        else:
            message = first_error_line(error)
        raise EngineUnavailable(
            f"juliapkg could not install Julia or its packages: {message}",
            "read its output above, or name another Julia and project (without a network, with --offline):"
            f" {_OTHER_FOLDER}",
        ) from error
    if julia is None:
        save_julia(None)  # a saved Julia that no longer exists


def _unregistered(julia: Julia, more: Sequence[str]) -> list[str]:
    """Return the missing packages that no registry on this machine has; empty if Julia does not say."""
    names = ", ".join(f'"{name}"' for name in missing_packages(julia, more))
    code = (
        "using Pkg; registries = Pkg.Registry.reachable_registries();"
        " known(name) = any(one -> !isempty(Pkg.Registry.uuids_from_name(one, name)), registries);"
        f" foreach(println, filter(!known, String[{names}]))"
    )
    return discovery.run(julia, code, _PROBE_SECONDS).split()


@contextlib.contextmanager
def _juliapkg_settings(settings: Mapping[str, str]) -> Iterator[None]:
    from juliapkg.state import reset_state

    before = dict(os.environ)
    os.environ |= settings
    reset_state()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
        reset_state()


def _pkg_variables(offline: bool) -> dict[str, str]:
    """Return variables of a Julia that changes a project; PythonCall must use this Python and install no other."""
    own = {"JULIA_CONDAPKG_BACKEND": "Null", "JULIA_PYTHONCALL_EXE": sys.executable}
    return own | ({"JULIA_PKG_OFFLINE": "true", "JULIA_PKG_SERVER": ""} if offline else {})


def _require_network(julia: Julia | None) -> None:
    """Raise EngineUnavailable if Julia's package server cannot be reached, to avoid minutes of retries."""
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
        offline = f"{julia.setup if julia else _OTHER_FOLDER} --offline"
        raise EngineUnavailable(
            f"no network: {server} cannot be reached ({reason})",
            f"connect to a network and try again, or, if the packages are on this machine: {offline}",
        ) from error


@contextlib.contextmanager
def _restored_on_failure(julia: Julia | None) -> Iterator[None]:
    """Restore the files of Julia's and juliapkg's project if the body fails."""
    from juliapkg.state import STATE

    project = Path(julia.project if julia else STATE["project"])

    def read_files() -> dict[Path, bytes]:
        found = [*project.glob("*.toml"), *project.glob("pyjuliapkg/*.json")]
        return {file: file.read_bytes() for file in found}

    before = read_files()
    try:
        yield
    except BaseException:
        after = read_files()
        for added in after.keys() - before.keys():
            added.unlink()
        for file, content in before.items():
            if after.get(file) != content:  # the project may be read-only
                file.write_bytes(content)
        raise


def _precompile(julia: Julia, *, offline: bool) -> None:
    """Compile the packages and PolyBench, including the first step of `lenet`."""
    code = f"using Pkg; Pkg.precompile(); using {discovery.NAME}"
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", code]
    environment = os.environ | julia.variables | _pkg_variables(offline)
    done = subprocess.run(command, env=environment, stdout=_STANDARD_ERROR, check=False)
    if done.returncode:
        reason = f"the packages could not be precompiled: Julia ended with code {done.returncode}"
        raise EngineUnavailable(reason, "read its output above, then run setup again")


def save(julia: Julia) -> Path:
    """Save this Julia with the paths of its libjulia and of its executable's folder; return the file."""
    code = 'using Libdl; print(abspath(Libdl.dlpath("libjulia")), "\\0", Sys.BINDIR)'
    command = [julia.executable, "--startup-file=no", "-O0", "--compile=min", "-e", code]
    output = supervisor.run(command, _PROBE_SECONDS).stdout.split("\0")
    library, bindir = output if len(output) == 2 else (None, None)
    return save_julia(julia._replace(library=library, bindir=bindir))


def remove(print_line: PrintFunction, *, dry_run: bool) -> None:
    """Remove what setup created; Julia's depot stays, because other projects share it."""
    folders = [own_project(), environments_folder()]
    with contextlib.suppress(ImportError):
        from juliapkg.state import STATE

        if not STATE["project_is_shared"]:
            folders.append(Path(STATE["project"]))
    would = "would have " if dry_run else ""
    if discovery.saved_julia():
        print_line(f"{would}removed the Julia of {discovery.configuration_file()}")
        if not dry_run:
            save_julia(None)
    for folder in folders:
        if folder.is_dir():
            print_line(f"{would}removed {folder}")
            if not dry_run:
                shutil.rmtree(folder)
    print_line("packages in Julia's own depot (~/.julia) stay: other projects may use them")

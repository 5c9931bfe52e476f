"""Finds Julia, its project and its packages, without downloading or starting anything.

The order is: both variables of juliacall; the paths saved by `polybench setup flux`; juliapkg's Julia.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import tomli_w

from polybench.data import supervisor
from polybench.errors import EngineUnavailable, install_command

ENGINE = "flux"
NAME = "PolyBench"
"""The Julia package that runs the training."""
SETUP = "polybench setup flux"

EXECUTABLE, PROJECT = "PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"
VARIABLES = f"{EXECUTABLE} and {PROJECT}"
FOUND_BY = "POLYBENCH_JULIA_FOUND_BY"
"""Variable with the source of the other two, which a worker always gets."""
DEPOT = "JULIA_DEPOT_PATH"
"""Variable with the folders of Julia's packages, separated by colons."""
ENVIRONMENT = "--env"
"""Source of a project that is a study's environment."""

PACKAGES = ("Flux", "JSON", "PythonCall", "PrecompileTools")
"""Packages that the project must have. Everything else that PolyBench needs comes with Julia."""
INDIRECT = ("JSON", "PrecompileTools")
"""Packages of these that only PolyBench loads, so another package may bring them."""
SCRIPT_PACKAGES = ("NPZ",)
"""Packages that only the plain programs need (`polybench export --train`, `layers --export`)."""
CUDA_PACKAGES = ("CUDA", "cuDNN")
"""Packages for training on CUDA."""
PACKAGE_BY_VARIANT = {"enzyme": "Enzyme", "lux": "Lux", "mkl": "MKL", "mooncake": "Mooncake", "reactant": "Reactant"}
"""Package by variant (or engine). PolyBench's methods for a package are in its extension `PolyBench{package}Ext`."""
LUX_PROGRAM_PACKAGES = ("Lux", "OneHotArrays", "Optimisers", "Zygote")
"""Packages that a program of Lux loads, which needs them in the project when it starts alone."""
OPTIONAL_PACKAGES = (*CUDA_PACKAGES, *PACKAGE_BY_VARIANT.values())
"""Packages that `polybench setup flux` adds on request."""

PROJECT_FILES = ("JuliaProject.toml", "Project.toml")
"""A project's possible files; Julia reads the first one."""

_FLUX_WITH_TRAINSTEP = (0, 16, 11)
_VERSION_SECONDS = 20.0
_PACKAGES_SECONDS = 60.0


class Julia(NamedTuple):
    """An executable, the project (folder) whose packages it loads, and how polybench found them.

    `library` and `bindir` are the paths of its libjulia and its executable's folder, if setup saved them.
    Without them, each worker starts a second Julia to find them. `depot` is the value of DEPOT during setup, if any.
    """

    executable: str
    project: str
    found_by: str
    library: str | None = None
    bindir: str | None = None
    depot: str | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the environment in which this Julia finds its packages; the user's DEPOT goes first."""
        return {DEPOT: self.depot} if self.depot and DEPOT not in os.environ else {}

    @property
    def description(self) -> str:
        """Describe the project for messages."""
        return f"the Julia project {self.project} (from {self.found_by})"

    @property
    def other_julia(self) -> str:
        """Fix that selects a different Julia for the same project."""
        if self.found_by == VARIABLES:
            return f"correct {VARIABLES}, or unset both"
        if self.found_by == "juliapkg":
            return SETUP
        project = "" if self.found_by == ENVIRONMENT else f" --project {shlex.quote(self.project)}"
        return f"{SETUP} --julia PATH{project}"

    @property
    def setup(self) -> str:
        """Command that completes the installation of this Julia."""
        if self.found_by == "juliapkg":
            return SETUP
        if self.found_by == ENVIRONMENT:  # setup would change the default Julia
            return self.add_command(PACKAGES)
        return f"{SETUP} --julia {shlex.quote(self.executable)} --project {shlex.quote(self.project)}"

    def add_command(self, names: Iterable[str]) -> str:
        """Return the command that adds supported versions of these packages to this project."""
        if self.found_by == ENVIRONMENT:
            code = f"using Pkg; Pkg.add([{', '.join(map(_package_spec, names))}])"
            return shlex.join([self.executable, f"--project={self.project}", "-e", code])
        return " ".join([self.setup, *(f"--add-package {name}" for name in names)])


def _package_spec(name: str) -> str:
    if name == "PythonCall":
        return f'PackageSpec(name="{name}", version="{importlib.metadata.version("juliacall")}")'
    bound = bounds().get(name)
    version = f', version=Pkg.Types.semver_spec("{bound}")' if bound else ""
    return f'PackageSpec(name="{name}"{version})'


def find() -> Julia:
    """Find the Julia to use, which `check` verifies; raise EngineUnavailable if there is none."""
    executable, project = os.environ.get(EXECUTABLE), os.environ.get(PROJECT)
    if executable and project:
        return Julia(executable, project, os.environ.get(FOUND_BY, VARIABLES))
    if executable or project:
        present, missing = (EXECUTABLE, PROJECT) if executable else (PROJECT, EXECUTABLE)
        raise EngineUnavailable(
            f"{present} is set, but {missing} is not: juliacall needs both", f"set {missing}, or unset {present}"
        )
    return saved_julia() or _from_juliapkg()


def for_project(project: str) -> Julia:
    """Return the same Julia with an environment of a study as its project; raise like `find`."""
    return find()._replace(project=project, found_by=ENVIRONMENT)


def _from_juliapkg() -> Julia:
    check_juliacall()  # which installs juliapkg
    try:
        from juliapkg.deps import can_skip_resolve
        from juliapkg.state import STATE

        resolved = can_skip_resolve()  # read-only: `resolve` would wait for a lock and download
    except Exception as error:
        raise EngineUnavailable(f"juliapkg cannot say which Julia to use: {error}", SETUP) from error
    if not resolved:
        raise EngineUnavailable("Julia is not set up for polybench", SETUP)
    return Julia(resolved["executable"], STATE["project"], "juliapkg", resolved.get("libjulia"), resolved.get("bindir"))


def configuration_file() -> Path:
    """Return the path of the user's configuration file."""
    return Path(platformdirs.user_config_dir("polybench")) / "config.toml"


def saved_julia() -> Julia | None:
    """Return the Julia that setup saved, or None; raise EngineUnavailable if the configuration file is corrupt."""
    table, file = _configuration().get(ENGINE, {}), configuration_file()
    if not table:
        return None
    for name in ("julia", "project"):
        if name not in table:
            raise EngineUnavailable(f"{file} has a [{ENGINE}] without {name!r}", SETUP)
    optional = (table.get(name) for name in ("library", "bindir", "depot"))
    return Julia(table["julia"], table["project"], str(file), *optional)


def save_julia(julia: Julia | None) -> Path:
    """Save the paths of this Julia, or delete the saved ones; keep other tables of the file."""
    tables, file = _configuration(), configuration_file()
    tables.pop(ENGINE, None)
    if julia is not None:
        paths = {
            "julia": julia.executable, "project": julia.project, "library": julia.library, "bindir": julia.bindir,
            "depot": os.environ.get(DEPOT) or julia.depot,
        }  # fmt: skip
        tables[ENGINE] = {name: path for name, path in paths.items() if path}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(tomli_w.dumps(tables), "utf-8")
    except OSError as error:
        raise EngineUnavailable(
            f"{file} cannot be written: {error.strerror}", "make it writable, or set XDG_CONFIG_HOME to another folder"
        ) from error
    return file


def _configuration() -> dict[str, dict[str, str]]:
    file = configuration_file()
    return {**_read(file, f"fix or delete it, then: {SETUP}")} if file.exists() else {}


def check(julia: Julia, needed: Sequence[str] = PACKAGES) -> None:
    """Check version and `needed` packages by files; raise EngineUnavailable with the first problem and its fix."""
    check_juliacall()
    check_version(julia)
    packages = loadable(julia)
    # An unsupported version of a variant's package does not affect other configurations.
    others = [name for name in packages if name not in PACKAGE_BY_VARIANT.values()]
    _verify(julia, needed, others, julia.setup)
    pythoncall, juliacall = packages["PythonCall"], importlib.metadata.version("juliacall")
    if pythoncall not in ("", juliacall):
        raise EngineUnavailable(
            f"juliacall is {juliacall}, but PythonCall in {julia.project} is {pythoncall}: the versions must be equal",
            julia.setup if julia.found_by == ENVIRONMENT else f"pip install juliacall=={pythoncall}",
        )


def check_juliacall() -> None:
    """Raise EngineUnavailable if juliacall is not installed."""
    if importlib.util.find_spec("juliacall") is None:
        raise EngineUnavailable("juliacall is not installed", install_command(ENGINE))


def check_version(julia: Julia) -> None:
    """Raise EngineUnavailable if this version of Julia is not supported."""
    version = ".".join(map(str, version_of(julia)))
    if not satisfies("julia", version):
        raise EngineUnavailable(
            f"Julia {version} is not supported: expected {bounds()['julia']} or newer, below 2"
            f" ({julia.executable}, from {julia.found_by})",
            f"install a supported version, for example with juliaup, then: {julia.other_julia}",
        )


def check_requirements(variants: tuple[str, ...]) -> None:
    """Check for Julia, its packages and those of these variants; see `EngineSpec.requirement_check`."""
    check(julia := find())
    check_packages(julia, packages_of(variants))


def packages_of(variants: Iterable[str]) -> list[str]:
    """Return the packages that these variants need."""
    return [PACKAGE_BY_VARIANT[name] for name in variants if name in PACKAGE_BY_VARIANT]


def with_companions(packages: Sequence[str]) -> list[str]:
    """Return optional packages, and those that the programs of Lux need if it is one of them."""
    return list(dict.fromkeys((*packages, *(LUX_PROGRAM_PACKAGES if "Lux" in packages else ()))))


def check_packages(julia: Julia, names: Sequence[str]) -> dict[str, str]:
    """Return versions of optional packages by lower-case name; raise EngineUnavailable if one cannot be used."""
    _verify(julia, names, (), julia.add_command(names))
    versions = installed(julia)
    flux = versions.get("Flux", "")
    if "Reactant" in names and flux and tuple(map(int, flux.split("."))) < _FLUX_WITH_TRAINSTEP:
        raise EngineUnavailable(
            f"{julia.description} has Flux {flux}, but Reactant needs its `trainstep!`, from 0.16.11 on",
            f"{julia.executable} --project={julia.project} -e 'using Pkg; Pkg.update(\"Flux\")'",
        )
    return {name.lower(): versions[name] for name in names}


def _verify(julia: Julia, needed: Sequence[str], others: Iterable[str], hint: str) -> None:
    """Raise EngineUnavailable if `using` would not find a needed package, or if a version is not supported."""
    packages, present = installed(julia), loadable(julia)
    if missing := [name for name in needed if name not in present]:
        indirect = " (it is only an indirect dependency)"
        listed = ", ".join(name + indirect * (name in packages) for name in missing)
        raise EngineUnavailable(f"{julia.description} lacks {listed}", hint)
    if outside := [name for name in (*needed, *others) if not satisfies(name, packages[name])]:
        versions = ", ".join(f"{name} {packages[name]} (expected {bounds()[name]})" for name in dict.fromkeys(outside))
        raise EngineUnavailable(f"{julia.description} has unsupported versions: {versions}", hint)


@functools.cache
def version_of(julia: Julia) -> tuple[int, ...]:
    """Return the version from `julia --version`; raise EngineUnavailable if that fails."""
    origin = f"{julia.executable} (from {julia.found_by})"
    if shutil.which(julia.executable) is None:
        raise EngineUnavailable(f"no Julia at {origin}", julia.other_julia)
    done = supervisor.run([julia.executable, "--version"], _VERSION_SECONDS)
    match = re.match(r"julia version (\d+)\.(\d+)\.(\d+)", done.stdout)
    if done.returncode or match is None:
        problem = (done.returncode and done.stderr.strip()[-200:]) or f"--version printed {done.stdout[:60]!r}"
        raise EngineUnavailable(f"{origin} is not Julia: {problem}", julia.other_julia)
    return tuple(map(int, match.groups()))


def package_folder() -> Path:
    """Return the folder of PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    here = Path(__file__).resolve()  # in another environment, a worker finds the package through a link
    installed = here.parent / NAME
    return installed if installed.is_dir() else here.parents[4] / "julia"


@functools.cache
def package_project() -> dict[str, Any]:
    """Return PolyBench's Project.toml."""
    return _read(package_folder() / "Project.toml")


def bounds() -> dict[str, str]:
    """Return version bounds in Julia's syntax by name: of Julia itself (`julia`) and of packages."""
    found: dict[str, str] = package_project()["compat"]
    return found


def satisfies(name: str, version: str) -> bool:
    """True if polybench supports this version of a package, or of `julia`; unknown versions pass."""
    from juliapkg.compat import Compat, Version  # late: imports all of juliapkg

    bound = bounds().get(name)
    return not version or bound is None or Version.parse(version.partition("+")[0]) in Compat.parse(bound)


def installed(julia: Julia) -> dict[str, str]:
    """Return versions of all packages in the manifest by name, "" if unknown; includes indirect ones."""
    return {name: str(entry.get("version", "")) for name, entry in manifest(julia).items()}


def loadable(julia: Julia) -> dict[str, str]:
    """Return the installed packages that polybench can load: the project's and PolyBench's direct dependencies."""
    file = first_file(julia.project, PROJECT_FILES)
    direct = {*INDIRECT, *(_read(file).get("deps", {}) if file else ())}  # `using` accepts only [deps]
    return {name: version for name, version in installed(julia).items() if name in direct}


def has_cuda(julia: Julia) -> bool:
    """True if this Julia can load the packages for CUDA."""
    return loadable(julia).keys() >= set(CUDA_PACKAGES)


def manifest(julia: Julia) -> dict[str, dict[str, Any]]:
    """Return the first entry of each package in the manifest by name."""
    file = manifest_file(julia)
    packages: dict[str, list[dict[str, Any]]] = _read(file).get("deps", {}) if file else {}
    return {name: entries[0] for name, entries in packages.items()}


def manifest_file(julia: Julia) -> Path | None:
    """Return the manifest that this Julia reads, or None."""
    major, minor, _ = version_of(julia)
    versioned = f"Manifest-v{major}.{minor}.toml"
    return first_file(julia.project, (f"Julia{versioned}", versioned, "JuliaManifest.toml", "Manifest.toml"))


def first_file(folder: str, names: Iterable[str]) -> Path | None:
    """Return the first of these files that exists; the order is that of Julia's base/loading.jl."""
    return next((Path(folder, name) for name in names if Path(folder, name).is_file()), None)


# A manifest takes 30 ms, and a list of all variants reads it a hundred times. Callers change only a copy.
_parse = functools.lru_cache(maxsize=8)(tomllib.loads)


def _read(file: Path, hint: str = SETUP) -> dict[str, Any]:
    try:
        return _parse(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{file} cannot be read: {error}", hint) from error


def run(julia: Julia, code: str, seconds: float, *options: str) -> str:
    """Run a line of Julia in the project and return its output; empty if it fails or takes longer."""
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", *options, "-e", code]
    done = supervisor.run(command, seconds, env={**os.environ, **julia.variables})
    return "" if done.returncode else done.stdout


def absent_packages(julia: Julia) -> list[str]:
    """Return the packages of the project's manifest whose files are in no depot."""
    code = "using Pkg; foreach(p -> isdir(p.source) || println(p.name), values(Pkg.dependencies()))"
    return sorted(run(julia, code, _PACKAGES_SECONDS).split())


def first_error_line(error: Exception) -> str:
    """Return the first line of an error message, or the error's type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""Versions of a package, each in an environment of its own: releases, or commits of a checkout.

An environment of Python sees all packages of polybench's own environment behind its own ones, so that only the version
and what it needs in other versions is installed. One of Julia has the packages of polybench's Julia project.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import platformdirs

from polybench.engines.flux.julia import discovery
from polybench.engines.flux.julia.environment import own_environment
from polybench.errors import BadInput, PolybenchError
from polybench.schema.options import Study

_READY = "polybench.ready"
"""File in the folder of a complete environment."""
_LABEL = 12
"""Characters of a commit."""


class BuildFailed(PolybenchError):
    """A version that cannot be installed, with the last line of the installer's output."""


class Versions(NamedTuple):
    """The package under test.

    Attributes:
        package: its name on the index; for a checkout None.
        checkout: its folder with a Git repository; for releases None.
        julia: True for a Julia package.
        program: the path in the checkout of a user's program; each commit then has its own, and nothing is installed.
    """

    package: str | None = None
    checkout: Path | None = None
    julia: bool = False
    program: Path | None = None

    @property
    def subject(self) -> str:
        """The package as in a sentence."""
        return self.package or f"commits of {(self.checkout or Path()).absolute().name}"

    def between(self, start: str, end: str) -> list[str]:
        """Return all versions from `start` to `end`, both included, the oldest first.

        Commits follow first parents, and have 12 characters. Raises BadInput if the versions are unknown or in the
        wrong order.
        """
        if self.checkout is None:
            if self.julia:
                raise BadInput("releases of Julia packages cannot be listed: clone the package and use --checkout")
            return self._releases_between(start, end)
        first, last = self.commit(start), self.commit(end)
        listed = _git(self.checkout, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
        if not listed:
            raise BadInput(f"{start}..{end}: no commits: expected an older commit, then a newer one")
        if not _is_ancestor(self.checkout, first, last):
            raise BadInput(f"{start} is not an ancestor of {end}: expected two commits of one history")
        return [commit[:_LABEL] for commit in (first, *listed)]

    def newest(self) -> tuple[str, str]:
        """Return the version before the newest one, and the newest: the last two releases, or HEAD and its parent."""
        if self.checkout is not None:
            return self.label("HEAD~1"), self.label("HEAD")
        releases = _releases(self.package or "")
        releases = [release for release in releases if build_kind(release) == build_kind(releases[-1])]
        if len(releases) < 2:
            raise BadInput(f"{self.package} has {len(releases)} release: expected two or more")
        return releases[-2], releases[-1]

    def _releases_between(self, start: str, end: str) -> list[str]:
        """Return the releases from `start` to `end` whose build is of the same kind."""
        self._check_builds(start, end)
        releases = _slice(_releases(self.package or ""), start, end, f"releases of {self.package}")
        return [release for release in releases if build_kind(release) == build_kind(start)]

    def _check_builds(self, *releases: str) -> None:
        """Raise BadInput for releases whose builds differ, for example one for CUDA and one for CPUs only."""
        if len({build_kind(release) for release in releases}) > 1:
            raise BadInput(
                f"{' and '.join(releases)} are different builds of {self.package}, which the part after + names:"
                " expected builds of one kind, such as 2.12.1+cpu and 2.13.0+cpu, or 2.12.1 and 2.13.0"
            )

    def commit(self, name: str) -> str:
        """Return the 40 characters of a commit; BadInput if there is none of this name."""
        assert self.checkout is not None
        return _git(self.checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()

    def label(self, name: str) -> str:
        """Return a release as it is, and the first 12 characters of a commit; BadInput if there is none."""
        return name if self.checkout is None else self.commit(name)[:_LABEL]

    def describe(self, version: str) -> str:
        """Return the first line of a commit's message; a release has none."""
        return "" if self.checkout is None else _git(self.checkout, "log", "-1", "--format=%s", version).strip()

    def pair(self, study: Study, base: str, other: str) -> Study:
        """Return the study of two versions of its one engine, the first of which is the baseline.

        Raises BadInput if both are the same, and BuildFailed.
        """
        labels = [self.label(base), self.label(other)]
        if self.checkout is None:
            self._check_builds(*labels)
        if labels[0] == labels[1]:
            raise BadInput(f"{base} and {other} are the same version: expected two")
        folders = {_environment_name(one): str(self.environment(one)) for one in labels}
        if self.program is not None:
            engines = tuple(str(self._own_program(name, Path(folder))) for name, folder in folders.items())
            return msgspec.structs.replace(study, engines=engines)
        (engine,) = study.engines
        return msgspec.structs.replace(study, engines=tuple(f"{engine}@{name}" for name in folders), env=folders)

    def environment(self, version: str) -> Path:
        """Return the folder of the version's environment, which is built once; raise BuildFailed if it cannot be."""
        folder = self._folder(version)
        if not (folder / _READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if self.program is not None:
                self.clone(version, folder)
            else:
                (self._build_julia if self.julia else self._build_python)(version, folder)
            (folder / _READY).touch()
        return folder

    def unbuilt(self, *names: str) -> list[str]:
        """Return those of these versions that have no environment yet; BadInput if there is no such commit."""
        return [label for label in map(self.label, names) if not (self._folder(label) / _READY).exists()]

    def _folder(self, version: str) -> Path:
        origin = (
            f"{self.package or self.program}\0{self.checkout and self.checkout.resolve()}\0{sys.prefix}\0{sys.version}"
        )
        key = hashlib.sha256(origin.encode()).hexdigest()[:_LABEL]
        return platformdirs.user_cache_path("polybench") / "versions" / key / _environment_name(version)

    def _own_program(self, name: str, folder: Path) -> Path:
        """Return the program of a commit, beside the other files of its commit; rows have its name.

        Raises BuildFailed if the commit has no such file.
        """
        assert self.program is not None
        path = folder / "source" / self.program
        if not path.is_file():
            raise BuildFailed(f"commit {name} has no file {self.program}")
        link = path.with_stem(f"{path.stem}-{name}")
        if not link.is_symlink():
            link.symlink_to(path.name)
        return link

    def _build_python(self, version: str, folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
        (packages,) = folder.glob("lib/python3*/site-packages")
        own = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (packages / "polybench.pth").write_text("".join(f"{path}\n" for path in own))
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
        install = [*pip, "install", "--no-input"]
        if self.checkout is None:
            requirement = f"{self.package}==={version}"  # == prefers a build with a local tag, such as +cpu
            _run([*install, "--force-reinstall", "--no-deps", requirement], folder)
            _run([*install, requirement], folder)  # what it needs in another version
        else:
            _run([*install, str(self.clone(version, folder))], folder)

    def _build_julia(self, version: str, folder: Path) -> None:
        julia = discovery.find()
        discovery.check(julia)
        own_environment(julia, folder)
        source = self.clone(version, folder)
        code = "using Pkg; Pkg.develop(path = ARGS[1]); Pkg.precompile()"
        _run(
            [julia.executable, "--startup-file=no", f"--project={folder}", "-e", code, str(source)],
            folder,
            julia.variables,
        )

    def clone(self, version: str, folder: Path) -> Path:
        """Clone the checkout into the folder at a commit; packages may derive their version from its history."""
        source = folder / "source"
        _run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(self.checkout), str(source)], folder)
        _run(["git", "-C", str(source), "checkout", "--quiet", "--detach", self.commit(version)], folder)
        return source


def build_kind(release: str) -> str:
    """Return the letters of a release's local version tag: "cpu" for 2.13.0+cpu, "cu" for 2.13.0+cu130, else ""."""
    return "".join(filter(str.isalpha, release.partition("+")[2]))


def _environment_name(version: str) -> str:
    """Return the name of a version's environment, as after the @ of an engine."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", version)


def _releases(package: str) -> list[str]:
    """Return the releases of a package that pip can install here, the oldest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        raise BadInput(f"cannot list the releases of {package}: {_last_line(done.stderr)}")
    return found[1].split(", ")[::-1]


def _slice(versions: Sequence[str], start: str, end: str, what: str) -> list[str]:
    for version in (start, end):
        if version not in versions:
            raise BadInput(f"{version!r} is not among the {what}: expected one of {', '.join(versions[-8:])}")
    first, last = versions.index(start), versions.index(end)
    if first >= last:
        raise BadInput(f"{start}, {end}: expected an older version, then a newer one")
    return list(versions[first : last + 1])


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        problem = _last_line(done.stderr) or f"no commit {arguments[-1].removesuffix('^{commit}')!r}"
        raise BadInput(f"--checkout {checkout}: {problem}")
    return done.stdout


def _is_ancestor(checkout: Path, first: str, last: str) -> bool:
    command = ["git", "-C", str(checkout), "merge-base", "--is-ancestor", first, last]
    return subprocess.run(command, check=False).returncode == 0


def _run(command: list[str], folder: Path, variables: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run an installer; its output goes to a file in the environment's folder."""
    log = folder / "build.log"
    with log.open("ab") as output:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(variables)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, check=False
        )
    if done.returncode:
        raise BuildFailed(f"{_last_line(log.read_text('utf-8', 'replace'))} (all output: {log})")


def _last_line(text: str) -> str:
    """Return the last line that begins with "error", as those of pip and Julia do, else the last line."""
    lines = text.strip().splitlines() or [""]
    return next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1])

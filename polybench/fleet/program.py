"""What a node has to have the same as the driver, and what it may have otherwise."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version

from polybench.core.names import EngineName
from polybench.core.spec import Study
from polybench.core.version import __version__
from polybench.engines.installed import find_engine
from polybench.fleet.messages import Program
from polybench.identity.kept_checks import own_programs


def this_program() -> Program:
    """Of this process."""
    digest = hashlib.sha256()
    for path in sorted(own_programs(), key=lambda path: path.name):  # an installed package lies otherwise
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    python = ".".join(map(str, sys.version_info[:2]))
    return Program(version=__version__, sources=digest.hexdigest(), python=python)


def differences(driver: Program, node: Program) -> list[str]:
    """In words, with what mends each."""
    found = []
    if driver.python != node.python:
        found.append(f"it has Python {node.python}, the driver {driver.python}; give both the same")
    if driver.version != node.version:
        found.append(
            f"it has polybench {node.version}, the driver {driver.version};"
            f" there: pip install polybench=={driver.version}"
        )
    elif driver.sources != node.sources:
        found.append("its polybench has the same version, and other programs; install the driver's there")
    return found


def versions_of(study: Study) -> dict[str, str | None]:
    """Of the packages that its engines need, by pip's names; None is not installed. Nothing is imported."""
    names = [name for text in study.engines for name in find_engine(EngineName.read(text).engine).packages]
    return {name: _version(name) for name in dict.fromkeys(names)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

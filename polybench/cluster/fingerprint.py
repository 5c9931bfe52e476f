"""Versions that a node must share with the driver, and versions in which it may differ."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version

from polybench.cluster.messages import Fingerprint
from polybench.engines.plugins import find_engine
from polybench.errors import __version__, install_command
from polybench.parity_check.check_cache import source_files
from polybench.schema.options import EngineName, Study


def current_fingerprint() -> Fingerprint:
    """Return the fingerprint of this process."""
    digest = hashlib.sha256()
    for path in sorted(source_files(), key=lambda path: path.name):  # folders of an installed package differ
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    python = ".".join(map(str, sys.version_info[:2]))
    return Fingerprint(version=__version__, source_sha256=digest.hexdigest(), python=python)


def differences(driver: Fingerprint, node: Fingerprint) -> list[str]:
    """Describe the differences, each with a fix."""
    problems = []
    if driver.python != node.python:
        problems.append(f"it has Python {node.python}, but the driver has {driver.python}; install the same version")
    if driver.version != node.version:
        problems.append(
            f"it has polybench {node.version}, but the driver has {driver.version};"
            f" on that machine: {install_command(version=driver.version)}"
        )
    elif driver.source_sha256 != node.source_sha256:
        problems.append("its polybench has the same version, but different source files; install the driver's")
    return problems


def package_versions(study: Study) -> dict[str, str | None]:
    """Return the versions of the engines' packages, by name on the index; None is not installed. Imports
    nothing.
    """
    names = [name for text in study.engines for name in find_engine(EngineName.parse(text).engine).packages]
    return {name: _version(name) for name in dict.fromkeys(names)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

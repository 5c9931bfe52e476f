"""Inspects the machine: its GPUs and polybench's own packages, and installs missing ones."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).parents[2]
DRIVER = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""The driver's control device, and its counterpart in the Windows Subsystem for Linux."""

FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis")
"""Packages of the extra `test` that `tests/gpu` imports."""

BESIDE_FRAMEWORKS = {"jax": ("optax", "absl-py")}
"""Packages that an engine needs besides its framework; installed only next to the framework, without dependencies."""


class NoPackages(Exception):
    """Required packages are missing; the message says which, and how to get them."""


def gpu_names() -> list[str]:
    """Return the names of the GPUs; "a GPU" if the driver is loaded but `nvidia-smi` is missing."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ["a GPU"] if any(device.exists() for device in DRIVER) else []
    return [line.strip() for line in shown.splitlines() if line.strip()]


def requirements() -> list[str]:
    """Return the requirements of polybench in pyproject.toml, and those of these tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    tests = project["optional-dependencies"]["test"]
    return [*project["dependencies"], *(one for one in tests if one.partition(">")[0] in FOR_TESTS)]


def add_missing_packages(wheels: Path, site: Path) -> Path:
    """Install the missing requirements into `site`, which is created; change nothing else.

    pip is asked first which ones are missing, because `--target` alone would install all of them again, including
    NumPy.

    Raises:
        NoPackages: `wheels` lacks some of them.
    """
    site.mkdir(exist_ok=True)
    files = _missing(requirements(), wheels)
    for framework, names in BESIDE_FRAMEWORKS.items():
        lacking = [name for name in names if _is_installed(framework) and not _is_installed(name)]
        files += _missing(lacking, wheels, "--no-deps") if lacking else []
    if files:
        _pip("install", "--no-index", "--no-deps", "--upgrade", "--target", str(site), *files)
    return site


def _missing(wanted: list[str], wheels: Path, *options: str) -> list[str]:
    """Return the wheels that pip would install for these requirements."""
    where = ["--find-links", str(wheels.resolve())] if wheels.is_dir() else []
    report = json.loads(_pip("install", "--dry-run", "--report", "-", "--no-index", *options, *where, *wanted))
    urls = (one["download_info"]["url"] for one in report["install"])
    return [unquote(urlparse(url).path) for url in urls]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    raise NoPackages(
        f"{(lines or ['pip printed nothing'])[-1]}\n"
        "On a machine with a package index, `python -m tests.gpu.wheels` makes a folder of what is needed;"
        " bring it along, and name it with --wheels."
    )


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True

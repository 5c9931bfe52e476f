"""What is on this machine: its GPUs, and polybench's own packages, added where they are missing."""

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
"""The driver's control device; the second is its counterpart in the Windows Subsystem for Linux."""

FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis")
"""Of the extra `test`, what `tests/gpu` imports."""

BESIDE_FRAMEWORKS = {"jax": ("optax", "absl-py")}
"""What an engine needs beside its framework: asked for where that framework is, and without what it needs."""


class NoPackages(Exception):
    """Packages are missing and were not brought along; the text says which and what to do."""


def gpu_names() -> list[str]:
    """Of the GPUs that the driver shows; "a GPU" where it is there and its program `nvidia-smi` is not."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ["a GPU"] if any(device.exists() for device in DRIVER) else []
    return [line.strip() for line in shown.splitlines() if line.strip()]


def requirements() -> list[str]:
    """polybench's own, as pyproject.toml has them, and those of these tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    tests = project["optional-dependencies"]["test"]
    return [*project["dependencies"], *(one for one in tests if one.partition(">")[0] in FOR_TESTS)]


def add_missing_packages(wheels: Path, site: Path) -> Path:
    """Install into `site`, which is made, what is missing of the requirements; nothing else is touched.

    pip decides what is missing, and `--target` alone would install all of it again, NumPy too: so it is
    asked first.

    Raises:
        NoPackages: `wheels` has not all of them.
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
    """The wheels that pip would install for these requirements."""
    where = ["--find-links", str(wheels.resolve())] if wheels.is_dir() else []
    report = json.loads(
        _pip("install", "--dry-run", "--report", "-", "--no-index", *options, *where, *wanted)
    )
    urls = (one["download_info"]["url"] for one in report["install"])
    return [unquote(urlparse(url).path) for url in urls]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    raise NoPackages(
        f"{(lines or ['pip said nothing'])[-1]}\n"
        "On a machine with a package index, `python -m tests.gpu.wheels` makes a folder of what is needed;"
        " bring it along, and name it with --wheels."
    )


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True

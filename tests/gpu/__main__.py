"""Run all GPU tests: `python -m tests.gpu [FOLDER]` writes documents, logs and summary.md into one folder.

Exit code 0: nothing failed; 1: something failed; 2: polybench's own packages are missing; 4: the machine has no GPU.
`python -m tests.gpu download` downloads those packages on another machine. Needs only Python and pip.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).parents[2]
WHEELS = Path("build/gpu-wheels")

SECONDS = 530.0
"""With the ten for the tests to end, nine minutes: leaves one of ten for copying the folder."""

DRIVER = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""The driver's control device, and its counterpart in the Windows Subsystem for Linux."""

FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis")
"""Packages of the extra `test` that `tests/gpu` imports."""

BESIDE_FRAMEWORKS = {"jax": ("optax", "absl-py")}
"""Packages that an engine needs besides its framework; installed only next to the framework, without dependencies."""

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")

FILES = ("test_on_torch.py", "test_on_jax.py", "test_on_nvml.py", "test_on_tensorflow.py", "test_on_flux.py")
"""The most important files come first, because the time may run out; `test_studies.py` follows them."""


class NoPackages(Exception):
    """Required packages are missing; the message lists them, with the command that gets them."""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["download"]:
        return download(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/gpu"), help="for all that is written")
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="missing packages; python -m tests.gpu download")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--rehearse", action="store_true", help="the same studies with the engine `fake` on the CPU")
    parser.add_argument("-k", default="", help="select tests, as in pytest")
    asked = parser.parse_args(arguments)
    if not gpu_names() and not asked.rehearse:
        print("No NVIDIA GPU was found, so no CUDA code can be tested.", file=sys.stderr)
        return 4
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        added = add_missing_packages(asked.wheels, asked.folder / "site")
    except NoPackages as missing:
        print(missing, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", "gpu", "-k", asked.k, "-p", "no:cacheprovider"]
    command += ["--override-ini=addopts=--strict-markers", f"--gpu-folder={asked.folder.resolve()}"]
    command += [f"--gpu-seconds={asked.seconds}", *(["--rehearse"] if asked.rehearse else [])]
    command += [f"tests/gpu/{file}" for file in (*FILES, "test_studies.py")]
    search_path = os.pathsep.join(filter(None, [str(added.resolve()), os.environ.get("PYTHONPATH", "")]))
    return _run(command, asked.seconds + 10, os.environ | {"PYTHONPATH": search_path})


def _run(command: list[str], seconds: float, environment: dict[str, str]) -> int:
    """Run the tests in their own session, and end all its processes after that time; return the exit code."""
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as tests:
        try:
            # pytest's codes: 1: a test failed; 5: no test was run.
            return {0: 0, 5: 0}.get(tests.wait(seconds), 1)
        except subprocess.TimeoutExpired:
            print(f"Stopped after {seconds:.0f} s; summary.md has the tests that ended before.", file=sys.stderr)
            return 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(tests.pid, signal.SIGKILL)


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
        "On a machine with a package index, `python -m tests.gpu download` writes a folder with what is needed;"
        " copy it to this machine, and name it with --wheels."
    )


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def download(arguments: list[str]) -> int:
    """Download polybench's own packages for x86-64, without NumPy and the frameworks: less than 64 MiB."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu download", description=download.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=WHEELS)
    parser.add_argument("--python", default=".".join(map(str, sys.version_info[:2])), help="of that machine")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    for old in asked.folder.glob("*.whl"):
        old.unlink()
    target = ["--python-version", asked.python, "--implementation", "cp", "--only-binary=:all:"]
    target += ["--dest", str(asked.folder), *(f"--platform={platform}" for platform in PLATFORMS)]
    beside = [name for names in BESIDE_FRAMEWORKS.values() for name in names]
    for wanted in (requirements(), ["--no-deps", *beside]):
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "download", *target, *wanted], check=True)
    for numpy in asked.folder.glob("numpy-*.whl"):
        numpy.unlink()
    mebibytes = {wheel.name: wheel.stat().st_size / 2**20 for wheel in sorted(asked.folder.glob("*.whl"))}
    for name, size in (mebibytes | {f"in {asked.folder}": sum(mebibytes.values())}).items():
        print(f"{size:7.2f} MiB  {name}")
    return 0 if sum(mebibytes.values()) < 64 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

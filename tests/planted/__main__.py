"""Plant every bug, one at a time, and print those that no test noticed: `python -m tests.planted [AREA ...]`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from tests.planted import ROOT, Bug, areas, bugs

COPIED = (
    "polybench",
    "tests",
    "julia",
    "benchmarks",
    "docs",
    "examples",
    "pyproject.toml",
    "Project.toml",
    "README.md",
)
TIMEOUT = 600.0
"""Seconds after which a planted bug counts as noticed: the tests hang."""

_FAILED, _NOTHING_SELECTED = 1, 5
"""pytest's exit codes."""


def main(chosen: Sequence[str]) -> int:
    """Return 1 if a bug survived or its test file fails without it."""
    with tempfile.TemporaryDirectory(prefix="polybench-planted-") as name:
        folder = Path(name)
        for part in COPIED:
            source = ROOT / part
            shutil.copytree(source, folder / part) if source.is_dir() else shutil.copy(source, folder / part)
        rows = []
        for area in chosen or areas():
            found = [(bug, *_noticed(bug, folder)) for bug in bugs(area)]
            rows.append([area, len(found), sum(noticed for _, noticed, _ in found), sum(took for *_, took in found)])
            for bug, noticed, took in found:
                print(f"{'killed' if noticed else 'LIVES':6}  {took:5.1f} s  {area}: {bug.kind}  ({bug.killed_by})")
    print(tabulate(rows, ["area", "bugs", "killed", "seconds"], floatfmt=".0f"))
    return int(any(planted != killed for _, planted, killed, _ in rows))


def _noticed(bug: Bug, folder: Path) -> tuple[bool, float]:
    """Plant the bug in the copy of the repository; return if its test file failed, and the seconds that it took."""
    file = folder / bug.file
    text, start = file.read_text("utf-8"), time.perf_counter()
    file.write_text(bug.planted(text), "utf-8")
    try:
        code = _run(bug.killed_by, folder)
    finally:
        file.write_text(text, "utf-8")
    if code == _NOTHING_SELECTED:
        raise SystemExit(f"{bug.killed_by} has no test of the gate")
    return code == _FAILED, time.perf_counter() - start


def _run(test_file: str, folder: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not wide", "-p", "no:cacheprovider", test_file]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

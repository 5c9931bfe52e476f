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
    ".gitignore",
)
TIMEOUT = 600.0
"""Seconds after which a planted bug counts as noticed: the tests hang."""

_PASSED, _FAILED = 0, 1
"""pytest's exit codes."""


def main(chosen: Sequence[str]) -> int:
    """Return 1 if a bug survived; SystemExit if a test file fails without any."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="polybench-planted-") as name:
        folder = Path(name)
        for part in COPIED:
            source = ROOT / part
            shutil.copytree(source, folder / part) if source.is_dir() else shutil.copy(source, folder / part)
        for command in (["init", "--quiet"], ["add", "."]):  # tests ask Git for the tracked files
            subprocess.run(["git", "-C", name, *command], check=True)
        passed: set[str] = set()
        for area in chosen or areas():
            start, killed = time.perf_counter(), 0
            for bug in bugs(area):
                if bug.killed_by not in passed and _run(bug.killed_by, folder) != _PASSED:
                    raise SystemExit(f"{bug.killed_by} fails without a planted bug, or has no test of the gate")
                passed.add(bug.killed_by)
                noticed = _noticed(bug, folder)
                killed += noticed
                print(f"{'killed' if noticed else 'LIVES':6}  {area}: {bug.kind}  ({bug.killed_by})", flush=True)
            rows.append([area, len(bugs(area)), killed, time.perf_counter() - start])
    print(tabulate(rows, ["area", "bugs", "killed", "seconds"], floatfmt=".0f"))
    return int(any(planted != killed for _, planted, killed, _ in rows))


def _noticed(bug: Bug, folder: Path) -> bool:
    """Plant the bug in the copy of the repository; return True if its test file failed."""
    file = folder / bug.file
    text = file.read_text("utf-8")
    file.write_text(bug.planted(text), "utf-8")
    try:
        return _run(bug.killed_by, folder) == _FAILED
    finally:
        file.write_text(text, "utf-8")


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

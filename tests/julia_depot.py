"""The Julia depot of the tests; `python -m tests.julia_depot` compiles the package in advance.

Julia stores compiled code of a package by project, not by the package's folder. Checkouts that share a depot
invalidate each other's code, which takes two minutes to compile. A test run would do so to the user's.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, NAME, PROJECT, check, find
from polybench.engines.flux.julia.environment import own_environment
from polybench.errors import EngineUnavailable

DEPOT = Path(__file__).parents[1] / "build" / "julia"
"""The first depot, before the user's, whose packages are found as well; kept for later runs."""


def variables() -> dict[str, str]:
    """Return variables with the user's Julia and the depots; empty without Julia."""
    try:
        julia = find()
    except EngineUnavailable:
        return {}
    # The empty entry stands for Julia's own depots.
    user_depots = os.environ.get("JULIA_DEPOT_PATH") or julia.depot or f"{Path.home() / '.julia'}:"
    try:
        check(julia)
        julia = own_environment(julia, DEPOT / "project")
    except EngineUnavailable:  # tests that need Julia are skipped with a reason
        pass
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        "JULIA_DEPOT_PATH": user_depots if user_depots.startswith(f"{DEPOT}:") else f"{DEPOT}:{user_depots}",
    }


@functools.cache
def compile_packages() -> int:
    """Compile the package, or wait for a process that does; return Julia's exit status, or 0 without Julia."""
    os.environ |= variables()
    try:
        check(julia := find())
    except EngineUnavailable as missing:
        print(missing.reason, file=sys.stderr)
        return 0
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", f"using {NAME}"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(compile_packages())

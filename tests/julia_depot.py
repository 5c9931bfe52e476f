"""Where Julia keeps what tests have it compile; `python -m tests.julia_depot` compiles it beforehand.

Julia keeps what it compiled of a package by project, and not by the package's folder: checkouts in one depot
throw each other's away, and two minutes of compilation with it. A test run would do so to the user.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, check, find
from polybench.engines.flux.julia.own_project import with_own_package
from polybench.engines.flux.julia.package import NAME, package_folder

DEPOT = Path(__file__).parents[1] / "build" / "julia"
"""Before the depots of the user, whose packages are found as well; kept for the next run."""


def variables() -> dict[str, str]:
    """The Julia that a user's polybench would find here, and the depots; nothing where there is no Julia."""
    try:
        julia = find()
    except Unavailable:
        return {}
    theirs = os.environ.get(
        "JULIA_DEPOT_PATH", f"{Path.home() / '.julia'}:"
    )  # empty: those that Julia brings
    try:
        check(julia)
        julia = with_own_package(julia, DEPOT / "project")
    except Unavailable:  # tests that need it say so
        pass
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        "JULIA_DEPOT_PATH": theirs if theirs.startswith(f"{DEPOT}:") else f"{DEPOT}:{theirs}",
    }


def main() -> int:
    """Julia's exit status; 0 where there is none that could be asked."""
    os.environ |= variables()
    try:
        check(julia := find())
    except Unavailable as missing:
        print(missing.reason, file=sys.stderr)
        return 0
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "-e", f"using {NAME}"]
    path = os.environ | {"JULIA_LOAD_PATH": f"@:{package_folder()}:@stdlib"}
    return subprocess.run(command, env=path, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

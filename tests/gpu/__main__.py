"""Run all GPU checks: `python -m tests.gpu [FOLDER]` writes documents, logs and summary.md into one folder.

Exit code 0: nothing failed; 1: something failed; 2: polybench's own packages are missing; 4: there is no
GPU. Imports only the standard library until it has found a GPU and the packages.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.gpu.machine import NoPackages, add_missing_packages, gpu_names

SECONDS = 540.0
"""Nine minutes: leaves one of ten for copying the folder."""

WHEELS = Path("build/gpu-wheels")


def main(arguments: list[str]) -> int:
    asked = _parser().parse_args(arguments)
    gpus = gpu_names()
    if not gpus and not asked.rehearse:
        print("No NVIDIA GPU was found, so no CUDA code can be tested.", file=sys.stderr)
        return 4
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        added = add_missing_packages(asked.wheels, asked.folder / "site")
    except NoPackages as missing:
        print(missing, file=sys.stderr)
        return 2
    sys.path[:0] = [str(added)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(added), os.environ.get("PYTHONPATH", "")]))

    from tests.gpu.run_steps import tell  # needs the packages added above

    only = frozenset(filter(None, asked.only.split(",")))
    return tell(gpus, asked.folder.resolve(), asked.seconds, rehearse=asked.rehearse, only=only)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/gpu"), help="for all that is made")
    parser.add_argument(
        "--wheels", type=Path, default=WHEELS, help="packages that are missing; python -m tests.gpu.wheels"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--only", default="", help="steps by the names of their folders: tests-torch,sweep")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="the same steps with the engine `fake` on the CPU, without a GPU",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

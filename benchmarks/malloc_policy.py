"""Measure page faults of programs as users write them, and the effect of retaining freed memory.

Each program of `programs/` trains LeNet like its framework's tutorial, in fresh processes with the C
library's default and with retained memory, in random order. Prints page faults per step and
the ratio of step times. `--malloc retain` removes the variation of page faults between equal programs.

    python benchmarks/malloc_policy.py [--pairs 3] [--programs pytorch,keras,flux] [--images 1000,10000,50000]
        [--batch-sizes 4,128]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from tabulate import tabulate

from polybench.engines.flux.julia.discovery import check, find
from polybench.machine import host
from polybench.protocol.environment import inherited_env_vars, malloc_env_vars
from polybench.schema.options import Malloc

PROGRAMS = Path(__file__).parent / "programs"
POLICIES: tuple[Malloc, ...] = ("system", "retain")
_CASES = {"pytorch": ("array", "list", "file"), "keras": ("array", "list"), "flux": ("array", "list")}
_FILES = {"pytorch": "pytorch_loader.py", "keras": "keras_fit.py", "flux": "flux_loader.jl"}


def command(program: str) -> list[str]:
    """Return the command of a program without its arguments."""
    script = str(PROGRAMS / _FILES[program])
    if program != "flux":
        return [sys.executable, script]
    check(julia := find())
    return [julia.executable, f"--project={julia.project}", f"--threads={host.usable_threads()}", script]


def run(program: str, malloc: Malloc, arguments: list[str]) -> tuple[float, float]:
    """Return the median seconds of a step, and its median page faults."""
    threads = str(host.usable_threads())
    pools = {"OMP_NUM_THREADS": threads, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command(program), *arguments],
        env=inherited_env_vars(os.environ) | pools | malloc_env_vars(malloc),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{program} {arguments} failed:\n{done.stderr}")
    said = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(said["step_seconds"]), statistics.median(said["page_faults"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--programs", default="pytorch,keras,flux")
    parser.add_argument("--images", default="1000,10000,50000")
    parser.add_argument("--batch-sizes", default="4,128")
    options = parser.parse_args()
    rows = []
    for program in options.programs.split(","):
        cases = itertools.product(options.images.split(","), options.batch_sizes.split(","), _CASES[program])
        for images, batch_size, how in cases:
            found: dict[Malloc, list[tuple[float, float]]] = {malloc: [] for malloc in POLICIES}
            for _ in range(options.pairs):
                for malloc in random.sample(POLICIES, 2):
                    found[malloc].append(run(program, malloc, [images, batch_size, "0", how]))
            ratios = [
                retain / system for (retain, _), (system, _) in zip(found["retain"], found["system"], strict=True)
            ]
            faults = {malloc: [round(count) for _, count in runs] for malloc, runs in found.items()}
            milliseconds = 1e3 * statistics.median(seconds for seconds, _ in found["system"])
            rows.append(
                (
                    program,
                    images,
                    batch_size,
                    how,
                    f"{min(faults['system']):,} to {max(faults['system']):,}",
                    f"{min(faults['keep']):,} to {max(faults['keep']):,}",
                    f"{milliseconds:.2f}",
                    f"{statistics.geometric_mean(ratios):.3f}",
                )
            )
            print("  ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
    titles = ["program", "images", "batch", "images from", "faults: system", "faults: keep", "ms", "keep / system"]
    print(tabulate(rows, titles))


if __name__ == "__main__":
    main()

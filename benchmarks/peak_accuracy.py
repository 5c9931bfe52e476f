"""Compare `polybench peak` with matrix products in plain programs: NumPy, PyTorch and Julia.

Each round measures `polybench peak` again and, before and after it, the programs, each in a process of its
own. The peak should be within a tenth of the best of them. A round takes two to four minutes.

    python benchmarks/peak_accuracy.py [--engines torch,flux] [--rounds 3] [--threads 2] [--julia julia]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

from _report import Figure, report

SIZES = (768, 1024, 1536, 2048)
TARGET = 0.1

NUMPY = """
import sys, time, numpy as np
n = int(sys.argv[1])
a, b = (np.random.default_rng(0).standard_normal((n, n), np.float32) for _ in range(2))
c = np.empty_like(a)
times = []
for _ in range(20):
    start = time.perf_counter(); np.matmul(a, b, out=c); times.append(time.perf_counter() - start)
print(sorted(times)[10])
"""
TORCH = """
import sys, time, torch
n, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
a, b, c = (torch.randn(n, n) for _ in range(3))
times = []
for _ in range(20):
    start = time.perf_counter(); torch.mm(a, b, out=c); times.append(time.perf_counter() - start)
print(sorted(times)[10])
"""
JULIA = """
using LinearAlgebra
n, threads = parse.(Int, ARGS)
BLAS.set_num_threads(threads)
a, b, c = (rand(Float32, n, n) for _ in 1:3)
mul!(c, a, b)
println(sort([(@elapsed mul!(c, a, b)) for _ in 1:20])[11])
"""


def programs(julia: str | None) -> dict[str, list[str]]:
    """Return command lines that print the median seconds of a product; the next argument is the size."""
    found = {"NumPy": [sys.executable, "-c", NUMPY], "PyTorch": [sys.executable, "-c", TORCH]}
    if julia:
        found["Julia"] = [julia, "--startup-file=no", "-e", JULIA, "--"]
    return found


def best(threads: int, julia: str | None) -> tuple[float, str]:
    """Return FLOP/s of the fastest plain program and size, and its name."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    found = []
    for name, command in programs(julia).items():
        for size in SIZES:
            run = subprocess.run(
                [*command, str(size), str(threads)],
                capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            found.append((2 * size**3 / float(run.stdout), f"{name}, {size}"))
    return max(found)


def roof(engines: str, threads: int) -> float:
    """Return FLOP/s of the products that `polybench peak` finds."""
    command = ["peak", "--remeasure", "--engines", engines, "--threads", str(threads), "--format", "json"]
    run = subprocess.run([sys.executable, "-m", "polybench", *command], capture_output=True, text=True, check=True)
    return max(float(one["value"]) for one in json.loads(run.stdout)["roofs"] if one["kind"] == "gemm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="torch,flux", help="of polybench peak; NumPy is always there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--julia", default=shutil.which("julia"), help="a Julia without packages will do")
    options = parser.parse_args()
    ratios, fastest = [], []
    before = best(options.threads, options.julia)
    for _ in range(options.rounds):
        measured = roof(options.engines, options.threads)
        after = best(options.threads, options.julia)
        ratios.append(measured / math.sqrt(before[0] * after[0]))
        fastest.append(after[1])
        print(f"peak {measured / 1e9:.1f}, best {before[0] / 1e9:.1f} and {after[0] / 1e9:.1f} GFLOP/s")
        before = after
    ratio = statistics.median(ratios)
    what = f"peak / best plain program, median of {options.rounds} rounds"
    within = abs(ratio - 1) <= TARGET
    report("roofs", [Figure(what, ratio, f"within {TARGET:.0%}", within)], ratios=ratios, fastest=fastest)


if __name__ == "__main__":
    main()

"""Use the GPU while other programs run: `python -m tests.gpu.gpu_load --leave MIB`, or `--busy`.

It allocates all memory except some MiB, or a little memory and multiplies matrices with pauses. It allocates
memory with cudaMalloc through PyTorch's allocator, and prints a line when it is ready.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def gpu_load(*arguments: str, rehearsed: bool = False) -> Iterator[None]:
    """Run this program in the background; skip the test if it does not start."""
    if rehearsed:
        yield
        return
    command = [sys.executable, "-m", "tests.gpu.gpu_load", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout.readline():
                pytest.skip(f"nothing uses the GPU: {process.stderr.read()[-200:]}")
            yield
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--leave", type=int)
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    matrix = torch.ones(1024, 1024, device="cuda")
    held = None
    if asked.leave is not None:
        matrix @ matrix  # including cuBLAS's own memory
        torch.cuda.synchronize()
        free, _ = torch.cuda.mem_get_info()
        held = torch.empty(max(1, free - (asked.leave << 20)), dtype=torch.uint8, device="cuda")
    print("ready", 0 if held is None else held.numel(), flush=True)
    while True:
        if asked.busy:
            matrix @ matrix
            torch.cuda.synchronize()
        time.sleep(0.01)


if __name__ == "__main__":
    main()

"""What the observer takes for itself: CPU time of this process while it watches blocks and does nothing else.

The blocks are as long as a study's (half a second) and follow one another without a break, which is the most
that a study asks of it. Without an NVIDIA driver the GPU's readings come from the tests' fake one: then the
figure has all of the thread and of polybench, but not the time that NVML takes to answer; the last line says
which it was (`driver`). The processor's energy is read where it may be. Takes about a minute.

    python benchmarks/sampler.py [--seconds 30] [--block 0.5]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from _report import Figure, report

from polybench.machine.meters import nvml
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.rapl import Rapl

TARGET = 0.01


def cpu_share(device: str, seconds: float, block: float) -> float:
    """CPU seconds of this process for each second that it watches."""
    observer = Observer({device})
    cpu, start = time.process_time(), time.monotonic()
    while time.monotonic() - start < seconds:
        with observer.block(os.getpid(), device, [os.getpid()]) as usage:
            time.sleep(block)
    share = (time.process_time() - cpu) / (time.monotonic() - start)
    if device != "cpu" and (usage.gpu is None or not usage.gpu.samples):
        sys.exit(f"nothing was sampled: {usage.failures}")
    observer.close()
    return share


def driver() -> str:
    """The real driver, or the tests' fake one put in its place."""
    library = nvml.load()
    try:
        library.nvmlInit()
    except library.NVMLError:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from tests.machine.meters.fake_nvml import FakeNvml

        fake = FakeNvml()
        nvml.load = lambda: fake
        return "fake"
    return "real"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of watching, for each device")
    parser.add_argument("--block", type=float, default=0.5, help="seconds of a block")
    options = parser.parse_args()
    which = driver()
    figures = []
    for device in ("cpu", "cuda"):
        share = cpu_share(device, options.seconds, options.block)
        what = f"CPU time of watching a {device} cell, of one core"
        figures.append(Figure(what, share, f"at most {TARGET}", share <= TARGET))
    report("sampler", figures, driver=which, rapl=not Rapl().problem, block=options.block)


if __name__ == "__main__":
    main()

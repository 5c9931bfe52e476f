"""Measure the observer's own CPU time: it observes blocks, and this process does nothing else.

The blocks are as long as a study's (half a second) and follow one another without a break, which is the maximum
in a study. Without an NVIDIA driver, GPU readings come from the tests' simulated driver. The
figure then includes the thread and polybench's code, but not the response time of NVML; the last line names
the driver (`driver`). CPU energy is read if that is allowed. Takes about a minute.

    python benchmarks/sampler.py [--seconds 30] [--block 0.5]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pynvml
import pytest
from _report import Figure, report

from polybench.machine.meters.observer import Observer
from polybench.machine.meters.rapl import Rapl

TARGET = 0.01


def cpu_share(device: str, seconds: float, block: float) -> float:
    """Return CPU seconds of this process per observed second."""
    observer = Observer({device})
    cpu, start = time.process_time(), time.monotonic()
    while time.monotonic() - start < seconds:
        with observer.watch_block(os.getpid(), device, [os.getpid()]) as usage:
            time.sleep(block)
    share = (time.process_time() - cpu) / (time.monotonic() - start)
    if device != "cpu" and (usage.gpu is None or not usage.gpu.samples):
        sys.exit(f"nothing was sampled: {usage.failures}")
    observer.close()
    return share


def driver() -> str:
    """Return the real driver, or install the tests' simulated one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from tests.machine.meters.simulated_driver import Driver, install

        install(pytest.MonkeyPatch(), Driver("h100"))
        return "simulated"
    return "real"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of watching, for each device")
    parser.add_argument("--block", type=float, default=0.5, help="seconds of a block")
    options = parser.parse_args()
    which = driver()
    figures = []
    for device in ("cpu", "cuda"):
        share = cpu_share(device, options.seconds, options.block)
        what = f"CPU time of observing a {device} configuration, of one core"
        figures.append(Figure(what, share, f"at most {TARGET}", share <= TARGET))
    report("sampler", figures, driver=which, rapl=not Rapl().problem, block=options.block)


if __name__ == "__main__":
    main()

"""NVML's readings compared with `nvidia-smi`, and with each other, while a GPU is busy."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from polybench.machine.meters.gpu import Gpu, GpuSample
from tests.gpu.gpu_load import gpu_load

pytestmark = pytest.mark.gpu

FIELDS = ("utilization.gpu", "power.draw", "clocks.sm", "clocks.mem", "temperature.gpu", "memory.used")
Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    """Provide the first GPU while a process multiplies matrices on it."""
    with gpu_load("--busy"):
        time.sleep(2)
        pynvml.nvmlInit()
        yield Gpu(0)
        pynvml.nvmlShutdown()


def look(gpu: Gpu, failures: dict[str, str]) -> GpuSample:
    return gpu.sample(os.getpid(), (os.getpid(),), failures)


def smi() -> dict[str, float]:
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "--id=0"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    pairs = zip(FIELDS, shown.strip().split(","), strict=True)
    return {name: float(text) for name, text in pairs if text.strip().replace(".", "").isdigit()}


def test_nvml_agrees_with_nvidia_smi(gpu: Gpu, record_property: Note) -> None:
    failures: dict[str, str] = {}
    before, theirs, after = look(gpu, failures), smi(), look(gpu, failures)
    used = gpu.used_bytes()
    record_property("found", f"{after}, failures {failures}; nvidia-smi: {theirs}")
    for name, ours, slack in (
        ("utilization.gpu", (before.gpu_percent, after.gpu_percent), 25),
        ("power.draw", (before.power, after.power), 60),
        ("clocks.sm", (before.sm_clock, after.sm_clock), 200),
        ("clocks.mem", (before.memory_clock, after.memory_clock), 20),
        ("temperature.gpu", (before.temperature, after.temperature), 3),
        ("memory.used", (used and used / 2**20, used and used / 2**20), 700),
    ):
        low, high = ours
        if name in theirs and low is not None and high is not None:
            assert min(low, high) - slack <= theirs[name] <= max(low, high) + slack, name
        else:
            assert name not in theirs, f"nvidia-smi reads {name}, and NVML did not: {failures}"


def test_the_energy_counter_is_the_integral_of_power(gpu: Gpu, record_property: Note) -> None:
    failures: dict[str, str] = {}
    first, start = gpu.joules(failures), time.monotonic()
    powers = []
    for _ in range(15):
        time.sleep(0.2)
        powers.append(look(gpu, failures).power)
    last, seconds = gpu.joules(failures), time.monotonic() - start
    known = [power for power in powers if power is not None]
    if first is None or last is None or not known:
        pytest.skip(f"not read here: {failures}")
    watts, mean = (last - first) / seconds, sum(known) / len(known)
    record_property("found", f"{watts:.1f} W by the counter, {mean:.1f} W by power")
    assert watts == pytest.approx(mean, rel=0.25)


def test_a_second_process_on_the_gpu_is_detected(gpu: Gpu, record_property: Note) -> None:
    running = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    record_property("found", [(process.pid, process.usedGpuMemory) for process in running])
    if not any(Path(f"/proc/{process.pid}").exists() for process in running):
        pytest.skip("NVML lists no process by its number here, as in many containers")
    ours = running[0].pid
    assert gpu.sample(ours, (ours,), {}).other_processes == len(running) - 1
    assert gpu.sample(ours, (), {}).other_processes == len(running)

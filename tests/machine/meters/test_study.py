"""Whole studies with the fake engine, in real processes, on a simulated GPU."""

from __future__ import annotations

import threading
from typing import Any

import psutil
import pytest

from polybench.data import synthetic
from polybench.results.usage import NVML_BY_DIFFERENCE, NVML_BY_PROCESS
from polybench.run import run_study
from polybench.runner.progress import NullProgress
from polybench.schema.options import Study
from polybench.schema.resources import Energy, Utilization
from polybench.schema.study import StudyDocument
from tests.machine.meters.conftest import Install
from tests.machine.meters.simulated_driver import PROCESSES, Driver, process

MIB = 1 << 20


def run(devices: tuple[str, ...], engines: tuple[str, ...] = ("fake",), **fields: Any) -> StudyDocument:
    study = Study(
        engines, devices, data="synthetic", processes=1, rounds_per_process=3, steps_per_round=5, timeout=60.0, **fields
    )
    return run_study(study, NullProgress(), store=None)


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def driver(driver_with: Install) -> Driver:
    """Simulated driver that lists the workers that may use a GPU."""
    driver = driver_with("h100")
    (card,) = driver.cards

    def list_workers() -> None:
        workers = [
            child.pid
            for child in psutil.Process().children()
            # Excludes workers of other tests in this process.
            if "polybench.worker" in child.cmdline() and child.environ().get("CUDA_VISIBLE_DEVICES") != ""
        ]
        card[PROCESSES] = [process(pid, 512 * MIB) for pid in workers]
        card["nvmlDeviceGetMemoryInfo"] = {"used": (4 + 600 * len(workers)) * MIB}

    driver.before = list_workers
    card["nvmlDeviceGetCurrentClocksEventReasons"] = 0
    return driver


def test_each_configuration_has_the_usage_of_its_device(driver: Driver) -> None:
    document = run(("cpu", "cuda"), replicas=(1, 2), threads=2)
    assert [result.status for result in document.results] == ["ok"] * 4
    on_cpu, on_gpu = (document.result(f"fake/{device}").utilization for device in ("cpu", "cuda"))
    assert on_cpu.cpu_percent is not None
    assert on_cpu.gpu_percent is None
    assert (on_gpu.gpu_percent, on_gpu.temperature, on_gpu.throttle_reasons) == (96.0, 61.0, [])
    assert on_gpu.power is not None
    result = document.result("fake/cuda")
    assert (result.memory.device_nvml_bytes, result.memory.device_nvml_source) == (512 * MIB, NVML_BY_PROCESS)
    assert result.memory.peak_rss_bytes is not None
    assert result.energy.joules_per_epoch == pytest.approx(on_gpu.power * result.epoch_seconds)
    assert result.warnings == []
    assert document.result("fake/cuda/2x").energy == Energy()  # the meters read one GPU
    assert driver.sessions == 0


def test_memory_in_a_container_is_what_a_worker_frees_at_its_end(driver: Driver) -> None:
    driver.refuse[PROCESSES] = "NOT_SUPPORTED"
    document = run(("cuda",), ("fake", "fake+slow"))
    for result in document.results:
        memory = result.memory
        assert (memory.device_nvml_bytes, memory.device_nvml_source) == (600 * MIB, NVML_BY_DIFFERENCE)
        assert "cannot read processes (Not Supported)" in result.warnings


def test_lost_gpu_is_a_warning_and_not_a_failure(driver: Driver) -> None:
    readings = iter(range(1_000_000))
    list_workers = driver.before

    def break_down() -> None:
        if next(readings) == 20:
            driver.refuse["*"] = "GPU_IS_LOST"
        list_workers()

    driver.before = break_down
    result = run(("cuda",)).result("fake/cuda")
    assert result.status == "ok"
    assert result.is_measured
    (warning,) = [text for text in result.warnings if "cannot read" in text]
    assert "GPU is lost" in warning


def test_nothing_is_observed_without_metrics(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    driver.before = lambda: pytest.fail("the driver was called")
    result = run(("cuda",), metrics=False).result("fake/cuda")
    assert result.is_measured
    assert result.utilization == Utilization()

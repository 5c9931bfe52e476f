"""Readings of recorded devices through the real pynvml: units, structures, errors and missing readings."""

from __future__ import annotations

import os

import pytest

from polybench.machine.meters import nvml, sampler
from polybench.machine.meters.availability import gpus
from polybench.machine.meters.nvml import Gpu
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.usage import GpuSample
from tests.machine.meters.recorded import install

PID = 4321


def read(monkeypatch: pytest.MonkeyPatch, card: str) -> tuple[GpuSample, dict[str, str], Gpu]:
    install(monkeypatch, card)
    failures: dict[str, str] = {}
    gpu = Gpu(nvml.load(), 0)
    return gpu.sample(PID, (PID,), failures), failures, gpu


def test_h100_has_all_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, gpu = read(monkeypatch, "h100")
    assert found == GpuSample(96, 512.304, 1980, 2619, 61, 4, 1_910_505_472, 1)
    assert failures == {}
    assert gpu.used_bytes() == 5_520_809_984
    assert gpu.joules(failures) == pytest.approx(9_876_543.21)


def test_old_card_has_no_energy_counter_and_no_memory_per_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, failures, gpu = read(monkeypatch, "gtx_1080")
    assert found == GpuSample(87, 171.25, 1847, 4513, 74, 0x20, None, 0)
    assert failures == {}
    assert gpu.joules(failures) is None
    assert failures == {"energy": "Not Supported"}


def test_card_without_a_power_reading_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, _ = read(monkeypatch, "laptop")
    assert found == GpuSample(55, None, 1395, 5001, 66, 0, None, None)
    assert failures == {"power": "Not Supported", "processes": "Insufficient Permissions"}


def test_card_in_mig_mode_has_no_utilization(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, gpu = read(monkeypatch, "a100_mig")
    assert found == GpuSample(None, 68.041, 1095, 1215, 38, 1, None, None)
    assert failures == {"utilization": "Not Supported"}
    assert gpu.used_bytes() is None


def test_mig_partition_is_not_read_as_the_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "a100_mig")
    observer = Observer(["cuda"], environment={"CUDA_VISIBLE_DEVICES": "MIG-77d0b6a5"})
    with observer.watch_block(os.getpid(), "cuda", ()) as usage:
        pass
    assert "is a MIG partition of a GPU" in usage.failures["GPU"]


def test_gpu_lost_in_a_block_is_reported_without_failing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, "h100")
    monkeypatch.setattr(sampler, "INTERVAL_SECONDS", 0.01)
    observer = Observer(["cuda"], environment={})
    with observer.watch_block(os.getpid(), "cuda", ()) as usage:
        driver.lost = True
    assert usage.gpu is not None
    assert usage.gpu.joules is None
    assert usage.gpu.failures["power"] == usage.gpu.failures["energy"] == "GPU is lost"
    observer.close()


def test_doctor_reports_the_meters_of_each_card(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "h100")
    assert all(one.available for one in gpus())
    install(monkeypatch, "laptop")
    utilization, energy = gpus()
    assert utilization.available
    assert (energy.available, energy.meter) == (False, "energy of NVIDIA GeForce MX450")


def test_library_without_a_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, "h100")
    monkeypatch.setattr(
        type(driver),
        "__getattr__",
        lambda self, name: lambda *_: nvml.load().NVML_ERROR_DRIVER_NOT_LOADED,  # type: ignore[attr-defined]
    )
    (one,) = gpus()
    assert (one.available, one.reason) == (False, "NVML: Driver Not Loaded")

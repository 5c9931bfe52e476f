"""Readings of recorded devices through the real pynvml: units, records, errors, and what a device lacks."""

from __future__ import annotations

import os

import pytest

from polybench.machine.meters import nvml, sampler
from polybench.machine.meters.diagnosis import gpus
from polybench.machine.meters.nvml import Gpu
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.usage import GpuSample
from tests.machine.meters.recorded import install

PID = 4321


def look(monkeypatch: pytest.MonkeyPatch, card: str) -> tuple[GpuSample, dict[str, str], Gpu]:
    install(monkeypatch, card)
    failures: dict[str, str] = {}
    gpu = Gpu(nvml.load(), 0)
    return gpu.sample(PID, (PID,), failures), failures, gpu


def test_an_h100_tells_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, gpu = look(monkeypatch, "h100")
    assert found == GpuSample(96, 512.304, 1980, 2619, 61, 4, 1_910_505_472, 1)
    assert failures == {}
    assert gpu.used_bytes() == 5_520_809_984
    assert gpu.joules(failures) == pytest.approx(9_876_543.21)


def test_an_old_card_has_no_energy_counter_nor_memory_by_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, failures, gpu = look(monkeypatch, "gtx_1080")
    assert found == GpuSample(87, 171.25, 1847, 4513, 74, 0x20, None, 0)
    assert failures == {}
    assert gpu.joules(failures) is None
    assert failures == {"energy": "Not Supported"}


def test_a_card_without_a_power_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, _ = look(monkeypatch, "laptop")
    assert found == GpuSample(55, None, 1395, 5001, 66, 0, None, None)
    assert failures == {"power": "Not Supported", "processes": "Insufficient Permissions"}


def test_a_divided_card_tells_nothing_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found, failures, gpu = look(monkeypatch, "a100_mig")
    assert found == GpuSample(None, 68.041, 1095, 1215, 38, 1, None, None)
    assert failures == {"utilization": "Not Supported"}
    assert gpu.used_bytes() is None


def test_a_part_of_a_divided_card_is_not_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "a100_mig")
    observer = Observer(["cuda"], environment={"CUDA_VISIBLE_DEVICES": "MIG-77d0b6a5"})
    with observer.block(os.getpid(), "cuda", ()) as usage:
        pass
    assert "is a part of a GPU (MIG)" in usage.failures["GPU"]


def test_a_driver_that_goes_away_is_said_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, "h100")
    monkeypatch.setattr(sampler, "INTERVAL_SECONDS", 0.01)
    observer = Observer(["cuda"], environment={})
    with observer.block(os.getpid(), "cuda", ()) as usage:
        driver.lost = True
    assert usage.gpu is not None
    assert usage.gpu.joules is None
    assert usage.gpu.failures["power"] == usage.gpu.failures["energy"] == "GPU is lost"
    observer.close()


def test_doctor_says_what_each_card_has(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "h100")
    assert all(finding.works for finding in gpus())
    install(monkeypatch, "laptop")
    utilization, energy = gpus()
    assert utilization.works
    assert (energy.works, energy.what) == (False, "energy of NVIDIA GeForce MX450")


def test_a_library_without_a_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, "h100")
    monkeypatch.setattr(
        type(driver),
        "__getattr__",
        lambda self, name: lambda *_: nvml.load().NVML_ERROR_DRIVER_NOT_LOADED,  # type: ignore[attr-defined]
    )
    (finding,) = gpus()
    assert (finding.works, finding.reason) == (False, "NVML: Driver Not Loaded")

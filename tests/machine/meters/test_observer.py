"""Observation of blocks on a GPU: the sampling thread's readings and its failures, which stay notes."""

from __future__ import annotations

import os
import threading

import pytest

from polybench.machine.meters import sampler
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.usage import BlockUsage
from tests.machine.meters.conftest import Install
from tests.machine.meters.fake_nvml import (
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeNvml,
    RunningProcess,
    h100,
    v100,
)

PID = os.getpid()


def watch(observer: Observer, samples: int = 3, fake: FakeNvml | None = None) -> BlockUsage:
    """Observe a block until the GPU was sampled `samples` times; without a fake the block is empty."""
    with observer.watch_block(PID, "cuda", [PID]) as usage:
        if fake is not None:
            _wait_for_readings(fake, samples)
    return usage


def _wait_for_readings(fake: FakeNvml, samples: int) -> None:
    readings = threading.Semaphore(0)
    fake.before = readings.release
    for _ in range(7 * samples):  # a sample has seven readings
        assert readings.acquire(timeout=60)


def test_block_on_a_gpu_has_samples_and_energy(install: Install) -> None:
    card = v100()
    card.running = [RunningProcess(PID, 512 << 20)]
    fake = install(FakeNvml(card))
    observer = Observer({"cpu", "cuda"}, environment={})
    usage = watch(observer, 3, fake)
    assert usage.gpu is not None
    assert len(usage.gpu.samples) >= 3
    assert usage.gpu.joules == pytest.approx(100.0)
    assert usage.gpu.seconds > 0
    assert usage.gpu.failures == usage.failures == {}
    observer.close()
    assert fake.sessions == 0


def test_block_shorter_than_the_interval_is_sampled_once(install: Install) -> None:
    install(FakeNvml())
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert len(usage.gpu.samples) >= 1


def test_gpu_that_cuda_selects_is_observed(install: Install) -> None:
    install(FakeNvml(v100(), h100()))
    usage = watch(Observer({"cuda"}, environment={"CUDA_VISIBLE_DEVICES": h100().uuid}))
    assert usage.gpu is not None
    assert usage.gpu.samples[0].sm_clock == h100().sm_clock
    unknown = watch(Observer({"cuda"}, environment={}))
    assert unknown.gpu is None
    assert "CUDA_DEVICE_ORDER" in unknown.failures["GPU"]


def test_cpu_configurations_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    with Observer({"cpu"}).watch_block(PID, "cpu", []) as usage:
        pass
    assert usage.wall_seconds > 0


def test_missing_driver_is_reported_by_the_block(install: Install) -> None:
    install(FakeNvml(refuse={"Init": LIBRARY_NOT_FOUND}))
    observer = Observer({"cuda"}, environment={})
    usage = watch(observer)
    observer.close()
    assert usage.gpu is None
    assert usage.failures == {"GPU": "NVML Shared Library Not Found"}
    assert usage.wall_seconds > 0


def test_gpu_without_an_energy_counter_has_the_other_readings(install: Install) -> None:
    install(FakeNvml(refuse={"TotalEnergyConsumption": NOT_SUPPORTED}))
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert usage.gpu.joules is None
    assert usage.gpu.failures == {"energy": "Not Supported"}
    assert usage.gpu.samples[0].power is not None


def test_readings_before_a_gpu_is_lost_are_preserved(install: Install) -> None:
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})
    with observer.watch_block(PID, "cuda", [PID]) as usage:
        _wait_for_readings(fake, 2)
        fake.refuse["*"] = GPU_IS_LOST
    assert usage.gpu is not None
    assert usage.gpu.samples[0].power is not None
    assert usage.gpu.samples[-1].power is None
    assert usage.gpu.joules is None
    assert set(usage.gpu.failures.values()) == {"GPU is lost"}


def test_any_exception_of_a_driver_stays_in_the_thread(install: Install) -> None:
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})

    def fail() -> None:
        raise OSError("unexpected")

    fake.before = fail
    usage = watch(observer)
    assert usage.gpu is not None
    assert usage.gpu.failures == {"GPU": "OSError: unexpected"}
    assert usage.gpu.samples == []


def test_thread_of_a_driver_that_never_responds_is_abandoned(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "NVML_TIMEOUT", 0.05)
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})
    answer = threading.Event()
    fake.before = answer.wait  # type: ignore[assignment]
    try:
        for _ in range(2):
            usage = watch(observer)
            assert usage.gpu is None
            assert usage.failures == {"GPU": "NVML no longer responds"}
        stuck = [thread for thread in threading.enumerate() if thread.name == "polybench-sampler"]
        assert len(stuck) == 1  # not one per block
        assert stuck[0].daemon
        observer.close()
        assert fake.sessions == 1  # a shutdown could block as well
    finally:
        answer.set()


def test_thread_ends_if_the_block_fails(install: Install) -> None:
    install(FakeNvml())
    with pytest.raises(KeyboardInterrupt), Observer({"cuda"}, environment={}).watch_block(PID, "cuda", [PID]):
        raise KeyboardInterrupt
    assert not any(thread.name == "polybench-sampler" for thread in threading.enumerate())


def test_driver_without_permission_is_reported_by_the_block(install: Install) -> None:
    install(FakeNvml(refuse={"UUID": NO_PERMISSION}))
    assert watch(Observer({"cuda"}, environment={})).failures == {"GPU": "Insufficient Permissions"}

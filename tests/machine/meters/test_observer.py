"""Observation of blocks on a GPU: the sampling thread's readings and its failures, which stay notes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from polybench.machine.meters import gpu
from polybench.machine.meters.observer import BlockUsage, Observer
from tests.machine.meters.conftest import Install
from tests.machine.meters.simulated_driver import CARDS, ENERGY, JOULES_PER_READING, PROCESSES, Driver, process

PID = os.getpid()


def watch(observer: Observer, samples: int = 0, driver: Driver | None = None) -> BlockUsage:
    """Observe a block until the GPU was sampled `samples` times."""
    with observer.watch_block(PID, "cuda", [PID]) as usage:
        if driver is not None:
            _wait_for_readings(driver, samples)
    return usage


def _wait_for_readings(driver: Driver, samples: int) -> None:
    readings = threading.Semaphore(0)
    driver.before = readings.release
    for _ in range(8 * samples):  # a sample has seven readings, one of them in two calls
        assert readings.acquire(timeout=60)


def test_block_on_a_gpu_has_samples_and_energy(driver_with: Install) -> None:
    driver = driver_with("v100")
    driver.cards[0][PROCESSES] = [process(PID, 512 << 20)]
    observer = Observer({"cpu", "cuda"}, environment={})
    usage = watch(observer, 3, driver)
    assert usage.gpu is not None
    assert len(usage.gpu.samples) >= 3
    assert usage.gpu.joules == pytest.approx(JOULES_PER_READING)
    assert usage.gpu.seconds > 0
    assert usage.gpu.failures == usage.failures == {}
    observer.close()
    assert driver.sessions == 0


def test_block_shorter_than_the_interval_is_sampled_once(driver_with: Install) -> None:
    driver_with()
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert len(usage.gpu.samples) >= 1


def test_gpu_that_cuda_selects_is_observed(driver_with: Install) -> None:
    driver_with("v100", "h100")
    usage = watch(Observer({"cuda"}, environment={"CUDA_VISIBLE_DEVICES": CARDS["h100"]["nvmlDeviceGetUUID"]}))
    assert usage.gpu is not None
    assert usage.gpu.samples[0].sm_clock == 1980
    unknown = watch(Observer({"cuda"}, environment={}))
    assert unknown.gpu is None
    assert "CUDA_DEVICE_ORDER" in unknown.failures["GPU"]
    partition = watch(Observer({"cuda"}, environment={"CUDA_VISIBLE_DEVICES": "MIG-77d0b6a5"}))
    assert "is a MIG partition of a GPU" in partition.failures["GPU"]


def test_the_cpu_time_of_a_block_is_that_of_its_worker_during_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = {17: iter([7.0, 10.0])}
    monkeypatch.setattr("polybench.machine.meters.observer.cpu_seconds", lambda pid: next(readings[pid]))
    with Observer(["cpu"], powercap=tmp_path).watch_block(17, "cpu", []) as usage:
        pass
    assert usage.cpu_seconds == 3.0


def test_cpu_configurations_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    with Observer({"cpu"}).watch_block(PID, "cpu", []) as usage:
        pass
    assert usage.wall_seconds > 0


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ({"nvmlInitWithFlags": "DRIVER_NOT_LOADED"}, "Driver Not Loaded"),
        ({"nvmlDeviceGetUUID": "NO_PERMISSION"}, "Insufficient Permissions"),
    ],
)
def test_missing_driver_or_permission_is_reported_by_the_block(
    driver_with: Install, refused: dict[str, str], reason: str
) -> None:
    driver_with(**refused)
    observer = Observer({"cuda"}, environment={})
    usage = watch(observer)
    observer.close()
    assert usage.gpu is None
    assert usage.failures == {"GPU": reason}
    assert usage.wall_seconds > 0


def test_gpu_without_an_energy_counter_has_the_other_readings(driver_with: Install) -> None:
    driver_with(**{ENERGY: "NOT_SUPPORTED"})
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert usage.gpu.joules is None
    assert usage.gpu.failures == {"energy": "Not Supported"}
    assert usage.gpu.samples[0].power is not None


def test_readings_before_a_gpu_is_lost_are_preserved(driver_with: Install) -> None:
    driver = driver_with()
    observer = Observer({"cuda"}, environment={})
    with observer.watch_block(PID, "cuda", [PID]) as usage:
        _wait_for_readings(driver, 2)
        driver.refuse["*"] = "GPU_IS_LOST"
    assert usage.gpu is not None
    assert usage.gpu.samples[0].power is not None
    assert usage.gpu.samples[-1].power is None
    assert usage.gpu.joules is None
    assert set(usage.gpu.failures.values()) == {"GPU is lost"}


def test_any_exception_of_a_driver_stays_in_the_thread(driver_with: Install) -> None:
    driver = driver_with()
    observer = Observer({"cuda"}, environment={})

    def fail() -> None:
        raise OSError("unexpected")

    driver.before = fail
    usage = watch(observer)
    assert usage.gpu is not None
    assert usage.gpu.failures == {"GPU": "OSError: unexpected"}
    assert usage.gpu.samples == []


def test_thread_of_a_driver_that_never_responds_is_abandoned(
    driver_with: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "NVML_TIMEOUT", 0.05)
    driver = driver_with()
    observer = Observer({"cuda"}, environment={})
    answer = threading.Event()
    driver.before = answer.wait
    stuck: list[threading.Thread] = []
    try:
        for _ in range(2):
            usage = watch(observer)
            assert usage.gpu is None
            assert usage.failures == {"GPU": "NVML no longer responds"}
        stuck = [thread for thread in threading.enumerate() if thread.name == "polybench-sampler"]
        assert len(stuck) == 1  # not one per block
        assert stuck[0].daemon
        observer.close()
        assert driver.sessions == 1  # a shutdown could block as well
    finally:
        answer.set()
        for thread in stuck:
            thread.join(60)


def test_thread_ends_if_the_block_fails(driver_with: Install) -> None:
    driver_with()
    with pytest.raises(KeyboardInterrupt), Observer({"cuda"}, environment={}).watch_block(PID, "cuda", [PID]):
        raise KeyboardInterrupt
    assert not any(thread.name == "polybench-sampler" for thread in threading.enumerate())

"""Watching blocks of a GPU: what the thread sees, and that nothing it meets goes further than a note."""

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
    """A block that lasts until the GPU was looked at some times; without a fake it is empty."""
    with observer.block(PID, "cuda", [PID]) as usage:
        if fake is not None:
            _wait_for_readings(fake, samples)
    return usage


def _wait_for_readings(fake: FakeNvml, samples: int) -> None:
    looks = threading.Semaphore(0)
    fake.before = looks.release
    for _ in range(7 * samples):  # a sample asks for seven things
        assert looks.acquire(timeout=60)


def test_a_block_on_a_gpu_is_sampled_and_its_energy_counted(install: Install) -> None:
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


def test_a_block_shorter_than_the_interval_is_looked_at_once(install: Install) -> None:
    install(FakeNvml())
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert len(usage.gpu.samples) >= 1


def test_the_gpu_that_cuda_means_is_watched(install: Install) -> None:
    install(FakeNvml(v100(), h100()))
    usage = watch(Observer({"cuda"}, environment={"CUDA_VISIBLE_DEVICES": h100().uuid}))
    assert usage.gpu is not None
    assert usage.gpu.samples[0].sm_clock == h100().sm_clock
    unknown = watch(Observer({"cuda"}, environment={}))
    assert unknown.gpu is None
    assert "CUDA_DEVICE_ORDER" in unknown.failures["GPU"]


def test_cpu_cells_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    with Observer({"cpu"}).block(PID, "cpu", []) as usage:
        pass
    assert usage.wall_seconds > 0


def test_without_a_driver_a_block_says_so(install: Install) -> None:
    install(FakeNvml(refuse={"Init": LIBRARY_NOT_FOUND}))
    observer = Observer({"cuda"}, environment={})
    usage = watch(observer)
    observer.close()
    assert usage.gpu is None
    assert usage.failures == {"GPU": "NVML Shared Library Not Found"}
    assert usage.wall_seconds > 0


def test_a_gpu_without_an_energy_counter_has_the_rest(install: Install) -> None:
    install(FakeNvml(refuse={"TotalEnergyConsumption": NOT_SUPPORTED}))
    usage = watch(Observer({"cuda"}, environment={}))
    assert usage.gpu is not None
    assert usage.gpu.joules is None
    assert usage.gpu.failures == {"energy": "Not Supported"}
    assert usage.gpu.samples[0].power is not None


def test_a_gpu_that_is_lost_in_mid_block_keeps_what_was_read(install: Install) -> None:
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})
    with observer.block(PID, "cuda", [PID]) as usage:
        _wait_for_readings(fake, 2)
        fake.refuse["*"] = GPU_IS_LOST
    assert usage.gpu is not None
    assert usage.gpu.samples[0].power is not None
    assert usage.gpu.samples[-1].power is None
    assert usage.gpu.joules is None
    assert set(usage.gpu.failures.values()) == {"GPU is lost"}


def test_whatever_a_driver_raises_stays_in_the_thread(install: Install) -> None:
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})

    def surprise() -> None:
        raise OSError("what is this?")

    fake.before = surprise
    usage = watch(observer)
    assert usage.gpu is not None
    assert usage.gpu.failures == {"GPU": "OSError: what is this?"}
    assert usage.gpu.samples == []


def test_a_driver_that_never_answers_is_left_behind(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "PATIENCE_SECONDS", 0.05)
    fake = install(FakeNvml())
    observer = Observer({"cuda"}, environment={})
    answer = threading.Event()
    fake.before = answer.wait  # type: ignore[assignment]
    try:
        for _ in range(2):
            usage = watch(observer)
            assert usage.gpu is None
            assert usage.failures == {"GPU": "NVML does not answer any more"}
        stuck = [thread for thread in threading.enumerate() if thread.name == "polybench-sampler"]
        assert len(stuck) == 1  # not one more for each block
        assert stuck[0].daemon
        observer.close()
        assert fake.sessions == 1  # a shutdown might never answer either
    finally:
        answer.set()


def test_the_thread_ends_with_a_block_that_fails(install: Install) -> None:
    install(FakeNvml())
    with pytest.raises(KeyboardInterrupt), Observer({"cuda"}, environment={}).block(PID, "cuda", [PID]):
        raise KeyboardInterrupt
    assert not any(thread.name == "polybench-sampler" for thread in threading.enumerate())


def test_a_driver_that_tells_nothing_of_its_gpus(install: Install) -> None:
    install(FakeNvml(refuse={"UUID": NO_PERMISSION}))
    assert watch(Observer({"cuda"}, environment={})).failures == {"GPU": "Insufficient Permissions"}

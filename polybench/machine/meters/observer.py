"""Observation of one worker during a timing block."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polybench.machine.meters.gpu import Gpu, GpuUsage, Sampler, nvml_index
from polybench.machine.meters.rapl import ALLOW_COMMAND, POWERCAP, Rapl
from polybench.machine.process_counters import cpu_seconds


@dataclass
class BlockUsage:
    """Readings of one worker during one block; `wall_seconds` includes the reset and untimed steps.

    `package_joules` has each readable processor package. `failures` maps failed readings to reasons.
    `results.usage` summarizes the blocks of a configuration.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    package_joules: dict[str, float] = field(default_factory=dict)
    gpu: GpuUsage | None = None
    failures: dict[str, str] = field(default_factory=dict)


class Observer:
    """Reads CPU time and package energy at both ends of a block, and samples a GPU in between.

    `warnings` are about readings that are missing in the whole study.
    """

    def __init__(
        self, devices: Collection[str], *, powercap: Path = POWERCAP, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.warnings: list[str] = []
        self._rapl = Rapl(powercap)
        if self._rapl.is_forbidden:  # a missing counter is common; only `doctor` reports it
            self.warnings.append(f"{self._rapl.problem}; allow it: {ALLOW_COMMAND}")
        self._uses_nvml = False
        self._gpus: dict[str, Gpu | str] = {}
        """Device -> its GPU, or the reason why it has no readings."""
        if cuda := [device for device in devices if device != "cpu"]:
            self._find_gpus(cuda, environment)

    def _find_gpus(self, devices: Collection[str], environment: Mapping[str, str]) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
            self._uses_nvml = True
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
            names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        except pynvml.NVMLError as error:
            self._gpus = dict.fromkeys(devices, str(error))
            return
        for device in devices:
            try:
                self._gpus[device] = Gpu(nvml_index(device, environment, uuids, names))
            except (LookupError, pynvml.NVMLError) as error:
                self._gpus[device] = str(error)

    def close(self) -> None:
        """Shut NVML down."""
        if self._uses_nvml:
            import pynvml

            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def used_gpu_bytes(self, device: str) -> int | None:
        """Return the device's used memory, of all processes; None on the CPU or if it is unknown."""
        gpu = self._gpus.get(device)
        return gpu.used_bytes() if isinstance(gpu, Gpu) else None

    @contextlib.contextmanager
    def watch_block(self, pid: int, device: str, gpu_workers: Collection[int]) -> Iterator[BlockUsage]:
        """Observe process `pid` on `device`; the yielded usage is complete after the context.

        `gpu_workers` are the process IDs of all workers that may use a GPU now, including `pid`.
        """
        usage = BlockUsage()
        sampler = self._start_sampler(pid, device, gpu_workers, usage)
        try:
            energy = self._read_energy(usage)
            cpu, start = cpu_seconds(pid), time.monotonic()
            yield usage
            usage.wall_seconds = time.monotonic() - start
            usage.cpu_seconds = cpu_seconds(pid) - cpu
            if energy is not None and (end := self._read_energy(usage)) is not None:
                usage.package_joules = self._rapl.joules(energy, end)
        finally:
            if sampler is not None:
                usage.gpu = sampler.stop()
                if usage.gpu is None:
                    self._uses_nvml = False  # a shutdown could block as well
                    usage.failures["GPU"] = self._gpus[device] = "NVML no longer responds"

    def _start_sampler(self, pid: int, device: str, gpu_workers: Collection[int], usage: BlockUsage) -> Sampler | None:
        if device == "cpu":
            return None
        gpu = self._gpus[device]
        if isinstance(gpu, str):
            usage.failures["GPU"] = gpu
            return None
        sampler = Sampler(gpu, pid, gpu_workers)
        sampler.start()
        return sampler

    def _read_energy(self, usage: BlockUsage) -> list[int] | None:
        try:
            return self._rapl.read()
        except (OSError, ValueError) as error:
            usage.failures["energy of the processor"] = f"RAPL: {error}"
            return None

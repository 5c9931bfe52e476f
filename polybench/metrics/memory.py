"""Memory of a worker, on the host and on the device."""

from __future__ import annotations

from collections.abc import Callable

from polybench.core import units
from polybench.core.document.resources import Memory
from polybench.metrics.base import Metric


def _bytes(name: str, title: str, of: Callable[[Memory], int | None], note: str = "") -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="B",
        better="lower",
        value=lambda result: of(result.memory),
        show=units.nbytes,
        note=note,
    )


PEAK_MEMORY = _bytes("peak_memory", "peak memory", lambda memory: memory.peak_rss_bytes)

MEMORY = (
    _bytes(
        "baseline_memory", "memory after import", lambda memory: memory.baseline_rss_bytes, "after the import"
    ),
    _bytes("own_memory", "own memory", lambda memory: memory.rss_anon_bytes),
    _bytes("mapped_memory", "mapped memory", lambda memory: memory.rss_file_bytes),
    _bytes(
        "step_memory",
        "steps' peak",
        lambda memory: memory.step_peak_increase_bytes,
        "how far steps rise above it",
    ),
    _bytes("device_memory", "device memory", lambda memory: memory.device_peak_bytes, "by the engine"),
    _bytes("device_memory_nvml", "device memory (NVML)", lambda memory: memory.device_nvml_bytes),
)

"""Memory of a worker on the host and the device."""

from __future__ import annotations

from collections.abc import Callable

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.resources import Memory


def _bytes(name: str, title: str, value: Callable[[Memory], int | None], description: str = "") -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="B",
        better="lower",
        value=lambda result: value(result.memory),
        format_value=units.format_bytes,
        description=description,
    )


PEAK_MEMORY = _bytes("peak_memory", "peak memory", lambda memory: memory.peak_rss_bytes)

MEMORY = (
    _bytes(
        "memory_after_import",
        "memory after import",
        lambda memory: memory.rss_after_import_bytes,
        "resident after the framework's import",
    ),
    _bytes("private_memory", "private memory", lambda memory: memory.rss_anon_bytes, "anonymous resident pages"),
    _bytes(
        "file_mapped_memory",
        "file-mapped memory",
        lambda memory: memory.rss_file_bytes,
        "resident pages of mapped files",
    ),
    _bytes(
        "step_peak_increase",
        "step peak increase",
        lambda memory: memory.step_peak_increase_bytes,
        "increase of the peak during training steps",
    ),
    _bytes(
        "device_peak_memory",
        "device peak memory",
        lambda memory: memory.device_peak_bytes,
        "reported by the engine",
    ),
    _bytes("device_memory_nvml", "device memory (NVML)", lambda memory: memory.device_nvml_bytes),
)

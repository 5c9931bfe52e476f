"""Finds differences between two studies, and between a configuration's results in both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from polybench.schema.analyses import Changed
from polybench.schema.metadata import Host
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.storage.anonymize import UNKNOWN_HOST

WORKLOAD = (
    "model",
    "dataset",
    "batch_size",
    "optimizer",
    "precision",
    "threads",
    "input",
    "loader_workers",
    "augment",
    "replicas",
)
"""Fields of a result's workload; results that differ in one of them did different work."""

GLOBAL_SETTINGS = ("malloc", "pinned_cpus")
"""Settings that may change the times of all configurations."""

_SETTINGS = (
    *("model", "dataset", "data_sha256", "batch_size", "optimizer", "precision", "threads", "malloc"),
    *("pinned_cpus", "seed", "input", "loader_workers", "augment", "processes"),
)
_HOST = ("hostname", "os", "cpu", "cores", "threads", "memory_bytes", "gpus", "cpu_governor", "python")

_NOTABLE_PEAK_CHANGE = 0.05
"""Relative change of a peak that is reported, equal to `schema.peak.MAX_DRIFT`."""


def study_changes(a: StudyDocument, b: StudyDocument) -> Changed:
    """Return changed settings, machine and polybench; not rounds and steps, which depend on the speed."""
    fields = (
        *((name, a.settings, b.settings, name) for name in _SETTINGS),
        *((f"host.{name}", a.host, b.host, name) for name in _HOST),
        *((f"polybench.{name}", a.polybench, b.polybench, name) for name in ("version", "commit")),
    )
    pairs = {name: (getattr(one, field), getattr(two, field)) for name, one, two, field in fields}
    return _different(pairs)


def result_changes(a: Result, b: Result) -> Changed:
    """Return changed versions, builds, environment variables, conventions and peak of a configuration."""
    one, two = _flat(a.versions), _flat(b.versions)
    pairs = {name: (one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two])}
    pairs["conventions"] = (_conventions(a), _conventions(b))
    if a.peak and b.peak and abs(b.peak.flops_per_second / a.peak.flops_per_second - 1) > _NOTABLE_PEAK_CHANGE:
        pairs["peak"] = (a.peak.flops_per_second, b.peak.flops_per_second)
    return _different(pairs)


def workload_difference(a: StudyDocument, b: StudyDocument, result_a: Result, result_b: Result) -> str | None:
    """Describe a difference between the work of two results; None if their work is equal."""
    for name in WORKLOAD:
        one, two = (_plain(getattr(result.workload, name)) for result in (result_a, result_b))
        if one != two:
            return f"different {name.replace('_', ' ')}: {format_value(one)} in A, {format_value(two)} in B"
    if a.settings.data_sha256 != b.settings.data_sha256:
        return f"different {a.settings.input_kind}s"
    return None


def machine_difference(a: Host, b: Host, *, by_name: bool) -> str | None:
    """Describe a certain or possible difference between two machines; None if they are the same.

    With `by_name`, host names count, and the machine of an anonymous study is unknown.
    """
    unknown = by_name and UNKNOWN_HOST in (a.hostname, b.hostname)
    for name in ("hostname", "cpu", "cores", "gpus")[0 if by_name and not unknown else 1 :]:
        one, two = getattr(a, name), getattr(b, name)
        if one != two:
            return f"different machine: {name} is {format_value(one)} in A, {format_value(two)} in B"
    if unknown:
        return "an anonymous study may come from another machine; if it does not, add --same-machine"
    return None


def format_value(value: Any) -> str:
    """Format a value of a setting for users."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items() if item not in (None, [], 0.0))
    if isinstance(value, list | tuple):
        return " ".join(map(format_value, value)) or "none"
    return str(value)


def _different(pairs: Mapping[str, tuple[Any, Any]]) -> Changed:
    plain = {name: (_plain(one), _plain(two)) for name, (one, two) in pairs.items()}
    return {name: pair for name, pair in plain.items() if pair[0] != pair[1]}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _flat(versions: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries: `{"build": {"MKL": "2024"}}` becomes `{"build.MKL": "2024"}`."""
    flat: dict[str, Any] = {}
    for name, value in versions.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _conventions(result: Result) -> list[str]:
    return sorted({deviation.rule for deviation in result.parity.known_deviations})

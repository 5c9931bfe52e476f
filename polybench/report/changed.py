"""What differs between two studies, and between a cell in one and in the other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from polybench.core.document.circumstances import Host
from polybench.core.document.diff import Changed
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.report.anonymous import UNKNOWN_HOST

WORKLOAD = (
    "model",
    "dataset",
    "batch_size",
    "optimizer",
    "precision",
    "threads",
    "input",
    "workers",
    "augment",
    "replicas",
)
"""Of a result: two that differ in one of these did not do the same work, or not in the same way."""

CIRCUMSTANCES = ("heap", "pinned")
"""Of settings: may change every cell's times."""

_SETTINGS = (
    *("model", "dataset", "data_sha256", "batch_size", "optimizer", "precision", "threads", "heap"),
    *("pinned", "seed", "input", "workers", "augment", "processes"),
)
_HOST = ("hostname", "os", "cpu", "cores", "threads", "memory_bytes", "gpus", "governor", "python")

_ROOF_MOVED = 0.05
"""More than two measurements of one roof may differ by (see core.document.limit.STEADY)."""


def of_studies(a: StudyDocument, b: StudyDocument) -> Changed:
    """Settings, machine and polybench itself; rounds and steps follow from how fast things were."""
    named = (
        *((name, a.settings, b.settings, name) for name in _SETTINGS),
        *((f"host.{name}", a.host, b.host, name) for name in _HOST),
        *((f"polybench.{name}", a.polybench, b.polybench, name) for name in ("version", "commit")),
    )
    pairs = {name: (getattr(one, field), getattr(two, field)) for name, one, two, field in named}
    return _different(pairs)


def of_results(a: Result, b: Result) -> Changed:
    """Versions, builds, variables of the environment, conventions and the roof of one cell."""
    one, two = _flat(a.versions), _flat(b.versions)
    pairs = {name: (one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two])}
    pairs["conventions"] = (_conventions(a), _conventions(b))
    if a.roof and b.roof and abs(b.roof.flops_per_second / a.roof.flops_per_second - 1) > _ROOF_MOVED:
        pairs["roof"] = (a.roof.flops_per_second, b.roof.flops_per_second)
    return _different(pairs)


def other_work(a: StudyDocument, b: StudyDocument, ours: Result, theirs: Result) -> str | None:
    """In which respect the two cells did not do the same work; None where they did."""
    for name in WORKLOAD:
        one, two = (_plain(getattr(result.workload, name)) for result in (ours, theirs))
        if one != two:
            return f"another {name.replace('_', ' ')}: {said(one)} in A, {said(two)} in B"
    if a.settings.data_sha256 != b.settings.data_sha256:
        return f"other {a.settings.unit}s"
    return None


def other_machine(a: Host, b: Host, *, by_name: bool) -> str | None:
    """In which respect the two machines differ, or may; None where they are one.

    With `by_name` the names count, and of an anonymous study's machine nobody knows which one it was.
    """
    unknown = by_name and UNKNOWN_HOST in (a.hostname, b.hostname)
    for name in ("hostname", "cpu", "cores", "gpus")[0 if by_name and not unknown else 1 :]:
        one, two = getattr(a, name), getattr(b, name)
        if one != two:
            return f"another machine: {name} is {said(one)} in A, {said(two)} in B"
    if unknown:
        return "an anonymous study may be of another machine; --same-machine says that it is one"
    return None


def said(value: Any) -> str:
    """One value in words."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {said(part)}" for key, part in value.items() if part not in (None, [], 0.0))
    if isinstance(value, list | tuple):
        return " ".join(map(said, value)) or "none"
    return str(value)


def _different(pairs: Mapping[str, tuple[Any, Any]]) -> Changed:
    plain = {name: (_plain(one), _plain(two)) for name, (one, two) in pairs.items()}
    return {name: pair for name, pair in plain.items() if pair[0] != pair[1]}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _flat(versions: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"build": {"MKL": "2024"}}` -> `{"build.MKL": "2024"}`."""
    flat: dict[str, Any] = {}
    for name, value in versions.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _conventions(result: Result) -> list[str]:
    return sorted({deviation.what for deviation in result.parity.deviations})

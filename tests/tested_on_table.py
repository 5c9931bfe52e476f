"""The docs' table of tested platforms, from tests and saved studies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from polybench.engines import ENGINES
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests import engine_matrix as cases

MEASURED = Path(__file__).parents[1] / "docs" / "gallery" / "measured"

BY_TESTS, NEVER_RUN, UNSUPPORTED = "by the tests", "never run", "-"
OTHER_SIZE = "by the tests, with pools of another size"
DEVICES = ("cpu", "cuda")


def ran() -> str:
    """Return Markdown from the matrix of tests and the studies of the gallery."""
    return table({check.configuration for check in cases.checks()}, Store(MEASURED).studies())


def table(tested: set[str], studies: Iterable[StudyDocument]) -> str:
    """Return a row per engine, per variant, and per combination of variants that has run.

    Args:
        tested: configurations that tests train on the CPU.
        studies: saved studies with measurements.
    """
    by_hand: dict[tuple[str, str], dict[str, str]] = {}
    for study in studies:
        for configuration, device, hardware in _measured(study):
            days = by_hand.setdefault((configuration, device), {})
            days[hardware] = max(days.get(hardware, ""), study.created[:10])
    lines = ["| engine | on the CPU | on CUDA |", "|---|---|---|"]
    for configuration in _cells(tested, {configuration for configuration, _ in by_hand}):
        found = (
            _describe(configuration, device, tested, by_hand.get((configuration, device), {})) for device in DEVICES
        )
        lines.append(f"| `{configuration}` | {' | '.join(found)} |")
    return "\n".join(lines)


def _measured(study: StudyDocument) -> Iterator[tuple[str, str, str]]:
    """Yield (configuration, type of device, hardware) of configurations that passed the parity check and were
    measured."""
    for result in study.results:
        if result.environment is not None:  # another environment has other versions
            continue
        if result.status == "ok" and result.is_measured and result.parity.status == "pass":
            kind, _, index = result.device.partition(":")
            gpu = next(iter(study.host.gpus[int(index or 0) :]), "a GPU")
            hardware = study.host.cpu if kind == "cpu" else gpu
            configuration = "+".join(filter(None, (result.engine, result.variant)))
            yield configuration, kind, hardware


def _cells(tested: set[str], measured: set[str]) -> Iterator[str]:
    for engine in cases.TESTED:
        yield engine
        yield from (f"{engine}+{name}" for name in ENGINES[engine].variants)
        more = {
            configuration
            for configuration in tested | measured
            if configuration.startswith(f"{engine}+") and configuration.count("+") > 1
        }
        yield from sorted(more)


def _describe(configuration: str, device: str, tested: set[str], by_hand: dict[str, str]) -> str:
    engine, *names = configuration.split("+")
    row = ENGINES[engine]
    variants = [row.variants[name] for name in names]
    parts = [BY_TESTS] if device == "cpu" and configuration in tested else []
    if device == "cpu" and not parts and any(one.changes_thread_pools for one in variants):
        parts = [OTHER_SIZE]  # one variant stands for all, as in tests.engine_matrix
    parts += [f"by hand on {' '.join(hardware.split())}, {date}" for hardware, date in sorted(by_hand.items())]
    if parts:
        return "; ".join(parts)
    if (device == "cpu" and any(one.cuda_only for one in variants)) or device not in row.devices:
        return UNSUPPORTED
    return NEVER_RUN

"""The docs' table of where each engine and variant has run: told by tests and saved studies, not typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from polybench.core.document.study import StudyDocument
from polybench.engines import ENGINES
from polybench.report.saved_studies import Store
from tests import matrix as cases

MEASURED = Path(__file__).parents[1] / "docs" / "gallery" / "measured"

BY_TESTS, WRITTEN_ONLY, NOT_THERE = "by the tests", "written only", "-"
OTHER_SIZE = "by the tests, with pools of another size"
DEVICES = ("cpu", "cuda")


def ran() -> str:
    """In Markdown, from the matrix of the tests and the studies of the gallery."""
    return table({check.cell for check in cases.checks()}, Store(MEASURED).studies())


def table(tested: set[str], studies: Iterable[StudyDocument]) -> str:
    """A row for each engine, each of its variants alone, and those together that have run somewhere.

    Args:
        tested: cells that tests train on the CPU.
        studies: saved ones, in which somebody measured.
    """
    by_hand: dict[tuple[str, str], dict[str, str]] = {}
    for study in studies:
        for cell, device, hardware in _measured(study):
            days = by_hand.setdefault((cell, device), {})
            days[hardware] = max(days.get(hardware, ""), study.created[:10])
    lines = ["| engine | on the CPU | on CUDA |", "|---|---|---|"]
    for cell in _cells(tested, {cell for cell, _ in by_hand}):
        told = (_told(cell, device, tested, by_hand.get((cell, device), {})) for device in DEVICES)
        lines.append(f"| `{cell}` | {' | '.join(told)} |")
    return "\n".join(lines)


def _measured(study: StudyDocument) -> Iterator[tuple[str, str, str]]:
    """(cell, kind of device, hardware) of what computed the same as the reference, and was measured."""
    for result in study.results:
        if result.environment is not None:  # of other versions than those that are asked for here
            continue
        if result.status == "ok" and result.measured and result.parity.status == "pass":
            kind, _, index = result.device.partition(":")
            gpu = next(iter(study.host.gpus[int(index or 0) :]), "a GPU")
            hardware = study.host.cpu if kind == "cpu" else gpu
            cell = "+".join(filter(None, (result.engine, result.variant)))
            yield cell, kind, hardware


def _cells(tested: set[str], measured: set[str]) -> Iterator[str]:
    for engine in cases.TESTED:
        yield engine
        yield from (f"{engine}+{name}" for name in ENGINES[engine].variants)
        more = {cell for cell in tested | measured if cell.startswith(f"{engine}+") and cell.count("+") > 1}
        yield from sorted(more)


def _told(cell: str, device: str, tested: set[str], by_hand: dict[str, str]) -> str:
    engine, *names = cell.split("+")
    row = ENGINES[engine]
    variants = [row.variants[name] for name in names]
    said = [BY_TESTS] if device == "cpu" and cell in tested else []
    if device == "cpu" and not said and any(one.pools for one in variants):
        said = [OTHER_SIZE]  # as tests.matrix has it: one stands for all
    said += [f"by hand on {' '.join(hardware.split())}, {date}" for hardware, date in sorted(by_hand.items())]
    if said:
        return "; ".join(said)
    if (device == "cpu" and any(one.cuda_only for one in variants)) or device not in row.devices:
        return NOT_THERE
    return WRITTEN_ONLY

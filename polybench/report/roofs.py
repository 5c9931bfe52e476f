"""The measured roofs that are kept on this machine, and what the steps of a study reach of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
import platformdirs

from polybench.core.arithmetic import training_multiply_adds
from polybench.core.document.circumstances import Host
from polybench.core.document.limit import LimitDocument
from polybench.core.document.resources import Roof
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument, decoded, json_of
from polybench.core.model import Model
from polybench.data.disk import regular_bytes
from polybench.data.file_cache import key_of
from polybench.engines import ENGINES
from polybench.report.limit import versions_of
from polybench.report.replicas import devices
from polybench.report.saved_studies import write_atomically


class KeptRoofs:
    """A folder with a document for each machine, device, precision, number of threads and policy of the heap.

    Args:
        folder: by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or platformdirs.user_cache_path("polybench") / "roofs"

    def find(
        self, host: Host, device: str, precision: str, threads: int, heap: str, *, scripted: bool = False
    ) -> LimitDocument | None:
        """What was measured there under these circumstances; None if nothing was, or nothing readable.

        Args:
            scripted: with an engine that plays a script, and says nothing of the machine: kept for itself.
        """
        try:
            path = self._path(host, device, precision, threads, heap, scripted)
            return decoded(regular_bytes(path), LimitDocument)
        except (OSError, msgspec.MsgspecError):
            return None

    def keep(self, document: LimitDocument) -> None:
        """Keep it, in place of an earlier one, where it is whole and percentages may be taken of it."""
        products = [roof for roof in document.roofs if roof.kind == "gemm" and roof.steady]
        whole = all(engine.status in ("ok", "unavailable") for engine in document.engines)
        scripted = play_a_script(engine.engine for engine in document.engines)
        for roof in products if whole else ():
            assert roof.precision is not None
            path = self._path(
                document.host, roof.device, roof.precision, roof.threads, document.heap, scripted
            )
            # A cache that cannot be written costs time only.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, json_of(document))

    def _path(self, host: Host, device: str, precision: str, threads: int, heap: str, scripted: bool) -> Path:
        machine = host.hostname, host.cpu, [] if device == "cpu" else host.gpus
        return self._folder / f"{key_of(machine, device, precision, threads, heap, scripted)}.json"


def play_a_script(engines: Iterable[str]) -> bool:
    """Whether one of them, with or without variants, does no arithmetic."""
    rows = (ENGINES.get(engine.partition("+")[0].partition("@")[0]) for engine in engines)
    return any(row is not None and not row.does_arithmetic for row in rows)


def add_roofs(study: StudyDocument, model: Model, kept: KeptRoofs) -> None:
    """Say of each cell that was measured what it reaches of the kept roof, if there is one for it.

    A roof that another version of the cell's engine was measured for is none.
    """
    flop = 2 * training_multiply_adds(model)
    for result in study.results:
        workload, seconds = result.workload, result.step_seconds
        if seconds is None or not result.ranked or devices(result) > 1:  # a roof is of one device
            continue
        found = kept.find(
            study.host, result.device, workload.precision, workload.threads, study.settings.heap,
            scripted=play_a_script([result.engine]),
        )  # fmt: skip
        roof = _roof(found, result) if found else None
        if roof is not None:
            rate = flop * workload.batch_size / seconds.median
            result.roof = msgspec.structs.replace(roof, share=rate / roof.flops_per_second)


def _roof(found: LimitDocument, result: Result) -> Roof | None:
    known = [one.versions for one in found.engines if one.engine == result.engine and one.status == "ok"]
    if known and versions_of(result) not in known:
        return None
    roofs = {roof.kind: roof for roof in found.roofs}
    product, convolution, triad = (roofs.get(kind) for kind in ("gemm", "convolution", "triad"))
    if product is None:
        return None
    work = result.workload
    same = (found.model, found.batch_size) == (work.model, work.batch_size)
    where = f"{product.engine} on {product.device} in {product.precision}"
    return Roof(
        flops_per_second=product.value,
        share=None,
        source=f"{product.shape}, {where}; polybench limit, {product.measured.partition('T')[0]}",
        convolution_flops_per_second=convolution.value if convolution and same else None,
        bytes_per_second=triad.value if triad else None,
    )

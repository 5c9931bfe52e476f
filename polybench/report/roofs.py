"""The measured roofs that are kept on this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import platformdirs

from polybench.core.document.circumstances import Host
from polybench.core.document.limit import LimitDocument
from polybench.core.document.study import json_of
from polybench.data.file_cache import key_of
from polybench.report.saved_studies import write_atomically


class KeptRoofs:
    """A folder with a document for each machine, device, precision, number of threads and policy of the heap.

    Args:
        folder: by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or platformdirs.user_cache_path("polybench") / "roofs"

    def find(self, host: Host, device: str, precision: str, threads: int, heap: str) -> LimitDocument | None:
        """What was measured there under these circumstances; None if nothing was, or nothing readable."""
        try:
            text = self._path(host, device, precision, threads, heap).read_bytes()
            return msgspec.json.decode(text, type=LimitDocument)
        except (OSError, msgspec.MsgspecError):
            return None

    def keep(self, document: LimitDocument) -> None:
        """Keep it, in place of an earlier one, where it is whole and percentages may be taken of it."""
        products = [roof for roof in document.roofs if roof.kind == "gemm" and roof.steady]
        whole = all(engine.status in ("ok", "unavailable") for engine in document.engines)
        for roof in products if whole else ():
            assert roof.precision is not None
            path = self._path(document.host, roof.device, roof.precision, roof.threads, document.heap)
            # A cache that cannot be written costs time only.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, json_of(document))

    def _path(self, host: Host, device: str, precision: str, threads: int, heap: str) -> Path:
        machine = host.hostname, host.cpu, [] if device == "cpu" else host.gpus
        return self._folder / f"{key_of(machine, device, precision, threads, heap)}.json"

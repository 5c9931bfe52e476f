"""Cache of this machine's measured peaks, and those with which a configuration may be compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
import platformdirs

from polybench.data.disk import read_regular_file
from polybench.data.file_cache import cache_key
from polybench.engines import ENGINES
from polybench.results.document import collect_versions
from polybench.results.peak import comparable_peaks
from polybench.runner.configuration_run import ConfigurationRun
from polybench.schema.encoding import decode, encode
from polybench.schema.measurements import PeakDocument, PeakMeasurement
from polybench.schema.metadata import Host
from polybench.schema.options import Workload
from polybench.schema.result import library_versions
from polybench.storage.store import write_file_atomically


class PeakCache:
    """Cached peak documents, one per machine, device, precision, number of threads and malloc policy."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or platformdirs.user_cache_path("polybench") / "peaks"

    def find(
        self, host: Host, malloc: str, engines: Iterable[str], device: str, workload: Workload
    ) -> PeakDocument | None:
        """Return the cached peaks under these conditions; None if nothing is cached, or it is unreadable.

        Peaks of simulated engines are cached separately.
        """
        path = self._path(host, malloc, engines, device, workload.precision, workload.threads)
        try:
            return decode(read_regular_file(path), PeakDocument)
        except (OSError, msgspec.MsgspecError):
            return None

    def peaks_of(self, host: Host, malloc: str, run: ConfigurationRun) -> list[PeakMeasurement] | None:
        """Return the cached peaks with which a configuration may be compared; None if nothing is cached."""
        engine, device, workload = run.configuration.engine, run.configuration.device, run.planned.workload
        cached = self.find(host, malloc, [engine], device, workload)
        if cached is None:
            return None
        return comparable_peaks(cached, engine, library_versions(collect_versions(run)), workload)

    def save(self, document: PeakDocument) -> None:
        """Cache a document if it is complete and its peaks are stable."""
        products = [peak for peak in document.peaks if peak.kind == "gemm" and peak.is_stable]
        complete = all(peaks.status in ("ok", "unavailable") for peaks in document.configurations)
        engines = [peaks.engine for peaks in document.configurations]
        for peak in products if complete else ():
            assert peak.precision is not None
            path = self._path(document.host, document.malloc, engines, peak.device, peak.precision, peak.threads)
            # Without a cache, peaks are measured again.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file_atomically(path, encode(document))

    def _path(self, host: Host, malloc: str, engines: Iterable[str], device: str, precision: str, threads: int) -> Path:
        machine = host.hostname, host.cpu, [] if device == "cpu" else host.gpus
        simulated = any(engine in ENGINES and not ENGINES[engine].computes for engine in engines)
        return self._folder / f"{cache_key(machine, device, precision, threads, malloc, simulated)}.json"

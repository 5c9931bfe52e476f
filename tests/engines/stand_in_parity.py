"""The parity check of an engine on a stand-in device."""

from __future__ import annotations

import tempfile
from pathlib import Path

from polybench.networks.model import Model
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.worker_sessions import InProcess


def check(engine: str, model: Model) -> ParityCheck:
    """Check `module:class` in this process, in float64 and in float32, with three steps of eight images each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scratch").mkdir()
        files = small_datasets.files(folder, model=model)
        request = CheckRequest(small_datasets.job(model), files.weights, files.epoch, 3, 60.0)
        reference = InProcess("polybench.engines.reference.engine:ReferenceEngine")
        checker = ParityChecker(reference, folder / "scratch", folder / "cache")
        return checker.check(InProcess(engine), request)

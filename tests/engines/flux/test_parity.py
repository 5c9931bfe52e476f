"""The flux engine in the parity check: on images with near-ties, with bugs, without its declaration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polybench.engines import ENGINES
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.parity_check.comparison import FLOAT64_TOLERANCE
from polybench.protocol import calls
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engine_workers import TIMEOUT, Workers
from tests.worker_sessions import InProcess

STEPS = 3


Check = Callable[..., ParityCheck]


@pytest.fixture
def check(workers: Workers, tmp_path: Path) -> Check:
    """Check an engine in a process that all tests share; bugs are removed afterwards."""

    def check(factory: str, files: small_datasets.Files | None = None) -> ParityCheck:
        files = files or small_datasets.files(tmp_path)
        job = small_datasets.job(batch_size=files.epoch.batch_size)
        task = CheckRequest(job, files.weights, files.epoch, STEPS, TIMEOUT)
        (scratch := tmp_path / "scratch").mkdir()
        checker = ParityChecker(InProcess(ENGINES["reference"].factory), scratch, tmp_path / "cache")
        worker = workers("flux")
        worker.request(calls.load(factory), TIMEOUT)
        try:
            return checker.check(worker, task)
        finally:
            worker.request(calls.load("tests.engines.flux.bug_injection:BugsRemoved"), TIMEOUT)

    return check


@pytest.fixture
def near_ties(tmp_path: Path) -> small_datasets.Files:
    """Images whose neighboring values differ by at most 2e-8: two constant channels, and tiny values in the third.

    Images of bytes are never that smooth, so these do not come from a data set.
    """
    files = small_datasets.files(tmp_path)
    images = np.memmap(files.epoch.images_path, np.float32, "r+").reshape(-1, 3, 32, 32)
    images[:, :2] = 0.5
    images[:, 2] = 2e-8 * np.random.default_rng(0).random(images[:, 2].shape, np.float32)
    return files


def test_flux_is_identical_with_its_declaration(check: Check, near_ties: small_datasets.Files) -> None:
    parity = check(ENGINES["flux"].factory, near_ties)
    assert parity.status == "pass", parity.reason
    assert parity.float64 is not None
    assert (parity.float64.max_gradient_error or 0) < 1e-12
    deviations = {deviation.tensor: deviation.error for deviation in parity.known_deviations}
    assert deviations["conv1.weight"] > FLOAT64_TOLERANCE["gradient"]
    assert deviations["dense3.weight"] == 0  # after the pooling


def test_flux_fails_without_its_declaration(check: Check, near_ties: small_datasets.Files) -> None:
    assert check("tests.engines.flux.bug_injection:NoDeclaration", near_ties).status == "fail"


@pytest.mark.parametrize("bug", ["KernelNotReversed", "WrongAxisOrder", "SoftmaxTwice", "WrongMomentum"])
def test_injected_bug_fails_the_check(bug: str, check: Check) -> None:
    parity = check(f"tests.engines.flux.bug_injection:{bug}")
    assert parity.status == "fail"
    assert any(not tensor.passed for tensor in parity.tensors if tensor.part == "float64")

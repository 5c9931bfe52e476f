"""Roofs that are kept, and what steps reach of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.arithmetic import training_multiply_adds
from polybench.core.document.identity import Parity
from polybench.core.document.study import StudyDocument
from polybench.models.lenet import LENET
from polybench.report.roofs import KeptRoofs, add_roofs
from tests.factories import absent, measured, study
from tests.report.test_limit import TORCH, gemm, limit

WORKLOAD = measured("torch/cpu", 0.01).workload


@pytest.fixture
def kept(tmp_path: Path) -> KeptRoofs:
    """On the host of `factories.study`, 100 GFLOP/s."""
    roofs = KeptRoofs(tmp_path / "roofs")
    roofs.keep(limit(gemm("numpy", 1e11)))
    return roofs


def told(*results: Any, **settings: Any) -> StudyDocument:
    document = study(*results)
    return msgspec.structs.replace(document, settings=msgspec.structs.replace(document.settings, **settings))


def test_a_step_has_its_share_of_the_roof(kept: KeptRoofs) -> None:
    document = told(measured("torch/cpu", 0.01, versions=TORCH), absent("tf/cpu", "failed", "crashed"))
    add_roofs(document, LENET, kept)
    torch, tf = document.results
    assert torch.roof is not None
    assert torch.roof.flops_per_second == pytest.approx(1e11)
    assert torch.step_seconds is not None
    reached = 2 * training_multiply_adds(LENET) * 128 / torch.step_seconds.median
    assert torch.roof.share == pytest.approx(reached / 1e11)
    assert torch.roof.source == "100x100x100, forward, numpy on cpu in fp32; polybench limit, 2025-01-01"
    assert tf.roof is None


@pytest.mark.parametrize(
    "change",
    [
        {"versions": {"torch": "2.14.0"}},
        {"device": "cuda"},
        {"parity": Parity("fail")},
        {"workload": msgspec.structs.replace(WORKLOAD, threads=4)},
        {"workload": msgspec.structs.replace(WORKLOAD, precision="bf16")},
    ],
)
def test_a_roof_of_something_else_is_none(kept: KeptRoofs, change: dict[str, Any]) -> None:
    document = told(measured("torch/cpu", 0.01, **({"versions": TORCH} | change)))
    add_roofs(document, LENET, kept)
    assert document.results[0].roof is None


def test_a_roof_of_another_heap_or_machine_is_none(kept: KeptRoofs) -> None:
    elsewhere = told(measured("torch/cpu", 0.01, versions=TORCH))
    elsewhere.host.cpu = "Another CPU"
    other_heap = told(measured("torch/cpu", 0.01, versions=TORCH), heap="system")
    for document in (elsewhere, other_heap):
        add_roofs(document, LENET, kept)
        assert document.results[0].roof is None


def test_a_file_that_cannot_be_read_is_no_roof(kept: KeptRoofs, tmp_path: Path) -> None:
    (file,) = (tmp_path / "roofs").iterdir()
    file.write_text("{")
    document = told(measured("torch/cpu", 0.01, versions=TORCH))
    add_roofs(document, LENET, kept)
    assert document.results[0].roof is None

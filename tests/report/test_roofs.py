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
from polybench.report.limit import Timing
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


def test_with_it_come_bandwidth_and_the_convolutions_of_the_same_network(tmp_path: Path) -> None:
    roofs = KeptRoofs(tmp_path)
    convolution = Timing("convolution", "tf", "conv1, forward", 500, [1e-8] * 6)
    roofs.keep(limit(gemm("numpy", 1e11), convolution, Timing("triad", "numpy", "3 arrays", 300, [1e-8] * 6)))
    same = told(measured("torch/cpu", 0.01, versions=TORCH))
    other = told(
        measured("torch/cpu", 0.01, versions=TORCH, workload=msgspec.structs.replace(WORKLOAD, batch_size=64))
    )
    for document in (same, other):
        add_roofs(document, LENET, roofs)
    (one,), (two,) = ([result.roof for result in document.results] for document in (same, other))
    assert one is not None
    assert two is not None
    assert (one.convolution_flops_per_second, one.bytes_per_second) == pytest.approx((5e10, 3e10))
    assert (two.convolution_flops_per_second, two.bytes_per_second) == (None, one.bytes_per_second)


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


def test_a_roof_that_was_measured_in_several_environments_is_one_for_each(tmp_path: Path) -> None:
    old = {"torch": "2.12.0"}
    both = told(
        measured("torch/cpu", 0.01, versions=TORCH), measured("torch@old/cpu", 0.01, versions=old),
        measured("torch@new/cpu", 0.01, versions={"torch": "2.14.0"}),
    )  # fmt: skip
    kept = KeptRoofs(tmp_path / "both")
    of_torch = limit(gemm("numpy", 1e11))
    here = of_torch.engines[0]
    engines = [here, msgspec.structs.replace(here, versions=old)]
    kept.keep(msgspec.structs.replace(of_torch, engines=engines))
    add_roofs(both, LENET, kept)
    assert [result.roof is not None for result in both.results] == [True, True, False]


def test_a_roof_of_another_heap_or_machine_is_none(kept: KeptRoofs) -> None:
    elsewhere = told(measured("torch/cpu", 0.01, versions=TORCH))
    elsewhere.host.cpu = "Another CPU"
    other_heap = told(measured("torch/cpu", 0.01, versions=TORCH), heap="system")
    for document in (elsewhere, other_heap):
        add_roofs(document, LENET, kept)
        assert document.results[0].roof is None


def test_what_an_engine_without_arithmetic_reaches_is_no_roof_of_others(kept: KeptRoofs) -> None:
    """`fake` plays a script: its 20 TFLOP/s say nothing of this machine, and take nobody's roof away."""
    played = msgspec.structs.replace(limit(gemm("fake", 2e13)).engines[0], cell="fake/cpu", engine="fake")
    kept.keep(msgspec.structs.replace(limit(gemm("fake", 2e13)), engines=[played]))
    document = told(
        measured("torch/cpu", 0.01, versions=TORCH), measured("fake/cpu", 0.01, versions=played.versions)
    )
    add_roofs(document, LENET, kept)
    torch, fake = document.results
    assert torch.roof is not None
    assert fake.roof is not None
    assert (torch.roof.flops_per_second, fake.roof.flops_per_second) == pytest.approx((1e11, 2e13))


def test_a_file_that_cannot_be_read_is_no_roof(kept: KeptRoofs, tmp_path: Path) -> None:
    (file,) = (tmp_path / "roofs").iterdir()
    file.write_text("{")
    document = told(measured("torch/cpu", 0.01, versions=TORCH))
    add_roofs(document, LENET, kept)
    assert document.results[0].roof is None

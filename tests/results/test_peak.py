"""Tests that the fastest timing is the peak, and that only stable peaks are cached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.log import KernelsChosen, NumpyTimed
from polybench.networks.layers import Dense
from polybench.networks.timed_layers import TimedLayer
from polybench.protocol.calls import OperationTime
from polybench.results.peak import Kernel, KernelTiming, build_peak_document, engine_timings, merge_peaks, numpy_timings
from polybench.runner.peak_cache import PeakCache
from polybench.schema.measurements import PeakDocument
from polybench.schema.metadata import RoundInterference
from tests.factories import measured, study, unmeasured

PRODUCT = TimedLayer("product", "product", (Dense("product", 100, 100),), (100,), needs_input_gradient=True)
FLOP = 2 * 100**3
TORCH = {"torch": "2.13.0", "build": {}, "environment": {}}


def seconds(rate: float, rounds: int = 6, drift: float = 0.0) -> list[float]:
    """Return seconds of a product whose throughput changes by `drift` from the first to the last round."""
    return [FLOP / (rate * (1 + drift * number / (rounds - 1))) for number in range(rounds)]


def peak_document(*timings: KernelTiming, **fields: Any) -> PeakDocument:
    document = study(measured("torch/cpu", 0.01, versions=TORCH), unmeasured("flux/cpu", "unavailable", "no Julia"))
    return build_peak_document(msgspec.structs.replace(document, **fields), timings)


def gemm(engine: str, rate: float, **changes: Any) -> KernelTiming:
    return KernelTiming("gemm", engine, "100x100x100, forward", FLOP, seconds(rate, **changes))


def test_every_operation_with_flops_is_timed() -> None:
    def one_round(slowness: float) -> list[OperationTime]:
        return [
            OperationTime((0,), "forward", 2e-4 * slowness, None),
            OperationTime((0,), "input gradient", 1e-4 * slowness, None),
            OperationTime((0,), "relu gradient", 1e-9, None),
            OperationTime((0,), "weight gradient", -1e-6, None),  # faster than an empty request
        ]

    kernels = [Kernel("gemm", "100x100x100", PRODUCT, 100)]
    found = list(engine_timings("torch", kernels, [one_round(1), one_round(2)]))
    assert [one.shape for one in found] == ["100x100x100, forward", "100x100x100, input gradient"]
    assert found[1].rates == pytest.approx([FLOP / 1e-4, FLOP / 2e-4])
    assert list(engine_timings("torch", kernels, [])) == []


def test_numpy_times_products_and_the_triad() -> None:
    def one_round(*products: float, triad: float | None) -> NumpyTimed:
        return NumpyTimed(process=0, products=[*products], triad=triad)

    chosen = KernelsChosen(matrix_sizes=[10, 20], triad_bytes=1 << 20, numpy="2")
    rounds = [one_round(1e-3, 2e-3, triad=0.5), one_round(2e-3, 3e-3, triad=0.25)]
    small, large, triad = numpy_timings(chosen, rounds)
    assert (small.work, small.seconds) == (2000, [1e-3, 2e-3])
    assert (large.work, large.seconds) == (16_000, [2e-3, 3e-3])
    assert triad.rates == [3 * 2**20 / 0.5, 3 * 2**20 / 0.25]
    without = msgspec.structs.replace(chosen, triad_bytes=None)
    assert len(list(numpy_timings(without, [one_round(1e-3, 2e-3, triad=None)]))) == 2
    assert list(numpy_timings(chosen, [])) == []


def test_the_fastest_timing_of_each_kind_is_the_peak() -> None:
    triad = KernelTiming("memory_bandwidth", "numpy", "3 arrays", 300, [1.0] * 6)
    unsteady = KernelTiming("gemm", "jax", "100x100x100, forward", FLOP, [*seconds(5e10, rounds=5), FLOP / 9e10])
    document = peak_document(gemm("torch", 5e10), gemm("numpy", 8e10, drift=0.02), gemm("tf", 7e10), unsteady, triad)
    product, memory = document.peaks
    assert (product.kind, product.engine, product.unit, product.precision) == (
        "gemm", "numpy", "FLOP/s", "fp32",
    )  # fmt: skip
    assert product.value == pytest.approx(8e10 * 1.01)
    assert product.ci95 == pytest.approx((8e10, 8e10 * 1.02))
    assert product.drift == pytest.approx(0.02)
    assert (memory.value, memory.unit, memory.precision) == (300, "B/s", None)
    assert [one.status for one in document.configurations] == ["ok", "unavailable"]
    assert document.configurations[0].versions == {"torch": "2.13.0"}
    assert document.warnings == []


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"drift": 0.1}, "throughput changed by +10% from the first to the last round"),
        ({"rounds": 1}, "there was only one round"),
    ],
)
def test_unstable_peak_is_not_cached(tmp_path: Path, changes: dict[str, Any], warning: str) -> None:
    timing = (
        KernelTiming("gemm", "torch", "x", FLOP, [FLOP / 1e10])
        if "rounds" in changes
        else gemm("torch", 1e10, **changes)
    )
    document = peak_document(timing)
    assert any(warning in text for text in document.warnings)
    PeakCache(tmp_path).save(document)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("threads", "steal", "warning"),
    [
        (2, 10.0, "other programs used 60% of the cores"),
        (1, 10.0, "other programs used 20% of the cores"),
        (2, 65.0, "other machines of the hypervisor used 60% of the cores"),
    ],
)
def test_peak_with_cpu_contention_is_not_cached(tmp_path: Path, threads: int, steal: float, warning: str) -> None:
    """Other programs and machines use 1.2 of the two cores, more than are free."""
    busy = RoundInterference(0, 0, 1.2, 120.0 - steal, steal, 0, True)
    settings = msgspec.structs.replace(study().settings, threads=threads)
    document = peak_document(gemm("torch", 1e10), interference=[busy] * 6, settings=settings)
    assert any(warning in text for text in document.warnings)
    PeakCache(tmp_path).save(document)
    assert list(tmp_path.iterdir()) == []


def test_other_programs_may_use_free_cores() -> None:
    host = msgspec.structs.replace(study().host, cores=4)
    busy = [RoundInterference(0, 0, 2, 190.0, 0.0, 0, True)] * 6
    document = peak_document(gemm("torch", 1e10), host=host, interference=busy)
    assert document.peaks[0].cpu_contention == 0


def test_documents_of_several_devices_are_merged() -> None:
    one, two = peak_document(gemm("torch", 1e10)), peak_document(gemm("torch", 2e10), warnings=["busy"])
    merged = merge_peaks([one, two, two])
    assert [peak.value for peak in merged.peaks] == pytest.approx([1e10, 2e10, 2e10])
    assert merged.warnings == ["busy"]
    assert len(merged.configurations) == 6

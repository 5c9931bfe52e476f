"""The fastest of what was timed, and whether it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.circumstances import RoundNoise
from polybench.core.document.limit import LimitDocument
from polybench.core.layers import Dense
from polybench.core.pieces import Piece
from polybench.report.limit import (
    Kernel,
    Timing,
    joined,
    limit_document,
    timings_of_engine,
    timings_of_numpy,
)
from polybench.report.roofs import KeptRoofs
from polybench.wire.layer_messages import PartTimed
from polybench.wire.limit_messages import NumpyTimed, TimeNumpy
from tests.factories import absent, measured, study

PRODUCT = Piece("product", "product", (Dense("product", 100, 100),), (100,), wants_data_gradient=True)
FLOP = 2 * 100**3
TORCH = {"torch": "2.13.0", "build": {}, "environment": {}}


def seconds(rate: float, rounds: int = 6, drift: float = 0.0) -> list[float]:
    """Of a product, where the rate changes by `drift` from the first round to the last."""
    return [FLOP / (rate * (1 + drift * number / (rounds - 1))) for number in range(rounds)]


def limit(*timings: Timing, **fields: Any) -> LimitDocument:
    told = study(measured("torch/cpu", 0.01, versions=TORCH), absent("flux/cpu", "unavailable", "no Julia"))
    return limit_document(msgspec.structs.replace(told, **fields), timings)


def gemm(engine: str, rate: float, **how: Any) -> Timing:
    return Timing("gemm", engine, "100x100x100, forward", FLOP, seconds(rate, **how))


def test_every_part_that_multiplies_is_a_candidate() -> None:
    def one_round(slowness: float) -> list[PartTimed]:
        return [
            PartTimed(0, "forward", 2e-4 * slowness, None),
            PartTimed(0, "data gradient", 1e-4 * slowness, None),
            PartTimed(0, "activation", 1e-9, None),
            PartTimed(0, "weight gradient", -1e-6, None),  # less than asking for nothing
        ]

    kernels = [Kernel("gemm", "100x100x100", PRODUCT, 100)]
    found = list(timings_of_engine("torch", kernels, [one_round(1), one_round(2)]))
    assert [one.shape for one in found] == ["100x100x100, forward", "100x100x100, data gradient"]
    assert found[1].rates == pytest.approx([FLOP / 1e-4, FLOP / 2e-4])
    assert list(timings_of_engine("torch", kernels, [])) == []


def test_numpy_has_products_and_a_triad() -> None:
    rounds = [NumpyTimed([1e-3, 2e-3], 0.5), NumpyTimed([2e-3, 3e-3], 0.25)]
    small, large, triad = timings_of_numpy(TimeNumpy((10, 20), 1 << 20, 2, 3), rounds)
    assert (small.work, small.seconds) == (2000, [1e-3, 2e-3])
    assert (large.work, large.seconds) == (16_000, [2e-3, 3e-3])
    assert triad.rates == [3 * 2**20 / 0.5, 3 * 2**20 / 0.25]
    without = [NumpyTimed([1e-3, 2e-3], None)]
    assert len(list(timings_of_numpy(TimeNumpy((10, 20), None, 2, 3), without))) == 2
    assert list(timings_of_numpy(None, [])) == []


def test_the_fastest_of_each_kind_is_the_roof() -> None:
    triad = Timing("triad", "numpy", "3 arrays", 300, [1.0] * 6)
    document = limit(gemm("torch", 5e10), gemm("numpy", 8e10, drift=0.02), gemm("tf", 7e10), triad)
    product, memory = document.roofs
    assert (product.kind, product.engine, product.unit, product.precision) == (
        "gemm", "numpy", "FLOP/s", "fp32",
    )  # fmt: skip
    assert product.value == pytest.approx(8e10 * 1.01)
    assert product.interval95 == pytest.approx((8e10, 8e10 * 1.02))
    assert product.change == pytest.approx(0.02)
    assert (memory.value, memory.unit, memory.precision) == (300, "B/s", None)
    assert [engine.status for engine in document.engines] == ["ok", "unavailable"]
    assert document.engines[0].versions == {"torch": "2.13.0"}
    assert document.warnings == []


@pytest.mark.parametrize(
    ("how", "said"),
    [({"drift": 0.1}, "last round is +10% from that of the first"), ({"rounds": 1}, "one round only")],
)
def test_a_machine_that_is_not_steady_has_no_roof(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    timing = (
        Timing("gemm", "torch", "x", FLOP, [FLOP / 1e10]) if "rounds" in how else gemm("torch", 1e10, **how)
    )
    document = limit(timing)
    assert any(said in text for text in document.warnings)
    kept = KeptRoofs(tmp_path)
    kept.keep(document)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("threads", "said"), [(2, "others took 60% of the cores"), (1, "took 20% of")])
def test_a_machine_that_others_use_has_no_roof(tmp_path: Path, threads: int, said: str) -> None:
    """Of its two cores they take 1.2: more than is free."""
    busy = RoundNoise(0, 0, 1.2, 110.0, 10.0, 0, True)
    settings = msgspec.structs.replace(study().settings, threads=threads)
    host = msgspec.structs.replace(study().host, noise=[busy] * 6)
    document = limit(gemm("torch", 1e10), host=host, settings=settings)
    assert any(said in text for text in document.warnings)
    KeptRoofs(tmp_path).keep(document)
    assert list(tmp_path.iterdir()) == []


def test_others_may_use_what_is_free() -> None:
    host = msgspec.structs.replace(
        study().host, cores=4, noise=[RoundNoise(0, 0, 2, 190.0, 0.0, 0, True)] * 6
    )
    assert limit(gemm("torch", 1e10), host=host).roofs[0].others == 0


def test_documents_of_several_devices_are_one() -> None:
    one, two = limit(gemm("torch", 1e10)), limit(gemm("torch", 2e10), warnings=["busy"])
    both = joined([one, two, two])
    assert [roof.value for roof in both.roofs] == pytest.approx([1e10, 2e10, 2e10])
    assert both.warnings == ["busy"]
    assert len(both.engines) == 6

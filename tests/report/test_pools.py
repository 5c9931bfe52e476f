"""Julia's threads times BLAS's, from the studies of a sweep."""

from __future__ import annotations

from polybench.core.document.identity import Parity
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.sweep import render
from polybench.report.pools import pool_matrices
from polybench.report.sweep import summarize
from tests.factories import measured, study


def flux(cell: str, seconds: float, julia: int, blas: int, **changes: object) -> Result:
    build = {"julia_threads": str(julia), "blas_threads": str(blas), "gc_threads": "1"}
    return measured(cell, seconds, versions={"flux": "0.16.10", "build": build}, **changes)


def points() -> list[tuple[dict[str, int], StudyDocument]]:
    """Two sizes of each pool; torch has no matrix, and what fails the check no place in it."""
    one = study(
        flux("flux/cpu", 0.060, 1, 1),
        flux("flux+default_threads/cpu", 0.065, 1, 1),
        flux("flux+blas2/cpu", 0.050, 1, 2),
        measured("torch/cpu", 0.010),
    )
    two = study(
        flux("flux/cpu", 0.035, 2, 1),
        flux("flux+blas2/cpu", 0.055, 2, 2),
        flux("flux+blas4/cpu", 0.001, 2, 4, parity=Parity("fail")),
        flux("flux+jemalloc/cpu", 0.030, 2, 1),
    )
    return [({"threads": 1}, one), ({"threads": 2}, two)]


def test_a_matrix_has_every_pair_of_sizes_once_and_its_best() -> None:
    (matrix,) = pool_matrices(points())
    assert (matrix.cell, matrix.values) == ("flux/cpu", {})
    found = {(one.julia, one.blas): round(one.seconds_per_step, 4) for one in matrix.sizes}
    assert found == {(1, 1): 0.060, (1, 2): 0.050, (2, 1): 0.035, (2, 2): 0.055}
    assert (matrix.best.julia, matrix.best.blas) == (2, 1)


def test_it_stands_below_the_table_with_the_best_marked() -> None:
    document = summarize({"threads": [1, 2]}, points(), [], usable_threads=2)
    lines = [" ".join(line.split()) for line in render(document, "table").splitlines()]
    start = lines.index("flux/cpu: step time by threads of Julia (down) and of BLAS (across)")
    assert lines[start + 2] == "Julia BLAS 1 BLAS 2"
    assert lines[start + 4 : start + 6] == ["1 60.0 ms 50.0 ms", "2 35.0 ms (best) 55.0 ms"]
    assert "| 2 | 35.0 ms (best) |" in " ".join(render(document, "markdown").split())
    assert [one.cell for one in document.pools] == ["flux/cpu"]


def test_without_several_sizes_of_blas_there_is_none() -> None:
    alone = [(values, study(document.results[0])) for values, document in points()]
    assert pool_matrices(alone) == []
    assert "BLAS" not in render(summarize({"threads": [1, 2]}, alone, [], usable_threads=2), "table")


def test_other_axes_have_matrices_of_their_own() -> None:
    both = [({"threads": t["threads"], "batch_size": size}, one) for size in (8, 64) for t, one in points()]
    assert [matrix.values for matrix in pool_matrices(both)] == [{"batch_size": 8}, {"batch_size": 64}]

"""Tests of grids of Julia and BLAS threads from the studies of a sweep."""

from __future__ import annotations

from polybench.render import render
from polybench.results.sweep import build_sweep_document, thread_pool_grids
from polybench.schema.parity import ParityCheck
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from tests.factories import measured, study


def flux(configuration: str, seconds: float, julia: int, blas: int, **changes: object) -> Result:
    build = {"julia_threads": str(julia), "blas_threads": str(blas), "gc_threads": "1"}
    return measured(configuration, seconds, versions={"flux": "0.16.10", "build": build}, **changes)


def points() -> list[tuple[dict[str, int], StudyDocument]]:
    """Return two sizes of each pool. Grids leave out torch and configurations that fail the parity check."""
    one = study(
        flux("flux/cpu", 0.060, 1, 1),
        flux("flux+framework_threads/cpu", 0.065, 1, 1),
        flux("flux+blas2/cpu", 0.050, 1, 2),
        measured("torch/cpu", 0.010),
    )
    two = study(
        flux("flux/cpu", 0.035, 2, 1),
        flux("flux+blas2/cpu", 0.055, 2, 2),
        flux("flux+blas4/cpu", 0.001, 2, 4, parity=ParityCheck("fail")),
        flux("flux+jemalloc/cpu", 0.030, 2, 1),
    )
    return [({"threads": 1}, one), ({"threads": 2}, two)]


def test_grid_has_each_pair_of_sizes_once_and_the_best_pair() -> None:
    (grid,) = thread_pool_grids(points())
    assert (grid.configuration, grid.parameters) == ("flux/cpu", {})
    found = {(one.julia, one.blas): round(one.step_seconds, 4) for one in grid.sizes}
    assert found == {(1, 1): 0.060, (1, 2): 0.050, (2, 1): 0.035, (2, 2): 0.055}
    assert (grid.best.julia, grid.best.blas) == (2, 1)


def test_grid_is_rendered_below_the_table_with_the_best_pair_marked() -> None:
    document = build_sweep_document({"threads": [1, 2]}, points(), [], usable_threads=2)
    lines = [" ".join(line.split()) for line in render(document, "table").splitlines()]
    start = lines.index("flux/cpu: step time by Julia threads (rows) and BLAS threads (columns)")
    assert lines[start + 2] == "Julia BLAS 1 BLAS 2"
    assert lines[start + 4 : start + 6] == ["1 60.0 ms 50.0 ms", "2 35.0 ms (best) 55.0 ms"]
    assert "| 2 | 35.0 ms (best) |" in " ".join(render(document, "markdown").split())
    assert [one.configuration for one in document.thread_pools] == ["flux/cpu"]


def test_there_is_no_grid_for_a_single_blas_size() -> None:
    alone = [(values, study(document.results[0])) for values, document in points()]
    assert thread_pool_grids(alone) == []
    assert "BLAS" not in render(build_sweep_document({"threads": [1, 2]}, alone, [], usable_threads=2), "table")


def test_each_point_of_other_axes_has_its_own_grid() -> None:
    both = [({"threads": t["threads"], "batch_size": size}, one) for size in (8, 64) for t, one in points()]
    assert [grid.parameters for grid in thread_pool_grids(both)] == [{"batch_size": 8}, {"batch_size": 64}]

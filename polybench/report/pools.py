"""Sweeps of an engine with two pools of threads -> the matrix of their sizes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import PoolMatrix, PoolSizes
from polybench.engines import ENGINES


def pool_matrices(points: Sequence[tuple[dict[str, int], StudyDocument]]) -> list[PoolMatrix]:
    """One for each engine, device and point of the other axes where BLAS had several sizes.

    Sizes are what the engine itself says in its build facts. Two cells of the same sizes, as a plain engine
    with one thread and a variant of it, are one: the first.
    """
    found: dict[tuple[str, tuple[tuple[str, int], ...]], dict[tuple[int, int], PoolSizes]] = {}
    for values, document in points:
        others = tuple((axis, value) for axis, value in values.items() if axis != "threads")
        for result in document.results:
            for one in _sizes(result):
                found.setdefault((_plain(result), others), {}).setdefault((one.julia, one.blas), one)
    return [
        PoolMatrix(
            cell,
            dict(others),
            list(sizes.values()),
            min(sizes.values(), key=lambda one: one.seconds_per_step),
        )
        for (cell, others), sizes in found.items()
        if len({one.blas for one in sizes.values()}) > 1
    ]


def _sizes(result: Result) -> Iterator[PoolSizes]:
    build = result.versions.get("build", {})
    step = result.step_seconds
    if result.ranked and step is not None and {"julia_threads", "blas_threads"} <= set(build):
        julia, blas = int(build["julia_threads"]), int(build["blas_threads"])
        yield PoolSizes(julia, blas, step.median, step.interval95)


def _plain(result: Result) -> str:
    """The cell without the variants that are only sizes of pools."""
    row = ENGINES.get(result.engine)
    known = row.variants if row else {}
    variants = (result.variant or "").split("+")
    kept = [name for name in variants if name and not (name in known and known[name].pools)]
    return f"{'+'.join([result.engine, *kept])}/{result.device}"

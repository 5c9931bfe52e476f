"""Collects the thread-pool sizes that a sweep measured for engines with two pools. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.engines import ENGINES
from polybench.schema.measurements import ThreadPoolGrid, ThreadPoolSizes
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument


def thread_pool_grids(points: Sequence[tuple[dict[str, int], StudyDocument]]) -> list[ThreadPoolGrid]:
    """Return a grid for each engine, device and point of the other axes, if BLAS had several pool sizes.

    The engine's build information has the sizes. If two configurations have the same sizes, such as a plain
    engine with one thread and one of its variants, the first one counts.
    """
    grids: dict[tuple[str, tuple[tuple[str, int], ...]], dict[tuple[int, int], ThreadPoolSizes]] = {}
    for parameters, document in points:
        others = tuple((axis, value) for axis, value in parameters.items() if axis != "threads")
        for result in document.results:
            for one in _sizes(result):
                key = _without_pool_variants(result), others
                grids.setdefault(key, {}).setdefault((one.julia, one.blas), one)
    return [
        ThreadPoolGrid(
            configuration,
            dict(others),
            list(sizes.values()),
            min(sizes.values(), key=lambda one: one.step_seconds),
        )
        for (configuration, others), sizes in grids.items()
        if len({one.blas for one in sizes.values()}) > 1
    ]


def _sizes(result: Result) -> Iterator[ThreadPoolSizes]:
    build = result.versions.get("build", {})
    step = result.step_time
    if result.is_ranked and step is not None and {"julia_threads", "blas_threads"} <= set(build):
        julia, blas = int(build["julia_threads"]), int(build["blas_threads"])
        yield ThreadPoolSizes(julia, blas, step.median, step.ci95)


def _without_pool_variants(result: Result) -> str:
    """Return the configuration's name without the variants that only set pool sizes."""
    engine = ENGINES.get(result.engine)
    known = engine.variants if engine else {}
    variants = [
        name
        for name in (result.variant or "").split("+")
        if name and not (name in known and known[name].changes_thread_pools)
    ]
    return f"{'+'.join([result.engine, *variants])}/{result.device}"

"""NumPy's peaks on this machine: matrix products of its BLAS, and memory bandwidth."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from time import perf_counter

import numpy as np

from polybench.engines.base import Array
from polybench.protocol.calls import NumpyKernels, NumpyTimes

_CHUNK_VALUES = 1 << 15
"""Float64 values per chunk, which must fit the cache of a core until the second operation reads them."""

_TRIAD_SCALAR = 3.0


def time_numpy(kernels: NumpyKernels) -> NumpyTimes:
    """Time every kernel `repeats` times."""
    repeats, nbytes = kernels.repeats, kernels.triad_bytes
    products = [product_seconds(size, repeats) for size in kernels.sizes]
    return NumpyTimes(products, None if nbytes is None else triad_seconds(nbytes, kernels.threads, repeats))


def product_seconds(size: int, repeats: int) -> float:
    """Return the median seconds of a float32 product of two size x size matrices."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return _median_seconds(lambda: np.matmul(a, b, out=out), repeats)


def triad_seconds(nbytes: int, threads: int, repeats: int) -> float:
    """Return the median seconds of a = b + s c, STREAM's triad, for float64 arrays of `nbytes` each.

    See McCalpin, https://www.cs.virginia.edu/stream/. NumPy has no such operation. Each thread runs two operations
    chunk by chunk, so the second reads the chunk from the cache. NumPy releases the interpreter's lock.
    """
    a, b, c = (np.empty(nbytes // 8) for _ in range(3))
    bounds = np.linspace(0, len(a), threads + 1).astype(int)
    slices = [tuple(x[start:end] for x in (a, b, c)) for start, end in pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_fill, slices))  # first touch: places memory near the core that uses it
        return _median_seconds(partial(_run_in_pool, pool, slices), repeats)


def _run_in_pool(pool: ThreadPoolExecutor, slices: list[tuple[Array, ...]]) -> None:
    list(pool.map(_triad, slices))


def _fill(arrays: tuple[Array, ...]) -> None:
    for number, array in enumerate(arrays):
        array.fill(number)


def _triad(arrays: tuple[Array, ...]) -> None:
    a, b, c = arrays
    for start in range(0, len(a), _CHUNK_VALUES):
        chunk = slice(start, start + _CHUNK_VALUES)
        np.multiply(c[chunk], _TRIAD_SCALAR, out=a[chunk])
        np.add(a[chunk], b[chunk], out=a[chunk])


def _median_seconds(call: Callable[[], object], repeats: int) -> float:
    call()  # threads start, pages are mapped
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    return statistics.median(seconds)

"""What NumPy reaches on this machine: products of its BLAS, and the bandwidth of memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from time import perf_counter

import numpy as np

from polybench.engines.base import Array

_CHUNK = 1 << 15
"""Values of a piece that a core's own cache holds until the second operation has it."""

_SCALAR = 3.0


def product_seconds(size: int, repeats: int) -> float:
    """Median seconds of a product of two float32 matrices of size x size."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return _median_seconds(lambda: np.matmul(a, b, out=out), repeats)


def triad_seconds(nbytes: int, threads: int, repeats: int) -> float:
    """Median seconds of a = b + s c, as STREAM has it (McCalpin, https://www.cs.virginia.edu/stream/).

    NumPy has no such operation: each thread does it in two, chunk by chunk, so that the second finds the
    chunk in its cache. NumPy works without the interpreter's lock.

    Args:
        nbytes: of each of the three arrays, of float64.
        threads: among which they are divided.
        repeats: how often it is done.
    """
    a, b, c = (np.empty(nbytes // 8) for _ in range(3))
    bounds = np.linspace(0, len(a), threads + 1).astype(int)
    parts = [tuple(x[start:end] for x in (a, b, c)) for start, end in pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_fill, parts))  # memory lies near the core that first writes to it
        return _median_seconds(partial(_on_all, pool, parts), repeats)


def _on_all(pool: ThreadPoolExecutor, parts: list[tuple[Array, ...]]) -> None:
    list(pool.map(_triad, parts))


def _fill(part: tuple[Array, ...]) -> None:
    for number, array in enumerate(part):
        array.fill(number)


def _triad(part: tuple[Array, ...]) -> None:
    a, b, c = part
    for start in range(0, len(a), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        np.multiply(c[chunk], _SCALAR, out=a[chunk])
        np.add(a[chunk], b[chunk], out=a[chunk])


def _median_seconds(call: Callable[[], object], repeats: int) -> float:
    call()  # threads start, pages are mapped
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    return statistics.median(seconds)

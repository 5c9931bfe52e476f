"""Factors that may make equal processes differ, each fixed separately. ADD A FACTOR: its row in FACTORS."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from polybench.errors import EngineUnavailable
from polybench.protocol.environment import TUNABLES, malloc_env_vars

_ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h
_ASK = 0xFFFFFFFF
_PADDING = "POLYBENCH_PADDING"
"""Variable that changes the size of the environment, and so the addresses of the stack."""


class Factor(NamedTuple):
    """A condition for starting workers; unset attributes are as in a study.

    Attributes:
        summary: the change.
        environment: variables that replace those of a study.
        threads: threads instead of the requested ones.
        randomized: true if the kernel randomizes addresses of stack, heap and libraries.
        padded: true if the environment has a different size in each process.
        pinned: true to pin to as many cores as there are threads.
        only: engines that the factor affects; all if empty.
    """

    summary: str
    environment: Mapping[str, str] = MappingProxyType({})
    threads: int | None = None
    randomized: bool = True
    padded: bool = False
    pinned: bool = False
    only: tuple[str, ...] = ()


_HUGE = malloc_env_vars("retain")[TUNABLES] + ":glibc.malloc.hugetlb=1"
"""Retained memory with huge pages through madvise, which no study changes."""

FACTORS: dict[str, Factor] = {
    "nothing": Factor("nothing: a study with default settings"),
    "system_malloc": Factor("the C library's malloc policy", malloc_env_vars("system")),
    "huge_pages": Factor("transparent huge pages for malloc", {TUNABLES: _HUGE}),
    "addresses": Factor("addresses not randomized", randomized=False),
    "environment_size": Factor(
        "addresses not randomized, but for an environment of any size", randomized=False, padded=True
    ),
    "passive": Factor("OMP_WAIT_POLICY=passive", {"OMP_WAIT_POLICY": "passive"}, only=("torch",)),
    "active": Factor("OMP_WAIT_POLICY=active", {"OMP_WAIT_POLICY": "active"}, only=("torch",)),
    "no_spin": Factor("GOMP_SPINCOUNT=0", {"GOMP_SPINCOUNT": "0"}, only=("torch",)),
    "bound": Factor(
        "each thread bound to a core: OMP_PROC_BIND=close, JULIA_EXCLUSIVE=1",
        {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "JULIA_EXCLUSIVE": "1"},
        only=("torch", "flux"),
    ),
    "sleeping": Factor("JULIA_THREAD_SLEEP_THRESHOLD=0", {"JULIA_THREAD_SLEEP_THRESHOLD": "0"}, only=("flux",)),
    "onednn_off": Factor("TF_ENABLE_ONEDNN_OPTS=0", {"TF_ENABLE_ONEDNN_OPTS": "0"}, only=("tf",)),
    "avx2": Factor("ONEDNN_MAX_CPU_ISA=AVX2", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, only=("torch", "tf")),
    "one_thread": Factor("one thread", threads=1),
    "one_thread_pinned": Factor("one thread, pinned to a core", threads=1, pinned=True),
}


@contextlib.contextmanager
def apply_factor(factor: Factor, threads: int) -> Iterator[dict[str, str]]:
    """Start processes under this condition; their variables are in addition to a study's.

    Raises:
        EngineUnavailable: the kernel does not allow fixed addresses.
    """
    cores, personality = os.sched_getaffinity(0), _personality(_ASK)
    environment = dict(factor.environment)
    if factor.padded:
        environment[_PADDING] = "x" * random.randrange(4096)
    try:
        if factor.pinned:
            os.sched_setaffinity(0, sorted(cores)[-threads:])  # core 0 handles most interrupts
        if not factor.randomized:
            _personality(personality | _ADDR_NO_RANDOMIZE)
        yield environment
    finally:
        os.sched_setaffinity(0, cores)
        _personality(personality)


def _personality(wanted: int) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    before = library.personality(ctypes.c_ulong(wanted))
    if before == -1:
        why = os.strerror(ctypes.get_errno())
        raise EngineUnavailable(f"personality(2) failed: {why}", "omit this factor")
    return int(before)

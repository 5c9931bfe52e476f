"""What may make equal processes differ, each fixed by itself. ADD A SUSPECT: its row in SUSPECTS."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from polybench.core.errors import Unavailable
from polybench.wire.environment import TUNABLES, heap_environment

_ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h
_ASK = 0xFFFFFFFF
_PADDING = "POLYBENCH_PADDING"
"""Lies with the environment above the stack, whose addresses therefore move with its length."""


class Suspect(NamedTuple):
    """One condition under which workers start; what it does not name is as in a study.

    Attributes:
        says: what is fixed, or changed.
        environment: variables, instead of a study's.
        threads: instead of those asked for.
        randomized: whether the kernel puts stack, heap and libraries at random addresses.
        padded: the environment has another size in each process.
        pinned: to as many cores as there are threads.
        only: engines that it can concern; all, if empty.
    """

    says: str
    environment: Mapping[str, str] = MappingProxyType({})
    threads: int | None = None
    randomized: bool = True
    padded: bool = False
    pinned: bool = False
    only: tuple[str, ...] = ()


_HUGE = heap_environment("keep")[TUNABLES] + ":glibc.malloc.hugetlb=1"
"""The heap is kept, and glibc asks for huge pages with madvise: no study takes that from the user."""

SUSPECTS: dict[str, Suspect] = {
    "nothing": Suspect("nothing: a study as it is, the heap kept"),
    "system_heap": Suspect("the heap by the C library's own rule", heap_environment("system")),
    "huge_pages": Suspect("transparent huge pages for the heap", {TUNABLES: _HUGE}),
    "addresses": Suspect("addresses not randomized", randomized=False),
    "environment_size": Suspect(
        "addresses not randomized, but for an environment of any size", randomized=False, padded=True
    ),
    "passive": Suspect("OMP_WAIT_POLICY=passive", {"OMP_WAIT_POLICY": "passive"}, only=("torch",)),
    "active": Suspect("OMP_WAIT_POLICY=active", {"OMP_WAIT_POLICY": "active"}, only=("torch",)),
    "no_spin": Suspect("GOMP_SPINCOUNT=0", {"GOMP_SPINCOUNT": "0"}, only=("torch",)),
    "bound": Suspect(
        "each thread bound to a core: OMP_PROC_BIND=close, JULIA_EXCLUSIVE=1",
        {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "JULIA_EXCLUSIVE": "1"},
        only=("torch", "flux"),
    ),
    "sleeping": Suspect(
        "JULIA_THREAD_SLEEP_THRESHOLD=0", {"JULIA_THREAD_SLEEP_THRESHOLD": "0"}, only=("flux",)
    ),
    "onednn_off": Suspect("TF_ENABLE_ONEDNN_OPTS=0", {"TF_ENABLE_ONEDNN_OPTS": "0"}, only=("tf",)),
    "avx2": Suspect("ONEDNN_MAX_CPU_ISA=AVX2", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, only=("torch", "tf")),
    "one_thread": Suspect("one thread", threads=1),
    "one_thread_pinned": Suspect("one thread, pinned to a core", threads=1, pinned=True),
}


@contextlib.contextmanager
def fixed(suspect: Suspect, threads: int) -> Iterator[dict[str, str]]:
    """Processes that start inside are under the suspect's condition; their variables beside a study's.

    Raises:
        Unavailable: the kernel does not let addresses be fixed.
    """
    cores, personality = os.sched_getaffinity(0), _personality(_ASK)
    environment = dict(suspect.environment)
    if suspect.padded:
        environment[_PADDING] = "x" * random.randrange(4096)
    try:
        if suspect.pinned:
            os.sched_setaffinity(0, sorted(cores)[-threads:])  # core 0 has most of the interrupts
        if not suspect.randomized:
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
        raise Unavailable(f"personality(2) was refused: {why}", "leave this suspect out")
    return int(before)

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from _suspects import SUSPECTS, Suspect, fixed

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.wire.environment import TUNABLES, heap_environment

PERSONALITY = "print(open('/proc/self/personality').read())"
NOT_RANDOMIZED = 0x0040000


def personality() -> int:
    return int(subprocess.check_output([sys.executable, "-c", PERSONALITY]), 16)


def test_addresses_are_fixed_inside_only() -> None:
    try:
        with fixed(SUSPECTS["addresses"], 1):
            assert personality() & NOT_RANDOMIZED
    except Unavailable as error:
        pytest.skip(str(error))
    assert not personality() & NOT_RANDOMIZED


def test_cores_are_fixed_inside_only() -> None:
    cores = os.sched_getaffinity(0)
    with fixed(SUSPECTS["one_thread_pinned"], 1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == cores


def test_an_environment_of_any_size() -> None:
    def size() -> int:
        with fixed(Suspect("", padded=True), 1) as environment:
            return sum(map(len, environment.values()))

    assert len({size() for _ in range(20)}) > 1


def test_huge_pages_leave_the_heap_kept() -> None:
    kept = heap_environment("keep")[TUNABLES].split(":")
    assert set(kept) < set(SUSPECTS["huge_pages"].environment[TUNABLES].split(":"))


def test_suspects_are_of_engines_that_exist() -> None:
    assert {engine for suspect in SUSPECTS.values() for engine in suspect.only} <= set(ENGINES)

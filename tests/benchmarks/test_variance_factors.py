from __future__ import annotations

import os
import subprocess
import sys

import pytest
from _variance_factors import FACTORS, Factor, apply_factor

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import TUNABLES, malloc_env_vars

PERSONALITY = "print(open('/proc/self/personality').read())"
NOT_RANDOMIZED = 0x0040000


def personality() -> int:
    return int(subprocess.check_output([sys.executable, "-c", PERSONALITY]), 16)


def test_addresses_are_fixed_inside_the_context_only() -> None:
    try:
        with apply_factor(FACTORS["addresses"], 1):
            assert personality() & NOT_RANDOMIZED
    except EngineUnavailable as error:
        pytest.skip(str(error))
    assert not personality() & NOT_RANDOMIZED


def test_cores_are_pinned_inside_the_context_only() -> None:
    cores = os.sched_getaffinity(0)
    with apply_factor(FACTORS["one_thread_pinned"], 1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == cores


def test_the_environment_can_have_any_size() -> None:
    def size() -> int:
        with apply_factor(Factor("", padded=True), 1) as environment:
            return sum(map(len, environment.values()))

    assert len({size() for _ in range(20)}) > 1


def test_huge_pages_keep_the_malloc_policy() -> None:
    retained = malloc_env_vars("retain")[TUNABLES].split(":")
    assert set(retained) < set(FACTORS["huge_pages"].environment[TUNABLES].split(":"))


def test_factors_name_existing_engines() -> None:
    assert {engine for factor in FACTORS.values() for engine in factor.only} <= set(ENGINES)

"""Tests that the reported startup is that of a user's own process."""

from __future__ import annotations

from polybench.results.document import _startup
from polybench.schema.result import Startup


def startup(first_step: float, **detail: float) -> Startup:
    return Startup(0.5, 3.0, 0.1, 0.2, first_step, 0.05, detail)


def test_startup_is_that_of_the_first_process_which_started_alone() -> None:
    found = _startup([startup(1.0), startup(3.0), startup(2.0)])
    assert found is not None
    assert found.first_step_seconds == 1.0
    assert found.detail == {}


def test_first_step_with_cached_code_is_a_detail() -> None:
    found = _startup([startup(12.0, julia_seconds=1.0), *[startup(0.5, cached_code=1.0)] * 4])
    assert found is not None
    assert found.first_step_seconds == 12.0
    assert found.detail == {"julia_seconds": 1.0, "first_step_with_cached_code_seconds": 0.5}


def test_startup_is_none_without_processes() -> None:
    assert _startup([]) is None

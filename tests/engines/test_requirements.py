"""Requirements that several engines meet in the same way."""

from __future__ import annotations

import pytest

from tests.engines.engine_fixtures import Check, RunCheck
from tests.engines.pipeline_checks import CHECKS


@pytest.mark.parametrize("engine", ["torch", "tf", "jax", "flux"])
@pytest.mark.parametrize("check", CHECKS)
def test_an_engine_meets_the_requirement(run_check: RunCheck, engine: str, check: Check) -> None:
    run_check(engine, check)

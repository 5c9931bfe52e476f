"""The fields that begin the record of a configuration in every document."""

from __future__ import annotations

from polybench.schema.result import ConfigurationStatus, status_fields
from tests.factories import measured, unmeasured


def test_an_environment_distinguishes_configurations() -> None:
    row = ConfigurationStatus(**status_fields(measured("torch+compile@old/cpu", 0.01)))
    assert (row.engine, row.variant, row.environment, row.device) == ("torch", "compile", "old", "cpu")
    assert ConfigurationStatus(**status_fields(measured("torch/cpu", 0.01))).environment is None


def test_a_status_has_a_reason_and_a_hint() -> None:
    row = ConfigurationStatus(
        **status_fields(unmeasured("tf/cpu", "unavailable", "not installed", "pip install tensorflow"))
    )
    assert (row.status, row.reason, row.hint) == ("unavailable", "not installed", "pip install tensorflow")

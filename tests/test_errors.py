"""The class hierarchy of errors: exported, each with an exit code of the public interface."""

from __future__ import annotations

import inspect

import pytest

import polybench
from polybench import errors
from polybench.errors import PolybenchError

PUBLIC = {
    name: member
    for name, member in vars(errors).items()
    if inspect.isclass(member) and issubclass(member, BaseException)
}


def test_every_error_is_in_the_hierarchy_and_exported() -> None:
    assert len(PUBLIC) >= 5
    for name, error in PUBLIC.items():
        assert issubclass(error, PolybenchError)
        assert name in polybench.__all__
        assert getattr(polybench, name) is error
        assert error.__module__ == "polybench", f"{name} needs its public module"


def test_exported_names_exist() -> None:
    assert all(hasattr(polybench, name) for name in polybench.__all__)


@pytest.mark.parametrize(
    ("name", "code"),
    [("ConfigurationFailed", 1), ("BadInput", 2), ("RequiredEngineMissing", 3), ("EngineUnavailable", 4)],
)
def test_errors_have_the_exit_codes_of_the_interface(name: str, code: int) -> None:
    assert PUBLIC[name].exit_code == code

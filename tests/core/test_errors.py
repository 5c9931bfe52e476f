"""The tree of errors: exported as a whole, each with an exit code of the public interface."""

from __future__ import annotations

import inspect

import pytest

import polybench
from polybench.core import errors
from polybench.core.errors import PolybenchError

PUBLIC = {
    name: member
    for name, member in vars(errors).items()
    if inspect.isclass(member) and issubclass(member, BaseException)
}


def test_every_error_is_of_the_tree_and_exported() -> None:
    assert len(PUBLIC) >= 5
    for name, error in PUBLIC.items():
        assert issubclass(error, PolybenchError)
        assert name in polybench.__all__
        assert getattr(polybench, name) is error
        assert error.__module__ == "polybench", f"{name} must say where users find it"


def test_what_is_exported_is_there() -> None:
    assert all(hasattr(polybench, name) for name in polybench.__all__)


@pytest.mark.parametrize(
    ("name", "code"), [("CellFailed", 1), ("BadInput", 2), ("StrictlyUnavailable", 3), ("Unavailable", 4)]
)
def test_exit_codes_of_the_interface(name: str, code: int) -> None:
    assert PUBLIC[name].exit_code == code

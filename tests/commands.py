"""Runs commands of polybench in the test's own process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.errors import BadInput

FAST = (
    *("--data", "synthetic", "--batch-size", "16"),
    *("--processes", "1", "--rounds-per-process", "1", "--steps-per-round", "3"),
    *("--wait-idle", "0"),  # other tests use the cores
)
"""Options of the shortest study."""


def invoke(*arguments: object) -> Result:
    """Run a command; its errors are in the result."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def printed(*arguments: object, code: int = 0) -> str:
    """Return what a command prints on standard output."""
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def printed_json(*arguments: object, code: int = 0) -> Any:
    """Return the document that a command prints."""
    return json.loads(printed(*arguments, "--format", "json", code=code))


def refused(*arguments: object) -> str:
    """Return the message about bad input."""
    error = invoke(*arguments).exception
    assert isinstance(error, BadInput), repr(error)[:200]
    assert error.exit_code == 2
    return str(error)

"""Options become parameters of a command, and what was typed becomes its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from polybench.commands.changes import Changes
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.core.errors import BadInput
from polybench.core.spec import Study


def invoke(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def seen() -> list[Any]:
    return []


def test_records_flags_and_own_parameters(seen: list[Any]) -> None:
    @takes("engines", "target", "prices", "parity", "format", "save", "results", "quick")
    def command(
        name: Annotated[str, typer.Argument()],
        study: Study,
        how: Presentation,
        quick: bool,
        results: Path | None = None,
        extra: Annotated[int, typer.Option("--extra")] = 7,
    ) -> None:
        """Do it."""
        seen.append((name, study, how, quick, results, extra))

    assert command.__doc__ == "Do it."
    assert invoke(command, "x").exit_code == 0
    assert (
        invoke(
            command,
            *("x", "--engines", "torch, tf", "--target", "2%", "--price", "cpu=1", "--price", "cuda=2"),
            *("--no-parity", "--no-save", "--format", "csv", "--results", "here", "--quick", "--extra", "8"),
        ).exit_code
        == 0
    )
    given = Study(engines=("torch", "tf"), target=0.02, prices={"cpu": 1.0, "cuda": 2.0}, parity=False)
    assert seen == [
        ("x", Study(), Presentation(), False, None, 7),
        ("x", given, Presentation(format="csv", save=False), True, Path("here"), 8),
    ]


def test_what_is_not_taken_is_no_option(seen: list[Any]) -> None:
    @takes("seed")
    def command(study: Study) -> None:
        seen.append(study)

    assert invoke(command, "--seed", "4").exit_code == 0
    assert invoke(command, "--model", "lenet").exit_code == 2
    assert seen == [Study(seed=4)]


def test_changes_have_what_was_given_and_nothing_else(seen: list[Any]) -> None:
    @takes("seed", "target", "prices", "metrics", "parity", "augment", "quick")
    def command(changes: Changes, quick: bool) -> None:
        seen.append(changes.applied_to(study))

    study = Study(seed=5, target=0.1, prices={"cpu": 3.0}, metrics=False, input="pipeline", augment=True)
    assert invoke(command, "--quick").exit_code == 0
    assert invoke(command, "--seed", "0", "--metrics", "--target", "5%").exit_code == 0
    assert seen[0] == study
    assert (seen[1].seed, seen[1].metrics, seen[1].target) == (0, True, 0.05)
    assert (seen[1].prices, seen[1].augment) == ({"cpu": 3.0}, True)
    assert isinstance(invoke(command, "--seed", "-1").exception, BadInput)


def test_an_unknown_option_is_found_when_the_program_is_written() -> None:
    with pytest.raises(ValueError, match="sead"):
        takes("sead")(lambda: None)

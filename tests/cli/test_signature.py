"""`with_options`: options become parameters of a command, and their values its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from polybench.cli.output import OutputOptions
from polybench.cli.signature import Overrides, with_options
from polybench.errors import BadInput
from polybench.schema.options import Study


def invoke(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def seen() -> list[Any]:
    return []


def test_a_command_gets_records_flags_and_its_own_parameters(seen: list[Any]) -> None:
    @with_options("engines", "margin", "prices", "parity", "format", "save", "results", "quick")
    def command(
        name: Annotated[str, typer.Argument()],
        study: Study,
        how: OutputOptions,
        quick: bool,
        results: Path | None = None,
        extra: Annotated[int, typer.Option("--extra")] = 7,
    ) -> None:
        """Run."""
        seen.append((name, study, how, quick, results, extra))

    assert command.__doc__ == "Run."
    assert invoke(command, "x").exit_code == 0
    assert (
        invoke(
            command,
            *("x", "--engines", "torch, tf", "--margin", "2%", "--price", "cpu=1", "--price", "cuda=2"),
            *("--no-parity", "--no-save", "--format", "csv", "--results", "here", "--quick", "--extra", "8"),
        ).exit_code
        == 0
    )
    given = Study(engines=("torch", "tf"), margin=0.02, prices={"cpu": 1.0, "cuda": 2.0}, parity=False)
    assert seen == [
        ("x", Study(), OutputOptions(), False, None, 7),
        ("x", given, OutputOptions(format="csv", save=False), True, Path("here"), 8),
    ]


def test_an_option_that_the_command_does_not_take_is_unknown(seen: list[Any]) -> None:
    @with_options("seed")
    def command(study: Study) -> None:
        seen.append(study)

    assert invoke(command, "--seed", "4").exit_code == 0
    assert invoke(command, "--model", "lenet").exit_code == 2
    assert seen == [Study(seed=4)]


def test_overrides_contain_only_the_given_options(seen: list[Any]) -> None:
    @with_options("seed", "margin", "prices", "metrics", "parity", "augment", "quick")
    def command(changes: Overrides, quick: bool) -> None:
        seen.append(changes.apply(study))

    study = Study(seed=5, margin=0.1, prices={"cpu": 3.0}, metrics=False, input="pipeline", augment=True)
    assert invoke(command, "--quick").exit_code == 0
    assert invoke(command, "--seed", "0", "--metrics", "--margin", "5%").exit_code == 0
    assert seen[0] == study
    assert (seen[1].seed, seen[1].metrics, seen[1].margin) == (0, True, 0.05)
    assert (seen[1].prices, seen[1].augment) == ({"cpu": 3.0}, True)
    assert isinstance(invoke(command, "--seed", "-1").exception, BadInput)


def test_an_unknown_option_raises_an_error_at_definition() -> None:
    with pytest.raises(ValueError, match="sead"):
        with_options("sead")(lambda: None)

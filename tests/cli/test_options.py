"""Options: the parsers of their values, the table, and the parameters that commands get from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from polybench.cli.options import (
    OPTIONS,
    Overrides,
    make_study,
    parse_duration,
    parse_fraction,
    parse_lr_schedule,
    parse_precision,
    parse_prices,
    with_options,
)
from polybench.cli.output import OutputOptions
from polybench.errors import BadInput, split_names
from polybench.schema.options import Study

PARSED = {"margin": 0.05, "tolerance": 0.01, "budget": 60.0, "wait_idle": 20.0, "timeout": 600.0}
"""Values of these defaults after typer's parsers."""


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_duration, "60s", 60),
        (parse_duration, "90", 90),
        (parse_duration, "1.5m", 90),
        (parse_duration, "500ms", 0.5),
        (parse_duration, "2 min", 120),
        (parse_duration, "0.5h", 1800),
        (parse_fraction, "5%", 0.05),
        (parse_fraction, "0.05", 0.05),
        (parse_fraction, "2.5 %", 0.025),
    ],
)
def test_durations_and_fractions(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_duration, ["", "s", "0s", "-1s", "5 parsecs", "1e3"]),
        (parse_fraction, ["0", "100%", "five", "-1%", "nan"]),
    ],
)
def test_invalid_durations_and_fractions_are_rejected(parse: Callable[[str], float], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(typer.BadParameter):
            parse(text)


def test_lists_pairs_and_schedules() -> None:
    assert split_names(" torch, tf+xla,,") == ("torch", "tf+xla")
    assert parse_precision("bf16") == "bf16"
    assert parse_precision("fp32, bf16") == ("fp32", "bf16")
    assert parse_prices(["cpu=0.24", "cuda:1=3"]) == {"cpu": 0.24, "cuda:1": 3.0}
    assert parse_lr_schedule(["10=0.1", "9=0.2"]) == ((9, 0.2), (10, 0.1))


def test_invalid_pairs_and_schedules_name_the_option() -> None:
    for bad in ("cpu", "=1", "cpu=free", "cpu=-1", "cpu=nan", "cpu=inf", "cpu=1e999"):
        with pytest.raises(BadInput, match=f"--price '{bad}': expected DEVICE=DOLLARS with .* --price cpu=0.24$"):
            parse_prices([bad])
    with pytest.raises(BadInput, match="--price '5=2': 5 is given twice"):
        parse_prices(["5=1", "5=2"])
    for bad in ("cosine", "soon=0.1", "-1=0.1", "5", "5=0"):
        with pytest.raises(BadInput, match=r"--lr-schedule.* expected STEP=RATE.* 40000=0.01$"):
            parse_lr_schedule([bad])
    with pytest.raises(BadInput, match=r"expected CONFIGURATION=FRACTION.* --inject-delay torch/cpu=0.1$"):
        OPTIONS["injected_delays"].read(["torch/cpu"])


def test_each_field_has_an_option_and_each_option_is_a_field_or_a_flag() -> None:
    fields = {*Study.__struct_fields__, *OutputOptions._fields}
    assert set(OPTIONS) - fields == {"quick", "recheck", "strict", "dry_run"}
    assert fields <= set(OPTIONS)
    flags = [flag for row in OPTIONS.values() for flag in (row.info.default, *(row.info.param_decls or ()))]
    assert len(set(flags)) == len(flags) >= len(OPTIONS)


def test_the_defaults_of_the_options_make_the_default_study() -> None:
    rows = [row for row in OPTIONS.values() if row.field in Study.__struct_fields__ and row.default is not None]
    assert len(rows) > 10
    given = {row.field: row.read(PARSED.get(row.field, row.default)) for row in rows}
    assert make_study(**given) == make_study() == Study()
    for field, value in PARSED.items():
        assert OPTIONS[field].info.parser(OPTIONS[field].default) == value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parity_steps": 0}, "--parity-steps"),
        ({"lr_schedule": ((0, 0.1),)}, "--lr-schedule"),
        ({"malloc": "xretain"}, "unknown malloc 'xretain'; did you mean 'retain'"),
    ],
)
def test_an_error_names_the_option_that_is_out_of_range(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_study(**fields)


def test_a_name_that_is_not_text_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"invalid name '\\udc80'"):
        make_study(malloc="\udc80")


def test_overrides_replace_only_the_given_fields() -> None:
    study = Study(engines=("fake",), seed=3, prices={"cpu": 0.5}, target_accuracy=0.5)
    assert Overrides().apply(study) == study
    changed = Overrides(seed=0, prices={"cuda": 2.0}).apply(study)
    assert changed == Study(engines=("fake",), seed=0, prices={"cuda": 2.0}, target_accuracy=0.5)
    with pytest.raises(BadInput, match="--momentum"):
        Overrides(momentum=1.5).apply(study)
    with pytest.raises(BadInput, match="add --input pipeline"):
        Overrides(loader_workers=2).apply(study)


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
    options = "x --engines torch,tf --margin 2% --price cpu=1 --price cuda=2 --no-parity --no-save --format csv"
    assert invoke(command, *options.split(), "--results", "here", "--quick", "--extra", "8").exit_code == 0
    given = Study(engines=("torch", "tf"), margin=0.02, prices={"cpu": 1.0, "cuda": 2.0}, parity=False)
    assert seen == [
        ("x", Study(), OutputOptions(), False, None, 7),
        ("x", given, OutputOptions(format="csv", save=False), True, Path("here"), 8),
    ]
    assert invoke(command, "x", "--model", "lenet").exit_code == 2  # an option that the command does not take


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

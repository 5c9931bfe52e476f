"""Names of before version 2: the error names the new one. Remove with `names.py`."""

from __future__ import annotations

import pytest
import typer

import polybench
from polybench import errors
from polybench.cli import app
from polybench.engines import ALLOCATOR_VARIANTS, ENGINES
from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks import MODELS
from polybench.planning.study_file import parse
from polybench.schema.metrics import GROUPS, METRICS
from polybench.schema.options import Study
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--heap", "keep"], "no such option --heap: it is now --malloc"),
        (["compare", "--heap=keep"], "no such option --heap: it is now --malloc"),
        (["compare", "--describe"], "no such option --describe: it is now polybench scripts"),
        (["run", "x", "--until", "accuracy=0.6"], "no such option --until: it is now --target-accuracy"),
        (["sweep", "--workers", "0,1"], "no such option --workers: it is now --loader-workers"),
        (["layers", "--sort", "lost"], "unknown order 'lost': it is now 'slowdown'"),
        (["peak", "--recheck"], "no such option --recheck: it is now --remeasure"),
        (["setup", "flux", "--with", "Enzyme"], "no such option --with: it is now --add-package"),
        (["limit"], "no such command limit: it is now peak"),
        (["compare", "--malloc", "keep"], "unknown malloc 'keep': it is now 'retain'"),
        (["compare", "--model", "rosetta"], "unknown model 'rosetta': it is now 'dlframeworks-cnn'"),
        (["compare", "--engines", "tf+nofuse"], "unknown variant of tf 'nofuse': it is now 'no_fusion'"),
        (["compare", "--columns", "roof"], "unknown column 'roof': it is now 'pct_of_peak'"),
    ],
)
def test_an_old_name_on_the_command_line_names_the_new_one(arguments: list[str], message: str, run: Run) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")


def test_an_option_of_another_command_is_only_unknown(run: Run) -> None:
    result = run("list", "--heap", "keep")
    assert result.returncode == 2
    assert "it is now" not in result.stderr


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("heap = 'keep'", "unknown key 'heap': it is now 'malloc'"),
        ("[when_quick]\nseed = 1", "unknown key 'when_quick': it is now 'quick_overrides'"),
    ],
)
def test_an_old_key_of_a_study_file_names_the_new_one(key: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(f"engines = ['fake']\n{key}\n", "study.toml")
    assert message in str(error.value)
    assert str(error.value).startswith("study.toml:2: ")


def test_an_old_option_in_python_names_the_new_one() -> None:
    with pytest.raises(BadInput, match="unknown option 'heap': it is now 'malloc'"):
        polybench.compare(engines=["fake"], heap="keep")


def test_every_new_name_exists_and_no_old_one_does() -> None:
    commands = typer.main.get_command(app).commands
    spellings = {
        spelling
        for command in [*commands.values(), commands["setup"].commands["flux"]]
        for parameter in command.params
        for spelling in parameter.opts
    }
    commands_in_words = {f"polybench {name}" for name in commands}
    assert set(errors.OLD_OPTIONS.values()) <= spellings | commands_in_words
    shared = {"--recheck", "--steps", "--until"}  # options of other commands
    assert not (errors.OLD_OPTIONS.keys() - shared) & spellings
    assert set(errors.OLD_COMMANDS.values()) <= commands.keys()
    assert not errors.OLD_COMMANDS.keys() & commands.keys()
    columns = METRICS | GROUPS
    others = {*Study.__struct_fields__, "quick_overrides", "resources", "upload", "retain", "slowdown"}
    others |= MODELS.keys() | ALLOCATOR_VARIANTS.keys() | {name for spec in ENGINES.values() for name in spec.variants}
    assert set(errors.OLD_NAMES.values()) <= columns.keys() | others
    assert not errors.OLD_NAMES.keys() & (columns.keys() | others)


def test_a_name_that_a_table_still_has_is_not_old() -> None:
    assert lookup_or_suggest("replicas", GROUPS, "column") == GROUPS["replicas"]
    assert lookup_or_suggest("keep", {"keep": 1}, "word") == 1

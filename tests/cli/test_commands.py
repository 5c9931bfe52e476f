"""Every command is complete: help with an example, documentation, a test. Each failure names what to add, and where."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from polybench.cli import app
from polybench.cli.options import MAX_LISTED, OPTIONS
from tests.commands import printed

ROOT = Path(__file__).parents[2]


def commands(group: dict[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.items():
        if hasattr(command, "commands"):
            yield from commands(command.commands, *names, name)
        else:
            yield " ".join((*names, name)), command


LISTED = typer.main.get_command(app).commands
COMMANDS = dict(commands({name: listed.load() for name, listed in LISTED.items()}))
PAGES = " ".join(path.read_text("utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
TESTS = " ".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))


COMMON = "engines devices model data batch-size precision threads quick wait-idle epochs format output"
"""Options of `compare` that people use."""


def help_of(name: str, *, whole: bool) -> str:
    is_short = any(param.name == "help_all" for param in COMMANDS[name].params)
    return printed(*name.split(), "--help-all" if whole and is_short else "--help")


def options_in(text: str) -> set[str]:
    return set(re.findall(r"^│ \*? *--([\w-]+)", text, re.MULTILINE)) - {"help", "help-all"}


def test_help_of_compare_lists_the_common_options_and_help_all_every_option() -> None:
    assert options_in(help_of("compare", whole=False)) == set(COMMON.split())
    every = options_in(help_of("compare", whole=True))
    assert {*COMMON.split(), "margin", "on", "upload", "quiet", "env"} < every
    assert "inject-delay" not in every  # for tests
    assert len(every) == sum(not param.hidden for param in COMMANDS["compare"].params) - 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_few_options_or_the_common_ones_and_those_of_the_command_itself(name: str) -> None:
    shown, every = (options_in(help_of(name, whole=whole)) for whole in (False, True))
    assert shown <= every
    assert len(shown) <= 20, f"polybench {name}: too many options; see RARE in cli/options.py"
    if shown != every:
        assert len(every) > MAX_LISTED
        common = {*COMMON.split()}
        assert shown & common == every & common
        assert not (shown - common) & {field.replace("_", "-") for field in OPTIONS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_its_options_accept(name: str) -> None:
    command = COMMANDS[name]
    _, found, example = (command.help or "").partition("Example: ")
    assert found, f"polybench {name}: end the docstring of its function with a line 'Example: polybench {name} ...'"
    words = shlex.split(example.partition(" > ")[0])
    assert words[: 1 + len(name.split())] == ["polybench", *name.split()], example
    command.make_context(name, words[1 + len(name.split()) :])  # raises UsageError or BadInput


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_tested(name: str) -> None:
    documented = f"polybench {name}" in PAGES
    assert documented, f"polybench {name}: add it to README.md's table of commands, or describe it in a page of docs/"
    words = r'",\s*"'.join(name.split())
    assert re.search(rf'"{words}"|"{name}[ "]', TESTS), f"polybench {name}: add a test that calls it to tests/cli"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_may_be_repeated_show_the_form_of_a_value(name: str) -> None:
    shown = help_of(name, whole=True)
    wrong = re.findall(r"--[\w-]+.*<list\[", shown)
    assert not wrong, f"polybench {name}: give the option a metavar, such as NAME=PATH"

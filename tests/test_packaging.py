"""The distribution's name, its requirements, and what an import loads; each failure names the missing line."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from polybench import errors
from polybench.engines import ENGINES, EngineSpec
from polybench.errors import import_name_conflict, install_command
from tests.frameworks import PYPROJECT, frameworks_of_engines, packages_of_frameworks

ROOT = Path(__file__).parents[1]
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
SEVERAL = {"engines.keras", "engines.shared", "importer"}
"""Packages that share frameworks: Keras runs on those of other engines, and a user's model has one of them."""
OLDEST = Path(__file__).with_name("minimum_versions.txt").read_text()


def _lower_bounds() -> dict[str, str]:
    extras = {name: lines for name, lines in EXTRAS.items() if name not in ("all", "dev", "test")}
    lines = [*PYPROJECT["project"]["dependencies"], *(line for one in extras.values() for line in one)]
    return dict(line.split(">=") for line in lines)


def test_minimum_versions_match_pyproject() -> None:
    pinned = dict(line.split("==") for line in OLDEST.splitlines() if "==" in line)
    bounds = _lower_bounds()
    assert set(pinned) - {"click"} == set(bounds), (
        "tests/minimum_versions.txt: one line for each package of pyproject.toml"
    )
    for name, bound in bounds.items():
        padded = re.fullmatch(rf"{re.escape(bound)}(\.0)*(\.\d+)?", pinned[name])
        assert padded, f"tests/minimum_versions.txt: {name}=={pinned[name]}, and pyproject.toml allows {bound}"


def test_a_framework_is_imported_in_one_package_only() -> None:
    spread = {module: packages for module, packages in packages_of_frameworks().items() if len(packages - SEVERAL) > 1}
    assert not spread, "import each in its engine's folder only, or require it for all of polybench"


@pytest.mark.parametrize("extra", [row.extra for row in ENGINES.values() if row.extra])
def test_every_engine_has_an_extra_that_all_includes(extra: str) -> None:
    assert EXTRAS.get(extra), f"[project.optional-dependencies]: write what installs the framework, {extra} = [...]"
    (everything,) = EXTRAS["all"]
    assert extra in everything.removeprefix("polybench-dl").strip("[]").split(","), f"add {extra} to the extra `all`"


def test_mypy_skips_frameworks() -> None:
    skipped: Any = next(one for one in PYPROJECT["tool"]["mypy"]["overrides"] if "follow_imports" in one)
    for module in sorted(frameworks_of_engines()):
        own = packages_of_frameworks()[module]
        assert any(fnmatch(f"{module}.x", pattern) for pattern in skipped["module"]), (
            f'[[tool.mypy.overrides]]: add "{module}.*", which {own} imports: mypy then says the same without it'
        )


@pytest.mark.parametrize("row", [row for row in ENGINES.values() if row.extra], ids=lambda row: row.extra)
def test_an_engines_packages_are_those_of_its_extra(row: EngineSpec) -> None:
    assert row.extra is not None
    assert [one.partition(">")[0] for one in EXTRAS[row.extra]] == list(row.packages)


ROOT = Path(__file__).parents[1]

SUFFIXES = {".py", ".md", ".ipynb", ".jl", ".j2", ".toml", ".yml"}
COMMAND = re.compile(r"pip install (?:-\S+ )*['\"]?(polybench[\w-]*)(?:\\?\[([\w,]+)\\?\])?")


def test_the_constant_is_the_name_in_pyproject() -> None:
    assert PYPROJECT["project"]["name"] == errors.DISTRIBUTION


def test_install_commands() -> None:
    assert install_command("tf", "plot") == "pip install 'polybench-dl[tf,plot]'"
    assert install_command(version="1.2") == "pip install polybench-dl==1.2"
    assert install_command() == "pip install --upgrade polybench-dl"


def test_every_install_command_in_docs_code_and_notebooks_names_our_distribution() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [
        (name, *match.groups())
        for name in listed.splitlines()
        if Path(name).suffix in SUFFIXES and name != "tests/test_packaging.py" and (ROOT / name).is_file()
        for match in COMMAND.finditer((ROOT / name).read_text("utf-8"))
    ]
    assert found
    for name, project, extras in found:
        assert project == errors.DISTRIBUTION, f"{name} installs {project}, which is a stranger's project"
        for extra in (extras or "").split(","):
            assert not extra or extra in EXTRAS or name.startswith("tests/"), f"{name}: no extra {extra}"


def test_the_requirements_among_extras_name_our_distribution() -> None:
    own = [line for lines in EXTRAS.values() for line in lines if line.startswith("polybench")]
    assert own
    assert all(line.startswith(f"{errors.DISTRIBUTION}[") for line in own)


@pytest.mark.parametrize(
    ("folder", "conflict"), [("polybench-0.3.dist-info", True), ("polybench_dl-1.dist-info", False)]
)
def test_the_other_project_of_our_import_name_is_reported(
    folder: str, conflict: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    message = import_name_conflict()
    assert (message is not None) == conflict
    if message:
        assert "pip uninstall polybench" in message
        assert errors.DISTRIBUTION in message


HEAVY = {"matplotlib", "plotly", "pandas", "scipy"}
"""Packages that take long to import, beside the frameworks."""

IMPORT_ALL_COMMANDS = """import typer
from polybench.cli import app
for command in typer.main.get_command(app).commands.values(): command.load()"""
HELP = """from typer.testing import CliRunner
from polybench.cli import app
assert "compare" in CliRunner().invoke(app, ["--help"]).stdout"""


def loaded_by(code: str) -> set[str]:
    code = f"{code}\nimport sys; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {*output.split()}


@pytest.mark.parametrize("statement", ["import polybench", IMPORT_ALL_COMMANDS, "import polybench.run"])
def test_importing_polybench_loads_no_framework(statement: str) -> None:
    assert not loaded_by(statement) & {*frameworks_of_engines(), *HEAVY}


def test_the_command_line_loads_neither_numpy_nor_a_measuring_library() -> None:
    assert not loaded_by(IMPORT_ALL_COMMANDS) & {"numpy", "psutil", "pynvml"}


def test_help_imports_no_command_and_no_document() -> None:
    loaded = loaded_by(HELP)
    assert {name for name in loaded if name.startswith("polybench.cli.")} == {
        "polybench.cli.commands",
        "polybench.cli.output",
    }
    assert "msgspec" not in loaded


def test_make_lint_runs_every_linter_and_names_those_that_fail(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for linter in ("ruff", "mypy", "lint-imports", "vulture"):
        script = tmp_path / "bin" / linter
        script.write_text(f'#!/bin/sh\necho "ran {linter} $1"\ntest {linter} != mypy -a "$1" != format\n')
        script.chmod(0o755)
    lint = ["make", "lint", f"VENV={tmp_path}", f"--assume-old={tmp_path}/.installed"]
    done = subprocess.run(lint, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.findall("ran (.*)", done.stdout) == ["ruff check", "ruff format", "mypy ", "lint-imports ", "vulture "]
    assert done.returncode != 0
    assert "failed: ruff format --check ., mypy\n" in done.stderr


def test_the_citation_has_the_version_of_the_package() -> None:
    assert f"\nversion: {errors.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")

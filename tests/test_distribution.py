"""The name under which polybench is installed: the same in every command that polybench or its docs print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polybench import errors
from polybench.errors import import_name_conflict, install_command
from tests.frameworks import PYPROJECT

ROOT = Path(__file__).parents[1]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
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
        if Path(name).suffix in SUFFIXES and name != "tests/test_distribution.py" and (ROOT / name).is_file()
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

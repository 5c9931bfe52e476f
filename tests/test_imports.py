"""Modules that importing polybench must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.frameworks import frameworks_of_engines

HEAVY = {*frameworks_of_engines(), "matplotlib", "plotly", "pandas", "scipy"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in output.split()}


@pytest.mark.parametrize("statement", ["import polybench", "import polybench.cli", "import polybench.runner.study"])
def test_importing_polybench_loads_no_framework(statement: str) -> None:
    assert not loaded_by(statement) & HEAVY


def test_the_command_line_loads_neither_numpy_nor_a_measuring_library() -> None:
    assert not loaded_by("import polybench.cli") & {"numpy", "psutil", "pynvml"}

"""The tests of the Julia package itself, in Julia."""

from __future__ import annotations

import os
import subprocess

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import check, find
from polybench.engines.flux.julia.package import package_folder


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """The tests in Julia, run."""
    try:
        check(julia := find())
    except Unavailable as missing:
        pytest.skip(missing.reason)
    folder = package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2"]
    command.append(str(folder / "test" / "runtests.jl"))
    environment = os.environ | {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_the_julia_package(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_aqua_has_nothing_to_say(done: subprocess.CompletedProcess[str]) -> None:
    if "Aqua is not in this environment" in done.stdout:
        pytest.skip("Aqua is not in Julia's environment; Pkg.test() in julia/ brings it")
    assert "Aqua has tested the package" in done.stdout, done.stdout + done.stderr

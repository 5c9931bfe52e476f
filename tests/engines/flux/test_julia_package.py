"""The tests of the Julia package itself, in Julia."""

from __future__ import annotations

import os
import subprocess

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import check, find
from polybench.engines.flux.julia.package import package_folder


@pytest.mark.slow
def test_the_julia_package() -> None:
    try:
        check(julia := find())
    except Unavailable as missing:
        pytest.skip(missing.reason)
    folder = package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2"]
    command.append(str(folder / "test" / "runtests.jl"))
    environment = os.environ | {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

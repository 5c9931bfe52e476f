"""Fixtures for all tests: no test may see or change the user's own studies, data, caches or configuration."""

from __future__ import annotations

import os

# Before NumPy is imported: the reference's small products lose more to BLAS threads than they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, find


@pytest.fixture(scope="session", autouse=True)
def users_julia() -> None:
    """The Julia that a user's polybench would find, looked up before the configuration is hidden."""
    try:
        julia = find()
    except Unavailable:
        return
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: julia.project, FOUND_BY: julia.found_by}


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("POLYBENCH_RESULTS", str(home / "results"))
    monkeypatch.setenv("POLYBENCH_DATA", str(home / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    return home

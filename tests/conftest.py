"""Fixtures for all tests: no test may see or change the user's own studies, data, caches or configuration."""

from __future__ import annotations

import os
import sys

# Where nothing may be compiled to files, each of hundreds of processes compiles the program again, and pytest
# rewrites every test again: __pycache__ is ignored by git.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Before NumPy is imported: the reference's small products lose more to BLAS threads than they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Two test processes share the cores: a thread of OpenMP that spins takes its core from the other one.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import inspect
import signal
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from polybench.core.interrupts import SIGNALS
from tests import julia_depot

# Machines are shared: that an example, or the making of one, takes long says nothing of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# Click 8.1 mixes what goes to standard error into the output, where it is not asked not to.
if "mix_stderr" in inspect.signature(CliRunner.__init__).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)  # type: ignore[assignment]

sys.dont_write_bytecode = False  # what that variable became in this process

SHARE_ENGINES = (
    "engines/test_identity.py",
    "engines/test_variants.py",
    "engines/flux/test_engine.py",
    "engines/keras/test_engine.py",
    "engines/pytorch/test_engine.py",
    "engines/tensorflow/test_engine.py",
    "engines/jax/test_engine.py",
    "engines/jax/test_arithmetic.py",
    "engines/test_replay.py",
    "engines/test_places.py",
    "engines/test_allocations.py",
    "engines/test_native.py",
    "engines/jax/test_cuda_calls.py",
    "engines/pytorch/test_cuda_calls.py",
    "engines/tensorflow/test_cuda_calls.py",
)
"""Whose checks run in the same processes of engines (`processes` in `engines/conftest.py`): first those that
want them as users have them, then those with variables of their own.
"""

# Where two processes share the files (`make test`), the one that gets a long file last ends alone. The second
# needs no Julia at first: while the package is being precompiled, another that wanted it would only wait.
LONGEST = (
    *SHARE_ENGINES,
    "measuring/test_study.py",
    "engines/test_networks.py",
    "plain/test_plain.py",
    "engines/flux/test_julia_package.py",
    "engines/test_optimizers.py",
    "engines/flux/test_parity.py",
    "engines/flux/test_worker.py",
    "test_notebooks.py",
    "test_examples.py",
    "plain/test_layer.py",
    "engines/test_replicas.py",
    "measuring/test_layers.py",
    "measuring/test_pinning.py",
    "commands/test_cli.py",
    "identity/test_check.py",
    "page/test_browser.py",
)
_RANK = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_order)


def _order(item: pytest.Item) -> tuple[int, bool]:
    rank = _RANK.get(item.path, len(LONGEST))
    return rank, rank < len(LONGEST) and "flux" in item.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Several processes share the files (`--dist loadfile`), but not those that share engines."""
    from xdist.scheduler import LoadFileScheduling

    shared = {f"tests/{name}" for name in SHARE_ENGINES}

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "engines" if file in shared else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_make_parametrize_id(val: object) -> str | None:
    """What a case of several values is called: by them, not by the argument's name and a number."""
    kinds = dict | tuple | list | msgspec.Struct | Exception
    return _name(val)[:80] if isinstance(val, kinds) else None


def _name(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={_name(part)}" for key, part in value.items()) or "none"
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        given = {f.name: getattr(value, f.name) for f in fields if getattr(value, f.name) != f.default}
        return f"{type(value).__name__}({_name(given)})"
    if isinstance(value, Exception):
        return f"{type(value).__name__}({value})"
    if isinstance(value, tuple | list):
        return ",".join(map(_name, value)) or "none"
    return str(value)


@pytest.fixture(scope="session", autouse=True)
def users_julia() -> None:
    """Looked up before the configuration is hidden."""
    os.environ |= julia_depot.variables()


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A program that was interrupted ignores signals to its end; what other tests start hears them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("POLYBENCH_RESULTS", str(home / "results"))
    monkeypatch.setenv("POLYBENCH_DATA", str(home / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    return home

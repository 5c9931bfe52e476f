"""Fixtures for all tests: no test may read or change the user's studies, data, caches or configuration."""

from __future__ import annotations

import os
import shutil
import sys

# Without bytecode files, each of hundreds of processes compiles the program again, and pytest
# rewrites every test again. Git ignores __pycache__.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Before NumPy is imported: the reference's small products lose more to BLAS threads than they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Two test processes share the cores: a spinning OpenMP thread takes its core from the other one.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Studies write many small files, and wait for a disk whenever they sync, rename or remove one.
if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 8 << 30:
    os.environ["TMPDIR"] = "/dev/shm"

import gc
import inspect
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from polybench.data import synthetic
from polybench.machine import load
from polybench.machine.interrupts import SIGNALS
from polybench.machine.load import IdleWait
from tests import engine_workers, julia_depot
from tests.process_pool import MODULES, Popen, ProcessPool, start_server
from tests.rings import mark_rings, ring
from tests.small_datasets import SYNTHETIC

# The engine `faulty`, in this process and in all that it starts.
PLUGIN = str(Path(__file__).parent / "plugin")
sys.path.append(PLUGIN)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), PLUGIN)))

# Machines are shared, so a slow example or strategy is not an error.
# mutmut runs a test several times in a process, each time with an executor of its own.
IGNORED = [HealthCheck.too_slow, HealthCheck.differing_executors]
settings.register_profile("shared", deadline=None, suppress_health_check=IGNORED)
settings.load_profile("shared")

# Click 8.1 mixes standard error into the output by default.
if "mix_stderr" in inspect.signature(CliRunner.__init__).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)  # type: ignore[assignment]

sys.dont_write_bytecode = False  # the value that the variable set in this process

LONGEST = (
    "importer",
    "runner/test_study.py",
    "test_notebooks.py",
    "test_examples.py",
    "runner/test_layers.py",
    "runner/test_pinning.py",
    "cli/test_cli.py",
    "parity_check/test_check.py",
    "html_report/test_report_browser.py",
)
"""What starts early: if two processes share the files, the one with the last long file ends alone."""

POOLED = r"tests/(runner|cli|cluster|html_report)/|tests/protocol/test_process|tests/test_(api|examples|plugins)"
"""Tests of whole studies whose programs and workers are forked."""

MEASURING = r"tests/(runner|cli|cluster|machine/meters|test_(?!simulated))"
"""Tests of real studies, which do not wait for an idle machine."""

_RANK = {f"tests/{name}": rank for rank, name in enumerate(("julia", "engines", *LONGEST))}

_SHARING = {"engines": r"tests/(engines/|scripts/test_plain)", "importer": r"tests/(importer|scripts|trace)/"}
"""Tests of several files in one process: they share processes of engines, or import frameworks into their own."""


def _scope(node: str) -> str:
    """Return the tests that one process of pytest-xdist runs: those that share something, or those of a file."""
    if ring(node) == "julia":
        return "tests/julia"
    shared = (f"tests/{name}" for name, pattern in _SHARING.items() if re.match(pattern, node))
    return next(shared, node.partition("::")[0])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector wait: it would search all that is collected, which stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_rings(items)
    items.sort(key=lambda item: _RANK.get(_scope(item.nodeid), len(_RANK)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files over processes (`--dist loadfile`), but keep those together that share engines."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


processes, workers = engine_workers.processes, engine_workers.workers


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the time limit of the test begins
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if ring(item.nodeid) == "julia":
        julia_depot.compile_packages()
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if ring(item.nodeid) not in ("engines", "julia"):
        engine_workers.end()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test case with several values by its values."""
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
    if inspect.isroutine(value):  # its text has an address, which differs between the processes of xdist
        return value.__name__
    return str(value)


@pytest.fixture(scope="session", autouse=True)
def users_julia() -> None:
    """Find Julia before the user's configuration is hidden."""
    os.environ |= julia_depot.variables()


@pytest.fixture(scope="session", autouse=True)
def quiet_machine() -> Iterator[None]:
    """Let no other program appear busy: other tests run at the same time, and their CPU time would be interference.

    The counters of the whole machine stand still; those of single processes are real.
    """
    cpu, swap = psutil.cpu_times(), psutil.swap_memory()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(psutil, "cpu_times", lambda: cpu)
        patched.setattr(psutil, "swap_memory", lambda: swap)
        patched.setitem(IdleWait.__init__.__kwdefaults__, "sleep", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Restore signal handlers: an interrupted program ignores signals to its end, and other tests need them."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Let the collector pass over what is alive: timing blocks begin with a collection, and frameworks are large."""
    gc.freeze()


@pytest.fixture(scope="session")
def worker_pool(users_julia: None) -> ProcessPool:
    return ProcessPool(partial(start_server, MODULES))


@pytest.fixture(scope="module", autouse=True)
def pooled_workers(request: pytest.FixtureRequest, worker_pool: ProcessPool) -> Iterator[None]:
    """Fork the programs and workers of whole studies, which have few synthetic images."""
    if not re.match(POOLED, request.node.nodeid):
        yield
        return
    with worker_pool.replacing(), mock.patch.dict(synthetic.IMAGES, SYNTHETIC):
        yield


@pytest.fixture
def started_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of the test as usual: one that is forked has loaded other code than one that starts."""
    monkeypatch.setattr(subprocess, "Popen", Popen)


@pytest.fixture(scope="module", autouse=True)
def no_waiting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no study wait for other tests, except on a virtual clock."""
    with pytest.MonkeyPatch.context() as patched:
        if re.match(MEASURING, request.node.nodeid):
            patched.setattr(load, "_WINDOW_SECONDS", 0.0)
        yield


_unused_homes: list[Path] = []
"""Homes in which a test wrote nothing, for the next tests: a thousand take seconds to remove."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = _unused_homes.pop() if _unused_homes else new_home(tmp_path_factory)
    before = _contents(home)
    use_home(home, monkeypatch)
    yield home
    if home.is_dir() and _contents(home) == before:
        _unused_homes.append(home)


@pytest.fixture
def own_data_caches(own_folders: Path) -> None:
    """Give the test caches of data of its own, which it may damage or count."""
    for cache in (own_folders / "xdg_cache_home/polybench").iterdir():
        cache.unlink()


@pytest.fixture(scope="module")
def shared_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same for fixtures that all tests of a file share; each test still has its own folders."""
    home = new_home(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patched:
        use_home(home, patched)
        yield home


def new_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    _share_data(home / "xdg_cache_home/polybench", _run_folder(tmp_path_factory) / "data_caches")
    return home


def _contents(home: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mode for path in (home, *home.rglob("*"))}


def use_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("POLYBENCH_RESULTS", str(home / "results"))
    monkeypatch.setenv("POLYBENCH_DATA", str(home / "data"))
    monkeypatch.setenv("NO_COLOR", "1")


def _run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of the whole run, which the processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _share_data(cache: Path, shared: Path) -> None:
    """Let all homes have the same caches of data: 730 MB of synthetic images are otherwise written for each study."""
    cache.mkdir(parents=True)
    for name in ("epochs", "synthetic"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(shared / name)

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.engines.support.arrays import as_dtype, touch
from polybench.engines.support.frameworks import cuda_index, import_framework
from tests.frameworks import frameworks_of_engines


def test_a_framework_that_is_not_installed_is_unavailable_with_the_command_that_installs_it() -> None:
    with pytest.raises(Unavailable) as caught:
        import_framework("no_such_framework", "NoSuch", "nosuch")
    assert caught.value.reason == "NoSuch is not installed"
    assert caught.value.remedy == "pip install 'polybench[nosuch]'"


@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [
        ("import its_missing_part", "lacks a module", "pip install 'polybench[x]'"),
        ("raise ImportError('libfoo.so.1: not found')", "libfoo.so.1: not found", "--force-reinstall"),
        ("raise OSError('bad library')", "bad library", "--force-reinstall"),
    ],
)
def test_a_framework_that_breaks_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, remedy: str
) -> None:
    (tmp_path / "broken_framework.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unavailable) as caught:
        import_framework("broken_framework", "Broken", "x")
    assert reason in caught.value.reason
    assert remedy in caught.value.remedy


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)


@pytest.mark.usefixtures("driver")
def test_cuda_devices_are_numbered() -> None:
    assert cuda_index("cuda", 2, cuda_build=True, install="") == 0
    assert cuda_index("cuda:1", 2, cuda_build=True, install="") == 1


@pytest.mark.usefixtures("driver")
def test_a_device_that_is_not_there_and_a_build_without_cuda_are_unavailable() -> None:
    with pytest.raises(Unavailable, match="no device cuda:2: 2 CUDA devices visible"):
        cuda_index("cuda:2", 2, cuda_build=True, install="")
    with pytest.raises(Unavailable, match="has no CUDA") as caught:
        cuda_index("cuda", 0, cuda_build=False, install="pip install it")
    assert caught.value.remedy == "pip install it"


def test_without_a_driver_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        cuda_index("cuda", 0, cuda_build=False, install="")


def test_as_dtype_copies() -> None:
    weights = {"a": np.asfortranarray(np.ones((2, 3), np.float32))}
    copies = as_dtype(weights, "float32")
    assert copies["a"].flags.c_contiguous
    assert not np.shares_memory(copies["a"], weights["a"])


def test_touch_takes_any_size() -> None:
    touch(np.zeros((1, 1), np.float32))
    touch(np.zeros((3, 5000)))


def test_every_engine_is_found_and_none_imports_its_framework_by_itself() -> None:
    script = f"""
import importlib, sys
for factory in {[row.factory for row in ENGINES.values()]}:
    module, _, name = factory.partition(":")
    getattr(importlib.import_module(module), name)()
assert not set(sys.modules) & {frameworks_of_engines()}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_folder_is_an_engine_with_a_row() -> None:
    package = importlib.import_module("polybench.engines")
    folders = {module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg}
    rows = {row.factory.split(".")[2] for row in ENGINES.values()}
    assert folders == rows | {"support"}

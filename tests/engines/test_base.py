from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.engines.shared.frameworks import cuda_index, import_framework
from polybench.errors import EngineUnavailable
from tests.frameworks import frameworks_of_engines


def test_a_missing_framework_is_unavailable_with_its_install_command() -> None:
    with pytest.raises(EngineUnavailable) as caught:
        import_framework("no_such_framework", "NoSuch", "nosuch")
    assert caught.value.reason == "NoSuch is not installed"
    assert caught.value.hint == "pip install 'polybench-dl[nosuch]'"


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("import its_missing_part", "a module is missing", "pip install 'polybench-dl[x]'"),
        ("raise ImportError('libfoo.so.1: not found')", "libfoo.so.1: not found", "--force-reinstall"),
        ("raise OSError('bad library')", "bad library", "--force-reinstall"),
    ],
)
def test_a_broken_framework_is_unavailable_with_its_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, hint: str
) -> None:
    (tmp_path / "broken_framework.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineUnavailable) as caught:
        import_framework("broken_framework", "Broken", "x")
    assert reason in caught.value.reason
    assert hint in caught.value.hint


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)


@pytest.mark.usefixtures("driver")
def test_cuda_index_is_the_number_in_the_device_name() -> None:
    assert cuda_index("cuda", 2, cuda_build=True, install="") == 0
    assert cuda_index("cuda:1", 2, cuda_build=True, install="") == 1


@pytest.mark.usefixtures("driver")
def test_a_missing_device_and_a_build_without_cuda_are_unavailable() -> None:
    with pytest.raises(EngineUnavailable, match="no device cuda:2: 2 CUDA devices visible"):
        cuda_index("cuda:2", 2, cuda_build=True, install="")
    with pytest.raises(EngineUnavailable, match="does not support CUDA") as caught:
        cuda_index("cuda", 0, cuda_build=False, install="pip install it")
    assert caught.value.hint == "pip install it"


def test_a_missing_driver_is_reported_before_a_missing_cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.raises(EngineUnavailable, match="no NVIDIA driver"):
        cuda_index("cuda", 0, cuda_build=False, install="")


def test_only_making_an_engine_imports_its_framework() -> None:
    script = f"""
import importlib, sys
for module in {[spec.factory.partition(":")[0] for spec in ENGINES.values()]}:
    importlib.import_module(module)
assert not set(sys.modules) & {frameworks_of_engines()}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_folder_belongs_to_a_registered_engine() -> None:
    package = importlib.import_module("polybench.engines")
    folders = {module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg}
    registered = {spec.factory.partition(":")[0].split(".")[2] for spec in ENGINES.values()}
    assert folders == registered | {"shared", "program"}  # a user's program is an engine by its path

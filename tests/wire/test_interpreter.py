"""The Python of another environment: what it is lent, and what it must have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.wire.interpreter import OWN, Interpreter, interpreter
from polybench.wire.messages import Load, Loaded
from polybench.wire.process import WorkerProcess
from tests.environments import environment, plant, site_packages

IMPORTED = "import msgspec, numpy, polybench, sys; print(*[m.__file__ for m in (msgspec, numpy, polybench)])"


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_with_numpy_runs_a_worker_and_nothing_is_installed_into_it(tmp_path: Path) -> None:
    folder = environment(tmp_path / "venv")
    plant(site_packages(folder), "1")
    before = set(site_packages(folder).iterdir())
    found = interpreter(str(folder / "bin/python"), tmp_path / "lent")
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    with WorkerProcess({}, tmp_path / "log", found) as worker:
        probe = worker.ask(Load("planted:Engine"), Loaded, 60).probe
        assert probe.build == {"executable": found.executable, "prefix": str(folder)}
    there = {path for path in site_packages(folder).iterdir() if path.name != "__pycache__"}
    assert there == before


def test_it_has_its_own_numpy_and_nothing_else_of_polybenchs_environment(tmp_path: Path) -> None:
    folder = environment(tmp_path / "venv")
    found = interpreter(str(folder / "bin/python"), tmp_path / "lent")
    run = subprocess.run(
        [found.executable, "-P", "-c", IMPORTED + "; import rich"],
        env=found.variables({"PYTHONHOME": "/nowhere"}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    own_msgspec, numpy, polybench = run.stdout.split()
    assert own_msgspec.startswith(str(tmp_path / "lent"))
    assert polybench.startswith(str(tmp_path / "lent"))
    assert numpy.startswith(str(folder))
    assert "No module named 'rich'" in run.stderr


def test_what_is_lent_is_all_that_a_worker_and_the_engines_import_beside_frameworks(tmp_path: Path) -> None:
    folder = environment(tmp_path / "venv")
    found = interpreter(str(folder / "bin/python"), tmp_path / "lent")
    modules = [row.factory.partition(":")[0] for row in ENGINES.values()]
    script = f"import importlib, polybench.worker.handler; [importlib.import_module(m) for m in {modules}]"
    command = [found.executable, "-P", "-c", script]
    run = subprocess.run(command, env=found.variables({}), capture_output=True, text=True, check=False)
    assert run.stderr == ""


def test_what_it_has_itself_is_not_lent(tmp_path: Path) -> None:
    folder = environment(tmp_path / "venv")
    (site_packages(folder) / "msgspec.py").write_text("")
    interpreter(str(folder / "bin/python"), tmp_path / "lent")
    assert "msgspec" not in {path.name for path in (tmp_path / "lent").iterdir()}


def test_without_numpy_it_is_unavailable_and_its_own_pip_is_the_remedy(tmp_path: Path) -> None:
    python = str(environment(tmp_path / "venv", numpy_too=False) / "bin/python")
    with pytest.raises(Unavailable, match="lacks numpy") as missing:
        interpreter(python, tmp_path / "lent")
    assert missing.value.remedy == f"{python} -m pip install numpy"
    assert not (tmp_path / "lent").exists()


def test_compiled_libraries_are_lent_to_the_same_kind_of_python_only(tmp_path: Path) -> None:
    python = program(tmp_path / "python", """echo '[[3,99,0],"cpython-399",["msgspec","tomli_w"]]'""")
    with pytest.raises(Unavailable, match=r"\(Python 3.99.0\) lacks msgspec$") as missing:
        interpreter(python, tmp_path / "lent")
    assert missing.value.remedy == f"{python} -m pip install msgspec"
    python = program(tmp_path / "python", """echo '[[3,99,0],"cpython-399",["tomli_w"]]'""")
    interpreter(python, tmp_path / "lent")
    assert {path.name for path in (tmp_path / "lent").iterdir()} == {"polybench", "tomli_w"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("""echo '[[3,10,9],"x",[]]'""", "is Python 3.10.9, and polybench needs 3.11 or newer"),
        ("echo hello", "answers 'hello"),
        (r"printf 'caf\351'", "answers 'caf\ufffd'"),
        (r"printf 'caf\351' >&2; exit 3", "ended with code 3: caf\ufffd"),
        ("echo broken >&2; exit 3", "ended with code 3: broken"),
        ("exit 3", "ended with code 3: it said nothing"),
    ],
    ids=["old", "no-python", "no-text", "broken-and-no-text", "broken", "silent"],
)
def test_what_is_no_python_for_polybench_is_unavailable(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        interpreter(program(tmp_path / "python", text), tmp_path / "lent")


def test_a_file_that_the_kernel_does_not_run_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    with pytest.raises(Unavailable, match="does not run as Python"):
        interpreter(str(path), tmp_path / "lent")


@pytest.mark.parametrize(
    ("remedy", "there"),
    [
        ("pip install 'polybench[jax]'", "/env/bin/python -m pip install jax optax"),
        ("pip install 'polybench[keras,torch]'", "/env/bin/python -m pip install keras torch"),
        ("pip install 'polybench[memray]'", "/env/bin/python -m pip install memray"),
        ("pip install juliacall==1", "/env/bin/python -m pip install juliacall==1"),
        ("polybench setup flux", "polybench setup flux"),
    ],
    ids=["extra", "two", "meter", "package", "else"],
)
def test_a_remedy_is_for_the_environment_that_lacks_something(remedy: str, there: str) -> None:
    assert Interpreter("/env/bin/python", version="3").remedy(remedy, ENGINES["jax"]) == there
    assert OWN.remedy(remedy, ENGINES["jax"]) == remedy


def test_polybenchs_own_python_keeps_the_users_variables() -> None:
    user = {"PYTHONHOME": "/there", "PYTHONPATH": os.pathsep.join(["/one", ""])}
    assert OWN.variables(user)["PYTHONHOME"] == "/there"
    assert OWN.variables(user)["PYTHONPATH"].split(os.pathsep) == [*OWN.folders, "/one"]

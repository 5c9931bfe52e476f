"""Python environments of the user: bundled packages and requirements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.protocol import calls
from polybench.protocol import interpreter as interpreter_module
from polybench.protocol.interpreter import OWN_INTERPRETER, Interpreter, resolve_interpreter
from polybench.protocol.process import WorkerProcess
from tests.environments import make_environment, site_packages, write_engine
from tests.processes import becomes_true, have_ended

PRINT_IMPORTED_FILES = (
    "import msgspec, numpy, polybench, sys; print(*[m.__file__ for m in (msgspec, numpy, polybench)])"
)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_with_numpy_runs_a_worker_without_installing_anything(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "venv")
    write_engine(site_packages(folder), "1")
    before = set(site_packages(folder).iterdir())
    interpreter = resolve_interpreter(str(folder / "bin/python"), tmp_path / "links")
    assert interpreter.version == ".".join(map(str, sys.version_info[:3]))
    with WorkerProcess({}, tmp_path / "log", interpreter) as worker:
        info = worker.request(calls.load("demo_engine:Engine"), 60).info
        assert info.build == {"executable": interpreter.executable, "prefix": str(folder)}
    after = {path for path in site_packages(folder).iterdir() if path.name != "__pycache__"}
    assert after == before


def test_an_environment_uses_its_own_numpy_and_sees_only_bundled_packages(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "venv")
    interpreter = resolve_interpreter(str(folder / "bin/python"), tmp_path / "links")
    completed = subprocess.run(
        [interpreter.executable, "-P", "-c", PRINT_IMPORTED_FILES + "; import rich"],
        env=interpreter.with_python_path({"PYTHONHOME": "/nowhere"}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    msgspec, numpy, polybench = completed.stdout.split()
    assert msgspec.startswith(str(tmp_path / "links"))
    assert polybench.startswith(str(tmp_path / "links"))
    assert numpy.startswith(str(folder))
    assert "No module named 'rich'" in completed.stderr


def test_bundled_packages_are_all_that_workers_and_engines_import_apart_from_frameworks(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "venv")
    interpreter = resolve_interpreter(str(folder / "bin/python"), tmp_path / "links")
    modules = [spec.factory.partition(":")[0] for spec in ENGINES.values()]
    imports = f"import importlib, polybench.worker.handler; [importlib.import_module(m) for m in {modules}]"
    command = [interpreter.executable, "-P", "-c", imports]
    completed = subprocess.run(
        command, env=interpreter.with_python_path({}), capture_output=True, text=True, check=False
    )
    assert completed.stderr == ""


def test_an_environment_without_numpy_is_unavailable_and_the_hint_names_its_own_pip(tmp_path: Path) -> None:
    python = str(make_environment(tmp_path / "venv", with_numpy=False) / "bin/python")
    with pytest.raises(EngineUnavailable, match="lacks numpy") as error:
        resolve_interpreter(python, tmp_path / "links")
    assert error.value.hint == f"{python} -m pip install numpy"
    assert not (tmp_path / "links").exists()


def test_compiled_packages_are_bundled_only_for_the_same_python_abi(tmp_path: Path) -> None:
    python = script(tmp_path / "python", """echo '[[3,99,0],"cpython-399",["msgspec","tomli_w"]]'""")
    with pytest.raises(EngineUnavailable, match=r"\(Python 3.99.0\) lacks msgspec$") as error:
        resolve_interpreter(python, tmp_path / "links")
    assert error.value.hint == f"{python} -m pip install msgspec"
    python = script(tmp_path / "python", """echo '[[3,99,0],"cpython-399",["tomli_w"]]'""")
    resolve_interpreter(python, tmp_path / "links")
    assert {path.name for path in (tmp_path / "links").iterdir()} == {"polybench", "tomli_w"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("""echo '[[3,10,9],"x",[]]'""", "is Python 3.10.9; polybench needs 3.11 or newer"),
        ("echo hello", "unexpected output 'hello"),
        (r"printf 'caf\351'", "unexpected output 'caf\ufffd'"),
        ("""echo '[[9999,0,0],"x",[]]'""", "unexpected output '.*9999"),
        ("""echo '[[3,9999,0],"x",[]]'""", "unexpected output '.*9999"),
        (r"printf 'caf\351' >&2; exit 3", "does not run as Python: caf\ufffd"),
        ("echo broken >&2; exit 3", "does not run as Python: broken"),
        ("exit 3", "it exited with code 3"),
        ("kill -KILL $$", "it exited with code 137"),  # 128 plus the signal, as in a shell
    ],
    ids=["old", "not-python", "not-utf8", "major", "minor", "error-not-utf8", "error", "silent", "killed"],
)
def test_an_unusable_python_is_unavailable(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        resolve_interpreter(script(tmp_path / "python", text), tmp_path / "links")


def test_a_file_that_is_not_executable_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    with pytest.raises(EngineUnavailable, match="does not run as Python"):
        resolve_interpreter(str(path), tmp_path / "links")


def started(pid_file: Path) -> psutil.Process:
    """Wait until a script has written its process ID to the file."""
    assert becomes_true(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    return psutil.Process(int(pid_file.read_text()))


@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_that_floods_its_output_fills_neither_memory_nor_disk(tmp_path: Path, stream: int) -> None:
    before = psutil.Process().memory_info().rss
    with pytest.raises(EngineUnavailable, match="printed more than 1 MiB"):
        resolve_interpreter(script(tmp_path / "python", f"exec yes >&{stream}"), tmp_path / "links")
    assert psutil.Process().memory_info().rss < before + (64 << 20)


def test_a_daemon_of_a_program_is_killed(tmp_path: Path) -> None:
    daemon = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & while [ ! -s {tmp_path}/pid ]; do :; done"
    with pytest.raises(EngineUnavailable, match="unexpected output 'hello"):
        resolve_interpreter(script(tmp_path / "python", f"{daemon}; echo hello"), tmp_path / "links")
    pid = int((tmp_path / "pid").read_text())
    assert becomes_true(lambda: not psutil.pid_exists(pid))


def test_a_program_ends_with_its_parent(tmp_path: Path) -> None:
    python = script(tmp_path / "python", f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    call = f"from polybench.protocol.interpreter import *; resolve_interpreter({python!r}, Path())"
    with subprocess.Popen([sys.executable, "-c", call]) as parent:
        program = started(tmp_path / "pid")
        family = [program, *program.parents()[:1], *program.children()]
        parent.kill()
    assert have_ended(family)


@pytest.mark.parametrize("first", ["", "kill -STOP $PPID", "trap '' TERM INT HUP"])
def test_a_program_without_an_answer_is_killed_and_its_error_contains_no_source_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(interpreter_module, "_TIMEOUT_SECONDS", 0.5)
    python = script(tmp_path / "python", f"echo $$ > {tmp_path}/pid; {first or ':'}; exec sleep 600")
    with pytest.raises(EngineUnavailable, match=r"does not run as Python: no answer within 0.5 s$"):
        resolve_interpreter(python, tmp_path / "links")
    pid = int((tmp_path / "pid").read_text())
    assert becomes_true(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize(
    ("hint", "adapted"),
    [
        ("pip install 'polybench-dl[jax]'", "/env/bin/python -m pip install jax optax"),
        ("pip install 'polybench-dl[keras,torch]'", "/env/bin/python -m pip install keras torch"),
        ("pip install 'polybench-dl[memray]'", "/env/bin/python -m pip install memray"),
        ("pip install juliacall==1", "/env/bin/python -m pip install juliacall==1"),
        ("polybench setup flux", "polybench setup flux"),
    ],
    ids=["one-extra", "two-extras", "extra-without-engine", "package", "other-command"],
)
def test_a_hint_is_adapted_to_the_environment(hint: str, adapted: str) -> None:
    assert Interpreter("/env/bin/python", version="3").adapt_hint(hint, ENGINES["jax"]) == adapted
    assert OWN_INTERPRETER.adapt_hint(hint, ENGINES["jax"]) == hint


def test_polybenchs_own_python_inherits_the_users_variables() -> None:
    user = {"PYTHONHOME": "/there", "PYTHONPATH": os.pathsep.join(["/one", ""])}
    assert OWN_INTERPRETER.with_python_path(user)["PYTHONHOME"] == "/there"
    assert OWN_INTERPRETER.with_python_path(user)["PYTHONPATH"].split(os.pathsep) == [*OWN_INTERPRETER.folders, "/one"]


def test_another_python_does_not_inherit_the_standard_library_of_polybenchs_own() -> None:
    other = Interpreter("/env/bin/python", ("/links",), "3.12.1")
    assert other.with_python_path({"PYTHONHOME": "/there", "X": "1"}) == {"X": "1", "PYTHONPATH": "/links"}

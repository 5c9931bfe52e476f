"""Every error of a user's program is one line with its place and operation, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from polybench.errors import BadInput, ConfigurationFailed
from polybench.importer import ImportRequest, _silent_end, run_import
from polybench.importer.errors import as_bad_input
from tests.processes import becomes_true, have_ended

_UNPRINTABLE = """class Unprintable(Exception):
    def __str__(self):
        raise ValueError
raise Unprintable"""


_INTERRUPTED_FORWARD = """import torch
class net(torch.nn.Conv2d):
    def __init__(self): super().__init__(3, 4, 3)
    def forward(self, x): raise KeyboardInterrupt("in the forward pass")"""


def test_a_silent_end_has_the_last_lines_of_the_log(tmp_path: Path) -> None:
    log = "\n".join(f"line {number}" for number in range(1, 8))
    error = _silent_end(ImportRequest("/nowhere/model.py", "net", None, str(tmp_path)), 3, log)
    assert str(error).endswith("while the file ran; it printed: line 3 / line 4 / line 5 / line 6 / line 7")


def run(code: str) -> str:
    """Return the message about an error in a file with this code."""
    file = Path("/nowhere/model.py")
    with pytest.raises(BadInput) as error, as_bad_input(file, "Net"):
        exec(compile(code, str(file), "exec"), {})
    return str(error.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("\n1 / 0", "model.py:2: ZeroDivisionError: division by zero"),
        ("raise NotImplementedError", "model.py:1: NotImplementedError"),
        ("raise ValueError('a\\n  b\\x1b[1mc\\x1b[0m')", "model.py:1: ValueError: a bc"),
        ("x = (", "model.py:1: SyntaxError: '(' was never closed (model.py, line 1)"),
        ("import sys; sys.exit(0)", "model.py:1: SystemExit: 0"),
        ("import json\njson.loads('{')", "model.py:2: JSONDecodeError: Expecting property name enclosed in double"),
        ("def f(): f()\nf()", "model.py:1: RecursionError: maximum recursion depth exceeded"),
        (_UNPRINTABLE, "model.py:4: Unprintable"),
        ("{}['submodule']", "model.py:1: KeyError: 'submodule'"),
        ("raise ValueError('long ' * 1000)", "model.py:1: ValueError: long long"),
        ("raise BaseException('stop')", "model.py:1: BaseException: stop"),
        ("raise GeneratorExit", "model.py:1: GeneratorExit"),
    ],
)
def test_an_error_is_one_line_with_the_line_of_the_file(code: str, message: str) -> None:
    text = run(code)
    assert text.startswith(message)
    assert "\n" not in text
    assert len(text) < 600


def test_an_error_without_a_message_has_the_code_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def add_loss(x):\n    raise NotImplementedError\n\nadd_loss(1)\n")
    with pytest.raises(BadInput) as error, as_bad_input(file, "Net"):
        exec(compile(file.read_text(), str(file), "exec"), {})
    assert str(error.value) == "model.py:2: raise NotImplementedError: NotImplementedError"


def test_an_error_outside_of_the_file_has_the_name_of_the_model() -> None:
    with pytest.raises(BadInput) as error, as_bad_input(Path("model.py"), "Net"):
        {}["submod_1"]
    assert str(error.value) == "model.py:Net: KeyError: 'submod_1'"


def test_an_interrupt_in_this_process_is_that_of_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), as_bad_input(Path("model.py"), "Net"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            "import os; os._exit(0)",
            BadInput,
            "model.py: something such as os._exit ended the process with code 0 while the file ran",
        ),
        ("import os; print('hi', flush=True); os._exit(3)", BadInput, "code 3 while the file ran; it printed: hi"),
        ("import os; os.kill(os.getpid(), 9)", ConfigurationFailed, "model.py: the process was killed by SIGKILL"),
        ("net = 1", BadInput, "int is not a model: expected a torch.nn.Module or a keras.Model"),
        ("def net(): assert 1 == 2", BadInput, "model.py:1: def net(): assert 1 == 2: AssertionError"),
        ("\nraise KeyboardInterrupt", BadInput, "model.py:2: raise KeyboardInterrupt: KeyboardInterrupt"),
        (
            # A program that was started in the background ignores the signal.
            "import os, signal\nsignal.signal(2, signal.default_int_handler)\ndef net(): os.kill(os.getpid(), 2)",
            BadInput,
            "model.py:3: def net(): os.kill(os.getpid(), 2): K",
        ),
        (_INTERRUPTED_FORWARD, BadInput, "model.py:4: KeyboardInterrupt: in the forward pass"),
    ],
)
def test_a_process_that_ends_early_is_an_error(code: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(code)
    with pytest.raises(kind) as error:
        run_import(file, "net", (3, 8, 8), tmp_path, timeout=60)
    assert message in str(error.value)


def test_a_file_may_take_as_long_as_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, waits, wait = tmp_path / "model.py", list[float | None](), subprocess.Popen.wait

    def recorded(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waits.append(timeout)
        if timeout is not None:
            raise subprocess.TimeoutExpired("", timeout)
        return wait(process)

    monkeypatch.setattr(subprocess.Popen, "wait", recorded)
    file.touch()
    with pytest.raises(ConfigurationFailed, match=r"model\.py did not end within 7 s: use --timeout"):
        run_import(file, "net", (3, 8, 8), tmp_path, timeout=7)
    assert waits == [7, None]


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed cannot stop a file that does not end."""
    file, number = tmp_path / "model.py", tmp_path / "number"
    file.write_text(f"import os, time\nopen({str(number)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    code = "import sys; from pathlib import Path; from polybench.importer import run_import\n"
    code += "run_import(Path(sys.argv[1]), 'net', (3, 8, 8), Path(sys.argv[2]), timeout=600)"
    parent = subprocess.Popen([sys.executable, "-c", code, str(file), str(tmp_path)])
    try:
        assert becomes_true(lambda: number.exists() and number.read_text())
        child = psutil.Process(int(number.read_text()))
    finally:
        parent.kill()
        parent.wait()
    try:
        assert have_ended([child])
    finally:
        child.kill()

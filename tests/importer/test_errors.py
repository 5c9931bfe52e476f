"""Every error of a user's program is one line with its place and operation, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.errors import BadInput, ConfigurationFailed
from polybench.importer import run_import
from polybench.importer.errors import as_bad_input

_UNPRINTABLE = """class Unprintable(Exception):
    def __str__(self):
        raise ValueError
raise Unprintable"""


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
    ],
)
def test_a_process_that_ends_early_is_an_error(code: str, kind: type[Exception], message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(code)
    with pytest.raises(kind) as error:
        run_import(file, "net", (3, 8, 8), tmp_path, timeout=60)
    assert message in str(error.value)

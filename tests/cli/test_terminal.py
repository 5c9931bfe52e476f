"""The program on a pseudo-terminal: live progress in colour, then the table."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from polybench.cli.output import print_result
from polybench.schema.study import from_json
from polybench.storage.store import Store
from tests.cli.test_live import on_screen
from tests.commands import FAST
from tests.log_of import log_of, save_document
from tests.scripts.test_plain import folder

__all__ = ["folder"]

COLUMNS = 100
GOLDEN = Path(__file__).parents[1] / "golden" / "study.json"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Return the path of the log of the example study."""
    path = tmp_path / "study.jsonl"
    path.write_bytes(log_of(from_json(GOLDEN.read_bytes())))
    return str(path)


ERASE_LINE = "\x1b[2K"
CYAN = "\x1b[36m"


def on_a_terminal(*arguments: str, columns: int = COLUMNS) -> tuple[int, str]:
    """Run `polybench` on a terminal with this width; return its exit code and output."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "CI")}
    program = subprocess.Popen(
        [sys.executable, "-m", "polybench", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(slave)
    written = b""
    with os.fdopen(master, "rb", buffering=0) as screen:
        try:
            while part := screen.read(1 << 16):
                written += part
        except OSError:  # Linux reports the end of the terminal as an error
            pass
    return program.wait(60), written.decode()


def test_live_progress_precedes_the_table(folder: Path) -> None:
    two_rounds = ("--rounds-per-process", "2", "--no-save")
    code, written = on_a_terminal("compare", "--engines", "fake,fake+slow", *FAST, "--data", str(folder), *two_rounds)
    assert code == 0

    live, _, table = written.rpartition(ERASE_LINE)
    assert f"{CYAN}process 1 of 1: round 2 of 2" in live
    assert live.count(ERASE_LINE) > live.count("\n"), "the live table is redrawn in place"

    # The live table is erased, and the printed table equals that of a file, apart from colours.
    table = re.sub(r"\x1b\[\d+m", "", table)
    assert "\x1b" not in table
    lines = table.splitlines()
    assert lines[0].startswith("lenet on cifar10 (other files), batch 16")
    assert {line.split()[0] for line in lines if "not checked" in line} == {"fake/cpu", "fake+slow/cpu"}
    assert max(map(len, lines)) <= COLUMNS


def test_a_table_is_as_wide_as_the_terminal(log: str, tmp_path: Path) -> None:
    tables = {columns: on_screen(on_a_terminal("show", log, columns=columns)[1]) for columns in (60, COLUMNS)}
    assert max(map(len, tables[60])) <= 60 < max(map(len, tables[COLUMNS]))
    file = tmp_path / "table.txt"
    on_a_terminal("show", log, "--output", str(file), columns=60)
    assert file.read_text("utf-8").splitlines() == tables[COLUMNS][:-1]  # the cursor is on an empty line


def test_a_list_is_as_wide_as_the_terminal(tmp_path: Path) -> None:
    save_document(Store(tmp_path), from_json(GOLDEN.read_bytes()))
    code, written = on_a_terminal("list", "--results", str(tmp_path), columns=90)
    assert code == 0
    lines = written.splitlines()
    assert lines[0].split() == ["id", "age", "workload", "fastest"]
    assert max(map(len, lines)) <= 90


def test_warnings_of_an_explanation_stay(folder: Path) -> None:
    code, written = on_a_terminal("compare", "--engines", "fake", *FAST, "--data", str(folder), "--explain")
    assert code == 0
    assert any(line.startswith("warning: nothing to explain: ") for line in on_screen(written))


def test_a_warning_is_printed_once(folder: Path) -> None:
    options = ("--threads", "64", "--oversubscribe", "--engines", "fake", "--data", str(folder), "--no-save")
    _, written = on_a_terminal("compare", *FAST, *options)
    text = " ".join(" ".join(on_screen(written)).split())
    assert text.count("64 threads on") == 1


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS = "tf/cpu  12.0 ms  DIFFERS\nflux/cpu  failed: crashed\njax/cpu  unavailable: \x1b[2J\n"


def test_failures_in_the_result_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.delenv("NO_COLOR")
    print_result(ROWS)
    coloured = screen.getvalue()
    assert "\x1b[31m\x1b[1mDIFFERS\x1b[0m" in coloured
    assert "\x1b[31m\x1b[1mfailed\x1b[0m: crashed" in coloured
    assert "\x1b[33munavailable\x1b[0m: \\x1b[2J" in coloured  # control characters are escaped


def test_the_fastest_row_is_bold_and_inconclusive_ratios_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.delenv("NO_COLOR")
    rows = "tf+xla/cpu  9.0 ms\ntf/cpu  12.0 ms\njax/cpu  (busy)\n\n  Cannot tell: jax.\n"
    print_result(rows, [["tf/cpu"]])
    assert screen.getvalue().splitlines() == [
        "tf+xla/cpu  9.0 ms",
        "\x1b[1mtf/cpu  12.0 ms\x1b[0m",
        "jax/cpu  \x1b[33m(busy)\x1b[0m",
        "",
        "\x1b[33m  Cannot tell\x1b[0m: jax.",
    ]


def test_a_result_has_no_colour_in_a_pipe_or_with_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR")
    print_result(ROWS)  # to a pipe
    piped = capsys.readouterr().out
    screens = Screen(), Screen()
    for screen, (name, value) in zip(screens, (("NO_COLOR", "1"), ("TERM", "dumb")), strict=True):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            patched.setenv(name, value)
            print_result(ROWS)
    assert {piped, *(screen.getvalue() for screen in screens)} == {ROWS.replace("\x1b", "\\x1b")}


@pytest.mark.parametrize(
    ("variables", "step_time"),
    [
        ({"PYTHONIOENCODING": "latin-1"}, " ms ±".encode("latin-1")),
        ({"PYTHONIOENCODING": "koi8-r"}, b" ms ?"),  # this encoding lacks the character
        ({"LC_ALL": "C", "TERM": "dumb"}, " ms ±".encode()),
        ({"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}, " ms ±".encode()),
    ],
)
def test_a_result_is_printed_in_any_locale_and_encoding(log: str, variables: dict[str, str], step_time: bytes) -> None:
    command = [sys.executable, "-m", "polybench", "show", log, "--columns", "step_time"]
    environment = os.environ | {"TERM": "xterm"} | variables
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert step_time in done.stdout

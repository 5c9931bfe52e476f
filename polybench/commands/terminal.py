"""Text for a terminal: titles, reasons and file names from elsewhere cannot move its cursor or talk to it."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from pathlib import Path

import typer

from polybench.export import WIDTH

_ASCII = [*range(9), *range(11, 32)]
_OTHERS = [*range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: f"\\x{code:02x}" for code in _ASCII} | {code: f"\\u{code:04x}" for code in _OTHERS}
"""All but line feed and tab; what changes the direction of text is as good as a control character.

JSON reads the others as the same characters, and has escaped those of ASCII before.
"""


_FAILED = re.compile(r"\bDIFFERS\b|(?<=  )failed(?=: )|parity check failed(?=: )")
_MISSING = re.compile(r"(?<=  )(unavailable|interrupted)(?=: )")
"""Of a row, what became of its cell."""

_NARROWEST = 40
"""Characters: a cell's name and its time, and notes with more than a word in a line."""


def shown(text: str) -> str:
    """The same with control characters as they are written in a string: an escape is `\\x1b`."""
    return text.translate(_SHOWN).encode("utf-8", "backslashreplace").decode()


def width(output: Path | None) -> int:
    """Characters of a line where results go: the terminal's, or WIDTH in a file or pipe."""
    return WIDTH if output is not None else terminal_width() or WIDTH


def terminal_width() -> int | None:
    """Characters of a line of the terminal; None in a pipe or file, where a line may have any length."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def prepare_stdout() -> None:
    """Have what the terminal's encoding lacks written as a question mark: by itself that is a traceback.

    And all of a long text: with PYTHONUNBUFFERED Python writes it by one call, and loses what that does not
    take when a signal comes meanwhile.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 - to the end
        sys.stdout.reconfigure(errors="replace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print to standard output, or to standard error."""
    typer.echo(shown(text), err=err, nl=nl)  # noqa: TID251 - the one place


def echo_result(text: str) -> None:
    """Print to standard output; on a terminal, what is wrong has a colour."""
    plain = shown(text)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        plain = _FAILED.sub(lambda found: typer.style(found[0], fg="red", bold=True), plain)
        plain = _MISSING.sub(lambda found: typer.style(found[0], fg="yellow"), plain)
    typer.echo(plain, nl=False)  # noqa: TID251 - nothing of what comes from elsewhere is in the styles

"""Output to a terminal: escapes control characters in titles, reasons and file names."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from pathlib import Path

import typer

from polybench.render import WIDTH

_ASCII_CONTROLS = [*range(9), *range(11, 32)]
_OTHER_CONTROLS = [*range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPES = {code: f"\\x{code:02x}" for code in _ASCII_CONTROLS} | {code: f"\\u{code:04x}" for code in _OTHER_CONTROLS}
"""Escapes of every control character but line feed and tab, and of characters that change the text's
direction.

JSON text stays valid: its encoder has already escaped the ASCII ones, and JSON reads the others' escapes as
the same characters.
"""


_FAILED = re.compile(r"\bDIFFERS\b|(?<=  )failed(?=: )|parity check failed(?=: )")
_MISSING = re.compile(r"(?<=  )(unavailable|interrupted)(?=: )")
"""The outcome of a configuration in its row."""

_MIN_WIDTH = 40
"""Characters: enough for a configuration's name with its time, and for notes of several words per line."""


def printable(text: str) -> str:
    """Escape control characters as in a string literal: ESC becomes `\\x1b`."""
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


def width(output: Path | None) -> int:
    """Return the characters per line of results: the terminal's, or WIDTH for a file or pipe."""
    return WIDTH if output is not None else terminal_width() or WIDTH


def terminal_width() -> int | None:
    """Return the characters per line of the terminal; None for a pipe or file."""
    if not sys.stdout.isatty():
        return None
    return max(_MIN_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def prepare_stdout() -> None:
    """Make standard output robust.

    Characters that the terminal's encoding lacks are written as question marks instead of raising an error.
    Long texts are written completely: with PYTHONUNBUFFERED, Python writes a text with one system call and
    drops the rest if a signal interrupts it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 - stays open until the end
        sys.stdout.reconfigure(errors="replace")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print to standard output, or to standard error."""
    typer.echo(printable(text), err=err, nl=nl)  # noqa: TID251 - escaped here


def print_result(text: str) -> None:
    """Print to standard output, with failures in colour on a terminal."""
    plain = printable(text)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        plain = _FAILED.sub(lambda match: typer.style(match[0], fg="red", bold=True), plain)
        plain = _MISSING.sub(lambda match: typer.style(match[0], fg="yellow"), plain)
    typer.echo(plain, nl=False)  # noqa: TID251 - escaped before the styles were added

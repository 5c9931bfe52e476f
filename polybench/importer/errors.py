"""Errors of a user's program, each in one line with its place."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from polybench.errors import BadInput, PolybenchError

_COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""Escape sequences of a terminal, in Keras's messages."""

_LENGTH = 500
"""Longest message or argument; Keras's messages contain the arguments of a call."""


def describe(error: BaseException) -> str:
    """Return the class and the message of an error, in one line."""
    message = one_line(_message(error))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return _COLOURS.sub("", str(error)).strip()
    except Exception:  # of the user's own class
        return ""


def one_line(text: str) -> str:
    """Return a text in one line, without its end if it is long."""
    text = " ".join(text.split())
    return f"{text[:_LENGTH]}..." if len(text) > _LENGTH else text


@contextlib.contextmanager
def as_bad_input(file: Path | None, name: str) -> Iterator[None]:
    """Turn any error of the user's program into BadInput with its line in the file, else with the model's name.

    A KeyboardInterrupt may be that of Ctrl-C; see `with_interrupts`.
    """
    try:
        yield
    except (PolybenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _bad_input(error, file, name) from error


@contextlib.contextmanager
def with_interrupts(file: Path, name: str) -> Iterator[None]:
    """Turn a KeyboardInterrupt into BadInput as well, in a process that Ctrl-C does not reach: the file raised it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise _bad_input(error, file, name) from error


def _bad_input(error: BaseException, file: Path | None, name: str) -> BadInput:
    return BadInput(f"{_place(error, file, name)}: {describe(error)}")


def _place(error: BaseException, file: Path | None, name: str) -> str:
    """Return the last line of the user's file that ran, with its code if the error has no message."""
    if file is None:
        return name
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file.name}:{error.lineno}"
    lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(file)]
    if not lines:
        return f"{file.name}:{name}"
    place = f"{file.name}:{lines[-1].lineno}"
    return place if _message(error) or not lines[-1].line else f"{place}: {lines[-1].line}"

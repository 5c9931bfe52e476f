"""A document without what tells whose machine it was: host name, user, and where files lie."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from pathlib import Path
from typing import Any

import msgspec

from polybench.core.document.study import StudyDocument

UNKNOWN_HOST = "<host>"
"""Stands for any host's name: two of them may be two machines."""

_ABSOLUTE = re.compile(r"(?<![\w./~<])/(?:[^\s/:;,'\"()\[\]]+/)+(?=[^\s/:;,'\"()\[\]]*)")
"""The folders of an absolute path: the name of the file stays."""


def anonymous(document: StudyDocument) -> StudyDocument:
    """The same document with `<host>`, `<user>` and `<folder>/` in place of them, in every text."""
    plain = _without(msgspec.to_builtins(document), _names())
    plain["host"]["hostname"] = UNKNOWN_HOST  # also where it is too short to be looked for in texts
    return msgspec.convert(plain, StudyDocument)


def _names() -> list[tuple[re.Pattern[str], str]]:
    names = {socket.gethostname(): UNKNOWN_HOST, Path.home().name: "<user>"}
    with contextlib.suppress(KeyError, OSError):  # a number without a name
        names[getpass.getuser()] = "<user>"
    # Short names, and root's, are parts of too many words.
    return [
        (re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), stand_in)
        for name, stand_in in names.items()
        if len(name) > 2 and name != "root"
    ]


def _without(value: Any, names: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, str):
        value = _ABSOLUTE.sub("<folder>/", value)
        for name, stand_in in names:
            value = name.sub(stand_in, value)
        return value
    if isinstance(value, dict):
        return {key: _without(part, names) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without(part, names) for part in value]
    return value

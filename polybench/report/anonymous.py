"""A document without what tells whose machine it was: host name, user, and where files lie."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import platformdirs

from polybench.core.document.circumstances import Host

UNKNOWN_HOST = "<host>"
"""Stands for any host's name: two of them may be two machines."""

_FOLDER = "<folder>/"

_ENDS = r"\s/:;,'\"()\[\]"
"""What ends a name in a path, as far as a text tells; names may have it all the same."""
_NAME = rf"[^{_ENDS}]+"

_ABSOLUTE = re.compile(rf"(?:file://[^\s/]*|(?<![\w./~<>])|(?<=\s-\w)|(?<=\A-\w))/(?:{_NAME}/+)+")
"""The folders of an absolute path: the name of the file stays."""

_QUOTED = re.compile(r"(?<=['\"])(?:file://[^\s/'\"]*)?/[^/'\"\n][^'\"\n]*/(?=[^'\"\n]*['\"])")
"""The same of a path in quotes, whatever its names have."""

_WORD = re.compile(r"\A((?:-\w|(?:-{0,2}[\w.-]+=)+)?(?:file://)?)/[^/].*/(?=[^/])", re.DOTALL)
"""The same of a whole word of a command line, behind an option or a name."""

_BELOW = rf"(?:/+{_NAME}(?: +{_NAME})*(?=/))*/+(?=[^{_ENDS}])"
"""What may follow a known folder until the last name."""


class _OfAHost(Protocol):
    host: Host


Document = TypeVar("Document", bound=_OfAHost)
"""Of any kind that has a host."""


def is_anonymous(host: Host) -> bool:
    """Whether this is a host of an anonymous document."""
    return host.hostname == UNKNOWN_HOST


def anonymous(document: Document, results: Path | None = None) -> Document:
    """The same document with `<host>`, `<user>` and `<folder>/` in place of them, in every text.

    Args:
        document: of this machine or of another one.
        results: the folder where it is saved, if it is.
    """
    plain: dict[str, Any] = msgspec.to_builtins(document)
    folders = {*_of_this_program(), *_of_the_document(plain), *([results] if results else [])}
    rules = _rules(folders, document.host.hostname)
    if "argv" in plain:
        plain["argv"] = [_WORD.sub(rf"\1{_FOLDER}", word) for word in plain["argv"]]
    plain = _without(plain, rules)
    plain["host"]["hostname"] = UNKNOWN_HOST  # also where it is too short to be looked for in texts
    return msgspec.convert(plain, type(document))


def nameless(text: str, hostname: str) -> str:
    """A text alone, as `anonymous` has it in a document of this host."""
    found: str = _without(text, _rules(set(_of_this_program()), hostname))
    return found


Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""What is looked for, and what stands there instead."""


def _rules(folders: Iterable[Path], hostname: str) -> list[Rule]:
    return [*_known(folders), (_QUOTED, _FOLDER), (_ABSOLUTE, _FOLDER), *_names(hostname)]


def _of_this_program() -> Iterator[Path]:
    """Where it and its files lie."""
    for place in (Path.home, Path.cwd):
        with contextlib.suppress(RuntimeError, OSError):  # there is none
            yield place()
    yield Path(__file__).parents[2]
    yield from map(Path, (tempfile.gettempdir(), sys.prefix, sys.base_prefix))
    user = platformdirs.PlatformDirs("polybench")
    yield from (user.user_cache_path, user.user_config_path, user.user_data_path)
    named = (os.environ.get(name) for name in ("POLYBENCH_RESULTS", "POLYBENCH_DATA"))
    yield from (Path(place) for place in named if place)


def _of_the_document(plain: dict[str, Any]) -> Iterator[Path]:
    """Data and environments of its study, interpreters, projects, and what else an engine calls its own."""
    study: dict[str, Any] = {}
    with contextlib.suppress(tomllib.TOMLDecodeError):
        study = tomllib.loads(plain.get("study", ""))
    rows = (*plain.get("results", ()), *plain.get("engines", ()))
    own = [study.get("data"), study.get("env"), *((row.get("log"), row.get("versions")) for row in rows)]
    yield from (Path(text) for text in _texts(own) if text.startswith("/"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _known(folders: Iterable[Path]) -> list[Rule]:
    """Rules for those that a text alone does not tell from what is around them, the longest first."""
    real = {place for folder in folders for place in (folder, Path(os.path.realpath(folder)))}
    unusual = {str(place) for place in real if re.search(rf"[{_ENDS}]", str(place).replace("/", ""))}
    return [(_place(text), _instead_of(Path(text).name)) for text in sorted(unusual, key=len, reverse=True)]


def _place(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?:file://)?{re.escape(text)}(?:({_BELOW})|(?!{_NAME}))")


def _instead_of(name: str) -> Callable[[re.Match[str]], str]:
    return lambda found: _FOLDER if found[1] else f"{_FOLDER}{name}"


def _names(hostname: str) -> list[Rule]:
    hosts = [hostname, socket.gethostname()]
    names = dict.fromkeys((part for host in hosts for part in (host, host.partition(".")[0])), UNKNOWN_HOST)
    for user in (getpass.getuser, lambda: Path.home().name):
        with contextlib.suppress(ImportError, KeyError, OSError, RuntimeError):  # nobody tells
            names[user()] = "<user>"
    # Short names, and root's, are parts of too many words.
    return [
        (re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), stand_in)
        for name, stand_in in sorted(names.items(), key=lambda one: -len(one[0]))
        if len(name) > 2 and name not in ("root", UNKNOWN_HOST)
    ]


def _without(value: Any, rules: list[Rule]) -> Any:
    if isinstance(value, str):
        for found, instead in rules:
            value = found.sub(instead, value)
        return value
    if isinstance(value, dict):
        return {key: _without(part, rules) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without(part, rules) for part in value]
    return value

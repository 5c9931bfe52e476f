"""Removes host name, user name and folders from a document."""

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
from typing import Any, TypeVar

import msgspec
import platformdirs

from polybench.errors import BadInput
from polybench.schema.analyses import MergeDocument
from polybench.schema.documents import AnyDocument
from polybench.schema.metadata import Host

UNKNOWN_HOST = "<host>"
"""Replaces every host name, so two documents with it may come from two machines."""

_FOLDER = "<folder>/"

_ENDS = r"\s/:;,'\"()\[\]"
"""Characters that end a name within a path in a text, although names may contain most of them."""
_NAME = rf"[^{_ENDS}]+"

_ABSOLUTE = re.compile(rf"(?:file://[^\s/]*|(?<![\w./~<>])|(?<=\s-\w)|(?<=\A-\w))/(?:{_NAME}/+)+")
"""Matches the folders of an absolute path, without the file name."""

_QUOTED = re.compile(r"(?<=['\"])(?:file://[^\s/'\"]*)?/[^/'\"\n][^'\"\n]*/(?=[^'\"\n]*['\"])")
"""Matches the folders of a quoted path with any names."""

_WORD = re.compile(r"\A((?:-\w|(?:-{0,2}[\w.-]+=)+)?(?:file://)?)/[^/].*/(?=[^/])", re.DOTALL)
"""Matches the folders of a path that is a whole word of a command line, after an option or a name."""

_BELOW = rf"(?:/+{_NAME}(?: +{_NAME})*(?=/))*/+(?=[^{_ENDS}])"
"""Matches the path from a known folder to the last name."""


Document = TypeVar("Document", bound=AnyDocument)


def is_anonymized(host: Host) -> bool:
    """Return True if the host is that of an anonymized document."""
    return host.hostname == UNKNOWN_HOST


def anonymize(document: Document, results: Path | None = None) -> Document:
    """Replace host names by `<host>`, user names by `<user>` and folders by `<folder>/` in all texts.

    Args:
        document: of this machine or of another one.
        results: the folder where it is saved, if any.

    Raises:
        BadInput: it is a merge, which would be unreadable without the names of its machines.
    """
    if isinstance(document, MergeDocument):
        raise BadInput("a merge has the names of its machines: merge anonymous studies instead")
    plain: dict[str, Any] = msgspec.to_builtins(document)
    folders = {*_program_folders(), *_document_folders(plain), *([results] if results else [])}
    if "argv" in plain:
        plain["argv"] = [_WORD.sub(rf"\1{_FOLDER}", word) for word in plain["argv"]]
    scrubbed = _apply(plain, _rules(folders, *_hostnames(plain)))
    unchanged = {name: plain[name] for name in ("schema", "id") if name in plain}  # may contain a host name by chance
    try:
        return msgspec.convert(scrubbed | unchanged, type(document))
    except msgspec.ValidationError as error:
        raise BadInput(f"cannot anonymize: a name of this machine is also the value of a field: {error}") from error


def scrub_text(text: str, hostname: str) -> str:
    """Anonymize a text the way that `anonymize` does in a document of this host."""
    scrubbed: str = _apply(text, _rules(set(_program_folders()), hostname))
    return scrubbed


Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""Pattern and its replacement."""


def _rules(folders: Iterable[Path], *hostnames: str) -> list[Rule]:
    return [*_folder_rules(folders), (_QUOTED, _FOLDER), (_ABSOLUTE, _FOLDER), *_name_rules(hostnames)]


def _hostnames(value: Any) -> set[str]:
    """Return the host names anywhere in a document."""
    if isinstance(value, list):
        return set().union(*map(_hostnames, value))
    if not isinstance(value, dict):
        return set()
    own = {value["hostname"]} if "hostname" in value else set()
    return own.union(*map(_hostnames, value.values()))


def _program_folders() -> Iterator[Path]:
    """Yield the folders of polybench, of its files, of Python and of the user."""
    for folder in (Path.home, Path.cwd):
        with contextlib.suppress(RuntimeError, OSError):  # it does not exist
            yield folder()
    yield Path(__file__).parents[2]
    yield from map(Path, (tempfile.gettempdir(), sys.prefix, sys.base_prefix))
    user = platformdirs.PlatformDirs("polybench")
    yield from (user.user_cache_path, user.user_config_path, user.user_data_path)
    variables = (os.environ.get(name) for name in ("POLYBENCH_RESULTS", "POLYBENCH_DATA"))
    yield from (Path(folder) for folder in variables if folder)


def _document_folders(plain: dict[str, Any]) -> Iterator[Path]:
    """Yield the paths of data, environments, logs, interpreters and projects in a document."""
    study: dict[str, Any] = {}
    with contextlib.suppress(tomllib.TOMLDecodeError):
        study = tomllib.loads(plain.get("study", ""))
    rows = (*plain.get("results", ()), *plain.get("configurations", ()))
    paths = [study.get("data"), study.get("env"), *((row.get("log_path"), row.get("versions")) for row in rows)]
    yield from (Path(text) for text in _texts(paths) if text.startswith("/"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _folder_rules(folders: Iterable[Path]) -> list[Rule]:
    """Return rules for folders whose names contain separators of words, the longest first."""
    real = {path for folder in folders for path in (folder, Path(os.path.realpath(folder)))}
    unusual = {str(path) for path in real if re.search(rf"[{_ENDS}]", str(path).replace("/", ""))}
    return [(_folder_pattern(text), _replacement(Path(text).name)) for text in sorted(unusual, key=len, reverse=True)]


def _folder_pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?:file://)?{re.escape(text)}(?:({_BELOW})|(?!{_NAME}))")


def _replacement(name: str) -> Callable[[re.Match[str]], str]:
    return lambda found: _FOLDER if found[1] else f"{_FOLDER}{name}"


def _name_rules(hostnames: Iterable[str]) -> list[Rule]:
    hosts = [*hostnames, socket.gethostname()]
    names = dict.fromkeys((name for host in hosts for name in (host, host.partition(".")[0])), UNKNOWN_HOST)
    for user in (getpass.getuser, lambda: Path.home().name):
        with contextlib.suppress(ImportError, KeyError, OSError, RuntimeError):  # the name is unknown
            names[user()] = "<user>"
    # Short names and "root" occur in too many words.
    return [
        (re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), replacement)
        for name, replacement in sorted(names.items(), key=lambda one: -len(one[0]))
        if len(name) > 2 and name not in ("root", UNKNOWN_HOST)
    ]


def _apply(value: Any, rules: list[Rule]) -> Any:
    if isinstance(value, str):
        for pattern, replacement in rules:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        # Rules skip host names that are too short.
        return {key: UNKNOWN_HOST if key == "hostname" else _apply(item, rules) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_apply(item, rules) for item in value]
    return value

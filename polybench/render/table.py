"""`Table`: what a command prints, as text. Each format has one renderer for the tables of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from polybench.schema.printable import printable

if TYPE_CHECKING:
    from polybench.schema.metrics import Metric

INTERVALS = "intervals: 95% confidence, across process runs"
"""Note below tables with intervals."""

WIDTH = 100
"""Default characters per line. Columns that a user chose may make a table wider."""

_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 18, 30
"""Characters of names in a first column of a terminal."""

Sort = Literal["network", "slowdown"]
"""Order of the operations of layers: that of the network, or by slowdown relative to the baseline."""


class TableOptions(NamedTuple):
    """Choices of the user; each document uses the options that it has.

    Attributes:
        columns: of a study, in this order; None for the important columns that have values.
        published: add the published results of a study or sweep.
        sort: order of the operations of layers.
        top: allocation sites per configuration.
        width: characters per line into which the important columns must fit; None for no limit.
        notes: add all notes of a study, instead of the most important ones.
        name: the document's name in commands about it.
    """

    columns: Sequence[Metric] | None = None
    published: bool = False
    sort: Sort = "network"
    top: int = 10
    width: int | None = None
    notes: bool = False
    name: str = "ID"


DEFAULTS = TableOptions()


class Records(NamedTuple):
    """Rows for programs: values in SI units, None if unknown."""

    fields: Sequence[str]
    rows: Iterable[Sequence[object]]


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        title: heading.
        numeric: True to align the column's numbers on the right.
        width: characters per line of a long text; None for one line.
        optional: 0, or the rank of a column that a terminal may omit in a table that is too wide, the highest first.
    """

    title: str
    numeric: bool = False
    width: int | None = None
    optional: int = 0


class Table(msgspec.Struct, kw_only=True, frozen=True):
    """Columns and rows, and the texts above and below. A format only adds its syntax."""

    id: str = ""
    """ID of the document, for references."""
    title: Sequence[str] = ()
    """Lines above the table, such as workload and machine."""
    summary: Sequence[str] = ()
    """Results in sentences, between the title and the table."""
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[str]] = ()
    statuses: Sequence[tuple[str, str]] = ()
    """Names of rows without values, and why they have none."""
    tables: Sequence[Table] = ()
    """Further tables above the notes. Those with the same columns continue this table under their title."""
    notes: Sequence[str] = ()
    further_notes: Sequence[str] = ()
    """Notes that only formats with foldable sections have."""
    more: Sequence[str] = ()
    """Commands that print more about the document; they share the last line."""
    published: Table | None = None
    """Published results, separate from everything that polybench measured."""
    origin: str = ""
    """polybench version, ID and time of the document, for formats that are quoted elsewhere."""
    details: Mapping[str, Sequence[str] | str] = {}
    """Sections that formats may fold or omit, by title: a list, or the text of a TOML file."""

    @property
    def continued_by(self) -> list[Table]:
        """Further tables with the columns of this one."""
        return [one for one in self.tables if one.columns and one.columns == self.columns]


def text_columns(*titles: str) -> list[Column]:
    """Describe columns of words."""
    return [Column(title) for title in titles]


def number_columns(*titles: str) -> list[Column]:
    """Describe columns of numbers."""
    return [Column(title, numeric=True) for title in titles]


def name_column(title: str, width: int | None) -> Column:
    """Describe a first column of names; long ones wrap, so that columns of numbers need not be omitted for them."""
    longest = _MAX_NAME_WIDTH if width is None else min(_MAX_NAME_WIDTH, max(_MIN_NAME_WIDTH, width // 2 - 2))
    return Column(title, width=longest)


_NO_BREAK = "\0"
_IN_ONE_PIECE = (
    re.compile(r"`[^`]{1,60}`"),
    re.compile(r"(?:polybench(?: [a-z]+)?|pip install)(?: -[\w-]+| [A-Z]+\b| last\b| [\w.-]*\d[\w.-]*)+"),
    re.compile(r"(?<![\w-])--[a-z][a-z-]+ [^\s,;:()]+(?=[\s,;:.)]|$)"),
)
"""Commands in backticks, commands with options or IDs, and options with a value."""


def one_line(text: str) -> str:
    """Replace line breaks and runs of spaces in `text` by single spaces, and escape control characters.

    Every text of a document goes through here, or through `printable` alone, on its way into a format.
    """
    return printable(" ".join(text.split()))


def name_text(title: str | None, tags: Sequence[str]) -> str:
    """Return the title of a document with its tags: `nightly run #ci`; empty without both."""
    return one_line(" ".join([title or "", *(f"#{tag}" for tag in tags)]))


def wrap(text: str, width: int = WIDTH, first_indent: str = "", indent: str = "") -> str:
    """Break a paragraph into lines of `width` characters; paths, commands and values of options stay in one piece."""
    text = one_line(text)
    for pattern in _IN_ONE_PIECE:
        text = pattern.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    wrapped = fill(
        text,
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped.replace(_NO_BREAK, " ")


def with_reason(status: str, reason: str | None, hint: str | None = None) -> str:
    """Format a status with its reason and a hint: `failed: crashed (hint: ...)`."""
    text = f"{status}: {one_line(reason)}" if reason else status
    return f"{text} (hint: {one_line(hint)})" if hint else text


def share_lines(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Format pairs of a name and a text: one line per text, with all names."""
    names: dict[str, dict[str, None]] = {}
    for name, text in notes:
        names.setdefault(text, {})[name] = None
    return [f"{', '.join(found)}: {text}" for text, found in names.items()]

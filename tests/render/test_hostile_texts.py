"""Hostile text in every text field of every document, in every format: it is escaped where it goes out."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from markdown_it import MarkdownIt

from polybench.analysis.diff import diff
from polybench.analysis.explanation import SavedDocuments, explain
from polybench.analysis.merge import merge
from polybench.errors import BadInput
from polybench.figures import FIGURES, draw
from polybench.figures.image_export import caption_for, to_plotly
from polybench.html_report import StudySection, render_report
from polybench.render import EXPLANATION_FORMATS, FORMATS, explanation, render
from polybench.schema.documents import kind_of
from polybench.schema.encoding import encode
from polybench.schema.printable import printable
from tests.factories import saved_again, study, typical_study, unmeasured
from tests.figures.test_all_figures import DOCUMENTS

CONTROL = "\x1b]52;c;cm0gLXJm\x07\x9b2J\u202e\u200b\r\b\x00\x85\u2028\udc80"
HOSTILE = (
    f"=cmd|{CONTROL}</td></script><script>alert(1)</script><img src=x onerror=alert(1)><!-- `a` | *b* "
    r"[c](javascript:d) ![e](http://f) &lt; \input{g} $h$ @someone #12 ~~~" + "\n\n# i\n```\n- j\n"
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters but line feed and tab, invisible ones, and what UTF-8 cannot hold."""


def _all_documents() -> dict[str, Any]:
    typical = typical_study()
    other = saved_again(typical)
    both = study(*typical.results, unmeasured("jax/cpu", "failed", "crashed", "see the log"))
    return DOCUMENTS | {
        "typical": typical,
        "failed": both,
        "diff": diff(typical, other),
        "merge": merge([typical, other], {}),
        "explanation": explain(DOCUMENTS["study"], SavedDocuments([DOCUMENTS["layers"]], [])),
    }


ALL = _all_documents()


def is_text(kind: Any) -> bool:
    """Return True if a field of this type takes any text, alone or in a list or dictionary."""
    if get_origin(kind) is Annotated:
        return is_text(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType, list, tuple, dict):
        return any(map(is_text, get_args(kind)))
    return kind is str or kind is Any


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def text_fields(value: Any) -> Iterator[tuple[type, str]]:
    """Yield type and name of every field in a document that takes text, once or more often."""
    if isinstance(value, msgspec.Struct) or hasattr(value, "_fields"):
        hints = hints_of(type(value))
        for name in hints:
            if is_text(hints[name]) and name != "schema":  # it chooses the type that is read
                yield type(value), name
            yield from text_fields(getattr(value, name, None))
    elif isinstance(value, dict):
        for item in value.values():
            yield from text_fields(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from text_fields(item)


def poison(value: Any, fields: set[tuple[type, str]], text: Callable[[], str]) -> Any:
    """Return the value with hostile text in these fields, and in all items of their lists and dictionaries."""
    if isinstance(value, msgspec.Struct) or hasattr(value, "_fields"):
        names = hints_of(type(value))
        kept = {name: getattr(value, name) for name in names if hasattr(value, name)}
        new = {
            name: _poisoned(item, text) if (type(value), name) in fields else poison(item, fields, text)
            for name, item in kept.items()
        }
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **{name: new[name] for name in value.__struct_fields__})
        return value._replace(**{name: new[name] for name in value._fields})
    if isinstance(value, dict):
        return {key: poison(item, fields, text) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(poison(item, fields, text) for item in value)
    return value


def _poisoned(value: Any, text: Callable[[], str]) -> Any:
    if value is None or isinstance(value, str):
        return text()
    if isinstance(value, dict):
        return {text(): _poisoned(item, text) for item in value.values()} or {text(): text()}
    if isinstance(value, list | tuple):
        return type(value)(_poisoned(item, text) for item in value) or type(value)([text()])
    return value


def poisoned(document: Any, fields: set[tuple[type, str]]) -> Any:
    """Return the document with different hostile texts in these fields; None if no file can contain it."""
    count = iter(range(1_000_000))
    try:
        changed = poison(document, fields, lambda: f"{HOSTILE}{next(count)}")
        return msgspec.convert(msgspec.to_builtins(changed), type(document))
    except (msgspec.ValidationError, ValueError):
        return None


def fields_of(document: Any) -> list[tuple[type, str]]:
    return sorted(set(text_fields(document)), key=lambda one: (one[0].__name__, one[1]))


def html_of(markdown: str) -> str:
    """Render Markdown like GitHub, without filtering HTML."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


class Markup(HTMLParser):
    """Collects the tags of a page, and fails if one loads, links or runs something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert tag not in ("img", "iframe")
        assert not [name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript")]

    def handle_comment(self, data: str) -> None:
        assert data == " "  # of a comment on GitHub


def check_html(text: str, scripts: int = 0) -> None:
    assert Markup(text).tags["script"] == scripts


def check(text: str, format: str) -> None:
    """Fail if a text in this format contains control characters, or hostile text as anything but text."""
    if format == "json":
        json.loads(text)
        text = printable(text)  # as it reaches a terminal
        json.loads(text)
    assert not CONTROLS.search(text)
    text.encode()
    if format == "html":
        check_html(text)
    elif format in ("markdown", "github"):
        check_html(html_of(text))
    elif format == "latex":
        assert not re.search(r"\\input\{|(?<!\\)\$", text)
    elif format.startswith("csv"):
        rows = list(csv.reader(io.StringIO(text)))
        assert len({len(row) for row in rows}) <= 1
        assert not [cell for row in rows for cell in row if cell.startswith(FORMULA) and not is_number(cell)]


FORMULA = tuple("=+-@")
GROUPS = 6
"""Documents in which the fields of one kind of document are hostile."""


def is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text))


def render_all(document: Any) -> Iterator[tuple[str, str]]:
    """Yield each format with the document's text, and each figure as JSON."""
    kind = kind_of(document.schema)
    if kind == "explanation":
        yield from ((format, explanation.render(document, format)) for format in EXPLANATION_FORMATS)
        return
    for format in FORMATS:
        yield format, render(document, format, published=kind in ("study", "sweep"))
    for name, spec in FIGURES.items():
        if spec.kind == kind:
            with contextlib.suppress(BadInput):  # no data, or no such network
                figure = draw(name, document)
                yield "figure", msgspec.json.encode(to_plotly(figure, caption_for(document)).to_plotly_json()).decode()


@pytest.mark.parametrize("kind", ALL)
def test_hostile_text_in_any_field_stays_text_in_every_format(kind: str) -> None:
    """A few fields at a time: more of them would hide each other's rows."""
    fields = fields_of(ALL[kind])
    valid = [field for field in fields if poisoned(ALL[kind], {field}) is not None]  # others take only some texts
    assert len(valid) > len(fields) / 2
    for first in range(GROUPS):
        for format, text in render_all(poisoned(ALL[kind], {*valid[first::GROUPS]})):
            check(text, format)


def test_a_document_contains_the_text_itself() -> None:
    document = typical_study()
    document.title = HOSTILE
    title = json.loads(encode(document))["title"]
    assert title == HOSTILE.replace("\udc80", "\\udc80")


@pytest.mark.parametrize("kind", ["typical", "failed", "study", "sweep", "overhead"])
def test_hostile_text_in_any_field_stays_text_in_a_report(kind: str) -> None:
    """A report is large, so that one has all fields that take any text."""
    harmless = ALL[kind]
    fields = {field for field in fields_of(harmless) if poisoned(harmless, {field}) is not None}
    hostile = poisoned(harmless, fields)
    sections = [StudySection(one) if kind_of(one.schema) == "study" else one for one in (harmless, hostile)]
    expected, text = (render_report([section]) for section in sections)
    assert "alert(1)" in text
    assert not CONTROLS.search(text)
    check_html(text, Markup(expected).tags["script"])

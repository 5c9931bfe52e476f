"""The page: well-formed, with all of the table, and with no markup of a study's."""

from __future__ import annotations

from html.parser import HTMLParser

from polybench.export import render
from polybench.metrics.base import Metric
from tests.export.hostile import TEXT, hostile
from tests.factories import typical_study

_EMPTY = {"meta", "br"}


class Page(HTMLParser):
    """All of its tags, and its texts by the tag that they are in; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"class", "lang", "charset", "name", "content"}
        self.tags.append(tag)
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def test_it_has_the_rows_and_notes_of_the_table(columns: list[Metric]) -> None:
    page = Page(render("html", typical_study(), columns))
    assert ("td", "tf/cpu") in page.texts
    assert ("td", "8.55 ms ±2.5%") in page.texts
    assert ("th", "peak memory") in page.texts
    assert page.tags.count("table") == 2  # what is not ranked has its own
    assert any(tag == "li" and text.startswith("flux: max-pool") for tag, text in page.texts)


def test_nothing_of_a_study_is_markup(columns: list[Metric]) -> None:
    page = Page(render("html", hostile(), columns))
    known = {"html", "head", "meta", "title", "style", "body", "p", "br", "table", "thead", "tbody", "tr"}
    assert set(page.tags) <= known | {"th", "td", "ul", "li", "caption"}
    assert ("td", TEXT.replace("/", "") + "/torch/cpu") in page.texts


def test_it_loads_and_runs_nothing(columns: list[Metric]) -> None:
    text = render("html", typical_study(), columns)
    assert not any(word in text for word in ("http", "src=", "href=", "url(", "<script", "@import"))

"""HTML table: well-formed, complete, and without markup from the study."""

from __future__ import annotations

from html.parser import HTMLParser

from polybench.render import render
from polybench.schema.metrics import Metric
from tests.factories import typical_study
from tests.render.malicious_inputs import MALICIOUS_TEXT, malicious_study

_EMPTY = {"meta", "br"}


class Page(HTMLParser):
    """Collects tags, and texts with their enclosing tag; fails if tags do not match."""

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


def test_page_contains_rows_and_notes(columns: list[Metric]) -> None:
    page = Page(render(typical_study(), "html", columns=columns))
    assert ("td", "tf/cpu") in page.texts
    assert ("td", "8.55 ms ±2.5%") in page.texts
    assert ("th", "peak memory") in page.texts
    assert page.tags.count("table") == 2  # unranked rows have their own
    assert any(tag == "li" and text.startswith("flux: known deviation: max-pool") for tag, text in page.texts)


def test_malicious_texts_are_escaped(columns: list[Metric]) -> None:
    page = Page(render(malicious_study(), "html", columns=columns))
    known = {"html", "head", "meta", "title", "style", "body", "p", "br", "table", "thead", "tbody", "tr"}
    assert set(page.tags) <= known | {"th", "td", "ul", "li", "caption"}
    assert ("td", MALICIOUS_TEXT.replace("/", "") + "/torch/cpu") in page.texts


def test_page_loads_and_runs_nothing(columns: list[Metric]) -> None:
    text = render(typical_study(), "html", columns=columns)
    assert not any(word in text for word in ("http", "src=", "href=", "url(", "<script", "@import"))

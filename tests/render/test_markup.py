"""HTML pages and GitHub comments: well-formed, complete, and without markup from the study."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest
from markdown_it import MarkdownIt

from polybench.render import html_table, latex, markdown, render
from polybench.render.table import Column, Table
from polybench.schema.metrics import Metric
from tests.factories import measured, study, typical_study, unmeasured
from tests.figures.test_all_figures import DOCUMENTS
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
        assert {name for name, _ in attrs} <= {"style", "lang", "charset", "name", "content"}
        self.tags.append(tag)
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def test_page_contains_rows_and_notes(columns: list[Metric]) -> None:
    page = Page(render(typical_study(), "html", columns=columns))
    assert ("td", "tf/cpu") in page.texts
    assert ("td", "8.55 ms ±2.5%") in page.texts
    assert ("th", "memory") in page.texts
    assert page.tags.count("table") == 2  # unranked rows have their own
    assert any(tag == "li" and text.startswith("[2] max-pool gradient: conv1.weight is ") for tag, text in page.texts)


def test_malicious_texts_are_escaped(columns: list[Metric]) -> None:
    page = Page(render(malicious_study(), "html", columns=columns))
    known = {"html", "head", "meta", "title", "style", "body", "p", "br", "table", "thead", "tbody", "tr"}
    assert set(page.tags) <= known | {"th", "td", "ul", "li"}
    assert ("td", MALICIOUS_TEXT.replace("/", "") + "/torch/cpu") in page.texts


@pytest.mark.parametrize("format", ["html", "github", "markdown"])
@pytest.mark.parametrize("kind", [kind for kind in DOCUMENTS if kind != "peak"])
def test_malicious_names_are_escaped_in_every_document(kind: str, format: str) -> None:
    text = msgspec.json.encode(DOCUMENTS[kind]).replace(b"torch/cpu", b"<b onclick=alert(1)>/cpu")
    found = render(msgspec.json.decode(text, type=type(DOCUMENTS[kind])), format)
    assert "onclick" in found
    assert found.count("<b onclick") == found.count(r"\<b onclick")


def test_page_loads_and_runs_nothing(columns: list[Metric]) -> None:
    text = render(typical_study(), "html", columns=columns)
    assert not any(word in text for word in ("http", "src=", "href=", "url(", "<script", "@import"))


def html(markdown: str) -> str:
    """Render Markdown like GitHub, without filtering HTML."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def test_summary_and_tables_are_visible_and_the_rest_is_collapsed(columns: list[Metric]) -> None:
    text = render(typical_study(), "github", columns=columns)
    visible, collapsed = text.split("<details>", 1)
    assert visible.startswith("**")
    assert "| tf/cpu " in visible
    assert "- torch/cuda: unavailable: no CUDA" in visible
    assert r"| tf+keras\_fit/cpu " in visible
    assert "- flux: known deviation: max-pool" in collapsed
    assert '\n```toml\nengines = ["torch", "tf"]\n```\n' in collapsed
    assert text.count("<details>") == text.count("</details>") == 4
    assert html(text).count("<table>") == 2


def test_versions_are_listed_by_configuration(columns: list[Metric]) -> None:
    configuration = measured("torch/cpu", 0.01, versions={"torch": "2.13", "build": {}, "environment": {}})
    assert "- torch/cpu: torch 2.13\n" in render(study(configuration), "github", columns=columns)


def test_malicious_texts_are_escaped_in_comments(columns: list[Metric]) -> None:
    found = html(render(malicious_study(), "github", columns=columns))
    tags = {tag.lower() for tag in re.findall(r"</?([a-zA-Z][\w-]*)", found)}
    known = {"p", "strong", "br", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "sub"}
    assert tags <= known | {"details", "summary", "code", "pre"}
    assert found.count("<table>") == 1
    assert found.count("<pre>") == 1
    assert set(re.findall("<!--.*?-->", found)) == {"<!-- -->"}


def test_every_row_has_as_many_cells_as_the_header(columns: list[Metric]) -> None:
    found = html(render(malicious_study(), "github", columns=columns))
    rows = re.findall("<tr>(.*?)</tr>", found, re.DOTALL)
    assert len(rows) == 3
    assert {len(re.findall("<t[hd]", row)) for row in rows} == {len(columns) + 1}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("torch/cpu#2 is slow", "torch/cpu#<!-- -->2 is slow"),  # would link to an issue
        ("thanks to @someone", "thanks to @<!-- -->someone"),
        ("torch@old is slow", "torch@old is slow"),
        ("12. not a list", r"12\. not a list"),
        ("1.5 times", "1.5 times"),
        ("- not a list", r"\- not a list"),
    ],
    ids=["issue", "mention", "environment", "numbers", "number", "list"],
)
def test_github_references_and_lists_are_escaped(columns: list[Metric], text: str, shown: str) -> None:
    found = render(study(unmeasured("tf/cpu", "failed", None), warnings=[text]), "github", columns=columns)
    assert f"- {shown}\n" in found


def test_code_fence_is_longer_than_those_in_the_study(columns: list[Metric]) -> None:
    assert "\n````toml\n" in render(malicious_study(), "github", columns=columns)
    assert "```" in MALICIOUS_TEXT


LINKS = (
    "[x](javascript:alert(1))", "![x](data:text/html,y)", "<javascript:alert(1)>", "[x]: javascript:alert(1)", "[x]",
    "<img src=x onerror=alert(1)>", "a\n\n# title", "a\n---", "> quoted", "1. item", "~~~", "&#91;x](javascript:a)",
    "a\n\n    code", "a | b\n--|--\nc | d",
)  # fmt: skip


@pytest.mark.parametrize("format", ["markdown", "github"])
@pytest.mark.parametrize("text", LINKS)
def test_no_text_becomes_a_link_or_other_markup(text: str, format: str) -> None:
    def tags(text: str) -> list[str]:
        configurations = measured("torch/cpu", 0.01, warnings=[text]), unmeasured("tf/cpu", "failed", text)
        document = study(*configurations, dataset=text, warnings=[text])
        return re.findall(r"<[^/!][^>]*>", html(render(document, format)))

    assert tags(text) == tags("text")


def test_latex_has_no_control_characters_and_no_paragraph_in_an_argument() -> None:
    text = "\x1b]0;x\x07\x00\u202e\u200b one\n\ntwo \\input{/etc/passwd} $x$ %"
    found = render(study(unmeasured("tf/cpu", "failed", text), dataset=text, warnings=[text]), "latex")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u202e]", found)
    assert r"\textbackslash{}input\{/etc/passwd\} \$x\$ \%" in found
    assert "\n\n" not in found


TEXT = "x_y <i>z</i>"


def texts_everywhere() -> Table:
    """Return a table that has TEXT in each of its 13 places."""
    columns, rows = [Column(TEXT)], [[TEXT]]
    part = Table(title=[TEXT], columns=columns, rows=rows, notes=[TEXT])
    return Table(
        id="a_b", title=[TEXT], columns=columns, rows=rows, statuses=[(TEXT, "failed")], tables=[part],
        notes=[TEXT], summary=[TEXT], published=part,
    )  # fmt: skip


def test_html_escapes_texts_in_every_place() -> None:
    text = html_table.render(texts_everywhere())
    assert "<i>" not in text
    assert text.count("x_y &lt;i&gt;z") == 15  # once more in the title of the page


def test_latex_escapes_texts_in_every_place_and_replaces_them_in_labels() -> None:
    text = latex.render(texts_everywhere())
    assert "x_y" not in text
    assert text.count(r"x\_y") == 14
    assert r"\label{tab:a-b}" in text


def test_markdown_escapes_texts_in_every_place() -> None:
    text = markdown.render(texts_everywhere())
    assert text.count("<i>") == text.count(r"\<i>") == 14
    text = markdown.render_github(msgspec.structs.replace(texts_everywhere(), origin=TEXT))
    assert "<i" not in text.replace(r"\<i", "")

"""Markdown and GitHub comments: complete, and without markup from the study."""

from __future__ import annotations

import re

import msgspec
import pytest
from markdown_it import MarkdownIt

from polybench.render import render
from polybench.schema.metrics import Metric
from tests.factories import measured, study, typical_study, unmeasured
from tests.figures.test_all_figures import DOCUMENTS
from tests.render.malicious_inputs import MALICIOUS_TEXT, malicious_study


@pytest.mark.parametrize("format", ["github", "markdown"])
@pytest.mark.parametrize("kind", [kind for kind in DOCUMENTS if kind != "peak"])
def test_malicious_names_are_escaped_in_every_document(kind: str, format: str) -> None:
    text = msgspec.json.encode(DOCUMENTS[kind]).replace(b"torch/cpu", b"<b onclick=alert(1)>/cpu")
    found = render(msgspec.json.decode(text, type=type(DOCUMENTS[kind])), format)
    assert "onclick" in found
    assert found.count("<b onclick") == found.count(r"\<b onclick")


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

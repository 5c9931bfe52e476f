"""The comment: what is seen, what is folded away, and that a study's texts are texts."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from polybench.export import render
from polybench.metrics.base import Metric
from tests.export.hostile import TEXT, hostile
from tests.factories import absent, measured, study, typical_study


def html(markdown: str) -> str:
    """As a renderer of GitHub's dialect reads it; raw HTML is let through."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def test_sentences_and_tables_are_seen_and_the_rest_is_folded(columns: list[Metric]) -> None:
    text = render("github", typical_study(), columns)
    seen, folded = text.split("<details>", 1)
    assert seen.startswith("**")
    assert "| tf/cpu " in seen
    assert "- torch/cuda: unavailable: no CUDA" in seen
    assert r"| tf+keras\_fit/cpu " in seen
    assert "- flux: max-pool" in folded
    assert '\n```toml\nengines = ["torch", "tf"]\n```\n' in folded
    assert text.count("<details>") == text.count("</details>") == 4
    assert html(text).count("<table>") == 2


def test_versions_are_told_by_cell(columns: list[Metric]) -> None:
    cell = measured("torch/cpu", 0.01, versions={"torch": "2.13", "build": {}, "environment": {}})
    assert "- torch/cpu: torch 2.13\n" in render("github", study(cell), columns)


def test_nothing_of_a_study_is_markup(columns: list[Metric]) -> None:
    found = html(render("github", hostile(), columns))
    tags = {tag.lower() for tag in re.findall(r"</?([a-zA-Z][\w-]*)", found)}
    known = {"p", "strong", "br", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "sub"}
    assert tags <= known | {"details", "summary", "code", "pre"}
    assert found.count("<table>") == 1
    assert found.count("<pre>") == 1
    assert set(re.findall("<!--.*?-->", found)) == {"<!-- -->"}


def test_every_row_has_as_many_cells_as_the_header(columns: list[Metric]) -> None:
    found = html(render("github", hostile(), columns))
    rows = re.findall("<tr>(.*?)</tr>", found, re.DOTALL)
    assert len(rows) == 3
    assert {len(re.findall("<t[hd]", row)) for row in rows} == {len(columns) + 1}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("torch/cpu#2 is slow", "torch/cpu#<!-- -->2 is slow"),  # would be a link to an issue
        ("thanks to @someone", "thanks to @<!-- -->someone"),
        ("torch@old is slow", "torch@old is slow"),
        ("12. no list", r"12\. no list"),
        ("1.5 times", "1.5 times"),
        ("- no list", r"\- no list"),
    ],
    ids=["issue", "mention", "environment", "numbers", "number", "list"],
)
def test_what_github_would_make_more_of_is_text(columns: list[Metric], text: str, shown: str) -> None:
    found = render("github", study(absent("tf/cpu", "failed", None), warnings=[text]), columns)
    assert f"- {shown}\n" in found


def test_a_fence_is_longer_than_those_of_the_study(columns: list[Metric]) -> None:
    assert "\n````toml\n" in render("github", hostile(), columns)
    assert "```" in TEXT

"""A comment on GitHub: sentences and the table, with notes, versions and the study folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.one_line import one_line
from polybench.export.rows import NOT_RANKED, Column, build

_SPECIAL = re.compile(r"[\\`*_\[\]{}<>|~&!$]")
_REFERENCE = re.compile(r"(?:(?<!\w)@|#)(?=\w)")
_LIST_OR_TITLE = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+#=]))")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Sentences, tables and what is absent are seen; the rest is in `<details>`.

    Every text of the study is escaped.
    """
    table = build(study, columns)
    notes = table.footnotes
    blocks = (
        _lines(f"**{_escaped(sentence)}**" for sentence in table.sentences),
        _rows(table.ranked, table.header, table.alignment),
        f"**{NOT_RANKED}**" if table.unranked else "",
        _rows(table.unranked, table.header, table.alignment),
        _list([f"{cell}: {outcome}" for cell, outcome in table.absent]),
        f"**{published.TITLE}**" if table.published else "",
        _rows(table.published, table.published_header, ["left"] * len(table.published_header)),
        _list(table.sources),
        _details("What was measured", _lines(map(_escaped, table.heading))),
        _details(f"{units.plural(len(notes), 'note')}", _list(notes)) if notes else "",
        _details("Versions", _versions(study)),
        _details("The study, for <code>polybench run STUDY.toml</code>", _fenced(study.study)),
        f"<sub>polybench {_escaped(study.polybench.version)}, study {_escaped(study.id)},"
        f" {_escaped(study.created)}</sub>",
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _details(summary: str, content: str) -> str:
    # Without empty lines around it, GitHub would take what is inside for HTML.
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def _versions(study: StudyDocument) -> str:
    lines = [f"Python {study.host.python}, {study.host.os}"]
    for result in study.results:
        texts = [f"{what} {text}" for what, text in result.versions.items() if isinstance(text, str)]
        if texts:
            lines.append(f"{result.cell}: {', '.join(texts)}")
    return _list(lines)


def _rows(rows: list[list[str]], header: list[str], alignment: list[str]) -> str:
    if not rows:
        return ""
    escaped = [[_escaped(text) for text in row] for row in rows]
    titles = [_escaped(title) for title in header]
    return tabulate(escaped, titles, "pipe", colalign=alignment, disable_numparse=True)


def _lines(texts: Iterable[str]) -> str:
    return "  \n".join(texts)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _fenced(text: str) -> str:
    """A block of code whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}toml\n{text.strip()}\n{fence}"


def _escaped(text: str) -> str:
    """Text and nothing else: no markup, no mention of anybody, no link to an issue (`torch/cpu#2` is one)."""
    plain = _SPECIAL.sub(r"\\\g<0>", one_line(text))
    return _REFERENCE.sub(r"\g<0><!-- -->", _LIST_OR_TITLE.sub(r"\1\\", plain))

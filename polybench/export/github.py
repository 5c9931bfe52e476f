"""A comment on GitHub: sentences and the table, with notes, versions and the study folded away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.export import published
from polybench.export.markdown_blocks import bullets, lines, table
from polybench.export.one_line import one_line
from polybench.export.rows import NOT_RANKED, Column, build

_SPECIAL = re.compile(r"[\\`*_\[\]{}<>|~&!$]")
_REFERENCE = re.compile(r"(?:(?<!\w)@|#)(?=\w)")
_LIST_OR_TITLE = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+#=]))")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Sentences, tables and what is absent are seen; the rest is in `<details>`.

    Every text of the study is escaped.
    """
    shown = build(study, columns)
    notes = shown.footnotes
    blocks = (
        lines(shown.sentences, lambda sentence: f"**{_escaped(sentence)}**"),
        table(shown.ranked, shown.header, shown.alignment, _escaped),
        f"**{NOT_RANKED}**" if shown.unranked else "",
        table(shown.unranked, shown.header, shown.alignment, _escaped),
        bullets([f"{cell}: {outcome}" for cell, outcome in shown.absent], _escaped),
        f"**{published.TITLE}**" if shown.published else "",
        table(shown.published, shown.published_header, ["left"] * len(shown.published_header), _escaped),
        bullets(shown.sources, _escaped),
        _details("What was measured", lines(shown.heading, _escaped)),
        _details(f"{units.plural(len(notes), 'note')}", bullets(notes, _escaped)) if notes else "",
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
    texts = [f"Python {study.host.python}, {study.host.os}"]
    for result in study.results:
        versions = [f"{what} {text}" for what, text in result.versions.items() if isinstance(text, str)]
        if versions:
            texts.append(f"{result.cell}: {', '.join(versions)}")
    return bullets(texts, _escaped)


def _fenced(text: str) -> str:
    """A block of code whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}toml\n{text.strip()}\n{fence}"


def _escaped(text: str) -> str:
    """Text and nothing else: no markup, no mention of anybody, no link to an issue (`torch/cpu#2` is one)."""
    plain = _SPECIAL.sub(r"\\\g<0>", one_line(text))
    return _REFERENCE.sub(r"\g<0><!-- -->", _LIST_OR_TITLE.sub(r"\1\\", plain))

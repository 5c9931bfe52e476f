"""GitHub comment: summary and table, with notes, versions and the study file in collapsed sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polybench.render import one_line, published_results
from polybench.render.markdown_helpers import bullets, lines, table
from polybench.render.study_table import NOT_RANKED, Column, build_table
from polybench.schema import units
from polybench.schema.study import StudyDocument

_SPECIAL = re.compile(r"[\\`*_\[\]{}<>|~&!$]")
_REFERENCE = re.compile(r"(?:(?<!\w)@|#)(?=\w)")
_LIST_OR_TITLE = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+#=]))")


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render the summary, tables and configurations without times; everything else is in `<details>`.

    All texts of the study are escaped.
    """
    built = build_table(study, columns)
    notes = built.footnotes
    blocks = (
        lines(built.summary, lambda sentence: f"**{_escape(sentence)}**"),
        table(built.ranked, built.column_titles, built.alignment, _escape),
        f"**{NOT_RANKED}**" if built.unranked else "",
        table(built.unranked, built.column_titles, built.alignment, _escape),
        bullets([f"{configuration}: {status}" for configuration, status in built.not_measured], _escape),
        f"**{published_results.TITLE}**" if built.published else "",
        table(built.published, built.published_titles, ["left"] * len(built.published_titles), _escape),
        bullets(built.sources, _escape),
        _details("Workload and machine", lines(built.header_lines, _escape)),
        _details(f"{units.plural(len(notes), 'note')}", bullets(notes, _escape)) if notes else "",
        _details("Versions", _versions(study)),
        _details("Study file for <code>polybench run STUDY.toml</code>", _fenced(study.study)),
        f"<sub>polybench {_escape(study.polybench.version)}, study {_escape(study.id)}, {_escape(study.created)}</sub>",
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def _details(summary: str, content: str) -> str:
    # GitHub parses the content as Markdown only between empty lines.
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def _versions(study: StudyDocument) -> str:
    texts = [f"Python {study.host.python}, {study.host.os}"]
    for result in study.results:
        versions = [f"{package} {text}" for package, text in result.versions.items() if isinstance(text, str)]
        if versions:
            texts.append(f"{result.configuration}: {', '.join(versions)}")
    return bullets(texts, _escape)


def _fenced(text: str) -> str:
    """Format a code block whose fence is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}toml\n{text.strip()}\n{fence}"


def _escape(text: str) -> str:
    """Escape markup, mentions of users and links to issues, such as in `torch/cpu#2`."""
    plain = _SPECIAL.sub(r"\\\g<0>", one_line(text))
    return _REFERENCE.sub(r"\g<0><!-- -->", _LIST_OR_TITLE.sub(r"\1\\", plain))

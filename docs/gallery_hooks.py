"""MkDocs hooks that generate the gallery: a page and a report of each saved document."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from polybench.api.results import study_section
from polybench.figures.image_export import caption_for
from polybench.html_report import Section, render_report
from polybench.html_report.sweep_section import headline, sweep_title
from polybench.render import render
from polybench.render.footnotes import summary_sentences
from polybench.render.markdown import format_rows
from polybench.render.table import Table, text_columns
from polybench.schema import units
from polybench.schema.measurements import SweepDocument
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

_FOLDER = Path(__file__).parent / "gallery"

_OLD_DAYS = 180
"""Age in days from which a page is marked as old, because frameworks have released new versions."""

_MARK = "<!-- gallery -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    store = Store(_FOLDER / "measured")
    for one in _shown(store):
        part: Section = one if isinstance(one, SweepDocument) else study_section(one, store)
        for suffix, text in {"md": _page(one), "html": render_report([part])}.items():
            files.append(File.generated(config, f"gallery/{one.id}.{suffix}", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the marker by the list of all documents."""
    return markdown.replace(_MARK, _list()) if _MARK in markdown else markdown


def _shown(store: Store) -> Iterator[StudyDocument | SweepDocument]:
    yield from store.studies()
    yield from store.sweeps()


def _list() -> str:
    rows = [
        [f"[{_title(one)}]({one.id}.md)", one.created[:10], one.host.cpu, " ".join(_found(one))]
        for one in _shown(Store(_FOLDER / "measured"))
    ]
    return format_rows(Table(columns=text_columns("study", "measured", "on", "found"), rows=rows), str)


def _page(one: StudyDocument | SweepDocument) -> str:
    figures = sorted((_FOLDER / "figures").glob(f"{one.id}.*.svg"))
    parts = [
        f"# {_title(one)}",
        _age(one),
        f"[The whole report]({one.id}.html), {_contents(one)}.",
        _table(one).replace("\\<", "&lt;"),  # same anchors as Python-Markdown
        *(f"![{path.stem.rpartition('.')[2]}](figures/{path.name})" for path in figures),
        *_repeated(one),
    ]
    return "\n\n".join(parts)


def _title(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return sweep_title(one)
    settings = one.settings
    return one.title or f"{settings.model}, batch {settings.batch_size}, {settings.precision}"


def _found(one: StudyDocument | SweepDocument) -> list[str]:
    return [headline(one)] if isinstance(one, SweepDocument) else summary_sentences(one)


def _contents(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return "with its curves and every point"
    return "with every figure, the proof and the programs"


def _table(one: StudyDocument | SweepDocument) -> str:
    return render(one, "markdown", published=True)


def _repeated(one: StudyDocument | SweepDocument) -> list[str]:
    if isinstance(one, SweepDocument):
        return []
    command = f"polybench run docs/gallery/measured/{one.id}.json --data auto"
    return [f"Repeat it on your machine, in a clone: `{command}`."]


def _age(one: StudyDocument | SweepDocument) -> str:
    days = (datetime.now(UTC) - datetime.fromisoformat(one.created)).days
    when = f"{units.plural(days, 'day')} old when this page was made: {caption_for(one)}"
    old = "!!! warning\n    Frameworks have changed since: measure it again before you quote it.\n\n"
    return (old if days > _OLD_DAYS else "") + when

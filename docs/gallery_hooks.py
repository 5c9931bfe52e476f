"""The gallery, which MkDocs asks for while it builds the site: a page and a report of each saved document.

No figure of it is typed: all of them are in the documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from polybench.api.parts import chapter_of
from polybench.core import units
from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import SweepDocument
from polybench.export import sweep as sweeps
from polybench.export.records import laid_out
from polybench.export.rendering import rendered
from polybench.export.sentence import sentences
from polybench.page import Part, render
from polybench.page.sweep import headline, title_of
from polybench.plots.provenance import provenance
from polybench.report.saved_studies import Store

_FOLDER = Path(__file__).parent / "gallery"

_OLD_DAYS = 180
"""From then on a page of the gallery says that it is old: frameworks have had a release or two."""

_MARK = "<!-- gallery -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that are written."""
    store = Store(_FOLDER / "measured")
    for one in _shown(store):
        part: Part = one if isinstance(one, SweepDocument) else chapter_of(one, store)
        for suffix, text in {"md": _page(one), "html": render([part])}.items():
            files.append(File.generated(config, f"gallery/{one.id}.{suffix}", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The list of all, where its mark is."""
    return markdown.replace(_MARK, _list()) if _MARK in markdown else markdown


def _shown(store: Store) -> Iterator[StudyDocument | SweepDocument]:
    yield from store.studies()
    yield from store.sweeps()


def _list() -> str:
    rows = [
        [f"[{_title(one)}]({one.id}.md)", one.created[:10], one.host.cpu, " ".join(_found(one))]
        for one in _shown(Store(_FOLDER / "measured"))
    ]
    return laid_out(["study", "measured", "on", "found"], rows, left=4, markdown=True)


def _page(one: StudyDocument | SweepDocument) -> str:
    figures = sorted((_FOLDER / "figures").glob(f"{one.id}.*.svg"))
    parts = [
        f"# {_title(one)}",
        _age(one),
        f"[The whole report]({one.id}.html), {_contents(one)}.",
        _table(one).replace("\\<", "&lt;"),  # as Python-Markdown has it
        *(f"![{path.stem.rpartition('.')[2]}](figures/{path.name})" for path in figures),
        *_repeated(one),
    ]
    return "\n\n".join(parts)


def _title(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return title_of(one)
    settings = one.settings
    return one.title or f"{settings.model}, batch {settings.batch_size}, {settings.precision}"


def _found(one: StudyDocument | SweepDocument) -> list[str]:
    return [headline(one)] if isinstance(one, SweepDocument) else sentences(one)


def _contents(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return "with its curves and every point"
    return "with every figure, the proof and the programs"


def _table(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return sweeps.render(one, "markdown", published=True)
    return rendered(one, "markdown", published=True)


def _repeated(one: StudyDocument | SweepDocument) -> list[str]:
    if isinstance(one, SweepDocument):
        return []
    command = f"polybench run docs/gallery/measured/{one.id}.json --data auto"
    return [f"Repeat it on your machine, in a clone: `{command}`."]


def _age(one: StudyDocument | SweepDocument) -> str:
    days = (datetime.now(UTC) - datetime.fromisoformat(one.created)).days
    when = f"{units.plural(days, 'day')} old when this page was made: {provenance(one)}"
    old = "!!! warning\n    Frameworks have changed since: measure it again before you quote it.\n\n"
    return (old if days > _OLD_DAYS else "") + when

"""MkDocs hooks that generate the gallery: a page and a report of each saved document."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from polybench.api.results import study_section
from polybench.figures import FIGURES, default_figure, draw
from polybench.figures.image_export import caption_for
from polybench.html_report import Section, render_report
from polybench.html_report.sweep_section import sweep_title
from polybench.render import render
from polybench.schema import units
from polybench.schema.documents import kind_of
from polybench.schema.encoding import decode
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
    """Replace the marker by thumbnails of all documents."""
    return markdown.replace(_MARK, _thumbnails()) if _MARK in markdown else markdown


def _shown(store: Store) -> Iterator[StudyDocument | SweepDocument]:
    yield from store.studies()
    yield from store.others("sweep")
    for path in sorted((store.folder / "sweeps").glob("*.json")):  # printed before sweeps were logs
        yield decode(path.read_bytes(), SweepDocument)


def _thumbnails() -> str:
    """Show a card for each document with a verdict; list the others below."""
    shown = list(_shown(Store(_FOLDER / "measured")))
    others = [f"[{_title(one)}]({one.id}.md)" for one in shown if not _has_verdict(one)]
    note = f"\nMeasured for their trainings, without a verdict on speeds: {', '.join(others)}."
    trainings = note if others else ""
    cards = [_card(one) for one in shown if _has_verdict(one)]
    return "\n".join(['<div class="grid cards" markdown>\n', *cards, "</div>", trainings])


def _card(one: StudyDocument | SweepDocument) -> str:
    text = _alternative(default_figure(kind_of(one.schema)), one)
    image = f"[![{text}](figures/{one.id}.thumbnail.svg)]({one.id}.md)"
    return f"-   {image}\n\n    [{_title(one)}]({one.id}.md)<br>{one.host.cpu}, {one.created[:10]}\n"


def _has_verdict(one: StudyDocument | SweepDocument) -> bool:
    if isinstance(one, SweepDocument):
        return one.inconclusive_reason is None
    return any(result.vs_baseline and not result.vs_baseline.is_inconclusive for result in one.results)


_MAX_NUMBERS = 12
"""Numbers in the alternative text of an image; the report lists all of them."""


def _alternative(name: str, one: StudyDocument | SweepDocument) -> str:
    """Describe a figure for readers who cannot see it."""
    numbers = draw(name, one).text_alternative if FIGURES[name].kind == kind_of(one.schema) else []
    return ": ".join([FIGURES[name].summary, *(["; ".join(numbers)] if 0 < len(numbers) <= _MAX_NUMBERS else [])])


_INCONCLUSIVE = "!!! warning\n    It is not certain which engine is fastest; the line below the title has the reason."


def _page(one: StudyDocument | SweepDocument) -> str:
    drawn = {path.stem.rpartition(".")[2] for path in (_FOLDER / "figures").glob(f"{one.id}.*.svg")}
    parts = [
        f"# {_title(one)}",
        *([] if _has_verdict(one) else [_INCONCLUSIVE]),
        _age(one),
        f"[The whole report]({one.id}.html), {_contents(one)}.",
        _table(one).replace("\\<", "&lt;"),  # same anchors as Python-Markdown
        *(f"![{_alternative(name, one)}](figures/{one.id}.{name}.svg)" for name in FIGURES if name in drawn),
        *_repeated(one),
    ]
    return "\n\n".join(parts)


def _title(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return sweep_title(one)
    settings = one.settings
    return one.title or f"{settings.model}, batch {settings.batch_size}, {settings.precision}"


def _contents(one: StudyDocument | SweepDocument) -> str:
    if isinstance(one, SweepDocument):
        return "with its curves and every point"
    return "with every figure, the proof and the programs"


def _table(one: StudyDocument | SweepDocument) -> str:
    return render(one, "markdown", published=True)


def _repeated(one: StudyDocument | SweepDocument) -> list[str]:
    if isinstance(one, SweepDocument):
        return []
    command = f"polybench run docs/gallery/measured/{one.id}.jsonl --data auto"
    return [f"Repeat it on your machine, in a clone: `{command}`."]


def _age(one: StudyDocument | SweepDocument) -> str:
    days = (datetime.now(UTC) - datetime.fromisoformat(one.created)).days
    when = f"{units.plural(days, 'day')} old when this page was made: {caption_for(one)}"
    old = "!!! warning\n    Frameworks have changed since: measure it again before you quote it.\n\n"
    return (old if days > _OLD_DAYS else "") + when

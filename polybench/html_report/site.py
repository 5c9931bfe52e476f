"""A static site of saved studies: plain files for any web server, without scripts.

`index.html` lists the studies, `history.html` the configurations over time with their change points. Each study, each
configuration's history and the difference at each change point has a page; `documents/` has every document, and
`feed.xml` announces change points. Studies are in memory one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from polybench.analysis.diff import TOLERANCE, diff
from polybench.analysis.history import build_history
from polybench.html_report import page
from polybench.render import diff as render_diff
from polybench.render import study as render_study
from polybench.render.history import describe_change, series_table
from polybench.render.html_table import content
from polybench.render.table import Table
from polybench.schema.analyses import ChangePoint, HistoryDocument
from polybench.schema.encoding import encode
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store, load_dismissed

_PAGE_SIZE = 200
"""Studies per page of the list."""


def write_site(store: Store, folder: Path) -> list[str]:
    """Write the site of a store's readable studies into a folder; return a sentence for each new change point.

    A change point is new if the feed in the folder did not have it.

    Raises BadInput if jinja2 is not installed, and OSError if the folder cannot be written.
    """
    for name in ("documents", "studies", "history", "differences"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    css = page.read_template("report.css") + page.read_template("served.css")
    (folder / "style.css").write_text(css)
    rows: list[tuple[str, list[str]]] = []
    document = build_history(_write_studies(store, folder, rows), load_dismissed(store.folder))
    _write_list(folder, rows)
    _write_history(store, folder, document)
    changes, feed = _changes(document), folder / "feed.xml"
    announced = feed.read_text("utf-8") if feed.is_file() else ""
    feed.write_text(_feed(changes), "utf-8")
    return [_sentence(*change) for change in changes if _guid(*change) not in announced]


def _write_studies(store: Store, folder: Path, rows: list[tuple[str, list[str]]]) -> Iterator[StudyDocument]:
    """Yield each study, the newest first, after its page is written and its row of the list is added."""
    for study in store.studies():
        name = str(study.id)
        (folder / "documents" / f"{name}.json").write_bytes(encode(study))
        title = study.title or name
        _write(folder / "studies" / f"{name}.html", title=title, document=name, table=render_study.table(study))
        settings = study.settings
        configurations = ", ".join(result.configuration for result in study.results)
        workload = f"{settings.model}, {settings.dataset}, batch {settings.batch_size}"
        created = study.created[:16].replace("T", " ")
        rows.append((f"studies/{name}.html", [title, workload, configurations, created, study.host.hostname]))
        yield study


def _write_list(folder: Path, rows: Sequence[tuple[str, list[str]]]) -> None:
    pages = [rows[first : first + _PAGE_SIZE] for first in range(0, len(rows), _PAGE_SIZE)] or [[]]
    names = ["index.html", *(f"index-{number}.html" for number in range(2, len(pages) + 1))]
    links = [(name, f"page {number}") for number, name in enumerate(names, start=1)] if len(pages) > 1 else []
    for name, some in zip(names, pages, strict=True):
        columns = ["study", "workload", "engines", "started (UTC)", "host"]
        _write(folder / name, title="Studies", columns=columns, rows=some, links=links, empty="No saved studies yet.")


def _write_history(store: Store, folder: Path, document: HistoryDocument) -> None:
    rows = []
    for number, series in enumerate(document.series, start=1):
        table = series_table(series)
        _write(folder / "history" / f"{number}.html", title=series.configuration, table=table, links=[
            (_address(change), f"difference at {change.study}") for change in series.change_points
        ])  # fmt: skip
        newest = describe_change(series.change_points[-1]) if series.change_points else "no change point"
        workload = table.title[0].partition(": ")[2]
        rows.append((f"history/{number}.html", [series.configuration, workload, str(len(series.points)), newest]))
    columns = ["engine", "workload", "studies", "last change point"]
    _write(folder / "history.html", title="History", columns=columns, rows=rows, empty="No ranked configuration yet.")
    saved = store.summaries()
    for change in {_address(change): change for _, change in _changes(document)}.values():
        a, b = store.load(change.previous_study), store.load(change.study)
        table = render_diff.table(diff(a, b, TOLERANCE, saved=saved))
        links = [(f"studies/{one.id}.html", str(one.id)) for one in (a, b)]
        _write(folder / _address(change), title=f"{a.id} and {b.id}", table=table, links=links)


def _changes(document: HistoryDocument) -> list[tuple[str, ChangePoint]]:
    """Return all change points that were not dismissed with their configurations, the newest first."""
    changes = [
        (series.configuration, change)
        for series in document.series
        for change in series.change_points
        if not change.dismissed
    ]
    return sorted(changes, key=lambda one: one[1].created, reverse=True)


def _address(change: ChangePoint) -> str:
    return f"differences/{change.previous_study}--{change.study}.html"


def _write(path: Path, *, title: str, table: Table | None = None, **values: Any) -> None:
    """Write a page with a table of a document, or with rows and the addresses that they link to."""
    values = {"document": None, "columns": (), "rows": (), "links": (), "empty": ""} | values
    root = "" if path.name.startswith(("index", "history.")) else "../"
    text = table and "\n".join(content(table))
    path.write_text(page.render_template("site.html.j2", title=title, root=root, content=text, **values))


def _feed(changes: Sequence[tuple[str, ChangePoint]]) -> str:
    """Return the change points as RSS 2.0, https://www.rssboard.org/rss-specification; links are relative."""
    items = []
    for configuration, change in changes:
        date = format_datetime(datetime.fromisoformat(change.created))
        items.append(
            f"<item><title>{escape(_sentence(configuration, change))}</title><link>{escape(_address(change))}</link>"
            f"{_guid(configuration, change)}<pubDate>{date}</pubDate></item>"
        )
    head = "<title>polybench</title><link>index.html</link><description>Change points of step times</description>"
    body = "".join(f"\n{item}" for item in items)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>{head}{body}\n</channel></rss>\n'


def _sentence(configuration: str, change: ChangePoint) -> str:
    return f"{configuration}: {describe_change(change)}"


def _guid(configuration: str, change: ChangePoint) -> str:
    return f'<guid isPermaLink="false">{escape(f"{change.study}-{configuration}")}</guid>'

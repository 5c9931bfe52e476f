"""`polybench site`: plain files with every study, their history, differences and documents."""

from __future__ import annotations

import functools
import http.server
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.schema.encoding import encode
from polybench.storage.store import Store
from tests.browser import Visitor, launched
from tests.commands import invoke, printed
from tests.factories import measured, study
from tests.html_report.test_report import MALICIOUS

pytest.importorskip("jinja2", reason="jinja2 is not installed")


def save(folder: Path, day: int, seconds: float, title: str | None = None) -> None:
    document = study(measured("flux/cpu", seconds), measured("tf/cpu", 0.02))
    name, created = f"202601{day:02d}", f"2026-01-{day:02d}T10:00:00+00:00"
    Store(folder).save(msgspec.structs.replace(document, id=name, created=created, title=title))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of seven studies; flux becomes faster in the fifth."""
    found = tmp_path_factory.mktemp("site")
    for day, seconds in enumerate((0.0400, 0.0402, 0.0399, 0.0401, 0.0250, 0.0252, 0.0249), start=1):
        save(found / "results", day, seconds, MALICIOUS if day == 2 else None)
    printed("site", "-o", found / "public", "--results", found / "results")
    return found


def test_every_link_of_every_page_leads_to_a_file(folder: Path) -> None:
    pages = [*(folder / "public").rglob("*.html")]
    assert len(pages) == 2 + 7 + 2 + 1  # list and history, studies, configurations, the difference
    for page in pages:
        links = re.findall(r'href="([^"#:]+)"', page.read_text())
        assert links
        for link in links:
            assert (page.parent / link).is_file(), (page, link)
        assert "<script" not in page.read_text()


def test_every_document_can_be_downloaded(folder: Path) -> None:
    for document in Store(folder / "results").studies():
        assert (folder / "public" / "documents" / f"{document.id}.json").read_bytes() == encode(document)


def test_a_change_point_is_in_the_history_the_feed_and_a_difference(folder: Path) -> None:
    public = folder / "public"
    assert "faster by a factor of 1.60 since 20260105" in (public / "history.html").read_text()
    (item,) = ET.fromstring((public / "feed.xml").read_text()).iter("item")
    assert item.findtext("title", "").startswith("flux/cpu: faster by a factor of 1.60")
    assert item.findtext("link") == "differences/20260104--20260105.html"
    assert item.findtext("pubDate") == "Mon, 05 Jan 2026 10:00:00 +0000"
    assert "flux/cpu" in (public / "differences" / "20260104--20260105.html").read_text()


def test_a_new_change_point_is_announced_once_by_the_exit_code(tmp_path: Path) -> None:
    arguments = ("site", "-o", tmp_path / "public", "--results", tmp_path / "results", "--fail-on-change")
    for day in range(1, 5):
        save(tmp_path / "results", day, 0.04)
    assert invoke(*arguments).exit_code == 0
    for day in range(5, 8):
        save(tmp_path / "results", day, 0.08)
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert "flux/cpu: slower by a factor of 2.00 since 20260105" in done.stderr
    assert invoke(*arguments).exit_code == 0


def test_an_empty_store_is_an_empty_list(tmp_path: Path) -> None:
    printed("site", "-o", tmp_path / "public", "--results", tmp_path / "results")
    assert "No saved studies yet." in (tmp_path / "public" / "index.html").read_text()


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = invoke("site", "-o", tmp_path / "file" / "public", "--results", tmp_path / "results")
    assert "cannot write the site" in str(done.exception)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Serve the site with Python's web server."""
    handler = functools.partial(_Quiet, directory=folder / "public")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.mark.parametrize("width", [1280, 360], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    "page", ["", "history.html", "studies/20260102.html", "history/1.html", "differences/20260104--20260105.html"]
)
def test_pages_fit_the_screen_without_errors(browser: Any, address: str, page: str, width: int) -> None:
    visitor = Visitor(browser, address + page, viewport={"width": width, "height": 700})
    assert visitor.messages == []
    assert visitor.page.title().endswith("polybench")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
    visitor.page.context.close()

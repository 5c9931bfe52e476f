"""Pages of `polybench report --all` in a real browser, as files: filters, links, phones and accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.storage.store import Store
from tests.browser import Visitor, launched
from tests.commands import printed
from tests.factories import points_over_threads
from tests.figures.documents import full_layers, full_study, with_peaks
from tests.html_report.test_report import MALICIOUS
from tests.html_report.test_report_browser import assert_accessible_page
from tests.log_of import save_document, save_sweep

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the pages of four studies, the last one of another host, and a sweep."""
    folder = tmp_path_factory.mktemp("pages")
    store = Store(folder / "results")
    for day in range(1, 5):
        one = full_study()
        one.host = msgspec.structs.replace(one.host, hostname=MALICIOUS if day == 4 else "host")
        id, created = f"2025010{day}-000000-abcd", f"2025-01-0{day}T00:00:00Z"
        save_document(
            store, msgspec.structs.replace(one, id=id, created=created, title=MALICIOUS if day == 3 else None)
        )
    save_document(store, with_peaks(full_layers(full_study())))
    save_sweep(store, "sweep-20250101-000000-abcd", points_over_threads(torch="2.14.0"))
    printed("report", "--all", "-o", folder / "pages", "--results", store.folder)
    return folder / "pages"


browser = pytest.fixture(launched, scope="module")


@pytest.fixture
def visitor(browser: Any, pages: Path) -> Iterator[Visitor]:
    visitor = Visitor(browser, (pages / "index.html").as_uri(), viewport={"width": 1280, "height": 900})
    yield visitor
    assert visitor.messages == []  # such as a violated Content-Security-Policy
    assert all(address.startswith(pages.as_uri()) for address in visitor.requests)


def test_the_list_is_filtered_by_words_versions_and_dates(visitor: Visitor) -> None:
    page = visitor.page

    def shown(**fields: str) -> tuple[list[str], str]:
        for label in ("Filter", "since", "until"):
            page.get_by_label(label, exact=True).fill(fields.get(label, ""))
        rows = page.locator("#studies tbody tr:visible th a").evaluate_all(
            "all => all.map((one) => one.getAttribute('href'))"
        )
        return [row.removeprefix("reports/")[:8] for row in rows], page.locator(".count").inner_text()

    sweep, *days = "sweep-20", "20250104", "20250103", "20250102", "20250101"
    assert {*shown()[0]} == {sweep, *days}
    assert shown(Filter="throughput")[1] == "0 of 5 studies"
    assert shown(Filter="LENET  alert(1)")[0] == days[:2]  # the host of one, the title of the other
    assert {*shown(Filter="torch 2.13.0")[0]} == {*days}
    assert shown(since="2025-01-02", until="2025-01-03") == (days[1:3], "2 of 5 studies")
    assert shown(Filter="alert", until="2025-01-03")[0] == days[1:2]
    assert shown()[1] == ""


def test_pages_lead_to_each_other(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("link", name="20250101-000000-abcd", exact=True).click()
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    assert page.locator(".plot.drawn").count() > 0
    page.get_by_role("link", name="polybench").click()
    page.locator("a .change").first.click()
    assert page.locator(".change").all_text_contents().count("cannot tell") == 3
    page.get_by_role("link", name="Studies").click()
    page.get_by_role("link", name="sweep-20250101-000000-abcd").click()
    assert "highest throughput" in page.locator(".headline").inner_text()


def test_the_history_is_drawn_and_filtered(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("link", name="History").click()
    page.wait_for_selector(".plot.drawn", timeout=60_000)
    box, sections = page.get_by_label("Filter", exact=True), page.locator("#history > section")
    everything = sections.count()
    box.fill("flux")
    visible = sections.locator("visible=true")
    assert 0 < visible.count() < everything
    assert all(text.startswith("flux/cpu") for text in visible.locator("h2").all_text_contents())
    page.wait_for_function(
        "document.querySelector('section:not([hidden]) > figure > .plot').classList.contains('drawn')"
    )
    box.fill("")
    assert visible.count() == everything


@pytest.mark.wide
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["index.html", "history.html", "diffs/20250101-000000-abcd--20250102-000000-abcd.html"]
)
def test_pages_are_accessible_on_phones(browser: Any, pages: Path, name: str, scheme: str) -> None:
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
    visitor = Visitor(browser, (pages / name).as_uri(), **options)
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390
    assert visitor.messages == []
    assert_accessible_page(visitor.page)

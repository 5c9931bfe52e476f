"""The report in a real browser: it works, on a phone too, asks nobody for anything, and all can read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polybench.page import Chapter, render
from tests.browser import Visitor, launched
from tests.page.test_page import HOSTILE, full_chapter, hostile_study
from tests.plots.documents import full_layers, full_study, full_sweep, with_roofs

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")


browser = pytest.fixture(launched, scope="module")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    hostile = Chapter(hostile_study(), [(HOSTILE, HOSTILE)])
    layers = with_roofs(full_layers(full_study()))
    path.write_text(render([full_chapter()._replace(layers=layers), hostile, full_sweep()]), "utf-8")
    return path


class Opened(Visitor):
    """A report with its figures ready to be drawn."""

    def __init__(self, browser: Any, report: Path, **options: Any) -> None:
        super().__init__(browser, report.as_uri(), **options)
        self.page.wait_for_selector("html[data-drawn]", timeout=60_000)

    def draw_all(self) -> None:
        """As somebody does who reads to the end."""
        for figure in self.page.locator(".plot").all():
            figure.scroll_into_view_if_needed()
            self.page.wait_for_function("one => one.classList.contains('drawn')", arg=figure.element_handle())
        self.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")

    def column(self, name: str) -> list[str]:
        """Texts of the rows that are seen, of the first table."""
        cells = self.page.locator(f'#s1-rows tbody tr:visible > [data-column="{name}"]')
        return [text.replace("not ranked", "") for text in cells.all_text_contents()]


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Opened:
    return Opened(browser, report, viewport={"width": 1280, "height": 900}, color_scheme="light")


def test_it_is_drawn_without_an_error_or_a_request(opened: Opened, report: Path) -> None:
    assert opened.said == []
    assert opened.requests == [report.as_uri()]
    figures = opened.page.locator(".plot")
    assert figures.count() > 10
    drawn = opened.page.locator(".plot.drawn .main-svg")
    assert 0 < opened.page.locator(".plot.drawn").count() < 5  # those that are near
    height = opened.page.evaluate("document.body.scrollHeight")
    opened.draw_all()
    assert drawn.count() >= figures.count()
    assert opened.page.evaluate("document.body.scrollHeight") == pytest.approx(height, abs=4)  # nothing moves
    assert opened.said == []


def test_a_click_sorts_and_absent_rows_stay_last(opened: Opened) -> None:
    header = opened.page.locator('#s1-rows thead th[data-column="step_time"]')
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    fastest_first = ["tf/cpu", "torch/cpu", "flux/cpu", "tf+keras_fit/cpu", "torch/cuda"]
    assert opened.column("cell") == fastest_first
    header.get_by_role("button").click()
    assert opened.column("cell") == [*reversed(fastest_first[:3]), *fastest_first[3:]]
    opened.page.locator('#s1-rows thead th[data-column="speedup"]').get_by_role("button").click()
    assert opened.column("cell")[:3] == fastest_first[:3]  # more is better


def test_words_filter_and_the_number_of_rows_is_said(opened: Opened) -> None:
    box = opened.page.locator('[data-filter="s1-rows"]')
    box.fill("TORCH cuda")
    assert opened.column("cell") == ["torch/cuda"]
    assert opened.page.locator('[data-found="s1-rows"]').text_content() == "1 of 5 cells"
    box.fill("")
    assert len(opened.column("cell")) == 5


def test_columns_can_be_chosen(opened: Opened) -> None:
    column = opened.page.locator('#s1-rows tbody [data-column="import_time"]').first
    assert not column.is_visible()
    opened.page.locator("#s1 .chooser summary").click()
    opened.page.locator('input[data-table="s1-rows"][data-column="import_time"]').check()
    assert column.is_visible()
    opened.page.locator('input[data-table="s1-rows"][data-column="import_time"]').uncheck()
    assert not column.is_visible()


def test_the_button_changes_the_colours_of_page_and_figures(opened: Opened) -> None:
    def colours() -> list[str]:
        found: list[str] = opened.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('.plot .xtick text')).fill]"
        )
        return found

    light = colours()
    opened.page.locator("#theme").click()
    dark = colours()
    assert (light[0], dark[0]) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    assert light[1] != dark[1]
    opened.page.locator("#theme").click()
    assert colours() == light


def test_a_phone_scrolls_in_one_direction_only(browser: Any, report: Path) -> None:
    phone = Opened(browser, report, viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert phone.said == []
    assert_accessible(phone)


def test_everybody_can_read_it(opened: Opened) -> None:
    assert_accessible(opened)


def assert_accessible(opened: Opened) -> None:
    assert_accessible_page(opened.page)


def assert_accessible_page(page: Any) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed")
    # What a figure shows is an image with a name; its numbers are in the table.
    found = axe.Axe().run(page, {"exclude": [[".plot"]]})
    assert {one["id"]: [node["html"][:200] for node in one["nodes"][:3]] for one in found["violations"]} == {}


def test_all_figures_are_printed_whatever_was_seen(browser: Any, report: Path) -> None:
    fresh = Opened(browser, report, viewport={"width": 1280, "height": 900})
    assert fresh.page.locator(".plot.drawn").count() < fresh.page.locator(".plot").count()
    assert fresh.page.pdf(format="A4").startswith(b"%PDF")
    assert fresh.page.locator(".plot.drawn").count() == fresh.page.locator(".plot").count()
    assert fresh.said == []

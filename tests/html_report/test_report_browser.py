"""Report in a real browser: interaction, phones, accessibility, printing, no requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from polybench.html_report import StudySection, render_report
from tests.browser import Visitor, launched
from tests.figures.documents import full_layers, full_study, full_sweep, with_peaks
from tests.html_report.test_report import MALICIOUS, full_section, malicious_study

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")


browser = pytest.fixture(launched, scope="module")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    malicious = StudySection(malicious_study(), [(MALICIOUS, MALICIOUS)])
    layers = with_peaks(full_layers(full_study()))
    path.write_text(render_report([full_section()._replace(layers=layers), malicious, full_sweep()]), "utf-8")
    return path


TICK = "document.querySelector('.plot .xtick text')"


class Opened(Visitor):
    """Report whose scripts have been loaded."""

    def __init__(self, browser: Any, report: Path, **options: Any) -> None:
        super().__init__(browser, report.as_uri(), **options)
        self.page.wait_for_selector("html[data-drawn]", timeout=60_000)

    def draw_all(self) -> None:
        """Scroll through the whole page."""
        for figure in self.page.locator(".plot").all():
            figure.scroll_into_view_if_needed()
            self.page.wait_for_function("one => one.classList.contains('drawn')", arg=figure.element_handle())
        self.page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")

    def column(self, name: str) -> list[str]:
        """Return the texts of a column in the visible rows of the first table."""
        configurations = self.page.locator(f'#s1-rows tbody tr:visible > [data-column="{name}"]')
        return [re.sub("not ranked|(among the )?fastest", "", text) for text in configurations.all_text_contents()]


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Opened:
    return Opened(browser, report, viewport={"width": 1280, "height": 900}, color_scheme="light")


def test_figures_are_drawn_without_errors_or_requests(opened: Opened, report: Path) -> None:
    assert opened.messages == []
    assert opened.requests == [report.as_uri()]
    figures = opened.page.locator(".plot")
    assert figures.count() > 10
    drawn = opened.page.locator(".plot.drawn .main-svg")
    assert 0 < opened.page.locator(".plot.drawn").count() < 5  # figures close to the visible part
    height = opened.page.evaluate("document.body.scrollHeight")
    opened.draw_all()
    assert drawn.count() >= figures.count()
    assert opened.page.evaluate("document.body.scrollHeight") == pytest.approx(height, abs=4)  # the page does not move
    assert opened.messages == []


def test_click_sorts_and_rows_without_times_stay_last(opened: Opened) -> None:
    header = opened.page.locator('#s1-rows thead th[data-column="step_time"]')
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    fastest_first = ["tf/cpu", "torch/cpu", "flux/cpu", "tf+keras_fit/cpu", "torch/cuda"]
    assert opened.column("configuration") == fastest_first
    header.get_by_role("button").click()
    assert opened.column("configuration") == [*reversed(fastest_first[:3]), *fastest_first[3:]]
    opened.page.locator('#s1-rows thead th[data-column="speedup"]').get_by_role("button").click()
    assert opened.column("configuration")[:3] == fastest_first[:3]  # higher is better


def test_filter_hides_rows_and_counts_the_others(opened: Opened) -> None:
    box = opened.page.locator('[data-filter="s1-rows"]')
    box.fill("TORCH cuda")
    assert opened.column("configuration") == ["torch/cuda"]
    assert opened.page.locator('[data-count="s1-rows"]').text_content() == "1 of 5 rows"
    box.fill("")
    assert len(opened.column("configuration")) == 5


def test_filter_hides_configurations_in_figures(opened: Opened) -> None:
    def wait_for(figure: str, *configurations: str) -> None:
        opened.page.locator(f'[data-figure="s1-{figure}"]').scroll_into_view_if_needed()
        opened.page.wait_for_function(
            "([name, expected]) => [...new Set(document.querySelector(`[data-figure='s1-${name}']`).data"
            "?.flatMap(({ meta }) => meta ?? []))].sort().join() === expected",
            arg=[figure, ",".join(sorted(configurations))],
        )

    wait_for("speed", "tf/cpu", "torch/cpu", "flux/cpu")
    opened.page.locator('[data-filter="s1-rows"]').fill("torch")
    for figure in ("speed", "startup", "distributions", "layers"):
        wait_for(figure, "torch/cpu")
    assert opened.page.locator('[data-figure="s1-speed"] .annotation-text').all_text_contents() == ["baseline"]
    opened.page.locator('[data-filter="s1-rows"]').fill("")
    wait_for("speed", "tf/cpu", "torch/cpu", "flux/cpu")
    assert opened.messages == []


@pytest.mark.wide
def test_figures_follow_the_width_of_the_window(browser: Any, report: Path) -> None:
    page = Opened(browser, report, viewport={"width": 500, "height": 900}).page
    for width in (1280, 390, 1000):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")  # figures enter or leave the visible part meanwhile
        page.wait_for_function(
            "() => [...document.querySelectorAll('.plot.drawn')].every((one) => one.layout.width === one.clientWidth)"
        )


def test_contents_lead_to_every_section(opened: Opened) -> None:
    links = opened.page.locator('nav[aria-label^="Contents of lenet"]').first.get_by_role("link")
    assert {"Results", "Figures", "Parity check", "Glossary"} <= set(links.all_text_contents())
    for link in links.all():
        assert opened.page.locator(link.get_attribute("href")).count() == 1


@pytest.mark.wide
@pytest.mark.parametrize(("width", "scrolls"), [(390, True), (1280, False)])
def test_tables_show_a_hint_if_they_scroll(browser: Any, report: Path, width: int, scrolls: bool) -> None:
    page = Opened(browser, report, viewport={"width": width, "height": 844}).page
    page.locator("#s1-rows").scroll_into_view_if_needed()
    hints = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((one) => one.checkVisibility()).map((one) =>"
        " [one.scrollWidth > one.clientWidth, getComputedStyle(one, '::before').visibility === 'visible'])"
    )
    assert hints[0] == [scrolls, scrolls]
    assert all(does_scroll == is_visible for does_scroll, is_visible in hints)


def test_columns_can_be_shown_and_hidden(opened: Opened) -> None:
    column = opened.page.locator('#s1-rows tbody [data-column="import_time"]').first
    assert not column.is_visible()
    opened.page.locator("#s1 .column-menu summary").click()
    opened.page.locator('input[data-table="s1-rows"][data-column="import_time"]').check()
    assert column.is_visible()
    opened.page.locator('input[data-table="s1-rows"][data-column="import_time"]').uncheck()
    assert not column.is_visible()


def test_theme_button_changes_page_and_figures(opened: Opened) -> None:
    def colours() -> list[str]:
        values: list[str] = opened.page.evaluate(
            f"[getComputedStyle(document.body).backgroundColor, getComputedStyle({TICK}).fill]"
        )
        return values

    light = colours()
    opened.page.locator("#theme").click()
    opened.page.wait_for_function(f"light => getComputedStyle({TICK}).fill !== light", arg=light[1])
    dark = colours()
    assert (light[0], dark[0]) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    opened.page.locator("#theme").click()
    opened.page.wait_for_function(f"light => getComputedStyle({TICK}).fill === light", arg=light[1])
    assert colours() == light


@pytest.mark.wide
def test_phone_scrolls_vertically_only(browser: Any, report: Path) -> None:
    phone = Opened(browser, report, viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert phone.messages == []
    assert_accessible(phone)


@pytest.mark.wide
def test_report_is_accessible(opened: Opened) -> None:
    assert_accessible(opened)


def assert_accessible(opened: Opened) -> None:
    assert_accessible_page(opened.page)


def assert_accessible_page(page: Any) -> None:
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed")
    result = axe.Axe().run(page)
    assert {one["id"]: [node["html"][:200] for node in one["nodes"][:3]] for one in result["violations"]} == {}


@pytest.mark.wide
def test_printing_draws_all_figures(browser: Any, report: Path) -> None:
    fresh = Opened(browser, report, viewport={"width": 1280, "height": 900})
    assert fresh.page.locator(".plot.drawn").count() < fresh.page.locator(".plot").count()
    assert fresh.page.pdf(format="A4").startswith(b"%PDF")
    assert fresh.page.locator(".plot.drawn").count() == fresh.page.locator(".plot").count()
    assert fresh.messages == []

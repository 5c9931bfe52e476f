"""`polybench view` in a real browser: selection, comparison, phones and accessibility."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.storage.store import Store
from tests.browser import Visitor, launched
from tests.figures.documents import full_layers, full_study, full_sweep, with_peaks
from tests.html_report.test_report import MALICIOUS
from tests.html_report.test_report_browser import assert_accessible_page

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    store = Store(path)
    for day in range(1, 5):
        one = full_study()
        one.host = msgspec.structs.replace(one.host, hostname=MALICIOUS if day == 4 else "host")
        id, created = f"2025010{day}-000000-abcd", f"2025-01-0{day}T00:00:00Z"
        store.save(msgspec.structs.replace(one, id=id, created=created, title=MALICIOUS if day == 3 else None))
    store.save(with_peaks(full_layers(full_study())))
    store.save(full_sweep())
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Start `polybench view`, yield its address, and stop it with Ctrl-C."""
    command = [sys.executable, "-m", "polybench", "view", "--no-browser", "--results", str(folder)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells make background jobs ignore SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert (process.returncode, stderr) == (130, f"serving the studies of {folder}; stop with Ctrl-C{os.linesep}")
    finally:
        process.kill()
        process.communicate()


browser = pytest.fixture(launched, scope="module")


def test_studies_can_be_filtered_selected_and_compared(browser: Any, address: str) -> None:
    visitor = Visitor(browser, address, viewport={"width": 1280, "height": 900})
    page = visitor.page
    assert page.locator(".studies tbody tr").count() == 5  # one is a sweep
    page.get_by_label("host").fill("host")
    page.get_by_role("button", name="Show studies").click()
    assert "4 of 5 studies" in page.locator(".count").inner_text()
    for day in (1, 2):
        page.get_by_label(f"Select 2025010{day}-000000-abcd").check()
    page.get_by_role("button", name="Compare two").click()
    page.locator(".change").first.wait_for()
    assert page.locator(".change").all_text_contents().count("no difference") == 3
    page.go_back()
    page.get_by_role("link", name="20250101-000000-abcd", exact=True).click()
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    assert page.locator(".plot.drawn").count() > 0
    page.get_by_role("link", name="polybench").click()
    page.get_by_role("button", name="Show history").click()
    page.wait_for_selector(".plot.drawn", timeout=60_000)
    page.get_by_role("link", name="Studies").click()
    page.get_by_role("link", name="sweep-20250101-000000-abcd").click()
    assert "highest throughput" in page.locator(".headline").inner_text()
    assert visitor.messages == []
    assert {re.sub(r"[^/]*$", "", url) for url in visitor.requests} == {address}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "target", ["", "history", "diff?id=20250101-000000-abcd&id=20250103-000000-abcd", "no", "?engine=none"]
)
def test_pages_are_accessible_on_phones(browser: Any, address: str, target: str, scheme: str) -> None:
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
    visitor = Visitor(browser, address + target, **options)
    assert visitor.page.evaluate("document.documentElement.scrollWidth") == 390
    assert [text for text in visitor.messages if "404" not in text] == []
    assert_accessible_page(visitor.page)

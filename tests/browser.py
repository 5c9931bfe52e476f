"""The Chromium of this machine, for tests that need a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the path of Chromium; skip the test without it."""
    found = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed; apt install chromium, or set BROWSER_PATH")
    return found


def launched() -> Iterator[Any]:
    """Start Playwright's browser for a fixture; skip its tests without Playwright or Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        # A container offers no other sandbox for Chromium; the pages are polybench's own.
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visitor:
    """A page with its console messages and requests."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.page = browser.new_context(**options).new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

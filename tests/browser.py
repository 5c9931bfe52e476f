"""The Chromium of this machine, for tests of what only a browser can tell."""

from __future__ import annotations

import os
import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Its path; skips the test where there is none."""
    found = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium; apt install chromium, or set BROWSER_PATH")
    return found

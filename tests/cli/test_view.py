"""`polybench view` on the command line; tests/html_report tests its pages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from polybench.html_report.routes import Router
from polybench.html_report.server import Server
from polybench.storage.store import Store
from tests.commands import invoke, refused


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def test_view_prints_its_address_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Server, poll_interval: float = 0.5) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    opened: list[str] = []
    monkeypatch.setattr(importlib.import_module("polybench.cli.view"), "_open", opened.append)
    for screen, number in ((None, 0), (":0", 1)):
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
            monkeypatch.delenv(name, raising=False)
        if screen:
            monkeypatch.setenv("DISPLAY", screen)
        done = invoke("view", "--results", tmp_path)
        assert done.exit_code == 130
        assert done.stdout.startswith("http://127.0.0.1:")
        assert str(tmp_path) in done.stderr
        assert len(opened) == number
    invoke("view", "--results", tmp_path, "--no-browser")
    assert len(opened) == 1


def test_a_port_in_use_is_bad_input(tmp_path: Path) -> None:
    with Server(Router(Store(tmp_path)), 0) as server:
        assert "use a free port with --port 0" in refused("view", "--port", server.server_port)
    assert invoke("view", "--port", "65536").exit_code == 2


def test_a_missing_package_is_reported_before_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from polybench.html_report.page import plotly_script

    plotly_script.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert "pip install 'polybench-dl[report]'" in refused("view", "--no-browser")

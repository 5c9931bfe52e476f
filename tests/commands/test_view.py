"""`polybench view` on the command line; its pages are in tests/viewing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.commands import view
from polybench.core.errors import BadInput
from polybench.viewing.answers import Answers
from polybench.viewing.server import Server


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")


def test_it_prints_its_address_and_ctrl_c_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Server, poll_interval: float = 0.5) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    opened: list[str] = []
    monkeypatch.setattr(view, "_open", opened.append)
    for screen, number in ((None, 0), (":0", 1)):
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
            monkeypatch.delenv(name, raising=False)
        if screen:
            monkeypatch.setenv("DISPLAY", screen)
        done = CliRunner().invoke(app, ["view", "--results", str(tmp_path)])
        assert done.exit_code == 130
        assert done.stdout.startswith("http://127.0.0.1:")
        assert str(tmp_path) in done.stderr
        assert len(opened) == number
    CliRunner().invoke(app, ["view", "--results", str(tmp_path), "--no-browser"])
    assert len(opened) == 1


def test_a_port_that_is_taken_is_bad_input(tmp_path: Path) -> None:
    from polybench.report.saved_studies import Store

    with Server(Answers(Store(tmp_path)), 0) as server:
        done = CliRunner().invoke(app, ["view", "--port", str(server.server_port)])
    assert isinstance(done.exception, BadInput)
    assert "--port 0 takes a free one" in str(done.exception)
    assert CliRunner().invoke(app, ["view", "--port", "65536"]).exit_code == 2


def test_what_is_missing_is_said_before_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    from polybench.page.programs import plotly

    plotly.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    done = CliRunner().invoke(app, ["view", "--no-browser"])
    assert isinstance(done.exception, BadInput)
    assert "pip install 'polybench[report]'" in str(done.exception)

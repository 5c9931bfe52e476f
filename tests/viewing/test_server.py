"""The server of `polybench view`: whoever asks, this machine's browser alone gets pages, and only reads."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybench.core.errors import BadInput
from polybench.report.saved_studies import Store
from polybench.viewing.answers import Answers
from polybench.viewing.server import Server
from tests.plots.documents import full_study
from tests.viewing.serving import asked, parsed, sent, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    store = Store(tmp_path_factory.mktemp("results"))
    store.save(full_study())
    with serving(store) as running:
        yield running


def test_it_listens_on_the_loopback_only(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_a_page_is_read_by_both_names_of_this_machine(server: Server) -> None:
    for host in (f"127.0.0.1:{server.server_port}", f"LOCALHOST:{server.server_port}"):
        reply = asked(server, Host=host)
        assert reply.status == 200
        assert "20250101-000000-abcd" in reply.body
        assert int(reply.headers["content-length"]) == len(reply.body.encode())


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{}", ""]
)
def test_another_name_for_this_machine_is_refused(server: Server, host: str) -> None:
    reply = asked(server, Host=host.format(server.server_port))
    assert reply.status == 421
    assert "abcd" not in reply.body


def test_a_request_without_a_host_or_with_two_is_refused(server: Server) -> None:
    right = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for hosts in ("", f"{right}{right}", f"{right}Host: evil.example\r\n"):
        assert parsed(sent(server, f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"])
def test_nothing_but_reading_is_known(server: Server, method: str) -> None:
    reply = asked(server, method=method, Content_Length="0")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_a_page_without_its_body(server: Server) -> None:
    full, head = asked(server), asked(server, method="HEAD")
    assert (head.status, head.body) == (200, "")
    assert head.headers["content-length"] == full.headers["content-length"]


@pytest.mark.parametrize(
    "target",
    [
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/report/../..", "//etc/passwd",
        "/templates/report.js",
        "/report?id=../results/20250101-000000-abcd", "/report?id=/etc/passwd", "/report?id=20250101",
        "/report?id=%2e%2e%2f20250101-000000-abcd.json", "/report?id=last", "/report?id=x%00.json",
        "/diff?id=20250101-000000-abcd&id=..%2f..%2fetc%2fpasswd", "/favicon.ico",
    ],
)  # fmt: skip
def test_what_is_no_listed_study_is_not_found(server: Server, target: str) -> None:
    reply = asked(server, target)
    assert reply.status == 404
    assert "root:x:" not in reply.body


def test_a_file_elsewhere_is_no_study_whatever_its_name(server: Server, tmp_path: Path) -> None:
    elsewhere = Store(tmp_path).save(full_study())
    assert elsewhere.exists()
    assert asked(server, f"/report?id={elsewhere}").status == 404  # `polybench show` would read it


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET\r\n\r\n", 400), (b"GET /\r\n\r\n", 505), (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET / FTP/1.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 \r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", 400),
        (b"GET /?" + b"a=b&" * 300 + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", 400),
        (b"GET /?since=%%22tomorrow%%22 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_what_is_no_request_is_answered_and_forgotten(server: Server, request_: bytes, status: int) -> None:
    assert (
        parsed(sent(server, request_ % server.server_port if b"%d" in request_ else request_)).status
        == status
    )
    assert asked(server).status == 200


def test_bytes_after_a_request_are_no_second_request(server: Server) -> None:
    host = f"Host: 127.0.0.1:{server.server_port}\r\nConnection: keep-alive\r\n"
    answer = sent(
        server, f"GET / HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n{host}\r\n".encode()
    )
    assert answer.count(b"HTTP/1.0 ") == 1


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("none", "navigate", "document", 200), ("same-origin", "navigate", "document", 200),
        ("cross-site", "navigate", "document", 200),  # a link that somebody follows
        ("cross-site", "navigate", "iframe", 403), ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403), ("cross-site", "cors", "empty", 403),
    ],
)  # fmt: skip
def test_pages_of_others_may_link_and_not_embed(
    server: Server, site: str, mode: str, destination: str, status: int
) -> None:
    fetch = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": destination}
    assert asked(server, **fetch).status == status


@pytest.mark.parametrize(
    "target", ["/", "/history", "/report?id=20250101-000000-abcd", "/nothing", "/?since=x"]
)
def test_every_answer_says_what_it_may_load(server: Server, target: str) -> None:
    reply = asked(server, target)
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["base-uri"], policy["frame-ancestors"]) == ("'none'",) * 3
    assert "unsafe" not in policy.get("script-src", "")
    assert not [part for part in policy.values() if "http" in part or "*" in part]
    for style in re.findall(r"<style>(.*?)</style>", reply.body, re.DOTALL):
        known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"sha256-{known}" in policy["style-src"] or policy["style-src"] == "'unsafe-inline'"
    for name in (
        "x-content-type-options",
        "referrer-policy",
        "cross-origin-resource-policy",
        "cache-control",
    ):
        assert reply.headers[name]
    assert "access-control-allow-origin" not in reply.headers
    assert "python" not in reply.headers["server"].lower()


def test_an_error_of_ours_is_a_page_and_the_next_request_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(target: str) -> None:
        raise RuntimeError("<b>no</b>")

    monkeypatch.setattr(server.answers, "to", fails)
    reply = asked(server)
    assert reply.status == 500
    assert "&lt;b&gt;no" in reply.body
    monkeypatch.undo()
    assert asked(server).status == 200


def test_a_client_that_says_nothing_or_goes_away_stops_nobody(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    silent = socket.create_connection(("127.0.0.1", server.server_port))
    gone = socket.create_connection(("127.0.0.1", server.server_port))
    gone.sendall(b"GET / HT")
    gone.close()
    assert asked(server).status == 200
    silent.close()
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_bad_input(server: Server, tmp_path: Path) -> None:
    for port in (server.server_port, 65536):
        with pytest.raises(BadInput, match="--port 0 takes a free one"):
            Server(Answers(Store(tmp_path)), port)

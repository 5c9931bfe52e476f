"""Server of `polybench view`: read-only access for the browser of this machine."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from polybench.errors import BadInput
from polybench.html_report.routes import Router
from polybench.html_report.server import Server
from polybench.storage.store import Store
from tests.figures.documents import full_study
from tests.html_report.http_client import parse, request, run_server, send


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    store = Store(tmp_path_factory.mktemp("results"))
    store.save(full_study())
    with run_server(store) as running:
        yield running


def test_server_listens_on_the_loopback_interface_only(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_both_host_names_are_accepted(server: Server) -> None:
    for host in (f"127.0.0.1:{server.server_port}", f"LOCALHOST:{server.server_port}"):
        response = request(server, Host=host)
        assert response.status == 200
        assert "20250101-000000-abcd" in response.body
        assert int(response.headers["content-length"]) == len(response.body.encode())


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{}", ""]
)
def test_other_host_names_are_rejected(server: Server, host: str) -> None:
    response = request(server, Host=host.format(server.server_port))
    assert response.status == 421
    assert "abcd" not in response.body


def test_missing_and_duplicate_hosts_are_rejected(server: Server) -> None:
    right = f"Host: 127.0.0.1:{server.server_port}\r\n"
    for hosts in ("", f"{right}{right}", f"{right}Host: evil.example\r\n"):
        assert parse(send(server, f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"])
def test_other_methods_are_rejected(server: Server, method: str) -> None:
    response = request(server, method=method, Content_Length="0")
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


def test_head_returns_headers_only(server: Server) -> None:
    full, head = request(server), request(server, method="HEAD")
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
def test_unlisted_studies_are_not_found(server: Server, target: str) -> None:
    response = request(server, target)
    assert response.status == 404
    assert "root:x:" not in response.body


def test_files_outside_the_folder_are_not_found(server: Server, tmp_path: Path) -> None:
    outside = Store(tmp_path).save(full_study())
    assert outside.exists()
    assert request(server, f"/report?id={outside}").status == 404  # `polybench show` accepts this path


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
def test_invalid_requests_get_an_error_status(server: Server, request_: bytes, status: int) -> None:
    assert parse(send(server, request_ % server.server_port if b"%d" in request_ else request_)).status == status
    assert request(server).status == 200


def test_bytes_after_a_request_are_ignored(server: Server) -> None:
    host = f"Host: 127.0.0.1:{server.server_port}\r\nConnection: keep-alive\r\n"
    response = send(
        server, f"GET / HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n{host}\r\n".encode()
    )
    assert response.count(b"HTTP/1.0 ") == 1


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("none", "navigate", "document", 200), ("same-origin", "navigate", "document", 200),
        ("cross-site", "navigate", "document", 200),  # a link on another site
        ("cross-site", "navigate", "iframe", 403), ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403), ("cross-site", "cors", "empty", 403),
    ],
)  # fmt: skip
def test_other_sites_may_link_but_not_embed(
    server: Server, site: str, mode: str, destination: str, status: int
) -> None:
    fetch = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": destination}
    assert request(server, **fetch).status == status


@pytest.mark.parametrize("target", ["/", "/history", "/report?id=20250101-000000-abcd", "/nothing", "/?since=x"])
def test_every_response_has_a_content_security_policy(server: Server, target: str) -> None:
    response = request(server, target)
    policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["base-uri"], policy["frame-ancestors"]) == ("'none'",) * 3
    assert "unsafe" not in policy.get("script-src", "")
    assert not [part for part in policy.values() if "http" in part or "*" in part]
    for style in re.findall(r"<style>(.*?)</style>", response.body, re.DOTALL):
        known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"sha256-{known}" in policy["style-src"] or policy["style-src"] == "'unsafe-inline'"
    for name in ("x-content-type-options", "referrer-policy", "cross-origin-resource-policy", "cache-control"):
        assert response.headers[name]
    assert "access-control-allow-origin" not in response.headers
    assert "python" not in response.headers["server"].lower()


def test_internal_error_is_a_page_and_the_server_continues(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: str) -> None:
        raise RuntimeError("<b>no</b>")

    monkeypatch.setattr(server.router, "dispatch", fail)
    response = request(server)
    assert response.status == 500
    assert "&lt;b&gt;no" in response.body
    monkeypatch.undo()
    assert request(server).status == 200


def test_silent_and_closed_connections_do_not_block_others(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    silent = socket.create_connection(("127.0.0.1", server.server_port))
    closed = socket.create_connection(("127.0.0.1", server.server_port))
    closed.sendall(b"GET / HT")
    closed.close()
    assert request(server).status == 200
    silent.close()
    assert capfd.readouterr() == ("", "")


def test_port_in_use_raises_bad_input(server: Server, tmp_path: Path) -> None:
    for port in (server.server_port, 65536):
        with pytest.raises(BadInput, match="use a free port with --port 0"):
            Server(Router(Store(tmp_path)), port)

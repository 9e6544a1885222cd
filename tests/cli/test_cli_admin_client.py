"""The client of the admin API keeps the token from everybody else: no redirects, no proxies without TLS, no token in messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bearlake.cli.admin_client import AdminClient
from bearlake.cli.http_client import Tls
from bearlake.errors import Invalid, Unavailable

TOKEN = "token of sixteen or more"


@contextmanager
def serving(location: str = "") -> Iterator[tuple[str, list[str | None]]]:
    """A server that redirects to `location`, or else answers; yields its URL, and the Authorization headers that it gets."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(302 if location else 200)
            self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET  # noqa: N815 - the name that `http.server` calls

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_does_not_take_the_token_elsewhere(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setenv("BEARLAKE_ADMIN_TOKEN", TOKEN)
    with serving() as (elsewhere, seen_elsewhere), serving(f"{elsewhere}/login") as (url, seen):
        with pytest.raises(Unavailable, match="answered 302"):
            AdminClient(url, None).call(method, "/v1/streams", {} if method == "POST" else None)

        assert seen == [f"Bearer {TOKEN}"]
        assert seen_elsewhere == []


def test_a_proxy_does_not_get_the_token_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARLAKE_ADMIN_TOKEN", TOKEN)
    with serving() as (proxy, seen_by_proxy), serving() as (url, seen):
        monkeypatch.setenv("http_proxy", proxy)
        AdminClient(url, None).call("GET", "/v1/streams")

        assert (seen, seen_by_proxy) == ([f"Bearer {TOKEN}"], [])


@pytest.mark.parametrize(
    "content", [b"a comment\nsecret-of-sixteen\n", "sécret-of-sixteen".encode(), b"\xffsecret-of-16"]
)
def test_a_token_that_no_header_can_have_is_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)

    with pytest.raises(Invalid) as refused:
        AdminClient("http://127.0.0.1:9", file)

    assert str(file) in str(refused.value)
    assert "cret-of-" not in str(refused.value)


def test_the_variable_may_end_with_a_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARLAKE_ADMIN_TOKEN", f"{TOKEN}\n")
    with serving() as (url, seen):
        AdminClient(url, None).call("GET", "/v1/streams")

        assert seen == [f"Bearer {TOKEN}"]


def test_files_for_tls_and_an_address_without_tls_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="expected https://"):
        AdminClient("http://bearlake.example.com:9644", None, Tls(ca_file=tmp_path / "ca.pem"))

"""The time limit of a command's request: it holds for all addresses of a host, the TLS handshake and the request together."""

import socket
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from bearlake import http_answers
from bearlake.cli import http_client, schema_options
from bearlake.cli.http_client import HttpClient
from bearlake.errors import Unavailable
from fixtures.http_answers import JOIN_S

LIMIT_S = 30
JSON_ANSWER = b"HTTP/1.1 200 OK\r\n\r\n7"


class Clock:
    """A clock that only sockets move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.connect_s: list[float] = []
        """How long connections take; a connection for which nothing is listed hangs."""
        self.pauses_s: list[float] = []
        """The limits that sockets were given, in order."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the client and its sockets."""
    clock = Clock()

    class Slow(socket.socket):
        @override
        def settimeout(self, value: float | None) -> None:
            clock.pauses_s.append(value or 0.0)
            super().settimeout(None if value is None else 60 + value)

        @override
        def connect(self, address: Any) -> None:
            if not clock.connect_s:
                clock.now_s += clock.pauses_s[-1]
                raise TimeoutError("timed out")
            clock.now_s += clock.connect_s.pop(0)
            super().connect(address)

    for module in (http_client, http_answers):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr(socket, "socket", Slow)
    return clock


@pytest.fixture
def port() -> Iterator[int]:
    """A server that answers whatever comes first with HTTP, and closes the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(JSON_ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(JOIN_S)


def client(url: str) -> HttpClient:
    """A client with the limit."""
    return HttpClient(schema_options.API, url, "", request_s=LIMIT_S)


def test_addresses_of_a_host_that_hang_share_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [place] * 3)

    with pytest.raises(Unavailable):
        client("http://example.test").call("GET", "/subjects")

    assert clock.now_s == LIMIT_S
    assert clock.pauses_s == [10, 10, 10]


def test_an_address_after_one_that_hangs_answers(clock: Clock, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [place] * 2)
    hangs = [True]
    plain = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if not hangs:
            clock.connect_s.append(0)
        hangs.clear()
        plain(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)

    assert client("http://example.test").call("GET", "/subjects") == 7
    assert clock.now_s == LIMIT_S / 2


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_follows_a_slow_connection_has_the_rest_of_the_time(clock: Clock, port: int, scheme: str) -> None:
    clock.connect_s.append(20)

    if scheme == "http":
        assert client(f"http://127.0.0.1:{port}").call("GET", "/subjects") == 7
    else:
        with pytest.raises(Unavailable):  # the server has no TLS
            client(f"https://127.0.0.1:{port}").call("GET", "/subjects")

    assert clock.pauses_s[0] == LIMIT_S
    assert {*clock.pauses_s[1:]} == {LIMIT_S - 20}

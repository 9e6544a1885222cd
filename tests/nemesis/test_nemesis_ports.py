"""A server of a run and its link get the same free port, whatever ports other programs use at the same time."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fixtures import ports
from nemesis.links import HOST, SERVER_HOST, AddressInUse, Network


@contextmanager
def network() -> Iterator[Network]:
    opened = Network()
    try:
        yield opened
    finally:
        opened.end()


@contextmanager
def outgoing_connection_from(host: str) -> Iterator[int]:
    """Return the connection's local port, which the kernel chose."""
    with socket.create_server((SERVER_HOST, 0)) as server, socket.socket() as client:
        client.bind((host, 0))
        client.connect(server.getsockname())
        yield client.getsockname()[1]


@pytest.mark.parametrize("host", [HOST, SERVER_HOST])
def test_a_port_of_an_outgoing_connection_is_not_chosen(host: str) -> None:
    free = next(port for port in ports.drawn() if ports.is_free(HOST, port))
    with outgoing_connection_from(host) as taken, network() as links:
        assert links.reserve("clients>k1/kafka", [taken, free]) == free


def test_no_outgoing_connection_can_have_a_chosen_port() -> None:
    low, high = map(int, ports.EPHEMERAL_RANGE.read_text().split())

    assert not [port for port in ports.drawn() if low <= port <= high]


def test_a_reserved_port_is_free_for_the_server_and_for_no_other_run() -> None:
    with network() as links, network() as others:
        port = links.reserve("clients>k1/kafka", ports.drawn())

        with socket.create_server((SERVER_HOST, port)):
            pass
        with pytest.raises(ports.NoPort):
            others.reserve("clients>k1/kafka", [port])


def test_a_port_that_is_taken_after_it_was_chosen_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = [port for port in ports.drawn() if ports.is_free(HOST, port)][:2]
    with socket.create_server((HOST, taken)), network() as links:
        with pytest.raises(AddressInUse):
            links.open("clients>k1/kafka", f"{SERVER_HOST}:{taken}", listen=f"{HOST}:{taken}")
        monkeypatch.setattr(ports, "is_free", lambda host, port: True)  # it was free a moment ago

        assert links.reserve("clients>k1/kafka", [taken, free]) == free


def test_a_machine_whose_ephemeral_range_has_every_port_is_reported() -> None:
    assert ports.candidates((1_024, 65_535)) == []
    with pytest.raises(ports.NoPort, match="ephemeral"):
        ports.choose([], (HOST,))

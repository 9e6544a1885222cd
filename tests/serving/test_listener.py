"""Listeners: ports are bound before anything starts, and an unusable address gives a clear error."""

import socket
from pathlib import Path

import pytest

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.listener import ListenerSettings, bind, is_loopback, join_address, open_listener
from fixtures.waiting import WAIT_S


def test_port_0_is_replaced_by_a_real_port_that_is_advertised() -> None:
    listener = open_listener(ListenerSettings(), "kafka")
    with listener.socket:
        assert listener.advertised_port == listener.socket.getsockname()[1] > 0
        assert listener.endpoint("kafka") == ("kafka", f"127.0.0.1:{listener.advertised_port}")


def test_advertised_address_and_name_may_differ() -> None:
    settings = ListenerSettings(name="EXTERNAL", advertised_host="lake.example", advertised_port=443)
    listener = open_listener(settings, "kafka")
    with listener.socket:
        assert listener.endpoint("kafka") == ("kafka:EXTERNAL", "lake.example:443")


def test_a_wildcard_address_is_advertised_by_the_machines_name() -> None:
    listener = open_listener(ListenerSettings(host="0.0.0.0"), "kafka")
    with listener.socket:
        assert listener.advertised_host == socket.gethostname()


def test_connections_wait_until_the_service_accepts() -> None:
    with bind("127.0.0.1", 0, "kafka") as bound:
        client = socket.create_connection(bound.getsockname(), timeout=WAIT_S)

    client.close()


def test_a_taken_port_is_named_in_the_error() -> None:
    with bind("127.0.0.1", 0, "kafka") as bound:
        port = bound.getsockname()[1]

        with pytest.raises(Unavailable, match=rf"kafka.* 127\.0\.0\.1:{port}\b"):
            bind("127.0.0.1", port, "kafka")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1:0"):
        bind("192.0.2.1", 0, "kafka")


def test_a_host_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(Invalid, match="no such host"):
        bind("no such host", 0, "kafka")


def test_tls_needs_both_files_and_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tls_key_file"):
        ListenerSettings(tls_certificate_file="a.pem")
    (tmp_path / "a.pem").write_text("nonsense")
    name = str(tmp_path / "a.pem")

    with pytest.raises(Invalid, match=name):
        open_listener(ListenerSettings(tls_certificate_file=name, tls_key_file=name), "kafka")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_ipv6_addresses_have_brackets() -> None:
    assert join_address("::1", 80) == "[::1]:80"

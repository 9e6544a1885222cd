"""The addresses that a started server announces."""

from bearlake.app import ready
from bearlake.serving.listener import ListenerSettings
from bearlake.settings.document import ListenersSettings


def test_http_endpoints_are_urls_and_name_their_scheme() -> None:
    secure = ListenerSettings(tls_certificate_file="server.pem", tls_key_file="server.key")
    endpoints = {
        "kafka": "h:1",
        "rest": "h:2",
        "registry": "h:3",
        "pulsar_http": "h:4",
        "grpc": "h:5",
        "catalog": "h:7",
        "admin": "https://h:6",
    }

    assert ready.addresses(endpoints, ListenersSettings(rest=secure)) == {
        "kafka": "h:1",
        "rest": "https://h:2",
        "registry": "http://h:3",
        "pulsar_http": "http://h:4",
        "grpc": "h:5",
        "catalog": "http://h:7",
        "admin": "https://h:6",
    }

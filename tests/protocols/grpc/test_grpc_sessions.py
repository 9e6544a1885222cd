"""Clients with certificates that resume TLS sessions: verified again after a minute, as on other listeners."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import grpc.aio
import pytest

from bearlake.protocols.grpc import listening
from bearlake.serving.certificates import SESSION_MS_MAX
from bearlake.serving.listener import ListenerSettings
from fixtures.waiting import WAIT_S

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With an empty SETTINGS frame. The server's answer follows its session tickets."""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_cannot_resume_a_session_that_is_older_than_a_minute(
    certificates: Mapping[str, Path], version: ssl.TLSVersion
) -> None:
    now_s = 0.0
    server = grpc.aio.server()
    settings = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    port = listening.bind(server, settings, now_s=lambda: now_s).port
    await server.start()
    client = ssl.create_default_context(cafile=str(certificates["authority"]))
    client.minimum_version = client.maximum_version = version
    client.set_alpn_protocols(["h2"])
    client.load_cert_chain(certificates["client"], certificates["client_key"])

    def connect(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
            client.wrap_socket(plain, server_hostname="localhost", session=session) as tls,
        ):
            tls.sendall(HTTP2_PREFACE)
            assert tls.recv(1)
            return tls.session, tls.session_reused

    session, _ = await asyncio.to_thread(connect, None)
    now_s = SESSION_MS_MAX / 1000 - 1
    _, is_resumed_before = await asyncio.to_thread(connect, session)
    now_s = SESSION_MS_MAX / 1000
    _, is_resumed_after = await asyncio.to_thread(connect, session)
    await server.stop(None)

    assert (is_resumed_before, is_resumed_after) == (True, False)

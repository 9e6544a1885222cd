"""Renewed certificates apply to later handshakes of every kind of listener, without a restart."""

import asyncio
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from bearlake.protocols.grpc.listening import bind
from bearlake.serving.certificates import LOOK_PAUSE_MS, Certificates
from bearlake.serving.listener import ListenerSettings, RenewableContext, tls_context
from fixtures.waiting import WAIT_S
from simulator.loop import virtual_time

LOOK_COUNT = 500
PAUSE_S = 0.02


@dataclass
class Files:
    """A listener's files, put from the session's certificates."""

    folder: Path
    made: dict[str, Path]

    def __post_init__(self) -> None:
        self.put("server")

    @property
    def settings(self) -> ListenerSettings:
        return ListenerSettings(
            tls_certificate_file=str(self.folder / "tls.crt"), tls_key_file=str(self.folder / "tls.key")
        )

    def put(self, name: str, key: str | None = None) -> None:
        """Replace the files, as renewal does, by another certificate (and the key of `key`)."""
        for source, target in ((name, "tls.crt"), (f"{key or name}_key", "tls.key")):
            shutil.copy(self.made[source], self.folder / "new")
            (self.folder / "new").rename(self.folder / target)

    def certificate(self, name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.made[name].read_text())


@pytest.fixture
def files(tmp_path: Path, certificates: dict[str, Path]) -> Files:
    return Files(tmp_path, certificates)


def shown(server: ssl.SSLContext) -> bytes | None:
    """The certificate that a client is shown in a new handshake, which takes place in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    left = list(sides)
    while left:
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    return sides[0].getpeercert(binary_form=True)


def kept(files: Files) -> tuple[Certificates, ssl.SSLContext]:
    made = tls_context(files.settings, "kafka")
    assert made is not None
    context = RenewableContext(made)
    certificates = Certificates()
    certificates.watch(files.settings, "kafka", context)
    return certificates, context


def test_a_renewed_certificate_is_shown_in_later_handshakes(files: Files) -> None:
    certificates, context = kept(files)
    assert shown(context) == files.certificate("server")

    files.put("client")
    assert shown(context) == files.certificate("server")
    certificates.renew()

    assert shown(context) == files.certificate("client")


def test_files_that_do_not_fit_together_do_not_replace_the_files_in_use(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, context = kept(files)

    files.put("client", key="server")
    certificates.renew()
    certificates.renew()
    assert shown(context) == files.certificate("server")
    assert [record.levelname for record in caplog.records] == ["WARNING"]

    files.put("client")
    certificates.renew()
    assert shown(context) == files.certificate("client")


@virtual_time
async def test_files_are_checked_continuously(files: Files) -> None:
    certificates, context = kept(files)
    running = asyncio.create_task(certificates.run())
    for name in ("client", "server", "client"):
        files.put(name)
        await asyncio.sleep(LOOK_PAUSE_MS / 1000 + 1)
        assert shown(context) == files.certificate(name)
    running.cancel()


async def test_grpc_shows_a_renewed_certificate_too_and_none_that_does_not_fit(files: Files) -> None:
    server = grpc.aio.server()
    endpoint = bind(server, files.settings)
    await server.start()
    address = ("127.0.0.1", endpoint.port)

    async def shown_by_grpc() -> bytes:
        return ssl.PEM_cert_to_DER_cert(await asyncio.to_thread(ssl.get_server_certificate, address, timeout=WAIT_S))

    try:
        assert await shown_by_grpc() == files.certificate("server")
        files.put("authority", key="server")
        files.put("client")
        for _ in range(LOOK_COUNT):
            if await shown_by_grpc() == files.certificate("client"):
                break
            await asyncio.sleep(PAUSE_S)

        assert await shown_by_grpc() == files.certificate("client")
    finally:
        await server.stop(None)

"""Records without data cost a client its connection before they cost the server much time. TLS in memory, with key updates made here."""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from bearlake.serving import tls_records
from bearlake.serving.listener import RenewableContext

KEY_UPDATE = b"\x18\x00\x00\x01\x01"
"""The message: a key update that asks for one (RFC 8446, 4.6.3)."""
MOST = tls_records.EMPTY_RECORD_COUNT_MAX


def expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    name = b"tls13 " + label.encode()
    info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\x00"
    return HKDFExpand(SHA384(), size, info).derive(secret)


class Pair:
    """A client and a server after their handshake, and the client's keys."""

    def __init__(self, certificates: dict[str, Path], folder: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates["server"], certificates["server_key"])
        trust = ssl.create_default_context(cafile=str(certificates["authority"]))
        trust.keylog_filename = str(folder / "keys")
        self.incoming, outgoing, answers = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.sent = ssl.MemoryBIO()
        self.server = RenewableContext(context).wrap_bio(self.incoming, outgoing, server_side=True)
        self.client = trust.wrap_bio(answers, self.sent, server_hostname="localhost")
        for side in (self.client, self.server, self.client, self.server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            self.incoming.write(self.sent.read())
            answers.write(outgoing.read())
        cipher = self.client.cipher()
        assert cipher is not None
        assert cipher[0] == "TLS_AES_256_GCM_SHA384"
        lines = [line.split() for line in (folder / "keys").read_text().splitlines()]
        self.secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self.record_number = 0

    def encrypted(self, content: bytes, kind: int) -> bytes:
        """One record of the client."""
        key, nonce = expanded(self.secret, "key", 32), int.from_bytes(expanded(self.secret, "iv", 12), "big")
        head = b"\x17\x03\x03" + (len(content) + 1 + 16).to_bytes(2, "big")
        sealed = AESGCM(key).encrypt((nonce ^ self.record_number).to_bytes(12, "big"), content + bytes([kind]), head)
        self.record_number += 1
        return head + sealed

    def updates(self, count: int) -> Iterator[bytes]:
        """Key updates of the client."""
        for _ in range(count):
            yield self.encrypted(KEY_UPDATE, 22)
            self.secret, self.record_number = expanded(self.secret, "traffic upd", 48), 0

    def received(self) -> bytes:
        """What the server reads of what has arrived, as uvloop does."""
        found = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError):
            while self.incoming.pending or self.server.pending():
                found += self.server.read(4096)
        return bytes(found)


@pytest.fixture
def pair(certificates: dict[str, Path], tmp_path: Path) -> Pair:
    return Pair(certificates, tmp_path)


def test_a_client_may_update_its_keys(pair: Pair) -> None:
    pair.incoming.write(b"".join(pair.updates(MOST)) + pair.encrypted(b"hello", 23))

    assert pair.received() == b"hello"


def test_too_many_key_updates_end_a_connection_also_with_some_data_between(pair: Pair) -> None:
    """9,000 of them, sent together, held the event loop for 0.4 s."""
    pair.incoming.write(b"".join(pair.updates(MOST)) + pair.encrypted(b"hello", 23))
    assert pair.received() == b"hello"
    pair.incoming.write(b"".join(pair.updates(1)))

    with pytest.raises(ssl.SSLError, match="without data"):
        pair.received()


def test_much_data_allows_more_key_updates(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_records, "DATA_BYTES", 5)
    for _ in range(2):
        pair.incoming.write(b"".join(pair.updates(MOST)) + pair.encrypted(b"hello", 23))

        assert pair.received() == b"hello"


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000, 100_000])
def test_records_may_arrive_in_pieces(pair: Pair, piece_bytes: int) -> None:
    content = bytes(range(256)) * 200
    pair.client.write(content[:3])
    pair.client.write(content[3:])
    sent = pair.sent.read()
    found = b""
    for start in range(0, len(sent), piece_bytes):
        pair.incoming.write(sent[start : start + piece_bytes])
        found += pair.received()

    assert found == content


def test_what_is_no_record_is_refused_at_once(pair: Pair) -> None:
    pair.incoming.write(b"GET / HTTP/1.1\r\n\r\n")

    with pytest.raises(ssl.SSLError):
        pair.received()

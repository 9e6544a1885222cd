"""The load generator against a minimal server that checks what it receives."""

import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.errors import BenchError
from bench.loading import Load
from bench.templates import BatchShape

from bench import loading, templates

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")

PRODUCER_ID, RECORDS, TOPIC = 42, 3, "t"
HISTOGRAM_ERROR = 0.01
"""How far a percentile may lie above the value that it represents."""
BATCH = templates.record_batch(BatchShape(record_count=RECORDS, record_bytes=128))


@dataclass
class Listener:
    """Answers one connection's Produce v9 requests of one partition each; `batches` has the received batches."""

    error: int = 0
    batches: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.close()
        self._thread.join(10)

    name, pid = "listener", 1

    def counters(self) -> None:
        return None

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rwb") as stream:
            while prefix := stream.read(4):
                frame = stream.read(int.from_bytes(prefix, "big"))
                api, _version, correlation = struct.unpack_from(">hhi", frame)
                body = struct.pack(">ihqh", 0, 0, PRODUCER_ID, 5) if api == 22 else self._produced(frame)
                answer = struct.pack(">i", correlation) + body
                stream.write(struct.pack(">i", len(answer)) + answer)
                stream.flush()

    def _produced(self, frame: bytes) -> bytes:
        self.batches.append(frame[-len(BATCH) - 3 : -3])  # three empty tag sections end the request
        part = struct.pack(">ihqqq", 0, self.error, 0, -1, 0) + b"\1\0\0"
        return b"\0\2" + bytes([len(TOPIC) + 1]) + TOPIC.encode() + b"\2" + part + b"\0" + b"\0\0\0\0" + b"\0"


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.close()


def _load(directory: Path, **changes: object) -> Load:
    templates.write_templates(directory, [templates.produce_request(BATCH, [0], topic=TOPIC)])
    return Load(templates=directory, connections=1, depth=3, seconds=20, requests_max=7, payload_bytes=384, **changes)


@pytest.mark.parametrize("host", ["10.1.2.3", "0.0.0.0", "192.168.0.1", "localhost", "example.org", "128.0.0.1"])
def test_the_loader_refuses_every_address_that_is_not_a_loopback_number(host: str, tmp_path: Path) -> None:
    server = Elsewhere(f"{host}:9092")

    with pytest.raises(BenchError, match="is not a loopback address"):
        loading.run_loader(server, _load(tmp_path))


@dataclass
class Elsewhere:
    address: str
    name = "elsewhere"
    pid = 1

    def counters(self) -> None:
        return None


def test_the_loader_counts_answered_requests(listener: Listener, tmp_path: Path) -> None:
    run = loading.run_loader(listener, _load(tmp_path))

    assert (run.requests, run.payload_bytes) == (7, 7 * 384)
    assert listener.batches == [BATCH] * 7
    assert 0 < run.p50_ms <= run.seconds * 1000 * (1 + HISTOGRAM_ERROR)  # no request began before the window


def test_connections_are_spread_over_the_ports_of_several_servers(listener: Listener, tmp_path: Path) -> None:
    other = Listener()
    ports = [int(server.address.rsplit(":", 1)[1]) for server in (listener, other)]
    frames = [templates.produce_request(BATCH, [part], topic=TOPIC) for part in range(2)]
    templates.write_templates(tmp_path, frames)
    load = Load(
        templates=tmp_path, connections=2, depth=1, seconds=20, requests_max=3, pause_us=1000, payload_bytes=384,
        ports=ports, spread=True,
    )  # fmt: skip

    try:
        run = loading.run_loader(listener, load)
    finally:
        other.close()

    assert run.requests == 6
    assert (len(listener.batches), len(other.batches)) == (3, 3)


def test_an_idempotent_loader_numbers_its_batches_and_keeps_their_checksums_right(
    listener: Listener, tmp_path: Path
) -> None:
    loading.run_loader(listener, _load(tmp_path, idempotent=True))

    fields = [struct.unpack_from(">qhi", batch, 43) for batch in listener.batches]
    assert fields == [(PRODUCER_ID, 5, number * RECORDS) for number in range(7)]
    for batch in listener.batches:
        assert struct.unpack_from(">I", batch, 17)[0] == templates.crc32c(batch[21:])


def test_a_partition_that_gets_an_error_fails_the_run(listener: Listener, tmp_path: Path) -> None:
    listener.error = 3

    with pytest.raises(BenchError, match="7 partitions were answered with an error, the first with 3"):
        loading.run_loader(listener, _load(tmp_path))


def test_a_malformed_template_is_refused(tmp_path: Path) -> None:
    load = _load(tmp_path)
    (tmp_path / "0.bin").write_bytes(b"\0" * 64)

    with pytest.raises(BenchError, match="not a Produce v7-v9, Fetch v4 or v12 frame"):
        loading.run_loader(Elsewhere("127.0.0.1:9"), load)

"""The bare server: does it keep the promise whose floor it measures, and refuse what it must refuse?"""

import ctypes
import shutil
import socket
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.bare_server import BareServer
from bench.errors import BenchError
from bench.loading import Load
from bench.templates import BatchShape

from bearlake.metadata import packing
from bearlake.wal import v1
from bench import loading, templates

LIBRARIES = ("libsqlite3.so.0", "liblz4.so.1", "libzstd.so.1")


def _is_missing() -> bool:
    try:
        return shutil.which("gcc") is None or not all(map(ctypes.CDLL, LIBRARIES))
    except OSError:
        return True


pytestmark = pytest.mark.skipif(_is_missing(), reason=f"the bare server needs gcc and {', '.join(LIBRARIES)}")

RECORDS, TOPIC, REQUESTS = 3, "t", 40
BATCH = templates.record_batch(BatchShape(record_count=RECORDS, record_bytes=128))
CORRUPT_MESSAGE, OUT_OF_ORDER_SEQUENCE = 2, 45


@contextmanager
def _served(folder: Path, *options: str) -> Iterator[BareServer]:
    server = BareServer(folder / "bare", options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _produce(
    server: BareServer,
    folder: Path,
    batch: bytes = BATCH,
    *,
    connections: int = 2,
    version: int = 9,
    idempotent: bool = False,
) -> None:
    frames = [
        templates.produce_request(batch, [2 * c, 2 * c + 1], topic=TOPIC, version=version) for c in range(connections)
    ]
    templates.write_templates(folder / "templates", frames)
    loading.run_loader(
        server,
        Load(
            templates=folder / "templates",
            connections=connections,
            depth=5,
            seconds=20,
            requests_max=REQUESTS,
            idempotent=idempotent,
        ),
    )


def _rows(server: BareServer) -> list[tuple[str, int, bytes, bytes, bytes]]:
    """Key, size, slices, sequences and outcomes of each commit."""
    with sqlite3.connect(server.directory / "metadata.db") as database:
        return database.execute("SELECT token, object_size, slices, sequences, outcomes FROM log").fetchall()


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("options", [(), ("--inline",)])
@pytest.mark.parametrize("record_bytes", [128, 20_000])  # copied into one buffer; left where they arrived
def test_every_acknowledged_batch_is_in_one_object_and_one_row(
    tmp_path: Path, version: int, options: Sequence[str], record_bytes: int
) -> None:
    batch = templates.record_batch(BatchShape(record_count=RECORDS, record_bytes=record_bytes))
    ends = dict.fromkeys(range(4), 0)
    with _served(tmp_path, *options) as server:
        _produce(server, tmp_path, batch, version=version)
        for token, size, slices, sequences, outcomes in _rows(server):
            stored = (server.directory / token).read_bytes()
            head_end, trailer = v1.index_end(stored), v1.parse_trailer(stored[-40:])
            assert (len(stored), trailer[:2], trailer[3]) == (size, (0, head_end), size)
            entries = v1.parse_index(stored).slices
            for entry, row in zip(entries, packing.unpack_slices(slices), strict=True):
                assert (row.partition, row.position, row.length) == (entry.partition, entry.position, entry.length)
                assert row.base_offset == ends[row.partition]
                assert stored[row.position : row.position + row.length] == batch * entry.batch_count
                assert row.record_count == RECORDS * entry.batch_count
                ends[row.partition] += row.record_count
            count = sum(entry.batch_count for entry in entries)
            assert len(list(packing.unpack_rows(sequences, packing.SEQUENCE_WIDTH))) == count
            assert len(packing.unpack_outcomes(outcomes)) == count
        counts = server.counters()

        assert ends == dict.fromkeys(range(4), REQUESTS * RECORDS)
        assert counts.objects == counts.commits == len(_rows(server)) > 0
        assert len(list(server.directory.glob("wal/*/*"))) == counts.objects
    assert not server.directory.exists()


def test_a_batch_with_a_wrong_checksum_is_refused_and_not_stored(tmp_path: Path) -> None:
    damaged = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
    with _served(tmp_path) as server:
        with pytest.raises(BenchError, match=f"the first with {CORRUPT_MESSAGE}"):
            _produce(server, tmp_path, damaged)

        assert _rows(server) == []


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_decompressed(tmp_path: Path, codec: templates.Codec) -> None:
    batch = templates.record_batch(BatchShape(record_count=100, record_bytes=1024, codec=codec))
    head = bytearray(batch[:61])
    damaged = batch[61:-40] + bytes(40)  # a section that is cut short
    struct.pack_into(">I", head, 17, templates.crc32c(bytes(head[21:]) + damaged))
    with _served(tmp_path, "--decompress") as server:
        _produce(server, tmp_path, batch)
        with pytest.raises(BenchError, match=f"the first with {CORRUPT_MESSAGE}"):
            _produce(server, tmp_path, bytes(head) + damaged)


def test_sequences_of_an_idempotent_producer_are_checked(tmp_path: Path) -> None:
    with _served(tmp_path) as server:
        _produce(server, tmp_path, idempotent=True)
        assert sum(row[1] for row in _rows(server)) > len(BATCH) * 4 * REQUESTS

        numbered = bytearray(BATCH)
        struct.pack_into(">qhi", numbered, 43, 7, 0, 0)
        struct.pack_into(">I", numbered, 17, templates.crc32c(bytes(numbered[21:])))
        with pytest.raises(BenchError, match=f"the first with {OUT_OF_ORDER_SEQUENCE}"):
            _produce(server, tmp_path, bytes(numbered))  # the same sequence number in every request


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize("options", [(), ("--sendfile",)])
def test_a_fetch_returns_what_was_produced_from_its_offset_on(
    tmp_path: Path, version: int, options: Sequence[str]
) -> None:
    with _served(tmp_path, "--keep-log", *options) as server:
        _produce(server, tmp_path)
        frame = templates.fetch_request([1], topic=TOPIC, bytes_max=3 * len(BATCH), start=RECORDS + 1, version=version)
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as stream:
            connection.sendall(frame)
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
        expected = b"".join(struct.pack(">q", RECORDS * number) + BATCH[8:] for number in range(1, 4))

        assert expected in answer
        assert len(answer) < len(expected) + 100

        templates.write_templates(tmp_path / "templates", [frame])
        load = Load(templates=tmp_path / "templates", connections=1, depth=2, seconds=20, requests_max=REQUESTS)
        assert loading.run_loader(server, load).requests == REQUESTS


def test_another_request_ends_its_connection(tmp_path: Path) -> None:
    with _served(tmp_path) as server:
        host, port = server.address.split(":")
        for frame in (b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\2ok", b"\xff\xff\xff\xff", b"\0\0\0\0"):
            with socket.create_connection((host, int(port)), 30) as connection:
                connection.sendall(frame)
                assert connection.recv(1) == b""
        _produce(server, tmp_path)

"""The native kernel gives back every reference and every block, also on its error paths."""

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bearlake.errors import BearlakeError
from bearlake.records.codec import Record, encode

BATCH = encode([Record(key=b"key", value=b"value", timestamp=2**40, headers=(("name", b"x"),)), Record()])
BODY = b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\1\0\5topic\0\0\0\1\0\0\0\7" + len(BATCH).to_bytes(4, "big") + BATCH
RESULTS = [("topic-name", 2**20, 0, 2**40, -1, 2**41)] * 40


def calls(native: ModuleType) -> list[Callable[[], Any]]:
    buffer = bytearray(BATCH)
    entry = (2**40, 2**41, 2, 0, len(BATCH), 0)
    return [
        lambda: native.crc32c(BATCH),
        lambda: native.crc32c(BATCH, 5, 1),
        lambda: native.inspect(BATCH, 0, len(BATCH)),
        lambda: native.inspect(BATCH, 0, 50),
        lambda: native.batches(BATCH, 0, len(BATCH)),
        lambda: native.batches(BATCH + b"x", 0, len(BATCH) + 1),
        lambda: native.rebase(buffer, [entry], 0),
        lambda: native.rebase(buffer, [entry, (0, 0, 0, 0, 9, 0)], 0),
        lambda: native.rebase(buffer, (entry for _ in range(3)), 0),
        lambda: native.rebase(BATCH, [entry], 0),
        lambda: native.seek(BATCH, 0, len(BATCH), 1),
        lambda: native.seek(BATCH, 0, 70, 1),
        lambda: native.take(BATCH, 0, len(BATCH), 1),
        lambda: native.parse_produce(BODY, 0, 3),
        lambda: native.parse_produce(BODY[:-1], 0, 3),
        lambda: native.parse_produce(BODY.replace(b"topic", b"\xff\xff\xff\xff\xff"), 0, 3),
        lambda: native.parse_produce(BODY + b"x", 0, 3),
        lambda: native.parse_produce(BODY, 0, 99),
        lambda: native.encode_produce_response(9, 1, RESULTS, 0),
        lambda: native.encode_produce_response(9, 1, [*RESULTS, ("t", 2**40, 0, 0, 0, 0)], 0),
        lambda: native.encode_produce_response(9, 1, [*RESULTS, ("t",)], 0),
        lambda: native.check_records(BATCH[61:], 2),
        lambda: native.decode_records(BATCH[61:], 2, 2**40),
        lambda: native.decode_records(BATCH[61:], 3, 2**40),
        lambda: native.find_timestamp(BATCH[61:], 2, 2**40, 0),
        lambda: native.find_timestamp(BATCH[61:], 3, 0, 2**50),
    ]


def test_nothing_is_leaked(native: ModuleType) -> None:
    for call in calls(native):
        repeat(call, 50)
        counts = [sys.getrefcount(value) for value in (None, native, BATCH, BODY, RESULTS, RESULTS[0], BearlakeError)]
        blocks = sys.getallocatedblocks()

        repeat(call, 500)

        assert sys.getallocatedblocks() - blocks < 50
        after = [sys.getrefcount(value) for value in (None, native, BATCH, BODY, RESULTS, RESULTS[0], BearlakeError)]
        assert all(abs(now - before) < 50 for now, before in zip(after, counts, strict=True))


def repeat(call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        with contextlib.suppress(BearlakeError, ValueError, BufferError):
            call()


def test_buffers_are_released(native: ModuleType) -> None:
    buffer = bytearray(BODY)
    for call in (
        lambda: native.parse_produce(buffer, 0, 3),
        lambda: native.parse_produce(buffer, 3, 3),
        lambda: native.rebase(buffer, [(0, 0, 1, 0, 9, 0)], 0),
        lambda: native.crc32c(buffer, 9, 1),
        lambda: native.decode_records(buffer, 1, 0),
    ):
        repeat(call, 3)

    buffer.append(0)  # raises BufferError while a view is held

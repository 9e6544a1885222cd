"""SENDs in a receive buffer, and their receipts: which SENDs are accepted, where a call ends, and that both kernels agree on every input.

Source: Pulsar binary protocol specification.
"""

from collections.abc import Sequence
from struct import Struct
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.kernel import fallback
from bearlake.kernel.pulsar import sends
from bearlake.protocols.pulsar import entries, framing
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand, CommandSend, CommandSendReceipt, MessageIdData
from bearlake.protocols.pulsar.proto.metadata_pb2 import LZ4, EncryptionKeys, KeyValue, SingleMessageMetadata
from fixtures.pulsar_entries import damaged, metadata, pack

BIG = 10**6
NONE = 2**64 - 1
SIZES = Struct(">II")
SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SINGLES = [(SingleMessageMetadata(sequence_id=7 + place, partition_key="k"), b"v" * place) for place in range(3)]


def message(payload: bytes = b"value", *, is_checked: bool = True, **fields: Any) -> bytes:
    """The bytes after a SEND command."""
    head = metadata(**fields).SerializeToString()
    covered = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\x01" + fallback.crc32c(covered).to_bytes(4, "big") + covered if is_checked else covered


def send(content: bytes | None = None, **fields: Any) -> bytes:
    """A whole frame."""
    command = CommandSend(**{"producer_id": 3, "sequence_id": 7} | fields)
    return framing.message_frame(BaseCommand(type=6, send=command), message() if content is None else content)


def parse(kernel: ModuleType, frames: bytes, *, count_max: int = 100, limits: Sequence[int] = (BIG, BIG)) -> list[Any]:
    found: list[Any] = kernel.parse_sends(frames, 0, len(frames), count_max, *limits)
    return found


def test_sends_are_taken_with_the_batches_that_they_are_stored_as(kernel: ModuleType) -> None:
    batch = message(pack(SINGLES), num_messages_in_batch=3)
    frames = [send(), send(batch, sequence_id=8, highest_sequence_id=10, num_messages=3), send(producer_id=NONE)]

    found = parse(kernel, b"".join(frames))

    ends = [len(frames[0]), len(frames[0] + frames[1]), sum(map(len, frames))]
    assert [entry[:4] for entry in found] == [(3, 7, None, ends[0]), (3, 8, 10, ends[1]), (NONE, 7, None, ends[2])]
    for content, entry in zip([message(), batch, message()], found, strict=True):
        stored = entries.to_batch(*framing.read_message(memoryview(content)))
        assert (entry[4], entry[5], entry[7]) == stored
        assert entry[6] == int.from_bytes(entry[4][27:35], "big")


def test_no_more_are_taken_than_asked_for(kernel: ModuleType) -> None:
    frames = send() * 5

    assert len(parse(kernel, frames, count_max=3)) == 3
    assert parse(kernel, frames, count_max=0) == []


def test_a_frame_that_is_not_whole_waits(kernel: ModuleType) -> None:
    frame = send()

    for size in range(len(frame)):
        found = kernel.parse_sends(frame + frame, 0, len(frame) + size, 100, BIG, BIG)
        assert [entry[3] for entry in found] == [len(frame)]


def test_the_checksum_of_a_send_that_is_not_common_is_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: memoryview) -> int:
        raise AssertionError("the checksum reads all bytes")

    frames = [send(message(compression=LZ4, uncompressed_size=5)), send(message(b"v" * 11))]
    monkeypatch.setattr(sends, "crc32c", forbidden)

    for frame in frames:
        assert fallback.parse_sends(frame, 0, len(frame), 1, 10, BIG) == []


def test_bytes_before_the_start_are_left_alone(kernel: ModuleType) -> None:
    frames = b"\xff" * 9 + send()

    assert [entry[3] for entry in kernel.parse_sends(frames, 9, len(frames), 100, BIG, BIG)] == [len(frames)]


@pytest.mark.parametrize(
    "frame",
    [
        framing.command_frame(BaseCommand(type=18, ping={})),
        framing.message_frame(BaseCommand(type=6, send={}, ping={}), message()),
        framing.message_frame(BaseCommand(type=6), message()),
        send(txnid_least_bits=1),
        send(txnid_most_bits=1),
        send(is_chunk=True),
        send(marker=True),
        send(sequence_id=2**63),
        send(highest_sequence_id=2**63),
        send(message(is_checked=False)),
        send(message()[:-1] + b"X"),
        send(message(compression=LZ4)),
        send(message(encryption_keys=[EncryptionKeys(key="k", value=b"v")])),
        send(message(num_chunks_from_msg=2)),
        send(message(properties=[KeyValue(key="only a key")])),
        send(message(properties=[KeyValue(key="__pulsar.entry", value="v")])),
        send(message(num_messages_in_batch=2)),
        send(message(publish_time=None)),
        send(b""),
    ],
)  # fmt: skip
def test_uncommon_sends_are_left_to_the_general_path(kernel: ModuleType, frame: bytes) -> None:
    assert len(parse(kernel, send() + frame + send())) == 1


def test_explicit_defaults_are_common_too(kernel: ModuleType) -> None:
    frame = send(message(num_chunks_from_msg=1), txnid_least_bits=0, txnid_most_bits=0, is_chunk=False, marker=False)

    assert len(parse(kernel, frame)) == 1


@pytest.mark.parametrize(("spare", "count"), [(0, 1), (-1, 0)])
def test_payloads_and_messages_over_a_limit_are_left_to_the_general_path(
    kernel: ModuleType, spare: int, count: int
) -> None:
    content = message(b"v" * 50)

    assert len(parse(kernel, send(content), limits=(50 + spare, BIG))) == count
    assert len(parse(kernel, send(content), limits=(BIG, len(content) + spare))) == count


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, 11)])
def test_a_range_outside_the_buffer_is_a_bug(kernel: ModuleType, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is not inside a buffer of 10 bytes"):
        kernel.parse_sends(bytes(10), start, end, 1, BIG, BIG)


@SETTINGS
@given(st.lists(st.sampled_from([send(), send(message(pack(SINGLES), num_messages_in_batch=3))]), max_size=3).flatmap(
    lambda frames: damaged(b"".join(frames))
))  # fmt: skip
def test_both_kernels_parse_the_same(native: ModuleType, frames: bytes) -> None:
    assert parse(native, frames) == parse(fallback, frames)


def receipts(octets: bytes) -> list[CommandSendReceipt]:
    """Frames of receipts."""
    found, at = [], 0
    while at < len(octets):
        total, size = SIZES.unpack_from(octets, at)
        command = BaseCommand.FromString(octets[at + SIZES.size : at + SIZES.size + size])
        assert (total, command.type) == (size + 4, 7)
        found.append(command.send_receipt)
        at += SIZES.size + size
    return found


def test_receipts_name_the_sends_and_where_they_are_stored(kernel: ModuleType) -> None:
    ids = [(7, None), (8, 10), (2**64 - 1, 2**64 - 1)]

    octets, end = kernel.encode_receipts(NONE, 5, 2, ids, [(0, 100, 0), (1, 101, 0), (1, -1, 0)], 0)

    stored = [MessageIdData(ledger_id=5, entry_id=offset, partition=2) for offset in (100, 101)]
    nowhere = MessageIdData(ledger_id=NONE, entry_id=NONE)
    assert end == 3
    assert receipts(octets) == [
        CommandSendReceipt(producer_id=NONE, sequence_id=7, message_id=stored[0]),
        CommandSendReceipt(producer_id=NONE, sequence_id=8, highest_sequence_id=10, message_id=stored[1]),
        CommandSendReceipt(producer_id=NONE, sequence_id=NONE, highest_sequence_id=NONE, message_id=nowhere),
    ]


def test_receipts_of_a_topic_without_partitions_name_no_partition(kernel: ModuleType) -> None:
    octets, _ = kernel.encode_receipts(1, 5, -1, [(7, None)], [(0, 2**62, 0)], 0)

    (receipt,) = receipts(octets)
    assert receipt.message_id == MessageIdData(ledger_id=5, entry_id=2**62)


def test_receipts_stop_before_a_send_without_one_and_continue_after_it(kernel: ModuleType) -> None:
    ids = [(number, None) for number in range(4)]
    results = [(0, 10, 0), (7, -1, -1), (0, 11, 0), (0, 12, 0)]

    octets, end = kernel.encode_receipts(1, 5, -1, ids, results, 0)
    others, last = kernel.encode_receipts(1, 5, -1, ids, results, 2)

    assert (end, last) == (1, 4)
    assert [receipt.sequence_id for receipt in receipts(octets) + receipts(others)] == [0, 2, 3]


def test_another_count_of_results_or_a_place_beyond_them_is_a_bug(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="expected one result per SEND"):
        kernel.encode_receipts(1, 5, -1, [(7, None)], [], 0)
    with pytest.raises(ValueError, match="expected one result per SEND"):
        kernel.encode_receipts(1, 5, -1, [(7, None)], [(0, 1, 1)], 2)


UINT64 = st.integers(0, NONE)
RESULTS = st.tuples(st.integers(0, 8), st.integers(-1, 2**63 - 1), st.just(0))


@SETTINGS
@given(
    names=st.tuples(UINT64, UINT64, st.integers(-1, 2**31)),
    rows=st.lists(st.tuples(st.tuples(UINT64, st.none() | UINT64), RESULTS), max_size=9),
)
def test_both_kernels_encode_the_same_receipts(
    native: ModuleType, names: tuple[int, int, int], rows: list[Any]
) -> None:
    arguments = (*names, [ids for ids, _ in rows], [result for _, result in rows], 0)

    assert native.encode_receipts(*arguments) == fallback.encode_receipts(*arguments)

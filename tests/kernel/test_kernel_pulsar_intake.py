"""SENDs that are taken into the write buffer, native and in Python: which are, with which names, and their receipts."""

from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.kernel import BATCH_NAMED, BatchCommit, PartitionKey, SendBinding, fallback
from bearlake.protocols.pulsar import framing
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.protocols.pulsar.proto.metadata_pb2 import LZ4
from fixtures.pulsar_entries import damaged, pack
from kernel.test_kernel_pulsar_sends import BIG, NONE, SINGLES, message, parse, send

STREAM = bytes(range(16))
KEY = PartitionKey(7 << 20 | 2)
UNKNOWN = (8, -1, -1)
ALL = 1 << 62
BINDING = SendBinding(3, KEY, STREAM, BIG, -ALL, ALL, 50, 4, 6, 1)
BATCH = message(pack(SINGLES), num_messages_in_batch=3)
BATCH_BYTES = 99
"""Size of the batch that stores `message()`."""
PING = framing.command_frame(BaseCommand(type=18, ping={}))
GOLDEN_BATCH = (  # header; record; its value, and the entry header: version, flags, producer_name, sequence_id, publish_time
    "0000000000000000 00000057 ffffffff 02 83ce4049 0000 00000000 00000000000003e8 00000000000003e8 ffffffffffffffff ffff ffffffff"
    "00000001 4a 00 00 00 01 0a 76616c7565 02 1c 5f5f70756c7361722e656e747279 14 01 00 0a0170 1007 18e807"
)
GOLDEN_RECEIPT = "00000013 0000000f 0807 3a0b 0803 1007 1a05 0805 10ac02"
SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def take(kernel: ModuleType, frames: bytes, binding: SendBinding = BINDING, **options: Any) -> tuple[Any, Any, Any]:
    """Take the SENDs; returns the call, the buffer, and what the kernel returned."""
    buffer = options["buffer"] if "buffer" in options else kernel.WriteBuffer(1 << 20)
    call = kernel.SendResults(UNKNOWN)
    found = kernel.take_sends(
        buffer, call, frames, options.get("start", 0), options.get("end", len(frames)), binding, options.get("count_max", 100),
        options.get("payload_bytes_max", BIG), options.get("message_bytes_max", BIG), options.get("seen", 0),
    )  # fmt: skip
    return call, buffer, found


def committed(buffer: Any) -> tuple[list[BatchCommit], list[bytes], bytes]:
    """The commits of a buffer, the bytes of each batch, and the index of the object."""
    if not buffer.count:
        return [], [], b""
    joined = buffer.join(0, 0)
    commits = list(buffer.commits())
    return (
        commits,
        [bytes(joined[item.position : item.position + item.length]) for item in commits],
        buffer.index(joined),
    )


def test_sends_become_named_batches_and_get_receipts(kernel: ModuleType) -> None:
    frames = [send(), send(BATCH, sequence_id=8, highest_sequence_id=10, num_messages=3), send(sequence_id=20)]

    call, buffer, found = take(kernel, b"xyz" + b"".join(frames) + PING, start=3)

    assert found == (3 + sum(map(len, frames)), False, 20)
    assert (len(call), call.waiting, buffer.flags) == (3, 3, BATCH_NAMED)
    parsed = parse(kernel, b"".join(frames))
    commits, batches, index = committed(buffer)
    assert batches == [entry[4] for entry in parsed]
    assert [item[3:] for item in commits] == [
        (1, parsed[0][7], 50, 4, 7, BATCH_NAMED, -1, 6),
        (3, parsed[1][7], 50, 4, 10, BATCH_NAMED, -1, 7),
        (1, parsed[2][7], 50, 4, 20, BATCH_NAMED, -1, 10),
    ]
    assert {item.partition for item in commits} == {KEY}
    assert index[-4:] == fallback.crc32c(b"".join(batches)).to_bytes(4, "big")
    outcomes = [(0, 100, 0), (1, 90, 0), (1, -1, 0)]
    assert buffer.resolve(outcomes) == [call]
    ids = [(7, None), (8, 10), (20, None)]
    assert call.receipts(3, 5, 2) == kernel.encode_receipts(3, 5, 2, ids, outcomes, 0)


def test_the_bytes_of_a_batch_and_its_receipt(kernel: ModuleType) -> None:
    call, buffer, _ = take(kernel, send())

    _, batches, _ = committed(buffer)
    buffer.resolve([(0, 300, 0)])

    assert batches == [bytes.fromhex(GOLDEN_BATCH)]
    assert call.receipts(3, 5, -1) == (bytes.fromhex(GOLDEN_RECEIPT), 1)


def test_receipts_stop_before_the_first_send_that_gets_none(kernel: ModuleType) -> None:
    call, buffer, _ = take(kernel, b"".join(send(sequence_id=number) for number in range(7, 11)))
    committed(buffer)
    buffer.resolve([(0, 100, 0), (0, 101, 0), (7, -1, 0), (0, 102, 0)])

    octets, count = call.receipts(3, 5, -1)

    assert (count, call[count]) == (2, (7, -1, 0))
    assert octets == kernel.encode_receipts(3, 5, -1, [(7, None), (8, None)], [(0, 100, 0), (0, 101, 0)], 0)[0]


def test_calls_without_outcomes_get_no_receipts(kernel: ModuleType) -> None:
    call, _, _ = take(kernel, send())

    assert kernel.SendResults(UNKNOWN).receipts(3, 5, -1) == (b"", 0)
    assert call.close()
    assert call.receipts(3, 5, -1) == (b"", 0)


def test_without_deduplication_batches_are_numbered(kernel: ModuleType) -> None:
    binding = BINDING._replace(is_deduplicated=0, newest_sequence=-1)

    _, buffer, found = take(kernel, send(sequence_id=90) + send(sequence_id=2), binding)

    assert found[2] == 1
    assert [(item.base_sequence, item.after_sequence) for item in committed(buffer)[0]] == [(0, -1), (1, 0)]
    assert take(kernel, send(), binding._replace(newest_sequence=2**63 - 1))[2] == (0, False, 2**63 - 1)


def test_a_message_that_is_sent_again_does_not_lower_the_newest_sequence(kernel: ModuleType) -> None:
    _, buffer, found = take(kernel, send(sequence_id=5) + send(sequence_id=7))

    assert found[2] == 7
    assert [(item.base_sequence, item.after_sequence) for item in committed(buffer)[0]] == [(5, 6), (7, 6)]


def test_batches_of_a_producer_without_a_stored_name_name_none(kernel: ModuleType) -> None:
    _, buffer, found = take(kernel, send(), BINDING._replace(stored_id=-1, epoch=-1, newest_sequence=-1))

    assert found[2] == -1
    assert committed(buffer)[0][0][5:] == (-1, -1, -1, 0, -1, -1)


@pytest.mark.parametrize(
    "frame",
    [
        PING,
        send(producer_id=4),
        send(txnid_least_bits=1),
        send(is_chunk=True),
        send(message(compression=LZ4)),
        send(message(is_checked=False)),
        send(message(num_messages_in_batch=2)),
        send(message(publish_time=None)),
        send(message(b"v" * 500)),
        send()[:-1],
    ],
)
def test_sends_that_need_a_question_end_the_call(kernel: ModuleType, frame: bytes) -> None:
    first = send(sequence_id=9)

    call, buffer, found = take(kernel, first + frame + send(), payload_bytes_max=499)

    assert found == (len(first), False, 9)
    assert (len(call), buffer.count) == (1, 1)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"batch_bytes_max": BATCH_BYTES}, 1),
        ({"batch_bytes_max": BATCH_BYTES - 1}, 0),
        ({"earliest_ms": 0}, 1),
        ({"earliest_ms": ALL}, 0),
        ({"latest_ms": 0}, 0),
    ],
)
def test_batches_that_the_limits_of_the_stream_do_not_admit_end_the_call(
    kernel: ModuleType, change: dict[str, int], count: int
) -> None:
    call, buffer, (end, is_full, _) = take(kernel, send(), BINDING._replace(**change))

    assert (len(call), buffer.count, end > 0, is_full) == (count, count, count > 0, False)


def test_no_more_are_taken_than_asked_for(kernel: ModuleType) -> None:
    assert len(take(kernel, send() * 5, count_max=3)[0]) == 3
    call, buffer, found = take(kernel, send() * 5, count_max=0)
    assert (len(call), buffer.count, found) == (0, 0, (0, False, 6))


@pytest.mark.parametrize(
    ("size_max", "count_max", "count", "is_full"),
    [
        (2 * BATCH_BYTES, 9, 2, True),
        (2 * BATCH_BYTES + 4, 9, 2, True),
        (3 * BATCH_BYTES - 1, 9, 2, True),
        (1 << 20, 2, 2, True),
        (BATCH_BYTES - 1, 9, 0, False),
        (4, 9, 0, False),
    ],
)
def test_a_full_buffer_ends_the_call(
    kernel: ModuleType, size_max: int, count_max: int, count: int, is_full: bool
) -> None:
    buffer = kernel.WriteBuffer(size_max, count_max)

    call, _, found = take(kernel, send() * 3, buffer=buffer)

    assert found[:2] == (count * len(send()), is_full)
    assert len(call) == buffer.count == count


def test_nothing_of_the_receive_buffer_is_kept(kernel: ModuleType) -> None:
    memory = bytearray(send())

    call, buffer, _ = take(kernel, memory)
    memory[:] = bytes(len(memory))
    memory.append(0)  # raises BufferError while a view is held

    assert committed(buffer)[1] == [parse(kernel, send())[0][4]]
    assert len(call) == 1


def test_only_a_producers_first_batch_lowers_what_the_server_had_seen(kernel: ModuleType) -> None:
    for newest, seen in ((-1, 5), (6, 9)):
        buffer = kernel.WriteBuffer(1 << 20)
        buffer.seen = 9

        take(kernel, send(), BINDING._replace(newest_sequence=newest), buffer=buffer, seen=5)

        assert buffer.seen == seen


def test_a_wrong_argument_is_a_bug(kernel: ModuleType) -> None:
    call, buffer, _ = take(kernel, send())
    fresh = kernel.SendResults(UNKNOWN)
    rest = (0, BINDING, 9, BIG, BIG, 0)

    with pytest.raises(ValueError, match="the call has SENDs"):
        kernel.take_sends(buffer, call, b"", 0, *rest)
    with pytest.raises(ValueError, match="is not inside a buffer of 1 bytes"):
        take(kernel, b"x", end=2)
    with pytest.raises(ValueError, match="16 bytes"):
        take(kernel, send(), BINDING._replace(stream_id=b"x"))
    buffer.join(0, 0)
    with pytest.raises(ValueError, match="joined"):
        kernel.take_sends(buffer, fresh, b"", 0, *rest)
    with pytest.raises((ValueError, TypeError)):
        call.__init__(UNKNOWN)


def test_native_code_checks_the_types_of_its_arguments(native: ModuleType) -> None:
    buffer, call = native.WriteBuffer(9), native.SendResults(UNKNOWN)

    for wrong in (
        (7, call, b"", 0, 0, BINDING, 9, 9, 9, 0),
        (buffer, native.Results(1, UNKNOWN), b"", 0, 0, BINDING, 9, 9, 9, 0),
        (buffer, call, 7, 0, 0, BINDING, 9, 9, 9, 0),
        (buffer, call, b"", 0, 0, BINDING._replace(stream_id=7), 9, 9, 9, 0),
        (buffer, call, b"", 0, 0, BINDING._replace(epoch="x"), 9, 9, 9, 0),
        (buffer, call, b"", 0, 0, BINDING[:-1], 9, 9, 9, 0),
        (buffer, call, b"", 0, 0, BINDING, 9, 9, 9),
    ):
        with pytest.raises((TypeError, ValueError)):
            native.take_sends(*wrong)


def test_the_next_sender_is_named_if_its_frame_is_whole(kernel: ModuleType) -> None:
    frame = send(producer_id=NONE)

    assert kernel.next_sender(b"x" + frame + PING, 1, 1 + len(frame)) == NONE
    assert kernel.next_sender(send(b"damaged"), 0, len(send(b"damaged"))) == 3
    assert [kernel.next_sender(frame, 0, size) for size in range(len(frame))] == [None] * len(frame)
    assert kernel.next_sender(PING, 0, len(PING)) is None
    with pytest.raises(ValueError, match="is not inside a buffer of 4 bytes"):
        kernel.next_sender(b"abcd", 3, 5)


FRAMES = [send(), send(sequence_id=2**62), send(BATCH, highest_sequence_id=10), send(producer_id=4)]


@SETTINGS
@given(
    frames=st.lists(st.sampled_from(FRAMES), max_size=4).flatmap(lambda frames: damaged(b"".join(frames))),
    room=st.tuples(st.sampled_from([0, 100, 250, 500, BIG]), st.integers(1, 5)),
    change=st.fixed_dictionaries(
        {
            "batch_bytes_max": st.sampled_from([BIG, BATCH_BYTES]),
            "stored_id": st.sampled_from([-1, 50]),
            "newest_sequence": st.sampled_from([-1, 6, 2**62, 2**63 - 1]),
            "is_deduplicated": st.integers(0, 1),
        }
    ),
    count_max=st.integers(0, 4),
)
def test_both_kernels_take_the_same(
    native: ModuleType, frames: bytes, room: tuple[int, int], change: dict[str, int], count_max: int
) -> None:
    told = []
    for kernel in (native, fallback):
        buffer = kernel.WriteBuffer(*room)
        call, _, found = take(kernel, frames, BINDING._replace(**change), buffer=buffer, count_max=count_max)
        sender = kernel.next_sender(frames, 0, len(frames))
        content = committed(buffer)
        if buffer.count:
            buffer.resolve([(0, 5 + at, 0) for at in range(buffer.count)])
        told.append((found, sender, len(call), buffer.size, content, call.receipts(NONE, 2, 1)))

    assert told[0] == told[1]

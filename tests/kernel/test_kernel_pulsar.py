"""The stored form of Pulsar entries, byte for byte, and refused entries, in both kernels."""

from struct import Struct
from types import ModuleType

import pytest

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue, SingleMessageMetadata
from bearlake.records.codec import Record, encode
from fixtures.pulsar_entries import metadata, pack

NAMED = b"\x0a\x01p\x10\x07\x18\xe8\x07"
"""producer_name "p", sequence_id 7, publish_time 1000"""
BATCH = NAMED + b"\x58\x02"
"""… num_messages_in_batch 2"""
MESSAGES = bytes.fromhex("0000000f" "0a060a0161120162" "12016b" "1801" "4007" "76" "00000006" "1800" "4008" "4801")  # fmt: skip
"""property a = b, key k, sequence 7, value "v"; sequence 8, no value"""

RECORDS = bytes.fromhex(
    "50" "00" "00" "00" "02" "6b" "02" "76" "04" "0261" "0262"  # time 0, offset 0, k, v, two headers: a = b
    "1c" "5f5f70756c7361722e656e747279" "18" "01" "02" "0a01701007" "18e807" "5802"  # __pulsar.entry: version 1, flag 2
    "0c" "00" "00" "02" "01" "01" "00"
)  # fmt: skip
GOLDEN = (
    bytes(8) + bytes.fromhex("00000061" "ffffffff" "02" "65fca837" "0000" "00000001" "00000000000003e8" "00000000000003e8")
    + b"\xff" * 14 + bytes.fromhex("00000002") + RECORDS
)  # fmt: skip
FRAME = bytes.fromhex("0e01" "40eeb7e9" "0000000a") + BATCH + MESSAGES  # fmt: skip
COUNT = Struct(">i")


def test_a_batch_is_stored_as_it_always_was(kernel: ModuleType) -> None:
    assert kernel.encode_entry(BATCH, MESSAGES, False) == (GOLDEN, 2, 1000)


def test_a_stored_batch_is_the_frame_that_a_client_would_send(kernel: ModuleType) -> None:
    assert kernel.decode_entry(GOLDEN, None, 100, 1000) == (FRAME, 2, True)
    assert kernel.decode_entry(GOLDEN[:61], memoryview(RECORDS), 100, 1000) == (FRAME, 2, True)


def test_any_buffer_is_read(kernel: ModuleType) -> None:
    stored = kernel.encode_entry(bytearray(BATCH), memoryview(bytearray(MESSAGES)), False)

    assert stored == (GOLDEN, 2, 1000)
    assert kernel.decode_entry(memoryview(bytearray(GOLDEN)), None, 0, 1000) == (FRAME, 2, True)
    assert kernel.entry_routing(memoryview(bytearray(GOLDEN)), None) == (b"k", 0, b"", 0, 0)


def test_a_string_that_is_not_utf_8_survives_a_round_trip(kernel: ModuleType) -> None:
    messages = MESSAGES.replace(b"\x61", b"\xff").replace(b"k", b"\xfe")

    stored, _, _ = kernel.encode_entry(BATCH, messages, False)

    assert kernel.decode_entry(stored, None, 0, 1000)[0].endswith(messages)


@pytest.mark.parametrize(
    ("head", "payload", "words"),
    [
        (b"\x0a", b"", "the metadata of a Pulsar entry is malformed"),
        (NAMED + b"\x0b", b"", "the metadata of a Pulsar entry is malformed"),  # a group
        (NAMED + b"\x00\x01", b"", "the metadata of a Pulsar entry is malformed"),  # field 0
        (NAMED + b"\x20" + b"\xff" * 10, b"", "the metadata of a Pulsar entry is malformed"),  # more than 64 bits
        (NAMED[3:], b"", "lacks the producer's name"),
        (NAMED[:3] + NAMED[5:], b"", "lacks the producer's name, the sequence id"),
        (NAMED[:5], b"", "or the publish time"),
        (NAMED + b"\x58\x00", MESSAGES, "impossible count of messages"),
        (NAMED + b"\x58" + b"\xff" * 9 + b"\x01", MESSAGES, "impossible count of messages"),  # -1
        (NAMED + b"\x58\xff\xff\xff\xff\x07", MESSAGES, "2147483647 messages in a Pulsar batch of 30 bytes"),
        (NAMED + b"\x58\x03", MESSAGES, "message 2 of a Pulsar batch is malformed"),  # it is not there
        (NAMED + b"\x58\x01", MESSAGES, "message 1 of a Pulsar batch is malformed"),  # it is not counted
        (BATCH, MESSAGES[:-1], "message 1 of a Pulsar batch is malformed"),
        (BATCH, MESSAGES + b"x", "message 2 of a Pulsar batch is malformed"),
        (
            BATCH,
            b"\xff" + MESSAGES[1:],
            "message 0 of a Pulsar batch is malformed",
        ),  # its metadata ends after the payload
        (
            BATCH,
            MESSAGES.replace(b"\x18\x01", b"\x18\x7f"),
            "message 0 of a Pulsar batch is malformed",
        ),  # its payload does
        (
            BATCH,
            MESSAGES.replace(b"\x18\x00", b"\x20\x00"),
            "message 1 of a Pulsar batch is malformed",
        ),  # no payload size
        (BATCH, MESSAGES.replace(b"\x12\x01k", b"\x12\x7fk"), "message 0 of a Pulsar batch is malformed"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(
    kernel: ModuleType, head: bytes, payload: bytes, words: str
) -> None:
    with pytest.raises(Corrupt, match=words):
        kernel.encode_entry(head, payload, False)


def test_a_negative_payload_size_is_refused(kernel: ModuleType) -> None:
    single = b"\x18" + b"\xff" * 9 + b"\x01"
    payload = len(single).to_bytes(4, "big") + single

    with pytest.raises(Corrupt, match="message 0 of a Pulsar batch"):
        kernel.encode_entry(NAMED + b"\x58\x01", payload, False)


def test_an_enormous_entry_is_refused_before_it_is_read(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="an entry of 268435457 bytes"):
        kernel.encode_entry(b"\x0a", bytes(256 * 1024 * 1024), False)


@pytest.mark.parametrize(
    "change", [(61, b"\x01"), (57, b"\0\0\0\3"), (57, b"\xff\xff\xff\xff"), (57, b"\0\0\0\1"), (23, b"\0\0\0\0")]
)
def test_a_batch_whose_records_contradict_its_header_is_corrupt(kernel: ModuleType, change: tuple[int, bytes]) -> None:
    at, content = change
    batch = GOLDEN[:at] + content + GOLDEN[at + len(content) :]

    with pytest.raises(Corrupt, match=r"record \d of a batch is malformed"):
        kernel.decode_entry(batch, None, 0, 1000)


def test_a_batch_shorter_than_its_header_is_a_mistake(kernel: ModuleType) -> None:
    for function in (lambda: kernel.decode_entry(GOLDEN[:60], None, 0, 1000), lambda: kernel.entry_routing(b"", None)):
        with pytest.raises(ValueError, match="bytes are less than the header of a record batch"):
            function()


@pytest.mark.parametrize(
    "batch",
    [GOLDEN, encode([Record(value=b"v" * 40)]), encode([Record(value=bytes(9), headers=(("a", b"\xff" * 30),))])],
)
def test_an_entry_above_the_limit_is_too_large(kernel: ModuleType, batch: bytes) -> None:
    frame, _, _ = kernel.decode_entry(batch, None, 0, 1000)
    size = len(frame) - 10 - int.from_bytes(frame[6:10], "big")

    assert kernel.decode_entry(batch, None, 0, size)[0] == frame
    with pytest.raises(TooLarge, match=f"payload of a Pulsar entry has {size} bytes; the limit is {size - 1} bytes"):
        kernel.decode_entry(batch, None, 0, size - 1)


def test_a_single_message_may_not_be_larger_than_allowed(kernel: ModuleType) -> None:
    batch, _, _ = kernel.encode_entry(NAMED, b"value", False)

    assert kernel.decode_entry(batch, None, 0, 5)[1:] == (1, False)
    with pytest.raises(TooLarge):
        kernel.decode_entry(batch, None, 0, 4)


def test_offsets_without_records_cost_no_memory_beyond_the_limit(kernel: ModuleType) -> None:
    batch = bytearray(encode([Record(value=b"v")]))
    COUNT.pack_into(batch, 23, 2**31 - 1)

    with pytest.raises(TooLarge):
        kernel.decode_entry(batch, None, 0, 10**6)


@pytest.mark.parametrize("attributes", [0x20, 0x30])
def test_a_control_batch_has_no_messages(kernel: ModuleType, attributes: int) -> None:
    batch = bytearray(GOLDEN)
    batch[22] = attributes

    assert kernel.decode_entry(batch, None, 0, 1000) == (b"", 0, False)
    assert kernel.entry_routing(batch, None) == (b"", 0, b"", 0, 0)


def test_times_of_the_server_are_not_event_times(kernel: ModuleType) -> None:
    single = SingleMessageMetadata(event_time=5)
    head = metadata(num_messages_in_batch=1).SerializeToString()
    batch = bytearray(kernel.encode_entry(head, pack([(single, b"")]), False)[0])
    told = kernel.decode_entry(batch, None, 0, 1000)[0]
    batch[22] = 0x08

    untold = kernel.decode_entry(batch, None, 0, 1000)[0]

    assert told.endswith(b"\0\0\0\4\x18\0\x28\5")
    assert untold.endswith(b"\0\0\0\2\x18\0")


def entry_header(content: bytes) -> bytes:
    return encode([Record(value=b"v", headers=(("__pulsar.entry", content),))])


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        (b"\1\0" + NAMED, True),
        (b"\1\0" + NAMED + b"\x58\x01", True),
        (b"\1\0" + BATCH, False),  # of two messages
        (b"\1\1" + BATCH, True),  # which does not matter in an opaque entry
        (b"\2\0" + NAMED, False),  # another version
        (b"\1\x08" + NAMED, False),  # another flag
        (b"\1\0" + NAMED[:-1], False),
        (b"\1\0" + NAMED[3:], False),
        (b"\1\1" + NAMED + b"\x58\x00", False),
        (b"\1", False),
        (b"", False),
    ],
)
def test_an_entry_header_is_believed_if_it_is_right(kernel: ModuleType, content: bytes, is_ours: bool) -> None:
    frame, _, _ = kernel.decode_entry(entry_header(content), None, 0, 1000)

    assert (b"\x0a\x01p" in frame[10:]) == is_ours


def test_a_batch_with_a_wrong_message_header_is_treated_as_another_clients(kernel: ModuleType) -> None:
    entry = ("__pulsar.entry", b"\1\0" + BATCH)
    right, wrong = (
        encode([Record(headers=(entry,)), Record(headers=(("__pulsar.message", content),))])
        for content in (b"\x3a\x01o", b"\x3a\x02o")
    )

    assert kernel.decode_entry(right, None, 0, 1000)[0][10:].startswith(NAMED)
    assert not kernel.decode_entry(wrong, None, 0, 1000)[0][10:].startswith(NAMED)


def test_fields_of_a_header_cannot_lie_about_sizes(kernel: ModuleType) -> None:
    headers = (("__pulsar.message", b"\x18\x7f"), ("__pulsar.entry", b"\1\0" + NAMED + b"\x58\x01"))

    frame, _, _ = kernel.decode_entry(encode([Record(value=b"v", headers=headers)]), None, 0, 1000)

    assert frame.endswith(b"\0\0\0\4\x18\x7f\x18\1v")


def test_properties_that_are_not_headers_stay_whole(kernel: ModuleType) -> None:
    single = SingleMessageMetadata(properties=[KeyValue(key="a", value="b"), KeyValue(key="__pulsar.x", value="c")])
    payload = pack([(single, b"v")])

    batch, _, _ = kernel.encode_entry(NAMED + b"\x58\x01", payload, False)

    assert b"\x04\x02a\x02b" not in batch
    assert kernel.decode_entry(batch, None, 0, 1000)[0].endswith(payload)

"""MESSAGE commands for consumers: which entries are sent, where a call ends, and that both kernels agree on every input.

Source: Pulsar binary protocol specification.
"""

from collections.abc import Sequence
from struct import Struct
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.errors import BearlakeError
from bearlake.kernel import fallback
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand, CommandMessage, MessageIdData
from bearlake.protocols.pulsar.proto.metadata_pb2 import SingleMessageMetadata
from bearlake.records.batch import HEADER_BYTES
from bearlake.records.codec import Record, encode
from fixtures.pulsar_entries import damaged, metadata, pack

BIG = 10**6
UINT64_MAX = 2**64 - 1
SIZES = Struct(">II")
SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ALONE = fallback.encode_entry(metadata().SerializeToString(), b"alone", False)[0]
SINGLES = [(SingleMessageMetadata(sequence_id=7 + place), b"v" * place) for place in range(3)]
BATCH = fallback.encode_entry(metadata(num_messages_in_batch=3).SerializeToString(), pack(SINGLES), False)[0]
FOREIGN = encode([Record(key=b"k", value=b"by Kafka"), Record(value=b"too")])
EMPTY = FOREIGN[:57] + bytes(4)
COMPRESSED = FOREIGN[:22] + b"\x04" + FOREIGN[23:]
DAMAGED = FOREIGN[: HEADER_BYTES + 3]

Row = tuple[int, int, memoryview, int, Sequence[tuple[int, int]]]


def delivery(batch: bytes, base_offset: int = 100, redelivery_count: int = 0, acknowledged: Any = ()) -> Row:
    return base_offset, 1, memoryview(batch), redelivery_count, acknowledged


def messages(
    kernel: ModuleType, rows: Sequence[Row], *, start: int = 0, names: Any = (1, 5, -1, None), limits: Any = (BIG, BIG)
) -> tuple[list[tuple[CommandMessage, bytes]], int, int]:
    """The commands, each followed by its entry; the number of messages; the end offset."""
    octets, count, end = kernel.encode_messages(rows, start, *names, *limits)
    found, at = [], 0
    while at < len(octets):
        total, size = SIZES.unpack_from(octets, at)
        body = at + SIZES.size + size
        command = BaseCommand.FromString(octets[at + SIZES.size : body])
        assert command.type == 9
        at += 4 + total
        found.append((command.message, octets[body:at]))
    return found, count, end


def entry(batch: bytes, base_offset: int) -> bytes:
    return fallback.decode_entry(batch, None, base_offset, BIG)[0]


def test_each_delivery_becomes_a_message_with_its_entry(kernel: ModuleType) -> None:
    rows = [delivery(ALONE, 100), delivery(BATCH, 101, 2), delivery(FOREIGN, 2**62)]

    found, count, end = messages(kernel, rows, names=(UINT64_MAX, 5, 3, None))

    assert (count, end) == (1 + 3 + 2, 3)
    assert found == [
        (
            CommandMessage(
                consumer_id=UINT64_MAX,
                message_id=MessageIdData(ledger_id=5, entry_id=base, partition=3),
                redelivery_count=again,
            ),
            entry(batch, base),
        )
        for base, again, batch in ((100, None, ALONE), (101, 2, BATCH), (2**62, None, FOREIGN))
    ]


def test_a_consumers_epoch_and_a_missing_partition_are_encoded(kernel: ModuleType) -> None:
    ((command, _),), _, _ = messages(kernel, [delivery(ALONE)], names=(1, 5, -1, 9))

    assert command.consumer_epoch == 9
    assert command.message_id.partition == -1


@pytest.mark.parametrize(
    "row",
    [
        delivery(BATCH, acknowledged=((101, 102),)),
        delivery(COMPRESSED),
        delivery(EMPTY),
        delivery(DAMAGED),
        delivery(ALONE[:-1]),
    ],
)
def test_uncommon_messages_are_left_to_the_general_path(kernel: ModuleType, row: Row) -> None:
    found, count, end = messages(kernel, [delivery(ALONE), row, delivery(ALONE)])

    assert (len(found), count, end) == (1, 1, 1)
    assert messages(kernel, [delivery(ALONE), row, delivery(ALONE)], start=1) == ([], 0, 1)
    assert messages(kernel, [delivery(ALONE), row, delivery(ALONE)], start=2)[2] == 3


@pytest.mark.parametrize(("spare", "count"), [(0, 1), (-1, 0)])
def test_an_entry_over_the_limit_is_left_to_the_general_path(kernel: ModuleType, spare: int, count: int) -> None:
    size = len(entry(BATCH, 100))

    assert messages(kernel, [delivery(BATCH)], limits=(size + spare, BIG))[2] == count


def test_messages_end_after_the_entry_that_reaches_the_limit(kernel: ModuleType) -> None:
    rows = [delivery(ALONE)] * 5
    (first,) = messages(kernel, rows[:1])[0]
    size = len(kernel.encode_messages(rows[:1], 0, 1, 5, -1, None, BIG, BIG)[0])

    assert messages(kernel, rows, limits=(BIG, 2 * size))[0] == [first, first]
    assert messages(kernel, rows, limits=(BIG, 2 * size + 1))[2] == 3
    assert messages(kernel, rows, limits=(BIG, 0)) == ([], 0, 0)


def test_a_place_out_of_range_is_a_bug(kernel: ModuleType) -> None:
    for start in (-1, 2):
        with pytest.raises(ValueError, match="an index into the deliveries"):
            kernel.encode_messages([delivery(ALONE)], start, 1, 5, -1, None, BIG, BIG)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_shorter_than_a_header_is_a_bug(kernel: ModuleType, codec: int) -> None:
    batch = bytearray(60)
    batch[22] = codec

    with pytest.raises(ValueError, match="header of a record batch"):
        kernel.encode_messages([(0, 1, memoryview(batch), 0, ())], 0, 1, 5, -1, None, BIG, BIG)


UINT64 = st.integers(0, UINT64_MAX)
BATCHES = st.sampled_from([ALONE, BATCH, FOREIGN, EMPTY, COMPRESSED]).flatmap(
    lambda batch: st.one_of(st.just(batch), damaged(batch[HEADER_BYTES:]).map(lambda records: batch[:61] + records))
)
ROWS = st.builds(
    delivery, BATCHES, st.integers(0, 2**62), st.integers(0, 2**31), st.sampled_from([(), (), ((100, 101),)])
)


@SETTINGS
@given(
    rows=st.lists(ROWS, max_size=4),
    names=st.tuples(UINT64, UINT64, st.integers(-1, 2**31), st.none() | UINT64),
    limits=st.tuples(st.sampled_from([BIG, 60, 100]), st.integers(0, 500)),
)
def test_both_kernels_give_the_same_result(native: ModuleType, rows: list[Row], names: Any, limits: Any) -> None:
    assert outcome(native, rows, *names, *limits) == outcome(fallback, rows, *names, *limits)


def outcome(kernel: Any, rows: list[Row], *arguments: Any) -> Any:
    try:
        return kernel.encode_messages(rows, 0, *arguments)
    except (BearlakeError, ValueError) as error:
        return type(error), str(error)

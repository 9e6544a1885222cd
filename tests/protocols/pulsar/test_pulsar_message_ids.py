"""Message ids: offsets by another name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata.model import partition_key
from bearlake.protocols.pulsar import message_ids
from bearlake.protocols.pulsar.proto.commands_pb2 import MessageIdData
from bearlake.streams.subscriptions.model import EARLIEST, LATEST

PARTITION = partition_key(7, 3)
LAST = 2**64 - 1


@pytest.mark.parametrize(
    ("ledger", "entry", "fields", "offset"),
    [
        (LAST, LAST, {}, EARLIEST),
        (2**63 - 1, 2**63 - 1, {}, LATEST),
        (7, 100, {}, 100),
        (7, 100, {"batch_index": -1}, 100),
        (7, 100, {"batch_index": 5}, 105),
        (7, LAST, {}, EARLIEST),
        (6, 100, {}, EARLIEST),
        (8, 100, {}, LATEST),
        (7, 100, {"ack_set": [1016]}, 103),
        (7, 100, {"ack_set": [0, 1]}, 164),
    ],
)
def test_a_start_message_id_becomes_an_offset(ledger: int, entry: int, fields: dict[str, object], offset: int) -> None:
    message = MessageIdData(ledger_id=ledger, entry_id=entry, **fields)  # type: ignore[arg-type]

    assert message_ids.start_offset(message, PARTITION) == offset


def test_a_client_that_skips_messages_of_a_batch_itself_gets_the_whole_entry() -> None:
    message = MessageIdData(ledger_id=7, entry_id=100, batch_index=5)

    assert message_ids.start_offset(message, PARTITION, is_whole=True) == 100


def test_an_entry_is_named_by_incarnation_and_offset() -> None:
    plain = message_ids.entry_id(PARTITION, 42, is_partitioned=False)
    part = message_ids.entry_id(PARTITION, 42, is_partitioned=True)

    assert (plain.ledger_id, plain.entry_id, plain.partition) == (7, 42, -1)
    assert part.partition == 3


def test_ack_sets_equal_pulsars() -> None:
    # Measured: of 100 messages the first is acknowledged.
    assert message_ids.words(100, [(500, 501)], 500) == [-2, 68719476735]
    assert message_ids.bits([-2, 68719476735]) == (1 << 100) - 2
    assert message_ids.words(100, [], 500) == []


@given(
    count=st.integers(1, 300),
    cuts=st.sets(st.integers(0, 300), max_size=20).map(sorted),
    base=st.integers(0, 2**40),
)
def test_ack_sets_name_the_unacknowledged_messages(count: int, cuts: list[int], base: int) -> None:
    cuts = [cut for cut in cuts if cut <= count]
    ranges = [(base + start, base + end) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    acknowledged = {offset - base for start, end in ranges for offset in range(start, end)}

    words = message_ids.words(count, ranges, base)
    number = message_ids.bits(words)

    assert all(-(2**63) <= word < 2**63 for word in words)
    if ranges:
        assert {place for place in range(count) if number >> place & 1} == set(range(count)) - acknowledged
        assert number < 1 << count

"""The stored forms of consumer groups and share groups, byte for byte: servers of the version before read them, too."""

from pathlib import Path

import pytest

from bearlake.errors import Corrupt
from bearlake.metadata.model import PARTITION_BITS, PARTITION_COUNT_MAX, PartitionKey
from bearlake.streams.groups.consumer import snapshot as consumer_snapshot
from bearlake.streams.groups.consumer.model import ClassicMember, ConsumerGroup, ConsumerMember, MemberState, Topic
from bearlake.streams.groups.share import snapshot as share_snapshot
from bearlake.streams.groups.share.model import ShareGroup

FIRST = 7 << PARTITION_BITS
TOPICS = {"orders": Topic(7, 3, FIRST)}
KEYS = [PartitionKey(FIRST + index) for index in range(3)]

GOLDEN = Path(__file__).with_name("golden")
CONSUMER = (GOLDEN / "consumer-group.json").read_bytes().rstrip()
SHARE = (GOLDEN / "share-group.json").read_bytes().rstrip()


def consumer_group() -> ConsumerGroup:
    group = ConsumerGroup(name="g", epoch=5, assignment_epoch=4, assignor="uniform", topics=TOPICS)
    group.add(
        ConsumerMember(
            member_id="m1",
            instance_id="i1",
            rack_id="r",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=300_000,
            pattern="ord.*",
            matches=frozenset({"orders"}),
            assignor="range",
            epoch=4,
            previous_epoch=3,
            state=MemberState.UNREVOKED,
            assigned={KEYS[0]: 4},
            revoking={KEYS[1]: 2},
        )
    )
    classic = ClassicMember(session_timeout_ms=45_000, protocols=(("range", b"\0\1"),))
    group.add(ConsumerMember(member_id="m2", topics=("orders",), classic=classic, epoch=4))
    group.target = {"m1": frozenset(KEYS[:1]), "m2": frozenset(KEYS[1:])}
    return group


def share_group() -> ShareGroup:
    group = ShareGroup(name="g", epoch=5, assignment_epoch=5, assignor="simple", topics=TOPICS, known={9: 1, 7: 3})
    group.add(
        ConsumerMember(
            member_id="m1",
            rack_id="r",
            client_id="c",
            client_host="/h",
            topics=("orders",),
            epoch=5,
            previous_epoch=4,
            assigned={KEYS[0]: 5, KEYS[2]: 4},
        )
    )
    group.add(ConsumerMember(member_id="m2", topics=("none",), epoch=5))
    group.target = {"m1": frozenset({KEYS[0], KEYS[2]})}
    return group


def test_a_consumer_group_has_its_stored_form() -> None:
    assert consumer_snapshot.encode(consumer_group()) == CONSUMER
    assert consumer_snapshot.encode(consumer_snapshot.decode("g", CONSUMER)) == CONSUMER


def test_a_share_group_has_its_stored_form() -> None:
    assert share_snapshot.encode(share_group()) == SHARE
    assert share_snapshot.encode(share_snapshot.decode("g", SHARE)) == SHARE


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[]",
        b'{"version": 9}',
        CONSUMER[:-2],
        CONSUMER.replace(b'"target"', b'"aim"'),
        CONSUMER.replace(b"[7, 3]", b"7"),
    ],
)
def test_a_damaged_snapshot_of_a_consumer_group_is_refused(damaged: bytes) -> None:
    with pytest.raises(Corrupt, match="snapshot of group 'g'"):
        consumer_snapshot.decode("g", damaged)


def test_a_share_group_of_an_older_server_knows_of_no_partitions_that_were_added() -> None:
    older = SHARE.replace(b'"known_partitions": [3, 1], ', b"")

    assert share_snapshot.decode("g", older).known == {7: PARTITION_COUNT_MAX, 9: PARTITION_COUNT_MAX}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b'{"version": 2}',
        SHARE.replace(b"[3, 1]", b"[3]"),
        SHARE[:-2],
        SHARE.replace(b'"known"', b'"new"'),
        SHARE.replace(b'"id"', b'"name"'),
    ],
)
def test_a_damaged_snapshot_of_a_share_group_is_refused(damaged: bytes) -> None:
    with pytest.raises(Corrupt, match="snapshot of group 'g'"):
        share_snapshot.decode("g", damaged)

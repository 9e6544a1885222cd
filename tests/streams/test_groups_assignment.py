"""Subscriptions and assignments of Kafka's consumer groups."""

import pytest

from bearlake.errors import Corrupt
from bearlake.streams.groups import assignment


def test_subscriptions_and_assignments_survive_the_wire() -> None:
    partitions = {"one": [0, 2], "zwei-ü": []}

    assert assignment.decode_subscription(assignment.encode_subscription(["one", "ü"])) == ["one", "ü"]
    assert assignment.decode_assignment(assignment.encode_assignment(partitions)) == partitions
    assert assignment.decode_assignment(b"") == {}


def test_the_subscription_has_the_bytes_of_kafka() -> None:
    assert assignment.encode_subscription(["ab"]) == bytes.fromhex("0000 00000001 0002 6162 ffffffff")
    assert assignment.encode_assignment({"ab": [7]}) == bytes.fromhex(
        "0000 00000001 0002 6162 00000001 00000007 ffffffff"
    )


@pytest.mark.parametrize("bad", [b"\x00", bytes(4), bytes.fromhex("0000 00000009 0002 6162")])
def test_damaged_bytes_are_refused(bad: bytes) -> None:
    with pytest.raises(Corrupt):
        assignment.decode_subscription(bad)
    with pytest.raises(Corrupt):
        assignment.decode_assignment(bad)


def test_range_divides_each_stream_by_itself() -> None:
    members = {"b": ["one", "two"], "a": ["one", "two"], "c": ["two"]}

    assert assignment.assign(assignment.RANGE, members, {"one": 3, "two": 4}) == {
        "a": {"one": [0, 1], "two": [0, 1]},
        "b": {"one": [2], "two": [2]},
        "c": {"two": [3]},
    }


def test_round_robin_distributes_all_partitions_over_subscribed_members() -> None:
    members = {"a": ["one", "two"], "b": ["two"], "c": ["none"]}

    assert assignment.assign(assignment.ROUND_ROBIN, members, {"one": 2, "two": 3, "three": 1}) == {
        "a": {"one": [0, 1], "two": [1]},
        "b": {"two": [0, 2]},
        "c": {},
    }

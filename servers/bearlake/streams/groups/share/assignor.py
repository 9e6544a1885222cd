"""The assignor of share groups: every subscribed partition has a member, and every member a partition of each of its topics.

With more members than partitions, members share partitions evenly; with more partitions than members, members have several. The members
that get one more than others differ from topic to topic.

Source: KIP-932, the simple assignor. What it returns depends on its arguments alone.
"""

from collections.abc import Iterable, Mapping

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer.model import ConsumerMember, Topic


def assign(members: Iterable[ConsumerMember], topics: Mapping[str, Topic]) -> dict[str, frozenset[PartitionKey]]:
    """Return the partitions of each member by its id."""
    target: dict[str, set[PartitionKey]] = {member.member_id: set() for member in members}
    subscribers: dict[int, list[str]] = {}
    for member in sorted(members, key=_by_id):
        for number in member.streams:
            subscribers.setdefault(number, []).append(member.member_id)
    first = 0
    for topic in sorted(topics.values()):
        ids = subscribers.get(topic.number, [])
        keys = topic.partitions()
        for index in range(max(len(ids), len(keys)) if ids and keys else 0):
            target[ids[(first + index) % len(ids)]].add(PartitionKey(keys[index % len(keys)]))
        first += len(keys)
    return {member_id: frozenset(found) for member_id, found in target.items()}


def _by_id(member: ConsumerMember) -> str:
    return member.member_id

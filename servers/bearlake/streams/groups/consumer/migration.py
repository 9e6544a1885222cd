"""Turns a classic group into a consumer group and back, with its members (KIP-848, online migration).

The epoch of a consumer group continues the generation of the classic group, and the other way round: a member's stale generation never
becomes valid again. Members of the classic protocol keep their ids and what they have; they learn by their next heartbeat that they must
join again.
"""

from collections.abc import Callable

from bearlake.metadata.model import PARTITION_BITS, PartitionKey
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer import embedded, view
from bearlake.streams.groups.consumer.model import ClassicMember, ConsumerGroup, ConsumerMember, Topic
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.model import Group, GroupState, Member


def to_consumer(group: Group, topics: Topics) -> ConsumerGroup:
    """Return a classic group as a consumer group whose members all use the classic protocol. Raises `Corrupt`."""
    found = ConsumerGroup(name=group.name, epoch=group.generation, assignment_epoch=group.generation)
    find = _finder(found, topics)
    for member in group.members.values():
        converted = _member(member, group.generation, find, found)
        found.add(converted)
        found.target[converted.member_id] = frozenset(converted.assigned)
    return found


def _finder(group: ConsumerGroup, topics: Topics) -> Callable[[str], Topic | None]:
    known: dict[str, Topic] = {}
    group.topics = known

    def find(name: str) -> Topic | None:
        stream = topics.peek(name)
        if stream is None:
            return None
        return known.setdefault(
            name, Topic(stream.first_key >> PARTITION_BITS, stream.partition_count, stream.first_key)
        )

    return find


def _member(
    member: Member, generation: int, find: Callable[[str], Topic | None], group: ConsumerGroup
) -> ConsumerMember:
    subscribed = embedded.decode(member.protocols).topics
    assigned: dict[PartitionKey, int] = {}
    for name, indexes in assignment.decode_assignment(member.assignment).items():
        topic = find(name)
        for index in indexes:
            if topic is not None and 0 <= index < topic.partition_count:
                key = PartitionKey(topic.first_key | index)
                if key not in group.owners:
                    assigned[key] = generation
    for name in subscribed:
        find(name)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscribed))),
        classic=ClassicMember(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=assigned,
    )


def to_classic(group: ConsumerGroup, session_timeout_ms: int, except_id: str | None = None) -> Group:
    """Return a consumer group whose members all use the classic protocol, without `except_id`, as a stable classic group."""
    names = {topic.number: name for name, topic in group.topics.items()}
    members = [member for member in group.members.values() if member.member_id != except_id]
    found = Group(name=group.name, generation=group.epoch)
    for member in members:
        assert member.classic is not None, "only members of the classic protocol are in a classic group"
        found.members[member.member_id] = view.as_classic(member, "", session_timeout_ms, names.get)
        if member.instance_id is not None:
            found.static[member.instance_id] = member.member_id
    if found.members:
        found.protocol_type = group.protocol_type
        found.state = GroupState.STABLE
        found.leader = next(iter(found.members))
        found.protocol_name = found.elect_protocol()
    return found

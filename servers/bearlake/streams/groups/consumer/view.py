"""A consumer group as those see it who know only classic groups: REST, deletion of offsets, servers that ask about it.

Subscriptions and assignments are encoded as the members of a classic group encode them.
"""

from collections.abc import Callable, Iterable

from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.streams.groups import assignment
from bearlake.streams.groups.consumer.model import ConsumerGroup, ConsumerMember
from bearlake.streams.groups.model import Group, Member, Protocols

NameOf = Callable[[int], str | None]
"""Returns the name of a stream by its number, None if it does not exist."""


def classic_view(group: ConsumerGroup, session_timeout_ms: int) -> Group:
    """Return the group with all its members; `session_timeout_ms` is that of members of the consumer protocol."""
    names = {topic.number: name for name, topic in group.topics.items()}
    members = {
        member.member_id: as_classic(member, group.assignor, session_timeout_ms, names.get)
        for member in group.members.values()
    }
    return Group(
        name=group.name,
        kind=group.kind,
        state=group.state,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        protocol_name=group.assignor,
        members=members,
        static=dict(group.static),
    )


def as_classic(member: ConsumerMember, protocol: str, session_timeout_ms: int, name_of: NameOf) -> Member:
    """Return the member as one of a classic group: with its protocols if it uses the classic protocol, else with `protocol`."""
    protocols: Protocols = ((protocol, assignment.encode_subscription(sorted(member.subscribed()))),)
    if member.classic is not None:
        protocols, session_timeout_ms = member.classic.protocols, member.classic.session_timeout_ms
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=protocols,
        assignment=assignment.encode_assignment(by_name(member.assigned, name_of)),
    )


def by_name(keys: Iterable[PartitionKey], name_of: NameOf) -> dict[str, list[int]]:
    """Return partition indexes by stream name; leaves deleted streams out."""
    found: dict[str, list[int]] = {}
    for key in sorted(keys):
        name = name_of(stream_number(key))
        if name is not None:
            found.setdefault(name, []).append(partition_index(key))
    return found

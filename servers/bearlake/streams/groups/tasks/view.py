"""A streams group as those see it who know only classic groups: REST, deletion of offsets, servers that ask about it.

Each member subscribes to the topics that the topology reads, and has the partitions of its active tasks.
"""

from bearlake.streams.groups import assignment
from bearlake.streams.groups.model import Group, Member
from bearlake.streams.groups.tasks.endpoints import partitions_of
from bearlake.streams.groups.tasks.model import StreamsGroup

ASSIGNOR = "sticky"


def classic_view(group: StreamsGroup, session_timeout_ms: int) -> Group:
    """Return the group with all its members."""
    subtopologies = () if group.topology is None else group.topology.subtopologies
    topics = sorted({name for subtopology in subtopologies for name in subtopology.inputs()})
    protocols = ((ASSIGNOR, assignment.encode_subscription(topics)),)
    members = {
        member.member_id: Member(
            member_id=member.member_id,
            instance_id=None,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=protocols,
            assignment=assignment.encode_assignment(partitions_of(group, member.active)),
        )
        for member in group.members.values()
    }
    return Group(
        name=group.name,
        kind=group.kind,
        state=group.state,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        protocol_name=ASSIGNOR,
        members=members,
    )

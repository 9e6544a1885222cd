"""Topics that a consumer group subscribes to; the only place where the coordinator parses members' metadata."""

from bearlake.errors import Corrupt
from bearlake.streams.groups import assignment
from bearlake.streams.groups.model import Group


def topics(group: Group) -> set[str]:
    """Return the topics in the subscriptions of all members; ignores metadata in other formats."""
    found: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            try:
                found.update(assignment.decode_subscription(metadata))
            except Corrupt:
                continue
    return found

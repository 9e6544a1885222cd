"""Which topics a consumer group is subscribed to: the only look that the coordinator takes into members' metadata."""

from bearlake.errors import Corrupt
from bearlake.streams.groups import assignment
from bearlake.streams.groups.model import Group


def topics(group: Group) -> set[str]:
    """Topics in the subscriptions of all members; metadata of another shape says nothing."""
    found: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            try:
                found.update(assignment.decode_subscription(metadata))
            except Corrupt:
                continue
    return found

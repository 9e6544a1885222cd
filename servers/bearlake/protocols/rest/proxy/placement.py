"""Assigns consumer instances to servers. Servers agree without communication, as long as they see the same members.

A generated name contains the node id of its server, so that the instance stays where the client connected first. A name chosen by a
client belongs to one server by rendezvous hashing (`serving/routing.py`), so that two clients with the same name reach one server.
"""

import re
import uuid
from collections.abc import Sequence

from bearlake.metadata.model import Server
from bearlake.serving import routing

Key = tuple[str, str]
"""Group and name of an instance. They place it; the principal that created it owns it."""

_MADE = re.compile(r"rest-consumer-([0-9]{1,10})-[0-9a-f-]{36}")


def new_name(node_id: int) -> str:
    """Generate a name for an instance on server `node_id`."""
    return f"rest-consumer-{node_id}-{uuid.uuid4()}"


def order(key: Key, servers: Sequence[Server]) -> list[Server]:
    """Return all `servers` in order of preference for the instance."""
    group, name = key
    made = _MADE.fullmatch(name)
    home = int(made[1]) if made else None
    number = routing.key_of(f"{group}/{name}")

    def rank(server: Server) -> tuple[bool, int, int]:
        node_id = server.ref.node_id
        return node_id == home, routing.weight(number, node_id), node_id

    return sorted(servers, key=rank, reverse=True)

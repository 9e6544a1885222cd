"""Which server shall have a consumer instance: all servers agree without talking, as long as they see the same members.

A name that a server makes up has its node id in it, so that the instance stays where its client came first. A name that a client chose
belongs to one server by rendezvous hashing (`serving/routing.py`), so that two clients that choose the same one meet there.
"""

import re
import uuid
from collections.abc import Sequence

from bearlake.metadata.model import Server
from bearlake.serving import routing

Key = tuple[str, str]
"""Group and name of an instance."""

_MADE = re.compile(r"rest-consumer-([0-9]{1,10})-[0-9a-f-]{36}")


def new_name(node_id: int) -> str:
    """A name for an instance without one, which shall live in the server `node_id`."""
    return f"rest-consumer-{node_id}-{uuid.uuid4()}"


def order(key: Key, servers: Sequence[Server]) -> list[Server]:
    """All `servers`, whose turn it is to have the instance first."""
    group, name = key
    made = _MADE.fullmatch(name)
    home = int(made[1]) if made else None
    number = routing.key_of(f"{group}/{name}")

    def rank(server: Server) -> tuple[bool, int, int]:
        node_id = server.ref.node_id
        return node_id == home, routing.weight(number, node_id), node_id

    return sorted(servers, key=rank, reverse=True)

"""Which server clients use for a key: rendezvous hashing, so that servers agree without communication.

Every server accepts every partition, so routing only affects locality. Readers of a partition that share one server share its cache, and
when a server joins or dies, only the keys that it gets or had move.

Source: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998; the mixer is SplitMix64 (Steele et al., 2014).
"""

import hashlib
from collections.abc import Sequence

from bearlake.metadata.model import Server

_MASK = (1 << 64) - 1


def candidates(servers: Sequence[Server], endpoint: str, zone: str | None = None) -> list[Server]:
    """Return servers that a client may be sent to, by node id: they have `endpoint` (`kafka`, `kafka:EXTERNAL`) and are not draining.

    With a `zone`, only servers in that zone, if there are any. If all servers are draining, return these: better late than nowhere.
    """
    reachable = sorted((server for server in servers if endpoint in server.endpoints), key=lambda s: s.ref.node_id)
    staying = [server for server in reachable if not server.is_draining] or reachable
    near = [server for server in staying if server.zone == zone] if zone is not None else []
    return near or staying


def choose(key: int, servers: Sequence[Server]) -> Server:
    """Return the server for `key` (0 <= key < 2**63) among `servers` (at least one), in any order."""
    assert servers
    if len(servers) == 1:
        return servers[0]
    return max(servers, key=lambda server: (weight(key, server.ref.node_id), server.ref.node_id))


def key_of(name: str) -> int:
    """Return a key for a name, such as a group's."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


def weight(key: int, node_id: int) -> int:
    """Return the weight of `node_id` for `key`: 64 evenly distributed bits, the same in every process."""
    mixed = (key * 0x9E3779B97F4A7C15 + (node_id + 1) * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)

"""Code that all servers share: the life cycle of a service, membership, routing, the admin API.

A protocol server is a `Service`. `bearlake.app` builds it from bound `Listener`s (`serving/listener.py`), starts it, watches it and
stops it. The order is always: bind → register → start → (serve) → drain → close. So the server's address is known and its
port is taken before the server is announced.
"""

from collections.abc import Mapping
from typing import Protocol


class Service(Protocol):
    """One protocol server inside a process."""

    @property
    def name(self) -> str:
        """Short name: the key in the ready file and the prefix of its endpoints (`kafka`)."""

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener (`kafka`, `kafka:EXTERNAL`); complete before `start`, with real ports."""

    async def start(self) -> None:
        """Accept connections when this returns.

        Raises:
            Unavailable: cannot listen on an address.
        """

    async def drain(self, deadline_ms: int) -> None:
        """Finish requests in progress, accept nothing new, and return within `deadline_ms` (from now) in any case.

        Peers and clients know of the drain by then, but requests may still arrive.
        """

    async def close(self) -> None:
        """Close listeners and connections at once; safe to repeat and without `start`."""

"""Detection of stopped servers: an observer watches their heartbeat counts on its own clock (I13). No I/O.

    reads        |--0--|      |--1--|      |--2--|      |--3--|          count 7 in each of them
    stood still        |<--------------------------------->|             from the end of the first to the start of the last

If a count has not changed for the server's own `timeout_ms`, it is reported, to be declared in the store (`Membership.lapse`). An observer
that has not read for a while (it was suspended, or the store did not answer) starts over: the same fault may have
kept the other servers from sending heartbeats. Safety does not depend on this: after a wrong report, a live server only looks up its
leases again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.metadata.model import Server, ServerRef


@dataclass(slots=True)
class _Sighting:
    heartbeat_count: int
    seen_ms: float
    """End of the first read that showed this count."""
    moved_ms: float
    """The same, but not reset after a pause; for display."""


class Watcher:
    """One observer's view. Times are milliseconds on its monotonic clock."""

    def __init__(self, own: ServerRef, interval_ms: float) -> None:
        """`own` is not watched. The observer reads once per `interval_ms`.

        It starts over for a server if a gap between reads exceeds two intervals and half of the server's timeout.
        """
        self._own = own
        self._interval_ms = interval_ms
        self._sightings: dict[ServerRef, _Sighting] = {}
        self._read_ms = float("-inf")
        """Start of the last read."""

    def saw(self, started_ms: float, ended_ms: float, servers: Sequence[Server]) -> list[Server]:
        """Process one read of the live servers, with its start and end; returns those whose heartbeats have stopped.

        A read must begin after the previous read has ended. Reported servers are reported again by later reads, until they are gone.
        """
        gap_ms, self._read_ms = ended_ms - self._read_ms, started_ms
        before, self._sightings = self._sightings, {}
        stopped: list[Server] = []
        for server in servers:
            if server.ref == self._own:
                continue
            sighting = before.get(server.ref)
            if sighting is None or sighting.heartbeat_count != server.heartbeat_count:
                sighting = _Sighting(server.heartbeat_count, ended_ms, ended_ms)
            elif gap_ms > max(2 * self._interval_ms, server.timeout_ms / 2):
                sighting.seen_ms = ended_ms
            elif started_ms - sighting.seen_ms >= server.timeout_ms:
                stopped.append(server)
            self._sightings[server.ref] = sighting
        return stopped

    def age_ms(self, server: ServerRef, now_ms: float) -> int:
        """Return how long (ms) this observer has seen no change of the server's count; 0 for a server that it does not watch."""
        sighting = self._sightings.get(server)
        return 0 if sighting is None else max(0, round(now_ms - sighting.moved_ms))

"""Which servers have stopped: an observer watches their heartbeat counts on its own clock (I13). No I/O.

    reads        |--0--|      |--1--|      |--2--|      |--3--|          count 7 in each of them
    stood still        |<--------------------------------->|             from the end of the first to the start of the last

A count that has stood still for the server's own `timeout_ms` is reported, to be declared in the store (`Membership.lapse`). An observer
that did not look for a while (it was suspended, or the store did not answer) starts over: what kept it from looking may have kept the
others from beating. Nothing here is safety: a wrong report costs a live server a look at its leases.
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
    """The same, but not started over after a pause: for what is shown."""


class Watcher:
    """One observer's view. Times are milliseconds on its monotonic clock."""

    def __init__(self, own: ServerRef, interval_ms: float) -> None:
        """`own` is not watched. The observer reads once per `interval_ms`; it has not looked when two of them passed between reads."""
        self._own = own
        self._interval_ms = interval_ms
        self._sightings: dict[ServerRef, _Sighting] = {}
        self._read_ms = float("-inf")
        """Start of the last read."""

    def saw(self, started_ms: float, ended_ms: float, servers: Sequence[Server]) -> list[Server]:
        """Take in one read of the live servers, which began and ended then; returns those whose heartbeats have stopped.

        A read must have begun after the one before had ended. Reported servers are reported again by later reads, until they are gone.
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
        """How long the server's count has stood still as far as this observer saw; 0 for one that it does not watch."""
        sighting = self._sightings.get(server)
        return 0 if sighting is None else max(0, round(now_ms - sighting.moved_ms))

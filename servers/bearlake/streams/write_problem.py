"""Why a server does not store batches, for `/healthz`: a commit waits, a put has failed, an object is late, for
whatever reason, or the server was fenced and refuses them until it has stopped."""

import asyncio
from collections.abc import Collection

from bearlake.streams.committer import Committer
from bearlake.streams.flush import Flush
from bearlake.streams.putting import Putting


class WriteProblem:
    """The problem of one writer. Use it from the event loop's thread only."""

    def __init__(self, committer: Committer, putting: Putting, in_flight: Collection[Flush], late_ms: int) -> None:
        """`in_flight`: in seal order. An object is late if its first batch has waited for `late_ms`: its producer has been answered."""
        self._committer = committer
        self._putting = putting
        self._in_flight = in_flight
        self._late_s = late_ms / 1000

    @property
    def text(self) -> str:
        """The problem; empty: none is known."""
        if self._committer.is_fenced:
            return "this server accepts no batches any more, and stops"
        return self._committer.problem or self._putting.problem or self._lateness()

    def _lateness(self) -> str:
        oldest = next(iter(self._in_flight), None)
        waited_s = 0.0 if oldest is None else asyncio.get_running_loop().time() - oldest.since
        return "" if waited_s < self._late_s else f"an object has been waiting to be stored for {waited_s:.0f} s"

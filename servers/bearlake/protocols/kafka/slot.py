"""The place of a response in a connection's order: requests run concurrently, responses leave in request order.

Source: Kafka protocol guide, "Network".
"""

import time
from collections.abc import Callable, Sequence

from bearlake.protocols.kafka import codec


class Slot:
    """The place of one response, or of the responses to `count` consecutive requests of one API."""

    __slots__ = ("api", "chunks", "count", "is_ready", "owed_ms", "started")

    def __init__(self, api: int, count: int = 1) -> None:
        self.api = api
        self.count = count
        self.started = time.perf_counter()
        self.is_ready = False
        self.owed_ms: Callable[[], int] | None = None
        """Asked for the response: how long (ms) the client should wait (KIP-219). None: it need not."""
        self.chunks: Sequence[codec.Buffer] = ()

"""The place of a response in a connection's order: requests run concurrently, responses leave in request order.

Source: Kafka protocol guide, "Network".
"""

import time
from collections.abc import Sequence

from bearlake.protocols.kafka import codec


class Slot:
    """The place of one response, or of the responses to `count` consecutive requests of one API."""

    __slots__ = ("api", "chunks", "count", "is_ready", "started", "throttle_ms")

    def __init__(self, api: int, count: int = 1) -> None:
        self.api = api
        self.count = count
        self.started = time.perf_counter()
        self.is_ready = False
        self.throttle_ms = 0
        """How long (ms) the client should wait, for the response (KIP-219)."""
        self.chunks: Sequence[codec.Buffer] = ()

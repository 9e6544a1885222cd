"""The place of a response in a connection's order: requests run concurrently, responses leave in request order.

Source: Kafka protocol guide, "Network".
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from bearlake.protocols.kafka import codec


class Place(Protocol):
    """What a connection knows of a place in its order: a `Slot`, or Produce requests that were taken together."""

    chunks: Sequence[codec.Buffer] | None
    """The responses, once they are known; empty if the requests get none."""
    size: int
    """Bytes of the responses."""

    @property
    def api(self) -> int:
        """The API of the requests."""

    @property
    def count(self) -> int:
        """The number of requests."""

    @property
    def started(self) -> float:
        """When they were taken (s, `time.perf_counter`)."""


class Slot:
    """The place of one response, or of the responses to `count` consecutive requests of one API."""

    __slots__ = ("api", "chunks", "count", "owed_ms", "size", "started")

    def __init__(self, api: int, count: int = 1) -> None:
        self.api = api
        self.count = count
        self.started = time.perf_counter()
        self.owed_ms: Callable[[], int] | None = None
        """Asked for the response: how long (ms) the client should wait (KIP-219). None: it need not."""
        self.chunks: Sequence[codec.Buffer] | None = None
        self.size = 0

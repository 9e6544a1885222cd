"""The place of an answer in a connection's order: requests run beside each other, answers leave in the order of the requests.

Source: Kafka protocol guide, "Network".
"""

import time
from collections.abc import Sequence

from bearlake.protocols.kafka import codec


class Slot:
    """The place of one answer in the connection's order, or of those to `count` requests of one API that follow each other."""

    __slots__ = ("api", "chunks", "count", "is_ready", "started")

    def __init__(self, api: int, count: int = 1) -> None:
        self.api = api
        self.count = count
        self.started = time.perf_counter()
        self.is_ready = False
        self.chunks: Sequence[codec.Buffer] = ()

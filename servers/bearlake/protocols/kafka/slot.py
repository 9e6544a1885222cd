"""The place of one answer in a connection's order: requests run beside each other, answers leave in the order of the requests.

Source: Kafka protocol guide, "Network".
"""

import time
from collections.abc import Sequence

from bearlake.protocols.kafka import codec


class Slot:
    """The place of one answer in the connection's order."""

    __slots__ = ("api", "chunks", "is_ready", "started")

    def __init__(self, api: int) -> None:
        self.api = api
        self.started = time.perf_counter()
        self.is_ready = False
        self.chunks: Sequence[codec.Buffer] = ()

"""The part of a connection that counts what its client has not read.

The context has the bytes of all connections. Above a bound, those whose clients have read nothing for longest are closed
(`slow_readers.py`).
"""

from typing import Any

from typing_extensions import override

from bearlake.protocols.kafka.context import KafkaContext
from bearlake.serving.pacing import PacedConnection, Register


class UnsentCounted(PacedConnection):
    """A paced connection whose unread bytes count for all connections of its server. It is a `SlowReader`."""

    def __init__(self, register: Register[Any], context: KafkaContext, listener: str) -> None:  # Any: the subclass
        super().__init__(register, context.streams, listener, context.settings.stall_ms)
        self.context = context

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(error)
        self.context.slow_readers.remove(self)

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not read what it is sent."""
        super().pause_writing()
        self.context.slow_readers.add(self)

    def resume_writing(self) -> None:
        """Called by the event loop when the client has read its responses."""
        self.context.slow_readers.remove(self)
        super().resume_writing()

    def give_up(self) -> None:
        """Close at once; its bytes do not count any more."""
        self.close("clients left too many answers unread, and this one for longest", "slow_reader")
        self._record_unsent(0)

    def measure_unsent(self) -> None:
        """Count the bytes that the client has not read."""
        self._has_read(self._loop.time())

    @override
    def _record_unsent(self, unsent_bytes: int) -> None:
        slow_readers = self.context.slow_readers
        slow_readers.count(unsent_bytes - self._unsent_bytes)
        if unsent_bytes < self._unsent_bytes:
            slow_readers.has_read(self)
        self._unsent_bytes = unsent_bytes

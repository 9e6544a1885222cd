"""The part of a connection that counts what its client has not read.

The context has the bytes of all connections. Above a bound, it closes the connections that have not kept up for longest (decision 154).
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
        self.context.slow_readers.pop(self, None)

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not read what it is sent."""
        super().pause_writing()
        self.context.slow_readers[self] = None
        self.context.bound_unsent_bytes()

    def resume_writing(self) -> None:
        """Called by the event loop when the client has read its responses."""
        self.context.slow_readers.pop(self, None)
        super().resume_writing()

    def give_up(self) -> None:
        """Close at once; its bytes do not count any more."""
        self.close("clients left too many answers unread, and this one for longest", "slow_reader")
        self._record_unsent(0)

    @override
    def _record_unsent(self, unsent_bytes: int) -> None:
        self.context.unsent_bytes += unsent_bytes - self._unsent_bytes
        self._unsent_bytes = unsent_bytes

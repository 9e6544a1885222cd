"""What clients have not read of their responses, and the connections that are closed if it is too much (decisions 154, 156).

Connections whose transport is full stand in line, in the order in which their clients last read something. A client that reads, however
long its response is, moves to the end. Above twice `unsent_bytes_max`, all clients in line are measured, and then the first are closed.
"""

from typing import Protocol


class SlowReader(Protocol):
    """A connection whose client has not read enough to be sent more: `protocols.kafka.unsent.UnsentCounted`."""

    def measure_unsent(self) -> None:
        """Count the bytes that the client has not read (`SlowReaders.count`); call `SlowReaders.has_read` if it has read some."""

    def give_up(self) -> None:
        """Close at once; its bytes do not count any more."""


class SlowReaders:
    """The line of one server. Use it from the event loop's thread only."""

    def __init__(self, unsent_bytes_max: int) -> None:
        self.unsent_bytes = 0
        """Bytes of responses that clients have not read, as of each connection's last measure."""
        self._unsent_bytes_max = unsent_bytes_max
        self._line: dict[SlowReader, None] = {}

    def __len__(self) -> int:
        return len(self._line)

    def count(self, change_bytes: int) -> None:
        """Count that so many more bytes are unread; fewer if negative."""
        self.unsent_bytes += change_bytes

    def add(self, reader: SlowReader) -> None:
        """Add a connection whose transport is full; close others, or this one, while the clients have too many bytes unread."""
        if self._is_over():
            for measured in list(self._line):
                measured.measure_unsent()
        self._line[reader] = None
        while self._is_over() and self._line:
            slowest = next(iter(self._line))
            del self._line[slowest]
            slowest.give_up()

    def has_read(self, reader: SlowReader) -> None:
        """Move a connection to the end of the line: its client has read something. No effect if it is not in line."""
        if reader in self._line:
            del self._line[reader]
            self._line[reader] = None

    def remove(self, reader: SlowReader) -> None:
        """Remove a connection whose client keeps up, or has gone. No effect if it is not in line."""
        self._line.pop(reader, None)

    def _is_over(self) -> bool:
        return self.unsent_bytes > 2 * self._unsent_bytes_max

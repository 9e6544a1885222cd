"""What the clients of one server have not read, and the connections that are closed when it is too much (decisions 154, 156).

Connections whose transport is full, or holds much when it is checked, stand in line, in the order in which their clients last read
something. A client that reads, however long its answer is, moves to the end. Above the bound, all connections in line are measured, and
then the first are closed.
"""

from typing import Protocol


class SlowReader(Protocol):
    """A connection whose client has not read enough to be sent more."""

    @property
    def unread_bytes(self) -> int:
        """The bytes that the client has not read by now."""

    @property
    def read_bytes(self) -> int:
        """A count that is larger than at an earlier time only if the client has read since."""

    def give_up(self) -> None:
        """Close at once."""


class SlowReaders:
    """The line of one server. Use it from the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` bounds the unread bytes of all connections together."""
        self.bytes_max = bytes_max
        self.unread_bytes = 0
        """Bytes that clients have not read, as of each connection's last measure."""
        self._line: dict[SlowReader, tuple[int, int]] = {}
        """`unread_bytes` and `read_bytes` as of each connection's last measure."""

    def __len__(self) -> int:
        return len(self._line)

    def record(self, reader: SlowReader, unread_bytes: int) -> None:
        """Record how many bytes a client has not read; 0: it has read everything, or has gone. Closes connections above the bound."""
        more_bytes = unread_bytes - self._line.get(reader, (0, 0))[0]
        if more_bytes > 0 and self.unread_bytes + more_bytes > self.bytes_max:
            for other in [other for other in self._line if other is not reader]:
                self._note(other, other.unread_bytes)
        self._note(reader, unread_bytes)
        while self.unread_bytes > self.bytes_max and self._line:
            slowest = next(iter(self._line))
            self._note(slowest, 0)
            slowest.give_up()

    def _note(self, reader: SlowReader, unread_bytes: int) -> None:
        read_bytes = reader.read_bytes
        unread_before, read_before = self._line.get(reader, (0, read_bytes))
        self.unread_bytes += unread_bytes - unread_before
        if not unread_bytes or read_bytes > read_before:
            self._line.pop(reader, None)
        if unread_bytes:
            # at the end, unless the reader was in line and has read nothing
            self._line[reader] = (unread_bytes, read_bytes)

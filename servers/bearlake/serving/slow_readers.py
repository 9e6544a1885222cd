"""What the clients of one server have not read, and the connections that are closed when it is too much.

A connection counts while its transport is full. It is then in a line, and leaves it when its client has read what it was sent. Above the
bound, the connections that have not kept up for longest are closed (decision 154).
"""

from typing import Protocol


class SlowReader(Protocol):
    """A connection whose client does not read."""

    def give_up(self) -> None:
        """Close at once."""


class SlowReaders:
    """The line of a server's connections that have unread bytes."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` bounds the unread bytes of all connections together."""
        self.bytes_max = bytes_max
        self.unread_bytes = 0
        """Bytes that clients have not read, as of each connection's last record."""
        self._line: dict[SlowReader, int] = {}

    def __len__(self) -> int:
        return len(self._line)

    def record(self, reader: SlowReader, unread_bytes: int) -> None:
        """Record how many bytes the client of `reader` has not read; 0: it has read everything, or has gone."""
        self.unread_bytes += unread_bytes - self._line.get(reader, 0)
        if unread_bytes:
            self._line[reader] = unread_bytes  # a reader that is in line keeps its place
        else:
            self._line.pop(reader, None)
        while self.unread_bytes > self.bytes_max and self._line:
            slowest = next(iter(self._line))
            self.unread_bytes -= self._line.pop(slowest)
            slowest.give_up()

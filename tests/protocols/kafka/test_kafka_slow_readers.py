"""Which connections are closed when clients leave too many bytes unread: those that read, never before those that do not."""

import pytest

from bearlake.protocols.kafka.slow_readers import SlowReaders

UNSENT_BYTES_MAX = 50
"""Connections are closed above twice as many."""


class Reader:
    """A connection whose transport holds `unsent_bytes`; the line learns of it when it measures."""

    def __init__(self, readers: SlowReaders, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.is_closed = False
        self._readers = readers
        self._counted_bytes = 0
        self.measure_unsent()
        readers.add(self)

    def measure_unsent(self) -> None:
        self._count(self.unsent_bytes)

    def give_up(self) -> None:
        self.is_closed = True
        self._count(0)

    def _count(self, unsent_bytes: int) -> None:
        self._readers.count(unsent_bytes - self._counted_bytes)
        if unsent_bytes < self._counted_bytes:
            self._readers.has_read(self)
        self._counted_bytes = unsent_bytes


@pytest.fixture
def readers() -> SlowReaders:
    return SlowReaders(UNSENT_BYTES_MAX)


def test_a_client_that_reads_a_long_answer_is_not_closed_before_those_that_read_nothing(readers: SlowReaders) -> None:
    """It has been in line for longest, and is in line until it has read nearly all of its answer."""
    honest = Reader(readers, 40)
    silent = [Reader(readers, 20) for _ in range(3)]
    honest.unsent_bytes = 39

    last = Reader(readers, 5)

    assert [reader.is_closed for reader in (honest, *silent, last)] == [False, True, False, False, False]
    assert readers.unsent_bytes == 84


def test_clients_that_have_read_enough_meanwhile_are_all_kept(readers: SlowReaders) -> None:
    """What they had read was not counted since the last check, which may be seconds ago."""
    members = [Reader(readers, 30) for _ in range(3)]
    for member in members:
        member.unsent_bytes = 20

    last = Reader(readers, 30)

    assert not any(member.is_closed for member in (*members, last))
    assert readers.unsent_bytes == 90


def test_the_bound_holds_if_all_clients_read_a_little(readers: SlowReaders) -> None:
    members = [Reader(readers, 25) for _ in range(4)]
    for member in members:
        member.unsent_bytes -= 1

    last = Reader(readers, 25)

    assert [member.is_closed for member in (*members, last)] == [True, False, False, False, False]
    assert readers.unsent_bytes <= 2 * UNSENT_BYTES_MAX


def test_a_connection_that_left_the_line_is_not_closed(readers: SlowReaders) -> None:
    first, second = Reader(readers, 60), Reader(readers, 40)
    readers.remove(first)
    readers.has_read(first)
    assert len(readers) == 1

    Reader(readers, 10)

    assert not first.is_closed
    assert second.is_closed

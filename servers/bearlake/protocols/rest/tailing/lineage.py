"""Forks: streams that begin with the records of another stream.

A fork is a separate stream; its config `http.fork` records its branch point. Over HTTP, offsets up to the branch point are those of
the source and continue with the fork's own records, so that a reader sees one stream:

    source   0 1 2 3 4 5 6          its log, offsets 0 to 6
    fork     0 1 2 3 │ 4 5          branched off at 4: base 4, its own log has offsets 0 and 1

A fork of a fork is read through all logs in its chain. Other protocols, and the table, see only the fork's own records.
Source: Durable Streams Protocol 1.0, section 4.2.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bearlake.errors import NotFound
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import Catalog, StreamView

FORK = "http.fork"
_TEXT = re.compile(r"(\d{1,18})/(\d{1,10})@(\d{1,19})\+(\d{1,19})=(\d{1,19})")


class Fork(NamedTuple):
    """A fork's origin: source number and partition, `offset` and `part` as given by the creator, `base` its own first offset."""

    number: int
    partition: int
    offset: int
    part: int
    base: int

    def __str__(self) -> str:
        """Return the text stored in the config."""
        return f"{self.number}/{self.partition}@{self.offset}+{self.part}={self.base}"


class Piece(NamedTuple):
    """A range of a stream over HTTP: offsets up to `end` (None: unbounded) are offsets of `partition`'s log, plus `base`."""

    partition: PartitionKey
    name: str
    base: int
    end: int | None


def fork_of(view: StreamView) -> Fork | None:
    """Return the stream's origin, or None if it is not a fork."""
    text = stream_configs.value(view.stream.configs, FORK)
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        return None
    fork = Fork(*(int(number) for number in match.groups()))
    return fork if fork.number < view.stream.number else None  # sources are older, so there are no cycles


def base_of(view: StreamView) -> int:
    """Return the difference between the stream's HTTP offsets and the offsets of its own log."""
    fork = fork_of(view)
    return 0 if fork is None else fork.base


async def pieces_of(catalog: Catalog, view: StreamView, index: int) -> list[Piece]:
    """Return the pieces of a partition, oldest first; omits deleted sources."""
    end: int | None = None
    pieces: list[Piece] = []
    while True:
        fork = fork_of(view)
        base = 0 if fork is None else fork.base
        if end is None or base < end:
            pieces.append(Piece(view.partition(index), view.name, base, end))
            end = base
        source = None if fork is None or end == 0 else await _by_number(catalog, fork.number)
        if fork is None or source is None:
            return pieces[::-1]
        view, index = source, fork.partition


def bounds_of(
    pieces: Sequence[Piece], found: Mapping[PartitionKey, PartitionBounds], closed_end: int | None
) -> PartitionBounds:
    """Return the first readable offset, the end and the last stable offset. `closed_end`: where the own log was closed (None: open).

    Raises:
        NotFound: the stream itself is deleted.
    """
    *inherited, own = pieces
    if own.partition not in found:
        raise NotFound(f"no stream {own.name}")
    bounds = found[own.partition]
    end, stable = (
        offset if closed_end is None else min(offset, closed_end) for offset in (bounds.end, bounds.last_stable)
    )
    start = own.base + bounds.start
    if bounds.start == 0:
        for piece in reversed(inherited):
            source = found.get(piece.partition)
            if source is None or piece.end is None or piece.base + source.start >= piece.end:
                break
            start = piece.base + source.start
            if source.start > 0:
                break
    return PartitionBounds(start, own.base + end, own.base + stable)


async def _by_number(catalog: Catalog, number: int) -> StreamView | None:
    view = catalog.peek_number(number)
    if view is None:  # just created on another server
        await catalog.refresh([number])
        view = catalog.peek_number(number)
    return view

"""Forks: streams whose first records are those of another.

A fork is a stream of its own whose config `http.fork` says where it branched off. Offsets by HTTP are those of its source up to
there, and go on with the fork's own, so that a reader does not see the seam:

    source   0 1 2 3 4 5 6          its log, offsets 0 to 6
    fork     0 1 2 3 │ 4 5          branched off at 4: base 4, its own log has offsets 0 and 1

A fork of a fork is read through as many logs as it takes. Other protocols, and the table, see the fork's own records only.
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
    """A fork's origin: source by number and partition, `offset` and `part` as the creator gave them, `base` its first own offset."""

    number: int
    partition: int
    offset: int
    part: int
    base: int

    def __str__(self) -> str:
        """As it stands in the config."""
        return f"{self.number}/{self.partition}@{self.offset}+{self.part}={self.base}"


class Piece(NamedTuple):
    """A stretch of a stream by HTTP: offsets up to `end` (None: all further) are those of `partition`'s log, plus `base`."""

    partition: PartitionKey
    name: str
    base: int
    end: int | None


def fork_of(view: StreamView) -> Fork | None:
    """The origin of a stream, None if it is no fork."""
    text = stream_configs.value(view.stream.configs, FORK)
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        return None
    fork = Fork(*(int(number) for number in match.groups()))
    return fork if fork.number < view.stream.number else None  # a source is older: no circles


def base_of(view: StreamView) -> int:
    """What HTTP adds to the offsets of the stream's own log."""
    fork = fork_of(view)
    return 0 if fork is None else fork.base


async def pieces_of(catalog: Catalog, view: StreamView, index: int) -> list[Piece]:
    """Where the records of a partition are, oldest first; without those of sources that are gone."""
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
) -> tuple[int, int]:
    """First readable offset and end. `closed_end` is where the stream's own log was closed (None: it goes on).

    Raises:
        NotFound: the stream itself has gone.
    """
    *inherited, own = pieces
    if own.partition not in found:
        raise NotFound(f"no stream {own.name}")
    bounds = found[own.partition]
    end = bounds.end if closed_end is None else min(bounds.end, closed_end)
    start = own.base + bounds.start
    if bounds.start == 0:
        for piece in reversed(inherited):
            source = found.get(piece.partition)
            if source is None or piece.end is None or piece.base + source.start >= piece.end:
                break
            start = piece.base + source.start
            if source.start > 0:
                break
    return start, own.base + end


async def _by_number(catalog: Catalog, number: int) -> StreamView | None:
    view = catalog.peek_number(number)
    if view is None:  # made a moment ago on another server
        await catalog.refresh([number])
        view = catalog.peek_number(number)
    return view

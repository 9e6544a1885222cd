"""Compares streams with the Pulsar topics from which they were imported: the entries that both have.

Both sides are read side by side, by the places of entries. An entry of the source becomes a batch again, as when it was copied; then the
batches are compared as `importing/verifying.py` does. Entries that the source has deleted, and those that retention has removed here, are
not compared.
"""

from collections.abc import AsyncIterator, Sequence

from bearlake.errors import Unavailable
from bearlake.importing.batches import Piece
from bearlake.importing.pulsar.cluster import PulsarCluster, PulsarTopic
from bearlake.importing.pulsar.connection import Entry
from bearlake.importing.pulsar.conversion import Limits, message_of, piece_of
from bearlake.importing.pulsar.copying import PulsarPartition, permits_of
from bearlake.importing.pulsar.positions import FIRST, place_of
from bearlake.importing.pulsar.schemas import SourceSchemas
from bearlake.importing.verifying import Compared, Comparison, pieces_of_target
from bearlake.streams import configs as stream_configs
from bearlake.streams.service import Streams

_PERMITS = 10_000
_QUIET_COUNT_MAX = 20
"""Waits without an entry after which the source has no more: what cannot be delivered does not come."""


async def verify(
    cluster: PulsarCluster, streams: Streams, schemas: SourceSchemas, copies: Sequence[PulsarPartition], limits: Limits
) -> list[Compared]:
    """Compare the records of partitions that are not being copied meanwhile. Raises as the copy does."""
    found: list[Compared] = []
    for copy in copies:
        assert isinstance(copy.topic, PulsarTopic)
        bounds = (await streams.bounds([copy.view.partition(copy.index)])).get(copy.view.partition(copy.index))
        if bounds is None:
            raise Unavailable(f"stream {copy.view.name!r} is gone")
        compared = Compared(topic=copy.topic.name, partition=copy.index, start=bounds.start, end=bounds.end)
        found.append(compared)
        await _Sides(cluster, streams, schemas, copy, limits, compared).compare()
    return found


class _Sides:
    """Both sides of a partition."""

    def __init__(
        self,
        cluster: PulsarCluster,
        streams: Streams,
        schemas: SourceSchemas,
        copy: PulsarPartition,
        limits: Limits,
        compared: Compared,
    ) -> None:
        self._cluster = cluster
        self._streams = streams
        self._schemas = schemas
        self._copy = copy
        self._limits = limits
        self._compared = compared
        policy = stream_configs.value(copy.view.stream.configs, "cleanup.policy")
        self._is_compacted = "compact" in policy.split(",")
        self._comparison = Comparison(compared, is_compacted=self._is_compacted)

    async def compare(self) -> None:
        """Compare all entries."""
        there, here = self._entries(), pieces_of_target(self._streams, self._copy.view, self._compared)
        entry, piece = await anext(there, None), await anext(here, None)
        is_first = True
        while entry is not None or piece is not None:
            place = FIRST if piece is None else place_of(piece.batch)
            if piece is not None and place is None:
                piece = await anext(here, None)  # a record of somebody else, after the promotion
            elif entry is not None and piece is not None and entry.place == place:
                self._comparison.take(await self._piece(entry, piece.start), piece)
                entry, piece, is_first = await anext(there, None), await anext(here, None), False
            elif piece is None or (entry is not None and place is not None and entry.place < place):
                assert entry is not None
                if not is_first or self._compared.start == 0:
                    self._only(f"entry {entry.place}: only in the source")
                entry = await anext(there, None)
            else:
                assert place is not None
                if place.ledger in self._copy.ledgers.entries and entry is not None and not is_first:
                    self._only(f"offset {piece.start}: only in the stream (entry {place})")
                piece = await anext(here, None)

    def _only(self, what: str) -> None:
        self._compared.missing += 1
        if not self._is_compacted:
            self._compared.note(what)

    async def _piece(self, entry: Entry, start: int) -> Piece:
        message = message_of(entry)
        assert isinstance(self._copy.topic, PulsarTopic)
        versions = await self._schemas.versions(self._copy.topic, message.metadata.schema_version)
        return piece_of(entry, message, start, versions, self._limits)

    async def _entries(self) -> AsyncIterator[Entry]:
        """Yield the entries of the source up to the last one that was copied."""
        topic, settings, done = self._copy.topic, self._cluster.settings, self._copy.done
        assert isinstance(topic, PulsarTopic)
        if done == FIRST:
            return
        async with await self._cluster.connect(topic.leaders[self._copy.index]) as connection:
            name = f"{settings.subscription or 'bearlake-import'}-verify-{self._copy.index}-{id(self)}"
            await connection.subscribe(0, str(topic.partition(self._copy.index)), name=name, after=FIRST)
            permits, quiet_count, at = 0, 0, FIRST
            while at < done and quiet_count < _QUIET_COUNT_MAX:
                if permits <= _PERMITS // 2:
                    connection.flow(0, _PERMITS - permits)
                    permits = _PERMITS
                taken = await connection.take(settings.fetch_bytes_max)
                quiet_count = 0 if taken else quiet_count + 1
                for entry in taken:
                    permits -= permits_of(message_of(entry).metadata)
                    if at < entry.place <= done:
                        at = entry.place
                        yield entry

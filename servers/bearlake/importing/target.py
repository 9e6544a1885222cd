"""The target: streams that an import creates and fills, each batch at the offset that it has in the source.

A stream that is being imported has the config `import.source`, which names the cluster and the topic's id. Nobody else appends to it
(`streams/admission.py`), and an import appends to no other stream (decision 227).
"""

from collections.abc import Mapping, Sequence

from bearlake.errors import AlreadyExists, Conflict, Fenced, NotFound, Unavailable
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import SourceTopic
from bearlake.metadata.model import PartitionBounds
from bearlake.streams import configs as stream_configs
from bearlake.streams.append import Append, Appended, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.service import Streams


def source_of(cluster_id: str, topic: SourceTopic) -> str:
    """Return the value of `import.source` for a topic: `kafka:CLUSTER/TOPIC ID`."""
    return f"kafka:{cluster_id}/{topic.id}"


class Target:
    """The streams of one import."""

    def __init__(self, streams: Streams, cluster_id: str) -> None:
        """`cluster_id`: the source's."""
        self._streams = streams
        self._cluster_id = cluster_id

    async def ensure(self, topic: SourceTopic, configs: Mapping[str, str], *, may_create: bool = True) -> StreamView:
        """Return the topic's stream with as many partitions as the topic; creates it with these configs if there is none.

        Raises:
            NotFound: there is none, and `may_create` is False.
            Conflict: there is a stream of this name that this import did not create, or that was promoted.
            Invalid: the source has a partition count or a name that cannot be used here.
            Unavailable: the metadata store does not answer.
        """
        catalog = self._streams.catalog
        count, source = len(topic.leaders), self._source(topic)
        try:
            view = await catalog.resolve(topic.name)
        except NotFound:
            if not may_create:
                raise
            try:
                view = await catalog.create(topic.name, count, {**configs, stream_configs.IMPORT_SOURCE: source})
            except AlreadyExists:
                view = await catalog.resolve(topic.name)
        self._check(view, source)
        if view.partition_count < count:
            view = await catalog.add_partitions(view.stream, count)
        return view

    async def find(self, topic: SourceTopic) -> StreamView:
        """Return the topic's stream. Raises `Conflict` unless it is still being imported, as the store says now; `NotFound`."""
        view = await self._streams.catalog.resolve(topic.name)
        self._check(view, self._source(topic))
        return view

    async def bounds(self, topic: SourceTopic, view: StreamView) -> list[PartitionBounds]:
        """Return the bounds of each partition from the store: all records below the ends are the import's.

        The mark is read after the bounds. The other way round, a promotion in between would let other records count as the import's.

        Raises:
            NotFound: the stream was deleted.
            Conflict: as `find`.
            Unavailable: the metadata store does not answer.
        """
        found = await self._streams.bounds(view.partitions())
        if len(found) < view.partition_count:
            raise NotFound(f"stream {view.name!r} was deleted while it was being imported")
        await self.find(topic)
        return [found[key] for key in view.partitions()]

    async def append(self, batches: Sequence[tuple[StreamView, int, Piece]]) -> None:
        """Append pieces to partitions, each at its own offsets; all are durable when this returns. Each partition's are in order.

        After an error, any of the pieces may be stored, or become stored later: read the bounds again. A piece is never stored twice, nor
        at another offset, because each names the offset at which the partition must end (decision 225).

        Raises:
            Unavailable: a piece was not stored, or its outcome is unknown, or the partition's end is another one.
            NotFound, Conflict: the stream was deleted or terminated.
            Fenced: a newer import of the same name has begun.
        """
        appends = [_append(view, index, piece) for view, index, piece in batches]
        results = await self._streams.append(appends, self._streams.seen.position)
        for (view, index, piece), result in zip(batches, results, strict=True):
            if result.verdict != Verdict.ACCEPTED or result.base_offset != piece.start:
                raise _error(result, f"stream {view.name!r}, partition {index}, offset {piece.start}")

    async def trim(self, topic: SourceTopic, view: StreamView, index: int, start: int) -> None:
        """Move the partition's start to the source's. Raises as `find`: a promoted stream keeps what the source deletes."""
        await self.find(topic)
        await self._streams.metadata.log.trim(view.partition(index), start)

    def _source(self, topic: SourceTopic) -> str:
        """Return the mark of the topic's stream."""
        return source_of(self._cluster_id, topic)

    def _check(self, view: StreamView, source: str) -> None:
        found = stream_configs.value(view.stream.configs, stream_configs.IMPORT_SOURCE)
        if not found:
            raise Conflict(
                f"stream {view.name!r} exists and is not being imported: it was promoted, or no import created it"
            )
        if found != source:
            raise Conflict(f"stream {view.name!r} is imported from {found}, not from {source}")


def _append(view: StreamView, index: int, piece: Piece) -> Append:
    """The batch keeps its producer's fields. The commit gets none of them: the source's broker has checked its sequences already, and
    the ids of producers here are others (decision 225)."""
    return Append(
        view.partition(index),
        view.id_bytes,
        piece.batch,
        None,
        piece.end - piece.start,
        piece.max_timestamp,
        -1,
        -1,
        -1,
        0,
        expected_offset=piece.start,
    )


def _error(result: Appended, what: str) -> Unavailable | NotFound | Conflict | Fenced:
    match Verdict(result.verdict):
        case Verdict.NOT_FOUND:
            return NotFound(f"{what}: the stream was deleted")
        case Verdict.TERMINATED:
            return Conflict(f"{what}: the stream is terminated")
        case Verdict.SERVER_FENCED:
            return Fenced(f"{what}: a newer import of the same name has begun")
        case Verdict.UNEXPECTED_OFFSET:
            return Unavailable(f"{what}: the partition ends at {result.base_offset}")
        case other:
            return Unavailable(f"{what}: {other.name}")

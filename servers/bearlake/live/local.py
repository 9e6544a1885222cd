"""Views for a command on this machine: the pieces are files in a folder of its own, and nothing is written to the deployment's store."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from bearlake.clock import SystemClock
from bearlake.compaction.runner import InProcess
from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.compaction.workbench import Workbench
from bearlake.live.pieces import PieceWriter, key_in
from bearlake.live.settings import TAIL_PREFIX, LiveSettings
from bearlake.live.views import View, Views
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.objects.local import LocalObjectStore, LocalSettings
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.table.iceberg import IcebergTables
from bearlake.table.query import LiveTable
from bearlake.wal.keys import KeySource


@asynccontextmanager
async def local_views(
    metadata: Metadata,
    store: ObjectStore,
    tables: IcebergTables,
    columns: ColumnSettings,
    settings: LiveSettings,
    compiler: SchemaCompiler | None = None,
) -> AsyncIterator[Callable[[Stream], Awaitable[LiveTable]]]:
    """Give the block a function that returns a stream's table with its tail. The tail's files are deleted at the end.

    The function raises as `Views.view`. The caller closes the stores, the tables and the `compiler` of Protobuf schemas.
    """
    with TemporaryDirectory(prefix="bearlake-live-") as name:
        folder = Path(name)
        local = LocalObjectStore(folder, LocalSettings(fsync=False))
        clock = SystemClock()
        keys = KeySource(clock, random.SystemRandom().getrandbits, TAIL_PREFIX)
        runner = InProcess(_Diverted(store, local), Workbench(limits=settings.task, clock=clock))
        values = ValueSchemas(metadata, tables, columns, compiler)
        writer = PieceWriter(
            metadata, store, runner, values, settings, lambda stream: key_in(stream, keys), clock.now_ms
        )

        async def finish(found: View) -> LiveTable:
            paths = [str(folder / file.key) for piece in found.pieces for file in piece.files]
            return LiveTable(table=found.table, columns=found.columns, paths=paths)

        views = Views(metadata, tables, writer, settings, clock.now_ms, finish, values.columns, creates_tables=False)

        async def view(stream: Stream) -> LiveTable:
            return await views.view(stream.number)

        try:
            yield view
        finally:
            views.close()
            await local.close()


class _Diverted(ObjectStore):
    """Reads from one store, and writes to another."""

    def __init__(self, source: ObjectStore, target: ObjectStore) -> None:
        self._source = source
        self._target = target

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._target.put(key, parts)

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        return await self._source.read(key, ranges)

    @override
    async def size(self, key: str) -> int:
        return await self._source.size(key)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        await self._target.delete(keys)

    @override
    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._target.list(prefix, after)

    @override
    async def close(self) -> None:
        """Close neither: they belong to others."""

"""The role of `bearlake serve compactor`: one compaction worker, with its runner and the catalog of tables."""

import asyncio
from collections.abc import Mapping

from typing_extensions import override

from bearlake.app.role import OpenListener, Parts, Role
from bearlake.compaction.service import Compactor
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.owned_tasks import Tasks
from bearlake.settings.document import Settings
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.table.current import IcebergCurrentTables
from bearlake.table.iceberg import open_tables


class CompactorRole(Role):
    """A `Role`."""

    def __init__(self) -> None:
        self._compactor: Compactor
        self._runner: SparkRunner

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        """Bind nothing: only the admin API listens."""
        return {}

    @override
    def build(self, parts: Parts) -> None:
        settings = parts.settings
        tables = open_tables(settings.tables, parts.store, settings.object_store.url)
        parts.closing.push_async_callback(tables.close)
        url = settings.object_store.url
        self._runner = SparkRunner(settings.spark, url, settings.object_store, settings.compaction.task)
        parts.closing.push_async_callback(self._runner.close)
        compiler = Pool(settings.schemas)  # starts a process when a schema has to be compiled
        parts.closing.callback(compiler.close)
        self._compactor = Compactor(
            parts.metadata,
            parts.store,
            tables,
            self._runner,
            parts.registered.server,
            settings.compaction,
            table_settings=settings.tables,
            on_fenced=parts.on_fenced,
            compiler=compiler,
            current=IcebergCurrentTables(tables),
        )
        parts.closing.push_async_callback(self._compactor.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._runner.start()
        tasks.own("compaction", self._compactor.run())
        return {}

    @override
    async def drain(self, deadline_ms: int) -> None:
        async with asyncio.timeout(deadline_ms / 1000):
            await self._compactor.drain()

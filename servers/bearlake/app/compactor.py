"""The role of `bearlake serve compactor`: one worker of compaction, with its runner and the catalog of tables."""

import asyncio
from collections.abc import Mapping

from bearlake.app.process import OpenListener, Parts
from bearlake.compaction.service import Compactor
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.serving.tasks import Tasks
from bearlake.settings.document import Settings
from bearlake.table.iceberg import open_tables


class CompactorRole:
    """A `Role`."""

    def __init__(self) -> None:
        self._compactor: Compactor
        self._runner: SparkRunner

    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        """See `Role.bind`: nothing but the admin API listens."""
        return {}

    def build(self, parts: Parts) -> None:
        """See `Role.build`."""
        settings = parts.settings
        tables = open_tables(settings.tables, parts.store, settings.object_store.url)
        parts.closing.push_async_callback(tables.close)
        url = settings.object_store.url
        self._runner = SparkRunner(settings.spark, url, settings.object_store, settings.compaction.task)
        parts.closing.push_async_callback(self._runner.close)
        self._compactor = Compactor(
            parts.metadata,
            parts.store,
            tables,
            self._runner,
            parts.member.server,
            settings.compaction,
            table_settings=settings.tables,
            on_fenced=parts.on_fenced,
        )
        parts.closing.push_async_callback(self._compactor.close)

    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        """See `Role.start`."""
        await self._runner.start()
        tasks.own("compaction", self._compactor.run())
        return {}

    async def drain(self, deadline_ms: int) -> None:
        """See `Role.drain`."""
        async with asyncio.timeout(deadline_ms / 1000):
            await self._compactor.drain()

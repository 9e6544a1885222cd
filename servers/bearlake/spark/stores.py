"""The stores of a process of Spark: opened with the first use, and kept for all queries that name the same ones.

Spark's Python workers are long-lived, and run many tasks. An event loop in a thread of its own reads ahead while Spark takes what was read.
Credentials come from the process's own environment, files and roles, as on every server.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack, suppress
from functools import cache
from typing import Any, Final, TypeVar

from bearlake.app.lake_settings import LakeOptions, lake_settings
from bearlake.app.startup import open_stores
from bearlake.errors import NotFound
from bearlake.live.log_rows import LogRows
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream
from bearlake.settings.document import Settings
from bearlake.spark.options import StoreOptions

T = TypeVar("T")

_CLOSE_TIMEOUT_S: Final = 5.0
_DONE: Final = object()


class Stores:
    """Opened stores, and the event loop to which they belong."""

    def __init__(self, options: StoreOptions) -> None:
        """Raises as `lake_settings` and `open_stores`."""
        given = {path: (url, "an option of the query") for path, url in options.urls}
        place = LakeOptions(data_dir=options.data_dir, config=options.config, options=given)
        settings = lake_settings(place, os.environ)
        self._loop = asyncio.new_event_loop()
        self._closing = AsyncExitStack()
        threading.Thread(target=self._loop.run_forever, name="bearlake", daemon=True).start()
        self.metadata: Metadata
        self.rows: LogRows
        try:
            self.run(self._open(settings))
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Run `step` on the loop; every call of a store has a deadline."""
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `found` yields, and read one item ahead."""
        pending = self._next(found)
        try:
            while (item := pending.result()) is not _DONE:
                pending = self._next(found)
                yield item
        finally:
            pending.cancel()
            with suppress(CancelledError, RuntimeError):
                self.run(_closed(found))

    async def stream(self, number: int) -> Stream:
        """Return the incarnation with this number. Raises `NotFound` if it was deleted."""
        streams = await self.metadata.streams.by_numbers([number])
        if not streams or streams[0].is_deleted:
            raise NotFound(f"the stream with the number {number} was deleted")
        return streams[0]

    def close(self) -> None:
        """Close the stores, and stop the loop."""
        atexit.unregister(self.close)
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._closing.aclose(), self._loop).result(_CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _open(self, settings: Settings) -> None:
        self.metadata, store = await open_stores(settings, self._closing)
        values = cache(lambda: self._values(settings, store))
        self.rows = LogRows(self.metadata, store, settings.live.rows, values=values)

    def _values(self, settings: Settings, store: Any) -> Any:
        """Open what typed columns need. The libraries take a second to load."""
        from bearlake.compaction.value_schemas import ValueSchemas
        from bearlake.streams.schemas.confined.pool import Pool
        from bearlake.table.iceberg import open_tables

        tables = open_tables(settings.tables, store, settings.object_store.url)
        self._closing.push_async_callback(tables.close)
        compiler = Pool(settings.schemas)  # starts a process when a schema has to be compiled
        self._closing.callback(compiler.close)
        return ValueSchemas(self.metadata, tables, settings.compaction.columns, compiler)

    def _next(self, found: AsyncIterator[T]) -> Any:
        async def item() -> Any:
            return await anext(found, _DONE)

        return asyncio.run_coroutine_threadsafe(item(), self._loop)


_opened: dict[tuple[int, StoreOptions], Stores] = {}


def stores_of(options: StoreOptions) -> Stores:
    """Return the stores of this process; opens them the first time. Raises as `Stores`."""
    key = os.getpid(), options  # a process that was forked has no loop
    if key not in _opened:
        _opened[key] = Stores(options)
    return _opened[key]


async def _closed(found: AsyncIterator[Any]) -> None:
    close = getattr(found, "aclose", None)
    if close is not None:
        await close()

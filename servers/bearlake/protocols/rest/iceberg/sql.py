"""POST /v1/sql: one SELECT over the tables of streams, live by default, within limits (decision 246).

The statement runs in a process of its own (`SqlRunner`), with the streams that it names and that the caller may read; others do not exist
for it. `SqlPlaces` bounds how many run: each client has its own few places, so that none takes those of others. A statement whose client
has gone ends at once, also while it waits for a place.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from aiohttp import web

from bearlake.errors import Invalid, Overloaded
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.rights import SQL
from bearlake.protocols.rest.iceberg.sql_settings import SqlSettings
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import Meta, OpenModel, Reader
from bearlake.serving.http.presence import ended_with_client
from bearlake.streams.principal import Principal, client_of
from bearlake.streams.quotas.control import QuotaControl
from bearlake.telemetry import catalog_metrics as metrics

STATEMENT_LENGTH_MAX = 16_384
"""Characters of a statement."""


class Statement(OpenModel):
    """A statement to run."""

    statement: Annotated[str, Meta(min_length=1, max_length=STATEMENT_LENGTH_MAX)]
    is_live: bool = True
    """With every record that was acknowledged before; else with those that compaction has put into the tables."""


_STATEMENT = Reader[Statement](Statement)


class Result(NamedTuple):
    """Columns as (name, type), and rows of values of JSON: numbers beyond 53 bits, times and bytes are texts (Any: JSON)."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    is_truncated: bool


class SqlRunner(Protocol):
    """Runs statements."""

    async def run(self, statement: str, streams: Sequence[str], *, is_live: bool) -> Result:
        """Run a SELECT over these streams, within the limits of the settings.

        Raises:
            Invalid: the statement is no SELECT, has an error, or names a table that is none of these streams'.
            Overloaded: it needs more memory, or its result is larger, than the settings allow; or compaction is too far behind.
            Unavailable: a store did not answer, or the deadline passed.
        """


class SqlPlaces:
    """The places in which statements run, fair between clients. Use it from the event loop's thread only."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._free = asyncio.Semaphore(settings.concurrent_count_max)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """The places of clients that use one or wait for one."""
        self._waiting: Counter[str] = Counter()
        self._running_count = 0
        metrics.SQL_RUNNING.set_function(lambda: self._running_count)
        metrics.SQL_WAITING.set_function(self._waiting.total)
        metrics.SQL_WAITING_MAX.set(settings.waiting_count_max)
        metrics.SQL_RUNNING_MAX.set(settings.concurrent_count_max)

    @asynccontextmanager
    async def taken(self, client: str) -> AsyncIterator[None]:
        """Take a place for the block. Raises `Overloaded`: too many statements wait, or this one did for too long."""
        settings = self._settings
        own = self._own.setdefault(client, asyncio.Semaphore(settings.client_concurrent_count_max))
        until = asyncio.get_running_loop().time() + settings.wait_ms / 1000
        if own.locked() or self._free.locked():
            if self._waiting[client] >= settings.client_waiting_count_max:
                raise Overloaded("your earlier statements still run: wait for them")
            if self._waiting.total() >= settings.waiting_count_max:
                raise Overloaded("too many statements wait: try again later")
        # First a place of its own: so a client has no more than its own few in the common queue.
        async with self._waited(client, own, until), self._waited(client, self._free, until):
            self._running_count += 1
            try:
                yield
            finally:
                self._running_count -= 1

    @asynccontextmanager
    async def _waited(self, client: str, place: asyncio.Semaphore, until: float) -> AsyncIterator[None]:
        self._waiting[client] += 1
        try:
            async with asyncio.timeout_at(until):
                await place.acquire()
        except TimeoutError:
            raise Overloaded(
                f"no place for the statement within {self._settings.wait_ms} ms: try again later"
            ) from None
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
        try:
            yield
        finally:
            place.release()


class SqlRoutes:
    """The handler of `POST /v1/sql`."""

    def __init__(
        self,
        runner: Callable[[], Awaitable[SqlRunner]],
        access: TableAccess,
        settings: SqlSettings,
        quotas: QuotaControl | None = None,
    ) -> None:
        """`runner`: opens it once; raises `Unavailable`. `quotas`: how much clients may read; None: as much as they like."""
        self._runner = runner
        self._access = access
        self._settings = settings
        self._quotas = quotas
        self._places = SqlPlaces(settings)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(SQL, self.run)

    async def run(self, request: web.Request) -> web.Response:
        """Run one SELECT over the tables of streams."""
        asked = bodies.parse(_STATEMENT, await bodies.read(request, 8 * STATEMENT_LENGTH_MAX), status=400, code=400)
        if not self._settings.is_enabled:
            raise Invalid("catalog.sql.is_enabled is false: this catalog runs no statements")
        who = principal_of(request)
        if self._quotas is not None:
            self._quotas.require(who, QuotaKey.CONSUMER_BYTE_RATE)
        runner = await self._runner()
        with ended_with_client(request):
            found, elapsed_s = await self._result(runner, who, asked)
        metrics.SQL_SECONDS.observe(elapsed_s)
        answer = {
            "columns": [{"name": name, "type": type_} for name, type_ in found.columns],
            "rows": found.rows,
            "is_truncated": found.is_truncated,
            "elapsed_ms": round(elapsed_s * 1000, 1),
        }
        octets = json.dumps(answer, allow_nan=False).encode()
        if self._quotas is not None:
            self._quotas.charge(who, QuotaKey.CONSUMER_BYTE_RATE, len(octets))
        return web.Response(body=octets, content_type="application/json")

    async def _result(self, runner: SqlRunner, who: Principal, asked: Statement) -> tuple[Result, float]:
        """Run the statement when it has a place; return its result, and how long (s) it took without the wait."""
        async with self._places.taken(client_of(who)):
            began_s = time.perf_counter()
            streams = await self._access.readable(who, asked.statement)
            found = await runner.run(asked.statement, streams, is_live=asked.is_live)
            return found, time.perf_counter() - began_s

"""The stores for a command: opened without joining the deployment, for SQL and for inspecting tables.

A command does not register a server. It writes nothing except what the catalog writes when it is first opened, and the field ids of typed
columns that no table has yet.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial

from bearlake.app.startup import open_stores
from bearlake.errors import NotFound
from bearlake.live.local import local_views
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.settings.document import Settings
from bearlake.streams import configs as stream_configs
from bearlake.streams.current_rules import current_rules, current_stream, with_current
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.table import query as table_query
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.model import TableState
from bearlake.table.query import QueryProgress, QueryResult
from bearlake.table.schema import ERROR

PAGE_COUNT = 1_000

_VALUE_ERRORS = """
    select code, count(*) as record_count, arg_max(_partition_id, _timestamp) as "partition",
        arg_max(_offset, _timestamp) as "offset", max(_timestamp) as newest, arg_max(_error, _timestamp) as example
    from (
        select split_part(_error, ':', 1) as code, * from {table} where _error is not null
        union all
        select regexp_extract(_error, '; (KEY_[A-Z_]+):', 1) as code, * from {table} where regexp_matches(_error, '; KEY_[A-Z_]+:')
    ) group by 1 order by 2 desc, 1
"""
"""Of a row whose value and key both have no columns, `_error` names both (`table/value_typing.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Opened stores."""

    settings: Settings
    metadata: Metadata
    store: ObjectStore
    tables: IcebergTables


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Lake]:
    """Open the stores for the block. Raises `Invalid`, `Unavailable`."""
    async with AsyncExitStack() as closing:
        metadata, store = await open_stores(settings, closing)
        tables = open_tables(settings.tables, store, settings.object_store.url)
        closing.push_async_callback(tables.close)
        yield Lake(settings=settings, metadata=metadata, store=store, tables=tables)


async def all_streams(metadata: Metadata) -> Sequence[Stream]:
    """Return every active stream, by name."""
    found: list[Stream] = []
    while page := await metadata.streams.list(after=found[-1].name if found else "", limit=PAGE_COUNT):
        found += page
    return found


async def _named(metadata: Metadata, names: Sequence[str]) -> Sequence[Stream]:
    found = []
    for name in names:
        with suppress(NotFound):
            found.append(await metadata.streams.get(name))
    return found


async def query(
    settings: Settings,
    sql: str,
    progress: QueryProgress | None = None,
    *,
    is_live: bool = True,
    names: Sequence[str] | None = None,
) -> QueryResult:
    """Run one SELECT over the tables of these streams (None: of all), with its `progress`; streams that do not exist are left out.

    `is_live`: with every record that was acknowledged before; else with those that compaction has put into the tables. Raises as
    `table.query.query` and `Views.view`.
    """
    async with opened(settings) as lake:
        streams = await all_streams(lake.metadata) if names is None else await _named(lake.metadata, names)
        streams = with_current(streams)
        run = partial(table_query.query, lake.tables, streams, sql, will_have_table=_will_have_table, progress=progress)
        if not is_live:
            return await run()
        parts = lake.metadata, lake.store, lake.tables, settings.compaction.columns, settings.live
        with closing(Pool(settings.schemas)) as compiler:
            async with local_views(*parts, compiler) as live:
                return await run(live=live)


def _will_have_table(stream: Stream) -> bool:
    return stream_configs.table_rules(stream.name, stream.configs).is_enabled


def query_rows(settings: Settings, sql: str, *, is_live: bool) -> list[dict[str, object]]:
    """Like `query`, for callers without an event loop; returns rows by column."""
    found = asyncio.run(query(settings, sql, is_live=is_live))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


async def describe(settings: Settings, name: str) -> dict[str, object]:
    """Return a stream's table as JSON for people. Raises `NotFound` if the stream does not exist or has no table yet."""
    async with opened(settings) as lake:
        stream = await lake.metadata.streams.get(name)
        summary = await lake.tables.summary(stream)
        if summary is None:
            raise NotFound(f"stream {name} has no table yet: set table.enable and run a compaction worker")
        state = summary.state
        partitions = await _partition_rows(lake, stream, state)
        waiting = [
            stream_backlog
            for stream_backlog in await lake.metadata.tasks.backlog()
            if stream_backlog.stream_number == stream.number
        ]
        return {
            "stream": name,
            "table": ".".join(state.identifier),
            "location": lake.tables.locations.location(state.location_key),
            "metadata_location": state.metadata_location,
            "file_count": summary.file_count,
            "row_count": summary.row_count,
            "size_bytes": summary.size_bytes,
            "manifest_count": summary.manifest_count,
            "lag": sum(row["lag"] for row in partitions),
            "freshness_ms": waiting[0].age_ms if waiting else 0,
            "partitions": partitions,
            "snapshots": [asdict(snapshot) for snapshot in summary.snapshots],
            "current": await _current(lake, stream, state),
        }


async def _current(lake: Lake, stream: Stream, source: TableState) -> dict[str, object] | None:
    """Return the stream's current table as JSON for people; None: it should have none. `source`: the stream's table."""
    if current_rules(stream.configs) is None:
        return None
    summary = await lake.tables.summary(current_stream(stream))
    if summary is None:
        return {
            "table": None,
            "row_count": 0,
            "file_count": 0,
            "size_bytes": 0,
            "ends": {},
            "lag": sum(source.ends.values()),
        }
    ends = summary.state.ends
    return {
        "table": ".".join(summary.state.identifier),
        "row_count": summary.row_count,
        "file_count": summary.file_count,
        "size_bytes": summary.size_bytes,
        "ends": {str(index): end for index, end in sorted(ends.items())},
        "lag": behind(ends, source.ends),
    }


def behind(current: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """Return the number of offsets below `ends` that a current table with the ends `current` has not reached; by partition index."""
    return sum(max(0, end - current.get(index, 0)) for index, end in ends.items())


async def value_errors(settings: Settings, name: str) -> list[dict[str, object]]:
    """Return, by code, the records of a stream's table whose values or keys have no typed columns, with the newest record as an example.

    Empty if there are none, or if the table has no typed columns. Raises `NotFound` as `describe`, and as `table.query.query`.
    """
    async with opened(settings) as lake:
        stream = await lake.metadata.streams.get(name)
        state = await lake.tables.state(stream)
        if state is None:
            raise NotFound(f"stream {name} has no table yet: set table.enable and run a compaction worker")
        if ERROR not in state.column_names:
            return []
        quoted = name.replace('"', '""')
        found = await table_query.query(lake.tables, [stream], _VALUE_ERRORS.replace("{table}", f'"{quoted}"'))
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


async def _partition_rows(lake: Lake, stream: Stream, state: TableState) -> list[dict[str, int]]:
    keys = [stream.partition(index) for index in range(stream.partition_count)]
    bounds, compacted = await lake.metadata.log.bounds(keys), await lake.metadata.tasks.compacted(keys)
    rows = []
    for index, key in enumerate(keys):
        start, end, _ = bounds[key]
        in_table = state.ends.get(index, 0)
        rows.append(
            {
                "partition": index,
                "start_offset": start,
                "table_offset": in_table,
                "compacted_offset": compacted[key],
                "end_offset": end,
                "lag": end - max(in_table, start),
            }
        )
    return rows

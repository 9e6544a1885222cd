"""Creates the table of a stream, unless the stream was deleted or should have none.

A catalog cannot create a table on a condition of the metadata store. Each attempt of a creation therefore reads the stream again: in a
SQL catalog, a drop excludes all attempts that have read it earlier (decision 111). The worker also reads the stream after it has created
the table, and drops the table if the stream was deleted in between. If the worker dies first, upkeep drops the empty table.
"""

from bearlake.compaction.all_streams import all_streams
from bearlake.errors import NotFound
from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.streams.current_rules import current_rules, current_stream
from bearlake.table import Tables
from bearlake.table.model import TableState
from bearlake.table.naming import table_identifiers

PAGE_COUNT = 1_000
"""Number of streams per read."""


class StreamDeleted(NotFound):
    """The stream was deleted. Its tasks are dropped, without counting a failed attempt."""


async def ensure_table(stream: Stream, streams: StreamCatalog, tables: Tables) -> TableState | None:
    """Return the stream's table, created if absent and if the stream's current configs ask for a table; else None.

    Raises:
        StreamDeleted: the stream was deleted and has no table.
        Conflict: its table belongs to another owner.
        Unavailable: a store did not answer.
    """
    state = await tables.state(stream)
    if state is not None:
        return state
    now = await _living(stream, streams)
    if not stream_configs.table_rules(now.name, now.configs).is_enabled:
        return None

    async def has_predecessor() -> bool:
        return await _has_predecessor(now, streams)

    async def check() -> None:
        await _living(now, streams)

    state = await tables.ensure(now, has_predecessor=has_predecessor, check=check)
    try:
        await check()
    except StreamDeleted:
        if stream_configs.table_rules(now.name, now.configs).is_dropped_on_delete:
            await tables.drop(now)
        raise
    return state


async def ensure_current(stream: Stream, streams: StreamCatalog, tables: Tables) -> None:
    """Create the current table of a stream if it is absent and the stream's current configs ask for it. Raises as `ensure_table`."""
    now = await _living(stream, streams)
    if current_rules(now.configs) is None:
        return
    derived = current_stream(now)

    async def has_predecessor() -> bool:
        return await _has_predecessor(derived, streams)

    async def check() -> None:
        await _living(now, streams)

    await tables.ensure(derived, has_predecessor=has_predecessor, check=check)
    try:
        await check()
    except StreamDeleted:
        if stream_configs.table_rules(now.name, now.configs).is_dropped_on_delete:
            await tables.drop(derived)
        raise


async def _has_predecessor(stream: Stream, streams: StreamCatalog) -> bool:
    """Return whether an older stream, deleted or not, may have had a table of this stream's preferred name.

    A late drop of a current table's own predecessor does no harm: the table is made anew.
    """
    name = table_identifiers(stream)[0]
    async for older in all_streams(streams, PAGE_COUNT):
        if older.number >= abs(stream.number):
            return False
        if name in table_identifiers(older) or name in table_identifiers(current_stream(older)):
            return True
    return False


async def _living(stream: Stream, streams: StreamCatalog) -> Stream:
    """Return the stream's current state. Raises `StreamDeleted`."""
    found = await streams.by_numbers([stream.number])
    if not found or found[0].is_deleted:
        raise StreamDeleted(f"stream {stream.name} was deleted")
    return found[0]

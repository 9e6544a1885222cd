"""Making the table of a stream, unless the stream was deleted or shall have none.

A catalog cannot make a table on a condition of the metadata store. So the stream is looked at again after its table was made: a worker
that stood still between look and creation drops what it has made. One that never comes back leaves an empty table, which upkeep drops.
"""

from bearlake.compaction.all_streams import all_streams
from bearlake.errors import NotFound
from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.table import Tables
from bearlake.table.model import TableState
from bearlake.table.naming import table_identifiers

PAGE_COUNT = 1_000
"""Streams that are read at once."""


class StreamDeleted(NotFound):
    """The stream was deleted: its tasks go with it, nobody is blamed."""


async def ensure_table(stream: Stream, streams: StreamCatalog, tables: Tables) -> TableState | None:
    """The stream's table, made if it is absent and the stream's configs, as they are now, ask for it; else None.

    Raises:
        StreamDeleted: there is no table, and none was made that stays.
        Conflict: its table belongs to somebody else.
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

    state = await tables.ensure(now, has_predecessor=has_predecessor)
    try:
        await _living(now, streams)
    except StreamDeleted:
        if stream_configs.table_rules(now.name, now.configs).is_dropped_on_delete:
            await tables.drop(now)
        raise
    return state


async def _has_predecessor(stream: Stream, streams: StreamCatalog) -> bool:
    """Whether an older stream, deleted or not, may have had a table of the name that this stream's has first."""
    name = table_identifiers(stream)[0]
    async for older in all_streams(streams, PAGE_COUNT):
        if older.number >= stream.number:
            return False
        if name in table_identifiers(older):
            return True
    return False


async def _living(stream: Stream, streams: StreamCatalog) -> Stream:
    """The stream as it is now. Raises `StreamDeleted`."""
    found = await streams.by_numbers([stream.number])
    if not found or found[0].is_deleted:
        raise StreamDeleted(f"stream {stream.name} was deleted")
    return found[0]

"""Iterates over all streams, page by page, for jobs that process every stream."""

from collections.abc import AsyncIterator

from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import Stream


async def all_streams(streams: StreamCatalog, page_count: int) -> AsyncIterator[Stream]:
    """Yield all incarnations of all streams, including deleted ones, by number. Numbers have gaps of any size."""
    after = 0
    while page := await streams.incarnations(after=after, limit=page_count):
        for stream in page:
            yield stream
        after = page[-1].number

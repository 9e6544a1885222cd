"""All streams, page by page, for jobs that look at each of them."""

from collections.abc import AsyncIterator

from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import Stream


async def all_streams(streams: StreamCatalog, page_count: int) -> AsyncIterator[Stream]:
    """All incarnations of all streams, deleted ones too, by number; numbers have gaps of any size."""
    after = 0
    while page := await streams.incarnations(after=after, limit=page_count):
        for stream in page:
            yield stream
        after = page[-1].number

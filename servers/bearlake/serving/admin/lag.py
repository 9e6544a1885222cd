"""Consumer groups over HTTP: how many records of each stream a group has still to read.

The lag of a partition is the number of its readable offsets from the committed offset on. Readers of committed records stop at open
transactions, so the lag counts up to the last stable offset. Partitions without a committed offset do not count: the group may begin at
their end. A server reads the figures from the metadata store, whichever server coordinates the group.
"""

from collections import defaultdict
from collections.abc import Mapping

from aiohttp import web

from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionBounds, PartitionKey, stream_number
from bearlake.serving.admin import models


class LagRoutes:
    """The handler of `GET /v1/groups`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_get("/v1/groups", self.list)

    async def list(self, request: web.Request) -> web.Response:
        """List consumer groups by name with their lag in records, in all and by stream, one page.

        `next` is the `after` of the next page, null on the last page. A stream of a group that was deleted is left out.
        """
        page = models.GROUP_PAGE.read(request)
        found = await self._metadata.groups.list(after=page.after, limit=page.limit)
        committed = {
            row.group: {key: offset.offset for key, offset in (await self._metadata.groups.offsets(row.group)).items()}
            for row in found
        }
        keys = {key for offsets in committed.values() for key in offsets}
        bounds = await self._metadata.log.bounds(keys) if keys else {}
        streams = await self._metadata.streams.by_numbers({stream_number(key) for key in keys}) if keys else ()
        names = {stream.number: stream.name for stream in streams if not stream.is_deleted}
        shown = [
            {"group": row.group, "protocol_type": row.protocol_type, **_lag(committed[row.group], bounds, names)}
            for row in found
        ]
        return web.json_response({"groups": shown, "next": found[-1].group if len(found) == page.limit else None})


def _lag(
    offsets: Mapping[PartitionKey, int], bounds: Mapping[PartitionKey, PartitionBounds], names: Mapping[int, str]
) -> dict[str, object]:
    """Return a group's lag, in all and by stream (the largest lag first)."""
    lags: dict[str, int] = defaultdict(int)
    partition_count = 0
    for key, offset in offsets.items():
        name = names.get(stream_number(key))
        if name is None or key not in bounds:
            continue
        partition_count += 1
        lags[name] += max(0, bounds[key].last_stable - max(offset, bounds[key].start))
    streams = [{"stream": name, "lag": lag} for name, lag in sorted(lags.items(), key=lambda item: (-item[1], item[0]))]
    return {"lag": sum(lags.values()), "partition_count": partition_count, "streams": streams}

"""Streams over HTTP: list, describe, and batches of create, alter, delete.

Items of a batch are processed in order; an item that fails does not stop the others, and reports the failure in its own result.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web

from bearlake.errors import BearlakeError, Invalid, NotFound, TooLarge
from bearlake.metadata.model import PartitionKey, Stream, stream_number
from bearlake.serving.admin import models, problems
from bearlake.serving.admin.models import NewStream, StreamChange, StreamToDelete
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import UNSET, Raw, Reader
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams

T = TypeVar("T")

BATCH_COUNT_MAX = 1000
USAGE_PARTITION_COUNT_MAX = 10_000
"""Maximum number of partitions whose usage one page reports (the first stream is always reported)."""


class StreamRoutes:
    """The handlers under `/v1/streams`."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/v1/streams", self.list)
        router.add_post("/v1/streams", self.create)
        router.add_patch("/v1/streams", self.alter)
        router.add_delete("/v1/streams", self.delete)
        router.add_get("/v1/streams/{name}", self.describe)
        router.add_get("/v1/streams/{name}/partitions", self.partitions)

    async def list(self, request: web.Request) -> web.Response:
        """List streams by name, one page; `next` is the `after` of the next page, null on the last page.

        With `usage=true`, each stream has its readable records and bytes; a page of streams with many partitions is then shorter.
        """
        page = models.STREAM_PAGE.read(request)
        found = await self._streams.metadata.streams.list(prefix=page.prefix, after=page.after, limit=page.limit)
        is_full = len(found) == page.limit
        if page.usage == "true":
            bounded = _bounded(found)
            is_full |= len(bounded) < len(found)
            found = bounded
            usage = await self._usage(found)
        else:
            usage = {}
        shown = [{**_shown(StreamView(stream)), **usage.get(stream.number, {})} for stream in found]
        return web.json_response({"streams": shown, "next": found[-1].name if is_full else None})

    async def _usage(self, streams: Sequence[Stream]) -> Mapping[int, Mapping[str, int]]:
        """Return records and bytes by stream number."""
        keys = [stream.partition(index) for stream in streams for index in range(stream.partition_count)]
        found = {stream.number: {"record_count": 0, "size_bytes": 0} for stream in streams}
        for key, used in (await self._streams.metadata.log.usage(keys)).items():
            whole = found[stream_number(key)]
            whole["record_count"] += used.record_count
            whole["size_bytes"] += used.size_bytes
        return found

    async def describe(self, request: web.Request) -> web.Response:
        """Get one stream, as currently stored."""
        stream = await self._streams.metadata.streams.get(request.match_info["name"])
        return web.json_response(_shown(StreamView(stream)))

    async def partitions(self, request: web.Request) -> web.Response:
        """List a stream's partitions with their current offsets and sizes, one page."""
        view = StreamView(await self._streams.metadata.streams.get(request.match_info["name"]))
        page = models.PARTITION_PAGE.read(request)
        if page.after > view.partition_count:
            raise Invalid(f"after: expected a whole number from -1 to {view.partition_count}, found {page.after}")
        start = page.after + 1
        end = min(start + page.limit, view.partition_count)
        keys = [view.partition(index) for index in range(start, end)]
        rows = await self._partition_rows(keys)
        return web.json_response({"partitions": rows, "next": end - 1 if end < view.partition_count else None})

    async def _partition_rows(self, keys: Sequence[PartitionKey]) -> Sequence[dict[str, int]]:
        bounds = await self._streams.bounds(keys)
        usage = await self._streams.metadata.log.usage(keys)
        compacted = await self._streams.metadata.tasks.compacted(keys)
        return [
            {
                "partition": key & 0xFFFFF,
                "start_offset": bounds[key].start,
                "end_offset": bounds[key].end,
                "compacted_offset": compacted.get(key, 0),
                "size_bytes": usage[key].size_bytes if key in usage else 0,
            }
            for key in keys
            if key in bounds
        ]

    async def create(self, request: web.Request) -> web.Response:
        """Create streams."""

        async def create_stream(item: NewStream) -> dict[str, Any]:
            return _shown(
                await self._streams.create(principal_of(request), item.name, item.partition_count or 1, item.configs)
            )

        return await _each(await _items(request), models.NEW_STREAM, create_stream, 201)

    async def alter(self, request: web.Request) -> web.Response:
        """Set and unset configs of streams, and add partitions."""

        async def alter_stream(item: StreamChange) -> dict[str, Any]:
            view = await self._streams.resolve(principal_of(request), Operation.ALTER, item.name)
            view = await self._streams.change(principal_of(request), view.stream, lambda _: (item.set, item.unset))
            if item.partition_count is not None and item.partition_count != view.partition_count:
                view = await self._streams.add_partitions(principal_of(request), view.stream, item.partition_count)
            return _shown(view)

        return await _each(await _items(request), models.STREAM_CHANGE, alter_stream, 200)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete streams. Their names are free at once; their bytes are deleted later. The query or the body names the streams.

        An item with an `id` deletes only the stream of this id, not a newer stream of the same name (404).
        """

        async def delete_stream(item: StreamToDelete) -> dict[str, Any]:
            view = await self._streams.resolve(principal_of(request), Operation.DELETE, item.name)
            if item.id is not UNSET and str(view.stream.id) != item.id:
                raise NotFound(f"stream {item.name!r} has the id {view.stream.id}, not {item.id}")
            await self._streams.delete(principal_of(request), view.stream)
            return {}

        if request.can_read_body:
            items = await _items(request)
        else:
            names = models.STREAM_NAMES.read(request).name
            items = [Raw(json.dumps({"name": name}).encode()) for name in names]
        if not items:
            raise Invalid("expected at least one stream name: DELETE /v1/streams?name=a&name=b")
        return await _each(items, models.STREAM_TO_DELETE, delete_stream, 200)


async def _items(request: web.Request) -> list[Raw]:
    """Return the items of the batch in the request's body, unchecked. Raises `Malformed`, `Mismatch`, `TooLarge`, `Invalid`."""
    if request.content_type != "application/json":
        raise Invalid("expected JSON with Content-Type: application/json")
    return models.ITEMS.read(await request.read()).streams


async def _each(
    items: Sequence[Raw], reader: Reader[T], work: Callable[[T], Awaitable[dict[str, Any]]], status: int
) -> web.Response:
    if len(items) > BATCH_COUNT_MAX:
        raise TooLarge("the batch (counted in items)", len(items), BATCH_COUNT_MAX)
    results: list[dict[str, Any]] = []
    for octets in items:
        name = None
        try:
            name = _name(octets)
            stream = await work(reader.read(octets))
            results.append({"name": name, "status": status, **({"stream": stream} if stream else {})})
        except BearlakeError as error:
            document = problems.of_error(error)
            results.append({"name": name, "status": document["status"], "problem": document})
    is_fine = all(result["status"] == status for result in results)
    return web.json_response({"results": results}, status=200 if is_fine else 207)


def _name(octets: Raw) -> str | None:
    """Return the name in an item, even if the item does not fit its model; None if there is no text. Raises `Malformed`, `Mismatch`."""
    item = models.NAMED.read(octets)
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def _bounded(streams: Sequence[Stream]) -> Sequence[Stream]:
    """Return the first of the streams, as many as one page reports the usage of."""
    count = 0
    for at, stream in enumerate(streams):
        count += stream.partition_count
        if at and count > USAGE_PARTITION_COUNT_MAX:
            return streams[:at]
    return streams


def _shown(view: StreamView) -> dict[str, Any]:
    stream = view.stream
    return {
        "name": stream.name,
        "id": str(stream.id),
        "partition_count": stream.partition_count,
        "configs": dict(stream.configs),
        "created_ms": stream.created_ms,
    }

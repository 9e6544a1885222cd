"""POST …/topics/{topic}/records:read: records of any partitions from given positions on, with keys, headers and times.

A reader keeps its own positions: the answer says where each partition continues, and the next request names these positions. It belongs to
no group and commits nothing. With `wait_ms`, a request without records waits for the first ones.

A key or value is shown as text where it is text, by its schema where it names one of the registry, and else in base64 (`v3/shown.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import Denied, NotFound, OutOfRange
from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import JSON_TYPE, Problem, partition_not_found
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models, shown
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, body, find, unknown_topic
from bearlake.records.codec import Record
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams

_LOOK_MS = 1_000
"""Longest wait (ms) between two looks at whether the server drains or the stream is gone."""


class Found(NamedTuple):
    """Records in the order of their partitions, and where each partition continues."""

    records: list[tuple[int, int, Record]]
    """Partition, offset, record."""
    positions: dict[PartitionKey, int]


class ReadRoutes:
    """The handler that reads records."""

    def __init__(
        self,
        streams: Streams,
        servers: LiveServers,
        settings: RestSettings,
        embedded: Embedded,
        draining: asyncio.Event,
    ) -> None:
        """`draining` ends requests that wait for records."""
        self._streams = streams
        self._servers = servers
        self._settings = settings
        self._embedded = embedded
        self._draining = draining

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(CLUSTER + "/topics/{topic}/records:read", self.read)

    async def read(self, request: web.Request) -> web.Response:
        """Read records from positions, or from a start."""
        site = Site(request, self._servers)
        asked = await body(request, models.READING, self._settings)
        view, who = await find(self._streams, request, Operation.READ), principal_of(request)
        self._streams.quotas.require(who, QuotaKey.CONSUMER_BYTE_RATE)
        indexes = _indexes(view, asked)
        bounds = await self._streams.bounds([view.partition(index) for index in indexes])
        positions = await self._positions(view, asked, indexes, bounds)
        found = await self._read(request, view, positions, asked)
        records = await shown.records(self._embedded, who, found.records)
        head = site.listing("KafkaRecordList", f"/topics/{view.name}/records", [])
        answer = shown.answer(head, records, found.positions, await self._streams.bounds(list(found.positions)))
        self._streams.quotas.charge(who, QuotaKey.CONSUMER_BYTE_RATE, len(answer))
        reading.count_served([(record.key, record.value) for _, _, record in found.records])
        return web.Response(body=answer, content_type=JSON_TYPE)

    async def _positions(
        self,
        view: StreamView,
        asked: models.Reading,
        indexes: Sequence[int],
        bounds: Mapping[PartitionKey, PartitionBounds],
    ) -> dict[PartitionKey, int]:
        """Return where to begin, by partition, in the order of the request. Raises `Problem` (410: a position was trimmed)."""
        keys = [key for index in indexes if (key := view.partition(index)) in bounds]
        if asked.positions:
            given = {view.partition(position.partition_id): position.offset for position in asked.positions}
            for key in keys:
                if given[key] < bounds[key].start:
                    start, index = bounds[key].start, partition_index(key)
                    raise Problem(410, 410, f"partition {index}: records before offset {start} are deleted")
            return {key: given[key] for key in keys}
        if asked.start == "timestamp":
            return await self._at_time(keys, asked.timestamp_ms or 0, bounds)
        if asked.start == "earliest":
            return {key: bounds[key].start for key in keys}
        count = asked.record_count_max or models.READ_RECORD_COUNT
        newest_count = max(1, count // max(1, len(keys))) if asked.start == "last" else 0
        return {key: max(bounds[key].start, bounds[key].last_stable - newest_count) for key in keys}

    async def _at_time(
        self, keys: Sequence[PartitionKey], timestamp_ms: int, bounds: Mapping[PartitionKey, PartitionBounds]
    ) -> dict[PartitionKey, int]:
        answers = await self._streams.offsets([OffsetQuestion(key, timestamp_ms) for key in keys], is_committed=True)
        found = {}
        for key, answer in zip(keys, answers, strict=True):
            if answer.error is not None:
                raise answer.error
            found[key] = answer.offset if answer.offset >= 0 else bounds[key].last_stable
        return found

    async def _read(
        self, request: web.Request, view: StreamView, positions: dict[PartitionKey, int], asked: models.Reading
    ) -> Found:
        """Read, waiting for the first record at most as long as the request says. Raises `Problem`, `Denied`, `Unavailable`."""
        who, loop = principal_of(request), asyncio.get_running_loop()
        until = loop.time() + (asked.wait_ms or 0) / 1000
        while True:
            left_ms = max(0, int((until - loop.time()) * 1000))
            wait_ms = 0 if self._draining.is_set() else min(left_ms, _LOOK_MS)
            found = await self._read_once(view, positions, asked, wait_ms)
            if not self._streams.may(who, Operation.READ, view.name):
                raise Denied(f"{who} may not read from {view.name!r}")
            if found.records or left_ms == 0 or self._draining.is_set():
                return found
            positions = found.positions

    async def _read_once(
        self, view: StreamView, positions: Mapping[PartitionKey, int], asked: models.Reading, wait_ms: int
    ) -> Found:
        bytes_max = min(asked.bytes_max or models.READ_BYTES, self._settings.fetch_bytes_max)
        ranges = [FetchRange(key, offset, bytes_max) for key, offset in positions.items()]
        answers = await self._streams.fetch(ranges, bytes_min=1 if wait_ms else 0, bytes_max=bytes_max, wait_ms=wait_ms)
        room = reading.Room(asked.record_count_max or models.READ_RECORD_COUNT, bytes_max)
        records: list[tuple[int, int, Record]] = []
        ends: dict[PartitionKey, int] = {}
        for fetched in answers:
            key = fetched.range.partition
            _check(view, fetched)
            taken, ends[key] = await reading.take(fetched, self._settings.batch_bytes_max, room)
            records += [(partition_index(key), offset, record) for offset, record in taken]
        return Found(records, ends)


def _indexes(view: StreamView, asked: models.Reading) -> Sequence[int]:
    """Return the partitions to read. Raises `Problem` (400, 404)."""
    if asked.positions:
        indexes = [position.partition_id for position in asked.positions]
    elif asked.partition_ids:
        indexes = list(asked.partition_ids)
    else:
        indexes = list(range(view.partition_count))
    if len(indexes) > models.READ_PARTITION_COUNT_MAX:
        most = models.READ_PARTITION_COUNT_MAX
        raise Problem(400, 400, f"at most {most} partitions in one request: name some in partition_ids")
    if len(set(indexes)) < len(indexes):
        raise Problem(400, 400, "each partition may be named once")
    for index in indexes:
        if index >= view.partition_count:
            raise partition_not_found(view.name, index)
    return indexes


def _check(view: StreamView, fetched: Fetched) -> None:
    """Raise the error of one partition's answer, if it has one."""
    index = partition_index(fetched.range.partition)
    if isinstance(fetched.error, NotFound):
        raise unknown_topic(view.name)
    if isinstance(fetched.error, OutOfRange):
        start = fetched.error.start
        raise Problem(
            410, 410, f"partition {index}: offset {fetched.range.offset} is not there; records begin at {start}"
        )
    if fetched.error is not None:
        raise fetched.error

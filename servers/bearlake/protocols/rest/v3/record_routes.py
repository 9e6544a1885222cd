"""POST …/topics/{topic}/records: reads a stream of records and streams one report per record, in order, while the request runs.

Records that arrive together are appended together, and reported once durable. While a client is slow to read reports, the server reads
no further records. The status is that of the request; the report of a failed record has its own code.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import bodies, problems
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import JSON_TYPE, Problem
from bearlake.protocols.rest.produce import Writing, Written
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3.composing import Composed, Composer
from bearlake.protocols.rest.v3.record_stream import Objects, ProduceItem, parse_item
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, find
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from bearlake.serving.http.limits import own_time
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.reservations import Reservation
from bearlake.streams.service import Streams

_PIECE_BYTES = 64 * 1024
"""How much of a compressed body is handled at a time, as much as arrives at a time without compression."""
_RECORD_BYTES = 16
"""Estimated size of a small record: pieces of 16 KiB, which may have 8,000 empty records, are parsed on the event loop."""
_TYPES = ("application/json", "application/octet-stream")


class RecordRoutes:
    """The handler that writes records."""

    def __init__(
        self, streams: Streams, servers: LiveServers, settings: RestSettings, writing: Writing, embedded: Embedded
    ) -> None:
        self._streams = streams
        self._servers = servers
        self._settings = settings
        self._writing = writing
        self._embedded = embedded

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(CLUSTER + "/topics/{topic}/records", self.produce)

    @own_time
    async def produce(self, request: web.Request) -> web.StreamResponse:
        """Write a stream of records; the answer is a stream of reports."""
        site = Site(request, self._servers)
        if request.content_type not in _TYPES:
            detail = f"{request.content_type[:100]!r}: expected {JSON_TYPE}"
            raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {detail}")
        view, who = await find(self._streams, request, Operation.WRITE), principal_of(request)
        response = web.StreamResponse(headers={"Content-Type": JSON_TYPE})
        objects = Objects(self._settings.request_bytes_max, self._settings.request_value_count_max)
        try:
            with await self._writing.room(who) as room:
                async for piece in self._pieces(request, objects, room):
                    items: list[object] = []
                    try:
                        await self._writing.worked(len(piece) // _RECORD_BYTES, _feed, objects, piece, items)
                    finally:
                        if items:
                            reports = await self._write(site, view, who, items)
                            await self._report(request, response, reports)
            objects.end()
        except (Problem, BearlakeError) as error:
            if not response.prepared:
                raise
            problem = error if isinstance(error, Problem) else problems.of_error(error)
            response.force_close()
            await self._report(request, response, _json([_failed(problem)]))
        if not response.prepared:
            raise Problem(422, 42206, "Payload error. Request body is empty. Data is required.")
        await response.write_eof()
        return response

    async def _pieces(self, request: web.Request, objects: Objects, room: Reservation) -> AsyncIterator[bytes]:
        """Yield the body. Raises `Problem` (408) if a record does not arrive within `request_timeout_ms`."""
        if bodies.codec_of(request) is not Compression.NONE:
            body = await bodies.read(request, self._settings.request_bytes_max, room)
            for start in range(0, len(body), _PIECE_BYTES):
                yield body[start : start + _PIECE_BYTES]
            return
        who, loop, limit_s = principal_of(request), asyncio.get_running_loop(), self._settings.request_timeout_ms / 1000
        ends_s: float | None = None
        count = 0
        while True:
            try:
                async with asyncio.timeout_at(ends_s):
                    piece = await request.content.readany()
            except TimeoutError as error:
                raise Problem(408, 408, f"HTTP 408 Request Timeout: a record took more than {limit_s:g} s") from error
            if not piece:
                return
            await self._writing.next_room(who, room, objects.size_bytes + len(piece))
            yield piece
            await room.hold(objects.size_bytes)
            if not objects.is_inside:
                ends_s = None
            elif ends_s is None or objects.count != count:
                ends_s, count = loop.time() + limit_s, objects.count

    async def _report(self, request: web.Request, response: web.StreamResponse, reports: bytes) -> None:
        if not response.prepared:
            await response.prepare(request)
        await response.write(reports)

    async def _write(self, site: Site, view: StreamView, who: Principal, items: list[object]) -> bytes:
        """Append records that arrived together; return one report per record, as JSON."""
        now_ms, count = self._writing.now_ms(), len(items)
        asked = await self._writing.worked(count, lambda: [_parsed(item, now_ms) for item in items])
        composer = Composer(self._embedded, who, view.name, self._writing.worked)
        composed = await composer.composed([item for item in asked if not isinstance(item, Problem)])
        placed = await self._writing.worked(count, self._placed, view, asked, composed)
        written = await self._writing.write(who, view, placed.records)
        return await self._writing.worked(count, placed.shown, site, view, written)

    def _placed(
        self, view: StreamView, asked: Sequence[ProduceItem | Problem], composed: Sequence[Composed | Problem]
    ) -> "_Placed":
        """Choose the partitions; `composed` has an item for each of `asked` that is no problem. May run in a thread."""
        placed, made = _Placed([], [], []), iter(composed)
        for item in asked:
            try:
                record = _raised(item if isinstance(item, Problem) else next(made))
                partition = None if isinstance(item, Problem) else item.partition
                placed.records.append((self._place(view, partition, record.record), record.record))
            except Problem as problem:
                placed.reports.append(_failed(problem))
            else:
                placed.reports.append(None)
                placed.accepted.append(record)
        return placed

    def _place(self, view: StreamView, partition: int | None, record: Record) -> int:
        if partition is not None:
            if partition >= view.partition_count:
                raise problems.partition_not_found(view.name, partition)
            return partition
        chosen = self._writing.choose(view, record.key)
        return self._writing.any_partition(view) if chosen is None else chosen


class _Placed(NamedTuple):
    """Records with their partitions, and the reports of all items; None for those that are `accepted`, in order."""

    records: list[tuple[int, Record]]
    accepted: list[Composed]
    reports: list[dict[str, object] | None]

    def shown(self, site: Site, view: StreamView, written: Sequence[Written]) -> bytes:
        """Return the reports of all items, given the results of the accepted ones. May run in a thread."""
        done = iter(zip(self.accepted, written, strict=True))
        return _json([_shown(site, view, *next(done)) if report is None else report for report in self.reports])


def _feed(objects: Objects, piece: bytes, items: list[object]) -> None:
    """Parse a piece; `items` gets its objects, also those before a malformed one. May run in a thread."""
    items.extend(objects.feed(piece))


def _json(reports: Sequence[dict[str, object]]) -> bytes:
    return "".join(json.dumps(report) + "\r\n" for report in reports).encode()


def _shown(site: Site, view: StreamView, composed: Composed, written: Written) -> dict[str, object]:
    if written.error is not None:
        return _failed(problems.of_error(written.error))
    moment = datetime.fromtimestamp(composed.record.timestamp / 1000, UTC)
    report: dict[str, object] = {
        "error_code": 200,
        "cluster_id": site.cluster_id,
        "topic_name": view.name,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    parts = {"key": composed.key, "value": composed.value}
    return report | {name: shown for name, shown in parts.items() if shown is not None}


def _failed(problem: Problem) -> dict[str, object]:
    return {"error_code": problem.code, "message": str(problem)}


def _parsed(item: object, now_ms: int) -> ProduceItem | Problem:
    try:
        return parse_item(item, now_ms)
    except Problem as problem:
        return problem


def _raised(found: Composed | Problem) -> Composed:
    if isinstance(found, Problem):
        raise found
    return found

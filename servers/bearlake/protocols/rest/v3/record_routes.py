"""POST …/topics/{topic}/records: a stream of records in, a report for each out, in order, while the request still runs.

What has arrived is appended together, and reported when it is durable; a slow client is not read further meanwhile. The status is
that of the request; a record that fails has its own code in its report.
"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from aiohttp import web

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import bodies, problems
from bearlake.protocols.rest.guard import following
from bearlake.protocols.rest.members import Members
from bearlake.protocols.rest.problems import JSON_TYPE, Problem
from bearlake.protocols.rest.produce import Writing, Written
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3.record_stream import Objects, Wanted, wanted
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, find
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import ANONYMOUS, Operation
from bearlake.streams.service import Streams

_TYPES = ("application/json", "application/octet-stream")


class RecordRoutes:
    """The handler that writes."""

    def __init__(self, streams: Streams, members: Members, settings: RestSettings, writing: Writing) -> None:
        self._streams = streams
        self._members = members
        self._settings = settings
        self._writing = writing

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(CLUSTER + "/topics/{topic}/records", self.produce)

    @following
    async def produce(self, request: web.Request) -> web.StreamResponse:
        """Records in, reports out."""
        site = Site(request, self._members)
        if request.content_type not in _TYPES:
            raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {request.content_type[:100]!r}")
        view = await find(self._streams, request, Operation.WRITE)
        response = web.StreamResponse(headers={"Content-Type": JSON_TYPE})
        objects = Objects(self._settings.request_bytes_max)
        try:
            async for piece in self._pieces(request):
                items: list[object] = []
                try:
                    items.extend(objects.feed(piece))  # those before a malformed one are kept
                finally:
                    if items:
                        await self._report(request, response, await self._write(site, view, items))
            objects.end()
        except (Problem, BearlakeError) as error:
            problem = error if isinstance(error, Problem) else problems.of_error(error)
            if not response.prepared:
                raise problem from error
            response.force_close()
            await self._report(request, response, [_failed(problem)])
        if not response.prepared:
            raise Problem(422, 42206, "Payload error. Request body is empty. Data is required.")
        await response.write_eof()
        return response

    async def _pieces(self, request: web.Request) -> AsyncIterator[bytes]:
        if bodies.codec_of(request) is not Compression.NONE:
            yield await bodies.read(request, self._settings.request_bytes_max)
            return
        async for piece in request.content.iter_any():
            await self._writing.room()
            yield piece

    async def _report(
        self, request: web.Request, response: web.StreamResponse, reports: list[dict[str, object]]
    ) -> None:
        if not response.prepared:
            await response.prepare(request)
        await response.write("".join(json.dumps(report) + "\r\n" for report in reports).encode())

    async def _write(self, site: Site, view: StreamView, items: list[object]) -> list[dict[str, object]]:
        now_ms = self._writing.now_ms()
        reports: list[dict[str, object] | None] = []
        placed: list[tuple[int, Record]] = []
        asked: list[Wanted] = []
        for item in items:
            try:
                one = wanted(item, now_ms)
                placed.append((self._place(view, one), one.record))
            except Problem as problem:
                reports.append(_failed(problem))
            else:
                reports.append(None)
                asked.append(one)
        written = iter(zip(asked, await self._writing.write(ANONYMOUS, view, placed), strict=True))
        return [_shown(site, view, *next(written)) if report is None else report for report in reports]

    def _place(self, view: StreamView, one: Wanted) -> int:
        if one.partition is not None:
            if one.partition >= view.partition_count:
                raise problems.partition_not_found(view.name, one.partition)
            return one.partition
        chosen = self._writing.choose(view, one.record.key)
        return self._writing.any_partition(view) if chosen is None else chosen


def _shown(site: Site, view: StreamView, one: Wanted, written: Written) -> dict[str, object]:
    if written.error is not None:
        return _failed(problems.of_error(written.error))
    moment = datetime.fromtimestamp(one.record.timestamp / 1000, UTC)
    report: dict[str, object] = {
        "error_code": 200,
        "cluster_id": site.cluster_id,
        "topic_name": view.name,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    for name, kind, octets in (("key", one.key_type, one.record.key), ("value", one.value_type, one.record.value)):
        if kind is not None:
            report[name] = {"type": kind, "size": len(octets or b"")}
    return report


def _failed(problem: Problem) -> dict[str, object]:
    return {"error_code": problem.code, "message": str(problem)}

"""POST /topics/{topic} and POST /topics/{topic}/partitions/{partition}: records in, an offset per record out.

{"records": [{"key": …, "value": …, "partition": 0}]}
{"offsets": [{"partition": 0, "offset": 7, "error_code": null, "error": null}], "key_schema_id": null, "value_schema_id": null}
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from bearlake.errors import AlreadyExists, BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.protocols.rest import bodies, problems
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import V2_TYPE, Problem
from bearlake.protocols.rest.produce import Writing, Written
from bearlake.protocols.rest.proxy import formats, models
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.protocols.rest.proxy.models import BinaryRecord, JsonRecord, Produce, TextRecord
from bearlake.protocols.rest.proxy.schema_columns import Column, column
from bearlake.protocols.rest.settings import RestSettings
from bearlake.records.codec import Record
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import Reader
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.service import Streams

_NOT_RETRIABLE, _RETRIABLE = 1, 2
_BYTES_PER_RECORD = 64
"""Bytes of a JSON body that are as much work as a record."""


class ProduceRoutes:
    """Handlers that write records."""

    def __init__(self, streams: Streams, settings: RestSettings, writing: Writing, embedded: Embedded) -> None:
        self._streams = streams
        self._settings = settings
        self._writing = writing
        self._embedded = embedded

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_post("/topics/{topic}", self.to_topic)
        router.add_post("/topics/{topic}/partitions/{partition}", self.to_partition)

    async def to_topic(self, request: web.Request) -> web.Response:
        """Write records to a topic; each record may name its partition."""
        return await self._produce(request, None)

    async def to_partition(self, request: web.Request) -> web.Response:
        """Write records to one partition."""
        return await self._produce(request, parse_index(request.match_info["partition"]))

    async def _produce(self, request: web.Request, partition: int | None) -> web.Response:
        form, who = formats.of_body(request), principal_of(request)
        with await self._writing.room(who) as room:
            octets = await bodies.read(request, self._settings.request_bytes_max, room)
            return await self._written(request, who, form, octets, partition)

    async def _written(
        self, request: web.Request, who: Principal, form: Format, octets: bytes, partition: int | None
    ) -> web.Response:
        self._writing.check_quota(who)
        reader = _reader(form, is_partition_given=partition is not None)
        body = await bodies.parse_many(
            reader, octets if octets.strip() else b"{}", self._settings.request_value_count_max
        )
        name = request.match_info["topic"]
        self._writing.require(who, name)  # first, so that a refusal does not reveal whether the topic exists
        view = await self._view(who, name)
        if partition is not None and partition >= view.partition_count:
            raise problems.partition_not_found(view.name, partition)
        budget = self._embedded.budget()
        keys, values = [
            await self._column(who, view.name, part, form, body, len(octets), budget) for part in ("key", "value")
        ]
        now_ms = self._writing.now_ms()
        worked, count = self._writing.worked, len(body.records)
        placed = await worked(count, self._placed, view, body.records, keys.values, values.values, partition, now_ms)
        written = await self._writing.write(who, view, placed, is_all=True)
        ids = {"key_schema_id": keys.schema_id, "value_schema_id": values.schema_id}
        return web.Response(body=await worked(count, _answer, written, ids), content_type=V2_TYPE)

    async def _column(
        self,
        who: Principal,
        topic: str,
        part: str,
        form: Format,
        body: Produce[Any],
        size_bytes: int,
        budget: Budget,
    ) -> Column:
        """Return the keys or values of the records (Any: records of the format), whose body has `size_bytes`."""
        found = [getattr(record, part) for record in body.records]
        if form is Format.BINARY:
            return Column(found, None)
        if form is Format.JSON:
            return Column(
                await self._writing.worked(max(len(found), size_bytes // _BYTES_PER_RECORD), _json_in, found, part),
                None,
            )
        assert form.schema_type is not None
        texts = [bytes(value) or None for value in found]
        return await column(self._embedded, who, topic, part, form.schema_type, body, texts, budget)

    def _placed(
        self,
        view: StreamView,
        asked: Sequence[BinaryRecord | JsonRecord | TextRecord],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        partition: int | None,
        now_ms: int,
    ) -> list[tuple[int, Record]]:
        """Assign each record to `partition`, to the partition it names, or to the partition of its key."""
        records = [Record(key=key, value=value, timestamp=now_ms) for key, value in zip(keys, values, strict=True)]
        if partition is not None:
            return [(partition, record) for record in records]
        somewhere = self._writing.any_partition(view)
        placed = []
        for given, record in zip(asked, records, strict=True):
            own = given.partition
            if own is not None and own >= view.partition_count:
                raise problems.partition_not_found(view.name, own)
            chosen = own if own is not None else self._writing.choose(view, record.key)
            placed.append((somewhere if chosen is None else chosen, record))
        return placed

    async def _view(self, who: Principal, name: str) -> StreamView:
        try:
            return await self._streams.catalog.find(name)
        except NotFound as error:
            if not self._settings.auto_create_streams:
                raise problems.topic_not_found(name) from error
        try:
            return await self._streams.create(who, name, self._settings.default_partition_count, {})
        except AlreadyExists:
            return await self._streams.catalog.find(name)


def parse_index(text: str) -> int:
    """Parse a partition index from a path. Raises `Problem` (404)."""
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= models.INT32_MAX):
        raise Problem(404, 404, f"HTTP 404 Not Found: {text[:20]!r} is not a partition number")
    return int(text)


def _reader(form: Format, *, is_partition_given: bool) -> Reader[Any]:
    """Return the body parser for a format (Any: record types differ by format). If the path names the partition, records must not."""
    if form is Format.BINARY:
        return models.BINARY_PAIRS if is_partition_given else models.BINARY
    if form.schema_type is not None:
        return models.TEXT_PAIRS if is_partition_given else models.TEXTS
    return models.JSON_PAIRS if is_partition_given else models.JSON


def _json_in(values: Sequence[Any], part: str) -> list[bytes | None]:
    """Return the bytes of JSON values (Any), which messages call `part`. Raises `Problem`."""
    return [
        value if value is None else formats.json_in(value, f"records[{at}].{part}") for at, value in enumerate(values)
    ]


def _answer(written: Sequence[Written], ids: Mapping[str, int | None]) -> bytes:
    return b"".join(
        (
            b'{"offsets": [',
            b", ".join(json.dumps(_shown(result)).encode() for result in written),
            b"], ",
            json.dumps(ids)[1:].encode(),
        )
    )


def _shown(written: Written) -> dict[str, object]:
    if written.error is None:
        return {"partition": written.partition, "offset": written.offset, "error_code": None, "error": None}
    return {
        "partition": written.partition,
        "offset": None,
        "error_code": _RETRIABLE if is_retriable(written.error) else _NOT_RETRIABLE,
        "error": str(written.error),
    }


def is_retriable(error: BearlakeError) -> bool:
    """Return whether a retry of the same record may succeed."""
    return isinstance(error, (Unavailable, Overloaded))

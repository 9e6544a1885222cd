"""Reads single entries without delivering them: the n-th entry after a subscription's mark-delete offset, or the entry with an id.

The response body is the entry's uncompressed payload. In the payload of a batch, each message follows its own metadata, as clients write
batches. Headers contain the other metadata.

Source: Pulsar, "Admin REST API", `…/subscription/{name}/position/{n}`, `…/ledger/{l}/entry/{e}`.
"""

import re
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from aiohttp import web
from multidict import CIMultiDict

from bearlake import kernel
from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.protocols.pulsar import entries, framing
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata
from bearlake.records.batch import is_control
from bearlake.streams.fetched import FetchRange
from bearlake.streams.principal import Operation

POSITION_MAX = 1_000
"""Largest position that a request may ask for: the server reads all entries before it."""
FETCH_BYTES = 1024 * 1024
_TIME_MAX = 253_402_300_799_000
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")  # RFC 9110, 5.6.2


class _Peeked(NamedTuple):
    """An entry; `batch_message_count` is None unless it is a batch."""

    offset: int
    metadata: MessageMetadata
    payload: bytes
    batch_message_count: int | None


class PeekRoutes:
    """Routes of single entries."""

    def __init__(self, context: PulsarContext) -> None:
        self._context = context

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
        router.add_get(f"{topic}/subscription/{{subscription}}/position/{{position}}", self._peek)
        router.add_get(f"{topic}/ledger/{{ledger}}/entry/{{entry}}", self._by_id)

    async def _peek(self, request: web.Request) -> web.Response:
        topic = await paths.topic_of(self._context, request, Operation.READ)
        partition = paths.one_partition(topic)
        position, name = paths.number_in(request, "position", POSITION_MAX), request.match_info["subscription"]
        stats = {subscription.name: subscription for subscription in await self._context.subscriptions.stats(partition)}
        if name not in stats:
            raise Problem(404, f"Subscription {name} not found")
        bounds = (await self._context.streams.bounds([partition]))[partition]
        found = await self._entry(partition, max(stats[name].mark_delete, bounds.start), max(1, position))
        if found is None:
            raise Problem(404, "Message not found")
        return _answer(partition, found)

    async def _by_id(self, request: web.Request) -> web.Response:
        """Return the entry with this id: the ledger is the stream's incarnation, the entry the first offset of a record batch."""
        topic = await paths.topic_of(self._context, request, Operation.READ)
        partition = paths.one_partition(topic)
        ledger, offset = paths.number_in(request, "ledger"), paths.number_in(request, "entry")
        bounds = await paths.bounds_of(self._context, partition)
        is_there = ledger == stream_number(partition) and bounds.start <= offset < bounds.end
        found = await self._entry(partition, offset, 1) if is_there else None
        if found is None or found.offset != offset:
            raise Problem(404, "Message id not found")
        return _answer(partition, found)

    async def _entry(self, partition: PartitionKey, offset: int, position: int) -> _Peeked | None:
        """The n-th entry from `offset` on (1: the entry that contains `offset`, or the next one); None if there are fewer.

        Skips what no subscription delivers: markers, and batches of aborted transactions.
        """
        while True:
            (found,) = await self._context.streams.fetch(
                [FetchRange(partition, offset, FETCH_BYTES)], bytes_min=0, bytes_max=FETCH_BYTES, wait_ms=0
            )
            if found.error is not None:
                raise found.error
            start = offset
            for view in found.views:
                for at, base, header in kernel.batches(view, 0, len(view)):
                    if header.record_count and not is_control(header.attributes):
                        position -= 1
                    if not position:
                        return await self._read(view[at : at + header.length], base)
                    offset = base + header.last_offset_delta + 1
            if offset == start:
                return None

    async def _read(self, batch: memoryview, base: int) -> _Peeked:
        return await self._context.opener.opened(batch, partial(_peeked, batch, base))


def _peeked(batch: memoryview, base: int, records: entries.Buffer | None, bytes_max: int) -> _Peeked:
    entry = entries.from_records(batch, base, entries.ANY_BYTES, records, bytes_max)
    metadata, payload = framing.read_message(memoryview(entry.headers_and_payload))
    return _Peeked(base, metadata, bytes(payload), entry.message_count if entry.is_batch else None)


def _answer(partition: PartitionKey, entry: _Peeked) -> web.Response:
    """The HTTP response with an entry."""
    headers = _headers(entry.metadata)
    headers["X-Pulsar-Message-ID"] = f"{stream_number(partition)}:{entry.offset}"
    if entry.batch_message_count is not None:
        headers["X-Pulsar-num-batch-message"] = str(entry.batch_message_count)
    return web.Response(body=entry.payload, content_type="application/octet-stream", headers=headers)


def _headers(metadata: MessageMetadata) -> CIMultiDict[str]:
    """The metadata of an entry as headers, without the metadata of single messages in a batch."""
    headers: CIMultiDict[str] = CIMultiDict()
    headers["X-Pulsar-publish-time"] = _time(metadata.publish_time)
    headers["X-Pulsar-sequence-id"] = str(metadata.sequence_id)
    if metadata.event_time:
        headers["X-Pulsar-event-time"] = _time(metadata.event_time)
    if metadata.null_value:
        headers["X-Pulsar-null-value"] = "true"
    for name, value in (("producer-name", metadata.producer_name), ("partition-key", metadata.partition_key)):
        if value and _is_text(value):
            headers[f"X-Pulsar-{name}"] = value
    for pair in metadata.properties:
        if _is_text(pair.key) and _TOKEN.match(pair.key) and _is_text(pair.value):
            headers[f"X-Pulsar-PROPERTY-{pair.key}"] = pair.value
    return headers


def _time(time_ms: int) -> str:
    """A time (ms since 1970) in Pulsar's format; times after the year 9999 become its last second."""
    time = datetime.fromtimestamp(min(time_ms, _TIME_MAX) / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_text(value: str | bytes) -> bool:
    """Whether a header can contain this value; other values are omitted. protobuf returns a text that is not UTF-8 as bytes."""
    return isinstance(value, str) and value.isascii() and value.isprintable()

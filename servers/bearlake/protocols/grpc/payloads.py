"""Converts record batches into payloads for clients. Fills messages in place, because protobuf copies messages assembled elsewhere."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from bearlake import kernel
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.streams.admission import NO_TIMESTAMP, UNCOMPRESSED_BYTES_MAX

_RECORD_OVERHEAD_BYTES = 24
"""Approximate size of a record message without its key and value."""
_AT_ONCE_BYTES = 128 * 1024
"""Larger runs of batches are converted in a thread; this many bytes have 18,000 records at most, which take about 20 ms."""


class Answer(NamedTuple):
    """A message with a payload (None: nothing to read before `end`), its record count, and the next offset."""

    message: pb.FetchResponse | None
    size_bytes: int
    end: int


def answers(form: pb.Form, views: Sequence[memoryview], offset: int, bytes_max: int) -> Iterator[Answer]:
    """Yield the content of these runs of whole batches (at least one) from `offset` on, in messages of about `bytes_max` bytes.

    The Arrow form requires an earlier `arrow.load` and omits the schema. Raises `Corrupt`, `TooLarge`.
    """
    match form:
        case pb.FORM_RECORD_BATCHES:
            return iter([_raw(views)])
        case pb.FORM_ARROW:
            return _arrow(views, offset, bytes_max)
        case _:
            return _records(views, offset, bytes_max)


def is_light(form: pb.Form, views: Sequence[memoryview]) -> bool:
    """Return whether `answers` may run on the event loop. A compressed batch may hold any number of records in few bytes."""
    if form == pb.FORM_RECORD_BATCHES:
        return True
    return sum(map(len, views)) <= _AT_ONCE_BYTES and not any(
        header.attributes & record_batch.COMPRESSION_MASK
        for view in views
        for _, _, header in kernel.batches(view, 0, len(view))
    )


def arrow_schema() -> bytes:
    """Return the schema of Arrow payloads as an IPC message. Requires an earlier `arrow.load`."""
    from bearlake.table import ipc_encode

    return ipc_encode.schema_message()


def _raw(views: Sequence[memoryview]) -> Answer:
    content = b"".join(views)
    last = views[-1]
    _, base_offset, header = kernel.batches(last, 0, len(last))[-1]
    message = pb.FetchResponse()
    message.payload.record_batches = content
    return Answer(message, len(content), base_offset + header.last_offset_delta + 1)


def _arrow(views: Sequence[memoryview], offset: int, bytes_max: int) -> Iterator[Answer]:
    from bearlake.table import ipc_encode

    for content, end in ipc_encode.pieces(views, offset, bytes_max, UNCOMPRESSED_BYTES_MAX):
        if content is None:
            yield Answer(None, 0, end)
            continue
        message = pb.FetchResponse()
        message.payload.arrow.record_batch = bytes(content)
        yield Answer(message, len(content), end)


def _records(views: Sequence[memoryview], offset: int, bytes_max: int) -> Iterator[Answer]:
    message = pb.FetchResponse()
    records = message.payload.records.records
    size = 0
    end = offset
    for view in views:
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            batch_end = base_offset + header.last_offset_delta + 1
            if batch_end <= offset:
                continue
            if header.record_count > 0 and not record_batch.is_control(header.attributes):
                batch = view[position : position + header.length]
                found = chain.from_iterable(record_codec.parts(batch, UNCOMPRESSED_BYTES_MAX))
                for delta, timestamp, key, value, headers in found:
                    at = base_offset + delta
                    if at < offset:
                        continue
                    record = records.add(key=key, value=value, offset=at)
                    size += len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES
                    if timestamp != NO_TIMESTAMP:
                        record.timestamp_ms = timestamp
                    for name, content in headers:
                        record.headers.add(key=name.encode("utf-8", "surrogateescape"), value=content)
                        size += len(name) + len(content or b"")
                    if size >= bytes_max:
                        yield Answer(message, size, at + 1)
                        message = pb.FetchResponse()
                        records = message.payload.records.records
                        size = 0
            end = batch_end
    if records or end > offset:
        yield Answer(message if records else None, size, end)

"""Payloads to record batches and back."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bearlake import kernel
from bearlake.kernel import BatchStatus
from bearlake.objects import Buffer
from bearlake.protocols.grpc.errors import BadField
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.records.codec import NOBODY, Producer, Record
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX, Header

_RECORD_OVERHEAD_BYTES = 24
"""About what a record message takes beside its key and value."""


class Batch(NamedTuple):
    """One record batch to write, in good order."""

    buffer: Buffer
    header: Header


def to_batch(payload: pb.Payload, sequence: pb.ProducerSequence | None, now_ms: int) -> Batch:
    """The record batch of a payload. Raises `BadField`; `Invalid`, `TooLarge` of the codec."""
    form = payload.WhichOneof("form")
    if form == "record_batches":
        buffer = payload.record_batches
    elif form == "records" and payload.records.records:
        producer = NOBODY if sequence is None else _producer(sequence)
        buffer = record_codec.encode([_record(item, now_ms) for item in payload.records.records], producer=producer)
    else:
        raise BadField("payload", "expected at least one record, or a record batch")
    return check_batch(buffer)


def check_batch(buffer: Buffer) -> Batch:
    """The bytes as one record batch. Raises `BadField`."""
    found = kernel.inspect(buffer, 0, len(buffer))
    if isinstance(found, int):
        said = BatchStatus(found).name.replace("_", " ").lower()
        raise BadField("payload.record_batches", f"not one record batch in good order: {said}")
    return Batch(
        buffer,
        Header(
            found.attributes,
            found.record_count,
            found.base_timestamp,
            found.max_timestamp,
            found.producer_id,
            found.producer_epoch,
            found.base_sequence,
        ),
    )


def _producer(sequence: pb.ProducerSequence) -> Producer:
    if sequence.producer_id < 0 or not 0 <= sequence.producer_epoch < 1 << 15 or sequence.base_sequence < 0:
        raise BadField("sequence", "expected a producer id, an epoch (0 to 32767) and a sequence from 0 on")
    return Producer(id=sequence.producer_id, epoch=sequence.producer_epoch, base_sequence=sequence.base_sequence)


def _record(item: pb.Record, now_ms: int) -> Record:
    return Record(
        key=item.key if item.HasField("key") else None,
        value=item.value if item.HasField("value") else None,
        headers=tuple(
            (header.key.decode("utf-8", "surrogateescape"), header.value if header.HasField("value") else None)
            for header in item.headers
        ),
        timestamp=item.timestamp_ms if item.HasField("timestamp_ms") else now_ms,
    )


def end_of(views: Sequence[memoryview]) -> int:
    """The offset behind the last of these runs of whole batches (at least one)."""
    last = views[-1]
    _, base_offset, header = kernel.batches(last, 0, len(last))[-1]
    return base_offset + header.last_offset_delta + 1


class Run(NamedTuple):
    """Some records, and the offset behind them."""

    records: list[pb.Record]
    size_bytes: int
    end: int


def runs(views: Sequence[memoryview], offset: int, bytes_max: int) -> Iterator[Run]:
    """The records from `offset` on, in runs of about `bytes_max` bytes; the last run may be empty. Raises `Corrupt`, `TooLarge`."""
    records: list[pb.Record] = []
    size = 0
    end = offset
    for view in views:
        for position, base_offset, header in kernel.batches(view, 0, len(view)):
            batch_end = base_offset + header.last_offset_delta + 1
            if batch_end <= offset:
                continue
            if header.record_count > 0 and not record_batch.is_control(header.attributes):
                batch = view[position : position + header.length]
                for record in record_codec.decode(batch, UNCOMPRESSED_BYTES_MAX):
                    at = base_offset + (record.offset_delta or 0)
                    if at < offset:
                        continue
                    records.append(_message(record, at))
                    size += len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
                    size += sum(len(key) + len(value or b"") for key, value in record.headers)
                    if size >= bytes_max:
                        yield Run(records, size, at + 1)
                        records, size = [], 0
            end = batch_end
    if records or end > offset:
        yield Run(records, size, end)


def _message(record: Record, offset: int) -> pb.Record:
    message = pb.Record(key=record.key, value=record.value, offset=offset)
    if record.timestamp != record_batch.NO_TIMESTAMP:
        message.timestamp_ms = record.timestamp
    for key, value in record.headers:
        message.headers.add(key=key.encode("utf-8", "surrogateescape"), value=value)
    return message

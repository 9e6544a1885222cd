"""Converts payloads that clients write into record batches.

Records and Arrow columns go through the kernel's column encoder. Small batches use the record codec, because columns have a fixed cost.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid
from bearlake.kernel import BatchStatus
from bearlake.objects import Buffer
from bearlake.protocols.grpc import arrow
from bearlake.protocols.grpc.errors import BadField
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec as record_codec
from bearlake.records.codec import NON_IDEMPOTENT, Producer, Record
from bearlake.streams.admission import NO_TIMESTAMP, Header
from bearlake.streams.checking import Checked

if TYPE_CHECKING:
    from bearlake.table import ipc_decode

_MICROSECONDS = 1000
_TIMESTAMP_END = (1 << 63) // _MICROSECONDS
"""Timestamps pass through microseconds, which limits them to the year 294,247."""
_COLUMNS_RECORDS_MIN = 5
"""Measured: columns cost 25 us plus 2.5 us per record; the codec costs 6 us plus 8 us per record."""


class Batch(NamedTuple):
    """One valid record batch to write."""

    buffer: Buffer
    header: Header
    known: Checked
    """Whether this server encoded the batch, so that its records are good."""


class PayloadReader:
    """Reads the payloads of one call and remembers the call's Arrow schema."""

    def __init__(self) -> None:
        self._schema: ipc_decode.Schema | None = None

    async def batch(self, payload: pb.Payload, sequence: pb.ProducerSequence | None, now_ms: int) -> Batch:
        """Return a payload as a record batch. Raises `BadField`, `Unsupported`."""
        producer = NON_IDEMPOTENT if sequence is None else _producer(sequence)
        match payload.WhichOneof("form"):
            case "record_batches":
                return check_batch(payload.record_batches)
            case "records" if payload.records.records:
                return check_batch(
                    _encode(payload.records.records, producer, now_ms), "payload.records", Checked.RECORDS
                )
            case "arrow":
                await arrow.load()
                return check_batch(
                    self._encode_arrow(payload.arrow, producer, now_ms), "payload.arrow", Checked.RECORDS
                )
            case _:
                raise BadField("payload", "expected at least one record, a record batch, or an Arrow record batch")

    def _encode_arrow(self, message: pb.ArrowRecords, producer: Producer, now_ms: int) -> bytearray:
        from bearlake.table import ipc_decode

        try:
            if message.schema:
                self._schema = ipc_decode.read_schema(message.schema)
            if self._schema is None:
                raise BadField("payload.arrow.schema", "required in the first Arrow payload of a call")
        except BadField:
            raise
        except Invalid as error:
            raise BadField("payload.arrow.schema", str(error)) from error
        try:
            return ipc_decode.encode(self._schema, message.record_batch, producer, now_ms)
        except Invalid as error:
            raise BadField("payload.arrow.record_batch", str(error)) from error


def check_batch(buffer: Buffer, field: str = "payload.record_batches", known: Checked = Checked.NOTHING) -> Batch:
    """Validate `buffer`, received in `field`, as one record batch. Raises `BadField`."""
    found = kernel.inspect(buffer, 0, len(buffer))
    if isinstance(found, int):
        reason = BatchStatus(found).name.replace("_", " ").lower()
        raise BadField(field, f"expected one valid record batch: {reason}")
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
        known,
    )


def _producer(sequence: pb.ProducerSequence) -> Producer:
    if sequence.producer_id < 0 or not 0 <= sequence.producer_epoch < 1 << 15 or sequence.base_sequence < 0:
        raise BadField("sequence", "expected a producer id, an epoch (0 to 32767) and a sequence of at least 0")
    return Producer(id=sequence.producer_id, epoch=sequence.producer_epoch, base_sequence=sequence.base_sequence)


def _encode(records: Sequence[pb.Record], producer: Producer, now_ms: int) -> Buffer:
    times = [record.timestamp_ms if record.HasField("timestamp_ms") else now_ms for record in records]
    if not NO_TIMESTAMP <= min(times) <= max(times) < _TIMESTAMP_END:
        raise BadField("payload.records.timestamp_ms", f"expected ms since 1970, less than {_TIMESTAMP_END}")
    if len(records) < _COLUMNS_RECORDS_MIN:
        return record_codec.encode(list(map(_record, records, times)), producer=producer)
    try:
        encoded, _ = kernel.encode_columns(_columns(records, times, producer), 0, len(records))
    except Corrupt as error:
        raise BadField("payload.records", f"do not fit into one record batch: {error}") from error
    return encoded


def _record(record: pb.Record, timestamp_ms: int) -> Record:
    headers = tuple(
        (header.key.decode("utf-8", "surrogateescape"), header.value if header.HasField("value") else None)
        for header in record.headers
    )
    return Record(
        key=record.key if record.HasField("key") else None,
        value=record.value if record.HasField("value") else None,
        headers=headers,
        timestamp=timestamp_ms,
    )


def _columns(records: Sequence[pb.Record], times: Sequence[int], producer: Producer) -> kernel.Columns:
    count = len(records)
    headers = [header for record in records for header in record.headers]
    keys = _texts([record.key if record.HasField("key") else None for record in records])
    values = _texts([record.value if record.HasField("value") else None for record in records])
    header_keys, header_values = _NO_TEXTS, _NO_TEXTS
    if headers:
        header_keys = _texts([header.key for header in headers])
        header_values = _texts([header.value if header.HasField("value") else None for header in headers])
    return kernel.Columns(
        row_count=count,
        partition_id=bytes(4 * count),
        offset=array("q", range(count)),
        timestamp=array("q", [time * _MICROSECONDS for time in times]),
        key_offsets=keys.offsets,
        key_data=keys.content,
        key_validity=keys.validity,
        header_list_offsets=_offsets(len(record.headers) for record in records),
        header_key_offsets=header_keys.offsets,
        header_key_data=header_keys.content,
        header_value_offsets=header_values.offsets,
        header_value_data=header_values.content,
        header_value_validity=header_values.validity,
        value_offsets=values.offsets,
        value_data=values.content,
        value_validity=values.validity,
        base_offset=bytes(8 * count),
        attributes=bytes(4 * count),
        producer_id=array("q", [producer.id]) * count,
        producer_epoch=array("i", [producer.epoch]) * count,
        base_sequence=array("i", [producer.base_sequence]) * count,
    )


class _Texts(NamedTuple):
    offsets: "array[int]"
    content: bytes
    validity: bytes | None


_NO_TEXTS = _Texts(array("i", [0]), b"", None)


def _texts(fields: Sequence[bytes | None]) -> _Texts:
    if None not in fields:
        return _Texts(_offsets(map(len, fields)), b"".join(fields), None)  # type: ignore[arg-type]
    present = [field or b"" for field in fields]
    bits = [field is not None for field in fields]
    validity = bytes(
        sum(bit << at for at, bit in enumerate(bits[start : start + 8])) for start in range(0, len(bits), 8)
    )
    return _Texts(_offsets(map(len, present)), b"".join(present), validity)


def _offsets(lengths: Iterable[int]) -> "array[int]":
    return array("i", accumulate(lengths, initial=0))

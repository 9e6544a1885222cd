"""Converts payloads that clients write into record batches; large ones in a thread, so that the event loop is not blocked."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.kernel import BatchStatus
from bearlake.objects import Buffer
from bearlake.protocols.grpc import arrow, records
from bearlake.protocols.grpc.errors import BadField
from bearlake.protocols.grpc.framing import ArrowMessage, Incoming
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records.batch import ATTRIBUTE_TRANSACTIONAL
from bearlake.records.codec import NON_IDEMPOTENT, Producer
from bearlake.streams.admission import Header
from bearlake.streams.checking import Checked

if TYPE_CHECKING:
    from bearlake.table import ipc_decode, ipc_rows

_ARROW_AT_ONCE_BYTES = 64 * 1024
"""Larger Arrow messages are decoded in a thread; this many bytes take about 5 ms at most."""

OffLoop = Callable[..., Awaitable[Any]]
"""`Checks.off_loop` (Any: what its work returns)."""


class Batch(NamedTuple):
    """One valid record batch to write."""

    buffer: Buffer
    header: Header
    known: Checked
    """Whether this server encoded the batch, so that its records are good."""


class PayloadReader:
    """Reads the payloads of one call, one after another, and remembers the call's Arrow schema."""

    def __init__(self, off_loop: OffLoop, bytes_max: int) -> None:
        """`off_loop` runs work in a thread. `bytes_max`: the largest batch that rows of declared columns may become."""
        self._off_loop = off_loop
        self._bytes_max = bytes_max
        self._schema: ipc_decode.Schema | None = None
        self._rows: ipc_rows.RowSchema | None = None
        """The schema, if it is one of rows of declared columns."""

    async def batch(self, message: "Incoming[Any]", now_ms: int, columns: str = "") -> Batch:
        """Return a message's payload as a record batch (Any: its type of request).

        `columns`: the declared columns of the message's stream. Raises `BadField`, `Unsupported`, `TooLarge`, `Failure`.
        """
        if message.batch is not None:
            return check_batch(message.batch)
        request: pb.ProduceRequest | pb.ProduceStreamRequest = message.request
        producer = _producer(request.sequence) if request.HasField("sequence") else NON_IDEMPOTENT
        if message.records is not None:
            encoded = await self._off_loop(records.encode_parts, message.records, producer, now_ms)
            return check_batch(encoded, "payload.records", Checked.RECORDS)
        if message.arrow is not None:
            return await self._arrow(message.arrow, producer, now_ms, columns)
        payload = request.payload
        match payload.WhichOneof("form"):
            case "record_batches":
                return check_batch(payload.record_batches)
            case "records" if payload.records.records:
                found = payload.records.records
                if records.is_small(found):
                    encoded = records.encode(found, producer, now_ms)
                else:
                    encoded = await self._off_loop(records.encode, found, producer, now_ms)
                return check_batch(encoded, "payload.records", Checked.RECORDS)
            case "arrow":
                received = ArrowMessage(payload.arrow.schema, payload.arrow.record_batch)
                return await self._arrow(received, producer, now_ms, columns)
            case _:
                raise BadField("payload", "expected at least one record, a record batch, or an Arrow record batch")

    async def _arrow(self, message: ArrowMessage, producer: Producer, now_ms: int, columns: str) -> Batch:
        await arrow.load()
        if message.schema:
            self._read_schema(message.schema, columns)
        if self._rows is None and self._schema is None:
            raise BadField("payload.arrow.schema", "required in the first Arrow payload of a call")
        try:
            if self._rows is not None:
                return await self._of_rows(self._rows, message, producer, now_ms, columns)
            assert self._schema is not None
            return await self._of_records(self._schema, message, producer, now_ms)
        except BadField:
            raise
        except Invalid as error:
            raise BadField("payload.arrow.record_batch", str(error)) from error

    def _read_schema(self, schema: Buffer, columns: str) -> None:
        from bearlake.table import ipc_decode, ipc_rows

        self._schema = self._rows = None
        try:
            if columns and ipc_rows.is_of_rows(schema):
                self._rows = ipc_rows.read_row_schema(schema)
            else:
                self._schema = ipc_decode.read_schema(schema)
        except Invalid as error:
            raise BadField("payload.arrow.schema", str(error)) from error

    async def _of_records(
        self, schema: "ipc_decode.Schema", message: ArrowMessage, producer: Producer, now_ms: int
    ) -> Batch:
        from bearlake.table import ipc_decode

        arguments = schema, message.record_batch, producer, now_ms
        if len(message.record_batch) <= _ARROW_AT_ONCE_BYTES:
            encoded = ipc_decode.encode(*arguments)
        else:
            encoded = await self._off_loop(ipc_decode.encode, *arguments)
        return check_batch(encoded, "payload.arrow", Checked.RECORDS)

    async def _of_rows(
        self, schema: "ipc_rows.RowSchema", message: ArrowMessage, producer: Producer, now_ms: int, columns: str
    ) -> Batch:
        """Encode rows in a thread: their texts may be many times as large as they are."""
        from bearlake.table import ipc_rows

        if not columns:
            raise Invalid("the stream has no declared columns any more (table.columns)")
        arguments = schema, message.record_batch, producer, now_ms, columns, self._bytes_max
        encoded = await self._off_loop(ipc_rows.encode, *arguments)
        return check_batch(encoded, "payload.arrow", Checked.RECORDS)  # keys may have to be checked by schemas


def check_batch(buffer: Buffer, field: str = "payload.record_batches", known: Checked = Checked.NOTHING) -> Batch:
    """Validate `buffer`, received in `field`, as one record batch. Raises `BadField`."""
    found = kernel.inspect(buffer, 0, len(buffer))
    if isinstance(found, int):
        reason = BatchStatus(found).name.replace("_", " ").lower()
        raise BadField(field, f"expected one valid record batch: {reason}")
    if found.attributes & ATTRIBUTE_TRANSACTIONAL:
        raise BadField(field, "expected a batch without a transaction: transactions are written with Kafka's protocol")
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

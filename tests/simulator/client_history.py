"""The history of a simulated deployment's clients, in the form of the history checker (`testing/history`).

The history uses only what clients know: the batches that they send, the answers that they receive, the bytes that they read. A record is
identified by its batch's keys, values and headers, which are unique per batch, and by its index in the batch, since batches keep their
boundaries.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bearlake import kernel
from bearlake.errors import AlreadyExists, BearlakeError, NotFound, OutOfRange, Overloaded, Unavailable
from bearlake.metadata.model import BATCH_NAMED, PartitionKey, Stream, partition_index, stream_number
from bearlake.records import codec as record_codec
from bearlake.records.batch import HEADER_BYTES
from bearlake.streams.fetched import Fetched
from bearlake.streams.offsets import OffsetAnswer
from simulator.history.check import Verdict, check
from simulator.history.model import (
    EXISTS,
    MISSING,
    NOTHING,
    OUT_OF_RANGE,
    Answer,
    Bounds,
    Call,
    Complete,
    Kind,
    Log,
    Outcome,
    Produce,
    Read,
    Record,
    Rows,
    Seen,
)
from simulator.history.writer import Recorder
from simulator.loop import current_process
from simulator.table_rows import TableRow
from simulator.truth import Sent

if TYPE_CHECKING:
    from simulator.nodes import BatchRequest

BYTES_MAX = 1 << 20
CRC_AT = 17
"""The header fields before the CRC depend on the batch's position in the log (base offset, leader epoch)."""


Payload = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Key, value, headers of a record."""


class Content(NamedTuple):
    """The contents of a batch, independent of its stored form."""

    name: str
    """Of keys, values and headers."""
    digests: Sequence[str]
    """Of each record, with its timestamp."""
    payloads: Sequence[Payload] = ()
    """Of each record; empty where it does not decode."""


class ClientHistory:
    """Records the history of all clients; see the module."""

    def __init__(
        self, recorder: Recorder, stamped: Collection[str], name_of: Callable[[int], str], *, has_retention: bool
    ) -> None:
        """`stamped`: streams whose records get the server's timestamps; `name_of` maps a stream's number to its name."""
        self._has_retention = has_retention
        self.recorder = recorder
        self._stamped = stamped
        self._name_of = name_of
        self._sent: dict[Sent, int | None] = {}
        self._contents: dict[bytes, Content] = {}
        self._in_rows: dict[str, Content] = {}
        """Batches by their payloads as rows hold them."""

    # -- producers -----------------------------------------------------------------------------------------------

    def sends(self, request: "BatchRequest") -> None:
        """A client sends a batch, perhaps as a retry."""
        sent = request.sent
        if sent in self._sent:
            return
        content = self._content(request.batch)
        is_stamped = request.name in self._stamped
        records = tuple(
            Record(f"{content.name}.{at}", "" if is_stamped else digest) for at, digest in enumerate(content.digests)
        )
        fields = request.fields
        producer, kind, session = f"id {sent.producer_id}", Kind.IDEMPOTENT, ""
        if fields is not None and fields.flags & BATCH_NAMED:
            producer = f"named {fields.producer_id}"
        elif sent.producer_id < 0:
            producer, kind, session = "plain", Kind.SINGLE, f"{sent.connection}"
        call = Produce(
            log=Log(request.name, request.partition),
            producer=producer,
            kind=kind,
            sequence=len(self._sent),
            records=records,
            session=session,
            is_tabular=not sent.is_undecodable,
        )
        self._sent[sent] = self._begin(call)

    def acknowledged(self, key: PartitionKey, sent: Sent, offset: int) -> None:
        """A client received the answer that its batch is stored; a negative offset: unknown offset."""
        self._ends(sent, Outcome.OK, Answer(offset=offset, incarnation=f"{stream_number(key)}"))

    def refused(self, key: PartitionKey, sent: Sent) -> None:
        """A client received the answer that its batch is not stored and never will be."""
        self._ends(sent, Outcome.FAIL, Answer(incarnation=f"{stream_number(key)}"))

    def _ends(self, sent: Sent, outcome: Outcome, answer: Answer) -> None:
        number = self._sent.get(sent)
        if number is not None:
            self._sent[sent] = None
            self.recorder.complete(number, outcome, answer)

    # -- readers -------------------------------------------------------------------------------------------------

    def begins_read(self, key: PartitionKey, offset: int, server: str) -> int:
        """A client asks for records."""
        return self._begin(Read(log=self.log(key), start=offset, server=server))

    def ends_read(self, number: int, fetched: Fetched) -> None:
        """It is answered."""
        error = fetched.error
        if error is None:
            records = tuple(self._seen(fetched))
            self.recorder.complete(number, Outcome.OK, Answer(records=records, end=fetched.end))
        else:
            answer = Answer(why=repr(error))
            if isinstance(error, OutOfRange):
                answer = Answer(why=OUT_OF_RANGE, start=error.start if self._has_retention else None)
            self.recorder.complete(number, Outcome.FAIL, answer)

    def _seen(self, fetched: Fetched) -> list[Seen]:
        found = []
        for view in fetched.views:
            for position, base, header in kernel.batches(view, 0, len(view)):
                content = self._content(view[position : position + header.length])
                found += [
                    Seen(base + at, f"{content.name}.{at}", digest)
                    for at, digest in enumerate(content.digests)
                    if base + at >= fetched.range.offset
                ]
        return found

    def begins_bounds(self, key: PartitionKey, server: str) -> int:
        """A client asks where a partition starts and ends."""
        return self._begin(Bounds(log=self.log(key), server=server))

    def ends_bounds(self, number: int, earliest: OffsetAnswer, latest: OffsetAnswer) -> None:
        """It is answered."""
        if earliest.error is None and latest.error is None:
            self.recorder.complete(number, Outcome.OK, Answer(start=earliest.offset, end=latest.offset))

    def read_completely(self, key: PartitionKey, start: int) -> None:
        """The whole partition, from `start` on, has been read."""
        self.recorder.complete(self._begin(Complete(log=self.log(key), start=start)), Outcome.OK)

    def begins_rows(self, key: PartitionKey, start: int, end: int) -> int:
        """A reader begins to read the partition's rows; the rows in [start, end) must be present."""
        return self._begin(Rows(log=self.log(key), start=start, end=end, engine="snapshot"))

    def ends_rows(self, number: int, rows: Sequence[TableRow]) -> None:
        """These rows were read. If a batch's first records were trimmed before compaction, only its offsets identify it."""
        batches: defaultdict[int | None, list[TableRow]] = defaultdict(list)
        for row in rows:
            batches[row.base_offset].append(row)
        seen: list[Seen] = []
        for base, batch in batches.items():
            batch.sort(key=lambda row: row.offset)
            is_whole = base is not None and batch[0].offset == base
            payloads = [row.fields[1:] for row in batch]
            name = _digest(repr(payloads).encode())
            if (sent := self._in_rows.get(name)) is not None:
                name, payloads = sent.name, list(sent.payloads)
            for at, (row, payload) in enumerate(zip(batch, payloads, strict=True)):
                digest = _digest(repr((row.fields[0], *payload)).encode())
                seen.append(Seen(row.offset, f"{name}.{at}" if is_whole else "", digest))
        self.recorder.complete(number, Outcome.OK, Answer(records=tuple(seen)))

    # -- administration ------------------------------------------------------------------------------------------

    def begins(self, call: Call) -> int:
        """A client asks for a change."""
        return self._begin(call)

    def ends(self, number: int, result: object) -> None:
        """The change is answered with a stream, another result, or an error."""
        if isinstance(result, Unavailable | Overloaded):
            self.recorder.complete(number, Outcome.UNKNOWN)
        elif isinstance(result, BearlakeError):
            why = {AlreadyExists: EXISTS, NotFound: MISSING}.get(type(result), repr(result))
            self.recorder.complete(number, Outcome.FAIL, Answer(why=why))
        else:
            stream = getattr(result, "stream", result)
            answer = Answer(incarnation=f"{stream.number}") if isinstance(stream, Stream) else NOTHING
            self.recorder.complete(number, Outcome.OK, answer)

    # -- the end -------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Return the checker's verdict on the whole history."""
        return check(self.recorder.operations())

    def log(self, key: PartitionKey) -> Log:
        """Return the partition as clients name it; its incarnation is the stream's number."""
        number = stream_number(key)
        return Log(self._name_of(number), partition_index(key), f"{number}")

    def _begin(self, call: Call) -> int:
        return self.recorder.invoke(current_process(), call)

    def _content(self, batch: bytes | memoryview) -> Content:
        stored = bytes(batch[CRC_AT:])
        found = self._contents.get(stored)
        if found is None:
            found = self._contents[stored] = _content(batch)
            self._in_rows[_digest(repr([_in_row(payload) for payload in found.payloads]).encode())] = found
        return found


def _content(batch: bytes | memoryview) -> Content:
    try:
        records = [fields[1:] for fields in record_codec.fields(batch, BYTES_MAX)]
    except BearlakeError:  # garbage stays unchanged, compressed or not
        ((_, _, header),) = kernel.batches(batch, 0, len(batch))
        body = _digest(bytes(batch[HEADER_BYTES:]))
        return Content(body, [body] * header.record_count)
    payloads = [fields[1:] for fields in records]
    return Content(_digest(repr(payloads).encode()), [_digest(repr(fields).encode()) for fields in records], payloads)


def _in_row(payload: Payload) -> Payload:
    """Return the payload as a row holds it: bytes of header keys that are not UTF-8 are replaced (`docs/table.md`)."""
    key, value, headers = payload
    shown = tuple((name.encode(errors="surrogateescape").decode(errors="replace"), value) for name, value in headers)
    return key, value, shown


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()

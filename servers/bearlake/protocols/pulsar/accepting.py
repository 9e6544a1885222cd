"""From a SEND to the entry that is stored: reads the message, refuses what cannot be stored, and validates records by their schemas."""

from collections import deque
from collections.abc import Callable, Coroutine
from struct import Struct
from typing import Any, NamedTuple, Protocol

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries, framing
from bearlake.protocols.pulsar.entries import StoredEntry
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandSend
from bearlake.protocols.pulsar.sends import Sends
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.append import Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked, Checks

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21


class Accepted(NamedTuple):
    """An entry, and whether it is a chunk before the last one of its message."""

    entry: StoredEntry
    is_partial: bool


def accepted(
    view: StreamView,
    command: CommandSend,
    message: memoryview,
    prepared: entries.Prepared | None,
    settings: PulsarSettings,
) -> Accepted:
    """Return the entry of a SEND; `prepared` is the converted message, or None. Raises the error for the answer."""
    limit = settings.message_bytes_max
    if command.txnid_least_bits or command.txnid_most_bits or command.marker:
        raise Refused("NotAllowedError", "transactions and markers are not supported")
    metadata, payload = framing.read_message(message)
    if view.rules.requires_keys and metadata.num_chunks_from_msg > 1:  # each would supersede the last one
        raise Refused("NotAllowedError", "a topic with key compaction takes no messages in chunks")
    if view.rules.schemas is not None and metadata.num_chunks_from_msg > 1:  # a part of a value has no schema
        raise Refused("NotAllowedError", "a topic whose schemas are validated takes no messages in chunks")
    if len(payload) > limit:
        raise Refused("NotAllowedError", f"a message of {len(payload)} bytes: expected at most {limit}")
    # A larger chunk, which is stored unchanged, would not fit into a frame to a consumer.
    entry_limit = framing.entry_bytes_max(limit)
    if len(message) > entry_limit:
        raise Refused(
            "NotAllowedError", f"a message of {len(message)} bytes with its metadata: expected at most {entry_limit}"
        )
    entry = prepared() if prepared else entries.to_batch(metadata, payload, settings.uncompressed_bytes_max)
    return Accepted(entry, command.is_chunk and metadata.chunk_id < metadata.num_chunks_from_msg - 1)


def attributes_of(entry: StoredEntry) -> int:
    """Return the attributes of an entry's record batch."""
    (attributes,) = _ATTRIBUTES.unpack_from(entry.batch, _ATTRIBUTES_AT)
    return int(attributes)


class _Waiting(NamedTuple):
    send: Sends
    entry: StoredEntry
    sequence_id: int


class Validated(Protocol):
    """The producer of the SENDs: `producers.Producer`."""

    def validated(self, send: Sends, entry: StoredEntry, sequence_id: int, error: BearlakeError | None) -> None:
        """Called in the order of the SENDs: the records of one are good, or `error` says why they are not stored."""

    def view(self) -> StreamView | None:
        """Return the stream as it is now; None if the producer may not write to it any more."""


class ValidationLine:
    """SENDs of one producer that wait until their records are validated by their schemas. They leave in order.

    The connection bounds them: they count as pending SENDs.
    """

    def __init__(
        self, producer: Validated, checks: Checks, start: Callable[[Coroutine[None, None, None]], Any]
    ) -> None:
        """`start` runs a coroutine until the client disconnects."""
        self._producer = producer
        self._checks = checks
        self._start = start
        self._line: deque[_Waiting] = deque()

    def takes(self, view: StreamView) -> bool:
        """Whether SENDs to this stream must go through this line: the stream's schemas are validated, or earlier SENDs still wait."""
        return view.rules.schemas is not None or bool(self._line)

    def add(
        self, send: Sends, view: StreamView, entry: StoredEntry, sequence_id: int, *, is_chunk: bool = False
    ) -> None:
        """Validate the records of a SEND, now if that is little work."""
        if is_chunk and view.rules.schemas is None:  # the stream's rules changed: the client sends its chunks again
            send.fail(Verdict.UNAVAILABLE)
            return
        if not self._line:
            outcome = self._checks.at_once(entry.batch, attributes_of(entry), view.rules, Checked.RECORDS)
            if outcome is not False:
                self._producer.validated(send, entry, sequence_id, None if isinstance(outcome, bool) else outcome)
                return
        self._line.append(_Waiting(send, entry, sequence_id))
        if len(self._line) == 1:
            self._start(self._run())

    def clear(self) -> None:
        """Drop the SENDs: the producer is closed."""
        self._line.clear()

    async def _run(self) -> None:
        while self._line:
            waiting = self._line[0]
            send, entry, sequence_id = waiting
            error, view = None, self._producer.view()
            while view is not None:
                rules = view.rules
                error = await self._checks.check(entry.batch, attributes_of(entry), rules, Checked.RECORDS)
                if not self._line or self._line[0] is not waiting:
                    return  # dropped meanwhile
                view = self._producer.view()
                if view is None or view.rules == rules:
                    break  # otherwise the rules changed meanwhile, and those that admit the entry count
            self._line.popleft()
            self._producer.validated(send, entry, sequence_id, error)

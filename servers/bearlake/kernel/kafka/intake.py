"""Take Produce requests from a receive buffer into the write buffer."""

from collections.abc import Sequence
from struct import Struct
from typing import Protocol

from bearlake.errors import Corrupt
from bearlake.kernel.batch.compressed import SECTION_BYTES_MAX, check_batch, is_checkable
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import ELEMENTS_MAX, BoundTransaction, PlainRules, ProduceEntry, ProducePlace
from bearlake.kernel.kafka.admission import COMPRESSION_MASK, TRANSACTIONAL, append_of, is_plain
from bearlake.kernel.kafka.produce import parse_produce
from bearlake.kernel.kafka.produce_results import ProduceResults
from bearlake.kernel.kafka.versions import check_version
from bearlake.kernel.log import Append, Hold
from bearlake.kernel.log.buffer import WriteBuffer

_INT32 = Struct(">i")
_HEADER = Struct(">hhi")


class PlainAdmission(Protocol):
    """Decides about the batches of plain requests. Called for each topic, and for each batch that the rules do not admit.

    The first request is asked for only if it has a transactional id.
    """

    def transaction(self, transactional_id: str | None, /) -> bool:
        """Called for each id (None: a request has none) that differs from the one before; False if the request needs special handling."""

    def rules(self, topic: str | bytes, /) -> PlainRules | None:
        """Return the rules for a topic's name, or from version 13 on its id; None if its batches need special handling."""

    def flags(self, entry: ProduceEntry, /) -> int:
        """Return the flags of a batch of the newest topic that is stored unchanged although `is_plain` says no; -1 if it is not."""


def take_produces(
    buffer: WriteBuffer,
    call: ProduceResults,
    memory: Buffer,
    hold: Hold | None,
    start: int,
    end: int,
    version: int,
    lead: Buffer,
    size_max: int,
    count_max: int,
    check_max: int,
    admission: PlainAdmission,
    seen: int,
    /,
) -> tuple[int, bool, int]:
    """Take consecutive Produce requests from `start` of `memory` on that need no special handling, as one call.

    Such a request has this `version` and at most `size_max` bytes, its header continues with `lead` after the correlation id, it asks for
    a response (acks 1 or -1), names a partition, and `admission` admits its transactional id and all its batches. At most `count_max`
    requests are taken, and none after the first that does not match, is incomplete or is malformed; the caller handles that one on its own.
    While less than `check_max` bytes of compressed records have been checked here, a compressed batch that is plain otherwise is
    admitted if `check_batch` finds it good. A batch that it does not know counts as `SECTION_BYTES_MAX` bytes.

    All batches of a request go into one object: if `buffer` lacks the room, the request is left for the next buffer.

    `call` has no requests yet. `hold` keeps the memory; `seen` is as in `WriteBuffer.add`. Returns the end of the last request that was
    taken, whether the next request needs another buffer, and the bytes of compressed records that were checked.

    Raises:
        Unsupported: the version is not in 3-13.
    """
    batches = Batches(view_of(memory), admission, check_max)
    at, is_full = take(buffer, call, batches, hold, start, end, version, lead, size_max, count_max, seen)
    return at, is_full, batches.checked_bytes


def take(
    buffer: WriteBuffer,
    call: ProduceResults,
    batches: "Batches",
    hold: Hold | None,
    start: int,
    end: int,
    version: int,
    lead: Buffer,
    size_max: int,
    count_max: int,
    seen: int,
) -> tuple[int, bool]:
    """As `take_produces`; returns the end of the last request that was taken, and whether the next one needs another buffer."""
    check_version(version)
    buffer.check_open()
    view = batches.view
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(view)} bytes")
    call.check_unused()
    taken = _Taken(buffer)
    at = start
    while taken.request_count < count_max and len(taken.appends) < ELEMENTS_MAX:
        found = _request(view, at, end, version, bytes(lead), size_max)
        appends = None if found is None else batches.admit(found[2], found[3], found[4])
        if found is None or appends is None or not taken.add(found[1], found[4], appends):
            break
        at = found[0]
    if taken.request_count:
        taken.put_into(call, version, hold, seen)
    return at, taken.is_full


class _Taken:
    """The requests that are taken, which all go into one buffer."""

    def __init__(self, buffer: WriteBuffer) -> None:
        self._buffer = buffer
        self._size = 0
        self._requests: list[tuple[int, int]] = []
        self._places: list[ProducePlace] = []
        self.appends: list[Append] = []
        self.is_full = False
        """Whether the next request needs another buffer."""

    @property
    def request_count(self) -> int:
        return len(self._requests)

    def add(self, correlation_id: int, entries: Sequence[ProduceEntry], appends: Sequence[Append]) -> bool:
        """Take a request; returns False if the buffer lacks the room."""
        buffer, size, count = self._buffer, sum(len(item.batch) for item in appends), len(appends)
        size_left = buffer.size_max - buffer.size - self._size
        if size > size_left or count > buffer.count_max - buffer.count - len(self.appends):
            self.is_full = size <= buffer.size_max and count <= buffer.count_max
            return False
        self._size += size
        self._requests.append((correlation_id, len(entries)))
        self._places += [(entry[0], entry[1]) for entry in entries]
        self.appends += appends
        return True

    def put_into(self, call: ProduceResults, version: int, hold: Hold | None, seen: int) -> None:
        """Put the batches of all requests into the buffer, as one call."""
        call.set_requests(version, self._requests, self._places)
        try:
            self._buffer.keep(hold, len(self.appends))
        except BaseException:
            call.clear_requests()
            raise
        for place, item in enumerate(self.appends):
            self._buffer.push(call, place, item, seen)


def _request(
    view: memoryview, at: int, end: int, version: int, lead: bytes, size_max: int
) -> tuple[int, int, str | None, int, list[ProduceEntry]] | None:
    """Parse the request at `at`; returns its end, correlation id, transactional id, acks and entries.

    None if it needs special handling.
    """
    if end - at < 4:
        return None
    (size,) = _INT32.unpack_from(view, at)
    at += 4
    if not 8 + len(lead) <= size <= min(size_max, end - at):
        return None
    key, spoken, correlation_id = _HEADER.unpack_from(view, at)
    position = at + 8 + len(lead)
    if key != 0 or spoken != version or view[at + 8 : position] != lead:
        return None
    try:
        transactional_id, acks, _, entries = parse_produce(view[: at + size], position, version)
    except Corrupt:
        return None
    return at + size, correlation_id, transactional_id, acks, entries


class Batches:
    """Admits the batches of requests, and asks for a topic's rules once per run of batches."""

    def __init__(
        self,
        view: memoryview,
        admission: PlainAdmission,
        check_max: int,
        transaction: BoundTransaction | None = None,
    ) -> None:
        """`transaction`: what needs no question."""
        self.view = view
        self._admission = admission
        self._transactional_id = None if transaction is None else transaction[0]
        self._producer = (-1, -1) if transaction is None else (transaction[1], transaction[2])
        self._check_max = check_max
        self.checked_bytes = 0
        self._topic: str | bytes | None = None
        self._rules: PlainRules | None = None

    def admit(self, transactional_id: str | None, acks: int, entries: Sequence[ProduceEntry]) -> list[Append] | None:
        """Return the batches of a request; None if it or one of them needs special handling."""
        if transactional_id != self._transactional_id:
            if not self._admission.transaction(transactional_id):
                return None
            self._transactional_id = transactional_id
        if acks not in (-1, 1) or not entries:
            return None
        appends = []
        for entry in entries:
            if entry[0] != self._topic:
                self._topic = entry[0]
                self._rules = self._admission.rules(entry[0])
            if self._rules is None:
                return None
            flags = self._known_flags(self._rules, entry)
            if flags < 0:
                flags = self._admission.flags(entry)
            if flags < 0:
                return None
            appends.append(append_of(self._rules, entry, self.view, None, flags))
        return appends

    def _known_flags(self, rules: PlainRules, entry: ProduceEntry) -> int:
        """Return the flags of a batch that needs no question; -1 if it needs one."""
        attributes, (producer_id, flags) = entry[5], self._producer
        if not attributes & TRANSACTIONAL:
            return 0 if self._is_admitted(rules, entry) else -1
        if producer_id < 0 or entry[9] != producer_id:
            return -1
        plain = (*entry[:5], attributes & ~TRANSACTIONAL, *entry[6:])
        return flags if self._is_admitted(rules, plain) else -1

    def _is_admitted(self, rules: PlainRules, entry: ProduceEntry) -> bool:
        """Whether the batch is plain, or is compressed, would be plain otherwise, and has good records."""
        _, _, low, high, _, attributes, *_ = entry
        if not rules[-1] or not attributes & COMPRESSION_MASK:
            return is_plain(rules, entry, self.view)
        if (
            self.checked_bytes >= self._check_max
            or not is_checkable(attributes)
            or not is_plain((*rules[:6], 0), entry, self.view)
        ):
            return False
        found = check_batch(self.view[low:high], SECTION_BYTES_MAX)
        self.checked_bytes += SECTION_BYTES_MAX if found < 0 else found
        return found >= 0

"""Take Produce requests from a receive buffer into the write buffer, and encode their responses."""

from collections.abc import Sequence
from struct import Struct
from typing import Protocol

from bearlake.errors import Corrupt
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import ELEMENTS_MAX, PlainRules, ProduceEntry, ProducePlace, ProduceResult
from bearlake.kernel.kafka.admission import append_of, is_plain
from bearlake.kernel.kafka.produce import parse_produce
from bearlake.kernel.kafka.respond import encode_produce_response
from bearlake.kernel.kafka.versions import check_version
from bearlake.kernel.log import Append, Hold, ProduceOutcome
from bearlake.kernel.log.buffer import WriteBuffer
from bearlake.kernel.log.results import Results

_INT32 = Struct(">i")
_HEADER = Struct(">hhi")


class ProduceResults(Results):
    """Produce requests that were taken together: the outcomes of their batches, and what their responses name."""

    __slots__ = ("_first", "_places", "_requests", "_version")

    def __init__(self, outcome: ProduceOutcome, /) -> None:
        """No requests yet. `outcome`: as in `Results`."""
        super().__init__(0, outcome)
        self._first = outcome
        self._version = 0
        self._requests: list[tuple[int, int]] = []
        self._places: list[ProducePlace] = []

    @property
    def request_count(self) -> int:
        """Requests that were taken."""
        return len(self._requests)

    def frames(self) -> bytes | None:
        """Return the response frames of all requests, back to back; None unless every batch was appended (verdict 0)."""
        if any(verdict for verdict, _, _ in self):
            return None
        frames = []
        for correlation_id, places, outcomes in self.requests():
            results: list[ProduceResult] = [
                (topic, index, 0, base_offset, -1, start_offset)
                for (topic, index), (_, base_offset, start_offset) in zip(places, outcomes, strict=True)
            ]
            frames.append(encode_produce_response(self._version, correlation_id, results, 0))
        return b"".join(frames)

    def requests(self) -> list[tuple[int, list[ProducePlace], list[ProduceOutcome]]]:
        """Return each request's correlation id, and the places and outcomes of its batches."""
        found = []
        start = 0
        outcomes = list(self)
        for correlation_id, count in self._requests:
            end = start + count
            found.append((correlation_id, self._places[start:end], outcomes[start:end]))
            start = end
        return found

    def check_unused(self) -> None:
        """Raise `ValueError` if the call has requests. For `take_produces` only."""
        if self._requests:
            raise ValueError("the call has requests")

    def clear_requests(self) -> None:
        """Remove the requests. For `take_produces` only."""
        self._requests, self._places = [], []
        self._reset(0, self._first)

    def set_requests(self, version: int, requests: list[tuple[int, int]], places: list[ProducePlace]) -> None:
        """Set the requests, as (correlation id, batch count). For `take_produces` only."""
        self.check_unused()
        self._version = version
        self._requests = requests
        self._places = places
        self._reset(len(places), self._first)


class PlainAdmission(Protocol):
    """Decides about the batches of plain requests. Called for each topic, and for each batch that the rules do not admit."""

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
    admission: PlainAdmission,
    seen: int,
    /,
) -> tuple[int, bool]:
    """Take consecutive Produce requests from `start` of `memory` on that need no special handling, as one call.

    Such a request has this `version` and at most `size_max` bytes, its header continues with `lead` after the correlation id, it has no
    transactional id, asks for a response (acks 1 or -1), names a partition, and `admission` admits all its batches. At most `count_max`
    requests are taken, and none after the first that does not match, is incomplete or is malformed; the caller handles that one on its own.
    All batches of a request go into one object: if `buffer` lacks the room, the request is left for the next buffer.

    `call` has no requests yet. `hold` keeps the memory; `seen` is as in `WriteBuffer.add`. Returns the end of the last request that was
    taken, and whether the next request needs another buffer.

    Raises:
        Unsupported: the version is not in 3-13.
    """
    check_version(version)
    buffer.check_open()
    view = view_of(memory)
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(view)} bytes")
    call.check_unused()
    batches = _Batches(view, admission)
    requests: list[tuple[int, int]] = []
    places: list[ProducePlace] = []
    taken: list[Append] = []
    at, size, is_full = start, 0, False
    while len(requests) < count_max and len(taken) < ELEMENTS_MAX:
        found = _request(view, at, end, version, bytes(lead), size_max)
        appends = None if found is None else batches.admit(found[2])
        if found is None or appends is None:
            break
        request_bytes = sum(len(item.batch) for item in appends)
        if request_bytes > buffer.size_max - buffer.size - size or len(appends) > buffer.count_max - buffer.count - len(
            taken
        ):
            is_full = request_bytes <= buffer.size_max and len(appends) <= buffer.count_max
            break
        size += request_bytes
        at, correlation_id, entries = found
        requests.append((correlation_id, len(entries)))
        places += [(entry[0], entry[1]) for entry in entries]
        taken += appends
    if requests:
        call.set_requests(version, requests, places)
        try:
            buffer.keep(hold, len(taken))
        except BaseException:
            call.clear_requests()
            raise
        for place, item in enumerate(taken):
            buffer.push(call, place, item, seen)
    return at, is_full


def _request(
    view: memoryview, at: int, end: int, version: int, lead: bytes, size_max: int
) -> tuple[int, int, list[ProduceEntry]] | None:
    """Parse the request at `at`; returns its end, correlation id and entries, or None if it needs special handling."""
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
    if transactional_id is not None or acks not in (-1, 1) or not entries:
        return None
    return at + size, correlation_id, entries


class _Batches:
    """Admits the batches of requests, and asks for a topic's rules once per run of batches."""

    def __init__(self, view: memoryview, admission: PlainAdmission) -> None:
        self._view = view
        self._admission = admission
        self._topic: str | bytes | None = None
        self._rules: PlainRules | None = None

    def admit(self, entries: Sequence[ProduceEntry]) -> list[Append] | None:
        """Return the batches of a request; None if one of them needs special handling."""
        appends = []
        for entry in entries:
            if entry[0] != self._topic:
                self._topic = entry[0]
                self._rules = self._admission.rules(entry[0])
            if self._rules is None:
                return None
            flags = 0 if is_plain(self._rules, entry, self._view) else self._admission.flags(entry)
            if flags < 0:
                return None
            appends.append(append_of(self._rules, entry, self._view, None, flags))
        return appends

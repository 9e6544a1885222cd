"""Produce requests that are taken together, native and in Python: into the write buffer, and from their outcomes into responses."""

from types import ModuleType
from typing import Any

import pytest

from bearlake.errors import Unsupported
from bearlake.kernel import BATCH_NAMED, BatchCommit, BatchStatus, PartitionKey
from bearlake.kernel.kafka import ELEMENTS_MAX
from kernel.test_kernel_limits import request as long_request
from kernel.test_kernel_produce import BATCH, IDEMPOTENT, TOPIC_ID, VERSIONS, request

STREAM = bytes(range(16))
KEY = 7 << 20
NONE = (8, -1, -1)
ALL = 1 << 40
BODY_3 = request(3, [("t", [BATCH])])


class Admission:
    """Admits the batches of all topics but "unknown", and answers `flags`."""

    def __init__(self, flags: int = -1, **changes: int) -> None:
        self.answer = flags
        fields = {"partitions": 4, "bytes_max": 10_000, "earliest": -ALL, "latest": ALL, "checks": 0} | changes
        self.plain = (STREAM, KEY, *fields.values())
        self.transactional_ids: list[Any] = []
        self.topics: list[Any] = []
        self.entries: list[Any] = []

    def transaction(self, transactional_id: Any) -> bool:
        self.transactional_ids.append(transactional_id)
        return transactional_id != "tx"

    def rules(self, topic: Any) -> Any:
        self.topics.append(topic)
        return None if topic == "unknown" else self.plain

    def flags(self, entry: Any) -> int:
        self.entries.append(entry)
        return self.answer


class Hold:
    held = 0

    def acquire(self, count: int = 1) -> None:
        self.held += count

    def release(self, count: int = 1) -> None:
        self.held -= count


def lead_of(version: int, client: bytes = b"me") -> bytes:
    """A request's header after the correlation id."""
    return len(client).to_bytes(2, "big") + client + (b"\0" if version >= 9 else b"")


def framed(version: int, correlation_id: int, body: bytes, *, key: int = 0, client: bytes = b"me") -> bytes:
    numbers = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
    content = numbers + lead_of(version, client) + body
    return len(content).to_bytes(4, "big") + content


def with_acks(body: bytes, acks: int) -> bytes:
    """The body of a request of version 3 without a transactional id."""
    return body[:2] + acks.to_bytes(2, "big", signed=True) + body[4:]


def take(
    kernel: ModuleType, frames: bytes, version: int = 3, *, buffer: Any = None, admission: Any = None, **options: Any
) -> tuple[Any, int, bool, Any]:
    """Take the requests; returns the call, the end, whether another buffer is needed, and the buffer."""
    buffer = kernel.WriteBuffer(1 << 20) if buffer is None else buffer
    call = kernel.ProduceResults(NONE)
    end, is_full, _ = kernel.take_produces(
        buffer, call, frames, options.get("hold"), options.get("start", 0), options.get("end", len(frames)), version,
        lead_of(version), options.get("size_max", 10_000), options.get("count_max", 10), 0,
        admission or Admission(), options.get("seen", 0),
    )  # fmt: skip
    return call, end, is_full, buffer


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_similar_requests_are_committed_and_answered(kernel: ModuleType, version: int) -> None:
    bodies = [
        request(version, [("orders", [BATCH, IDEMPOTENT]), ("größe", [IDEMPOTENT])]),
        request(version, [("größe", [BATCH])]),
        request(version, [("orders", [IDEMPOTENT])]) + b"behind the body",
    ]
    frames = b"xyz" + b"".join(framed(version, 7 + at, body) for at, body in enumerate(bodies))
    hold = Hold()

    call, end, is_full, buffer = take(kernel, frames, version, start=3, hold=hold)

    assert (end, is_full, call.request_count, len(call), call.waiting) == (len(frames), False, 3, 5, 5)
    assert (buffer.count, hold.held) == (5, 5)
    joined = buffer.join(0, 0)
    assert hold.held == 0
    commits = buffer.commits()
    assert [item.partition - KEY for item in commits] == [0, 0, 0, 0, 1]
    sent = [BATCH, IDEMPOTENT, BATCH, IDEMPOTENT, IDEMPOTENT]
    assert [joined[item.position : item.position + item.length] for item in commits] == sent
    assert commits[0] == BatchCommit(PartitionKey(KEY), 0, len(BATCH), 2, 1700)
    assert commits[1] == BatchCommit(PartitionKey(KEY), len(BATCH), len(IDEMPOTENT), 1, 5, 7, 1, 3)
    assert call.frames() is None
    assert buffer.resolve([(0, 2**40 + at, at) for at in range(5)]) == [call]
    orders, size = (TOPIC_ID.bytes,) * 2 if version >= 13 else ("orders", "größe")
    answers = [[(orders, 0, 0), (orders, 1, 4), (size, 0, 1)], [(size, 0, 2)], [(orders, 0, 3)]]
    assert call.requests() == [
        (7 + at, [place[:2] for place in places], [(0, 2**40 + number, number) for _, _, number in places])
        for at, places in enumerate(answers)
    ]
    results = [[(topic, index, 0, 2**40 + at, -1, at) for topic, index, at in places] for places in answers]
    assert call.frames() == b"".join(
        kernel.encode_produce_response(version, 7 + at, result, 0) for at, result in enumerate(results)
    )


def test_requests_are_answered_one_by_one_if_a_batch_was_not_appended(kernel: ModuleType) -> None:
    call, _, _, buffer = take(kernel, framed(3, 1, BODY_3) + framed(3, 2, BODY_3))
    buffer.join(0, 0)

    buffer.resolve([(0, 5, 0), (2, -1, -1)])

    assert call.frames() is None
    assert call.requests() == [(1, [("t", 0)], [(0, 5, 0)]), (2, [("t", 0)], [(2, -1, -1)])]


@pytest.mark.parametrize(
    "last",
    [
        framed(3, 1, BODY_3, client=b"you"),
        framed(3, 1, BODY_3, client=b""),
        framed(4, 1, BODY_3),
        framed(3, 1, BODY_3, key=1),
        framed(3, 1, BODY_3)[:-1],
        framed(3, 1, BODY_3)[:3],
        b"",
        framed(3, 1, with_acks(BODY_3, 0)),
        framed(3, 1, with_acks(BODY_3, 2)),
        framed(3, 1, request(3, [("t", [BATCH])], "tx")),
        framed(3, 1, request(3, [])),
        framed(3, 1, request(3, [("unknown", [BATCH])])),
        framed(3, 1, request(3, [("t", [BATCH]), ("unknown", [BATCH])])),
        framed(3, 1, request(3, [("t", [BATCH, None])])),
        framed(3, 1, request(3, [("t", [BATCH[:-1] + b"x"])])),
        framed(3, 1, request(3, [("t", [BATCH] * 5)])),
        framed(3, 1, BODY_3[:-1]),
        framed(3, 1, BODY_3.replace(b"\1t", b"\1\xff")),
        framed(3, 1, request(3, [("t", [BATCH] * 4)])),
        b"\xff\xff\xff\xff" + framed(3, 1, BODY_3)[4:],
    ],
)
def test_the_first_request_with_special_needs_ends_a_run(kernel: ModuleType, last: bytes) -> None:
    first = framed(3, 1, with_acks(BODY_3, 1)) + framed(3, 2, BODY_3)
    frames = first + last + framed(3, 3, BODY_3)
    options: dict[str, Any] = {
        "end": len(first + last),
        "size_max": len(framed(3, 1, request(3, [("t", [BATCH] * 3)]))),
    }

    call, end, is_full, buffer = take(kernel, frames, **options)

    assert (end, is_full, call.request_count, buffer.count) == (len(first), False, 2, 2)
    assert take(kernel, frames, count_max=1, **options)[1] == len(first) // 2
    none = take(kernel, frames, count_max=0, **options)
    assert (none[1], none[0].request_count, none[3].count) == (0, 0, 0)


def test_the_rules_are_asked_once_for_a_run_of_equal_topics(kernel: ModuleType) -> None:
    admission = Admission()
    bodies = [request(3, [("t", [BATCH, BATCH])]), request(3, [("t", [BATCH])]), request(3, [("u", [BATCH])]), BODY_3]

    take(kernel, b"".join(framed(3, 1, body) for body in bodies), admission=admission)

    assert admission.topics == ["t", "u", "t"]


@pytest.mark.parametrize(("flags", "count"), [(-1, 0), (0, 1), (BATCH_NAMED, 1)])
def test_a_batch_that_is_not_plain_is_admitted_by_its_flags(kernel: ModuleType, flags: int, count: int) -> None:
    admission = Admission(flags, checks=1)  # its records are compressed
    frames = framed(3, 1, request(3, [("t", [IDEMPOTENT])]))

    call, _, _, buffer = take(kernel, frames, admission=admission)

    start = len(frames) - len(IDEMPOTENT)
    assert admission.entries == [("t", 0, start, len(frames), BatchStatus.OK, 1, 1, 5, 5, 7, 1, 3)]
    assert call.request_count == count
    if count:
        buffer.join(0, 0)
        assert [item.flags for item in buffer.commits()] == [flags]


def test_a_request_goes_into_one_object(kernel: ModuleType) -> None:
    frames = framed(3, 1, request(3, [("t", [BATCH, BATCH])])) * 2
    size = 2 * len(BATCH)

    call, end, is_full, buffer = take(kernel, frames, buffer=kernel.WriteBuffer(2 * size - 1))
    assert (end, is_full, call.request_count, buffer.size) == (len(frames) // 2, True, 1, size)

    call, end, is_full, buffer = take(kernel, frames, buffer=kernel.WriteBuffer(size), start=end)
    assert (end, is_full, call.request_count) == (len(frames), False, 1)

    call, end, is_full, buffer = take(kernel, frames, buffer=kernel.WriteBuffer(size - 1))
    assert (end, is_full, call.request_count) == (0, False, 0)  # no buffer is large enough


def test_requests_are_taken_up_to_the_number_of_batches_of_a_buffer(kernel: ModuleType) -> None:
    frames = framed(3, 1, request(3, [("t", [BATCH, BATCH])])) * 3

    call, end, is_full, buffer = take(kernel, frames, buffer=kernel.WriteBuffer(1 << 20, 5))
    assert (end, is_full, call.request_count, buffer.count) == (len(frames) // 3 * 2, True, 2, 4)

    call, end, is_full, buffer = take(kernel, frames, buffer=buffer, start=end)
    assert (is_full, call.request_count, buffer.count) == (True, 0, 4)

    call, end, is_full, buffer = take(kernel, frames, buffer=kernel.WriteBuffer(1 << 20, 1))
    assert (end, is_full, call.request_count) == (0, False, 0)  # no buffer is large enough


def test_a_first_batch_lowers_the_position_seen(kernel: ModuleType) -> None:
    later = kernel.WriteBuffer(1 << 20)
    later.seen = 70
    body = request(3, [("t", [IDEMPOTENT])])  # sequence 3
    take(kernel, framed(3, 1, body), buffer=later, seen=30)
    assert later.seen == 70

    plain = kernel.WriteBuffer(1 << 20)
    plain.seen = 70
    take(kernel, framed(3, 1, BODY_3), buffer=plain, seen=30)
    assert plain.seen == 70


def test_requests_that_are_taken_together_have_a_bounded_number_of_batches(kernel: ModuleType) -> None:
    body = long_request(ELEMENTS_MAX // 2)
    frame = framed(9, 1, body)
    admission = Admission(0, partitions=ELEMENTS_MAX)
    admission.answer = 0

    call, end, _, _ = take(kernel, frame * 5, 9, size_max=1 << 20, count_max=64, admission=admission)

    assert (end, call.request_count, len(call)) == (2 * len(frame), 2, ELEMENTS_MAX)


def test_errors_of_callbacks_are_passed_on_and_nothing_is_taken(kernel: ModuleType) -> None:
    class Failing(Admission):
        def rules(self, topic: Any) -> Any:
            if topic == "u":
                raise RuntimeError("u")
            return super().rules(topic)

    buffer, hold = kernel.WriteBuffer(1 << 20), Hold()
    with pytest.raises(RuntimeError, match="u"):
        take(
            kernel, framed(3, 1, BODY_3) + framed(3, 2, request(3, [("u", [BATCH])])), buffer=buffer, hold=hold,
            admission=Failing(),
        )  # fmt: skip

    assert (buffer.count, hold.held) == (0, 0)


def test_wrong_arguments_are_the_callers_fault(kernel: ModuleType) -> None:
    for start, end in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="is not inside a buffer of 3 bytes"):
            take(kernel, b"abc", start=start, end=end)
    with pytest.raises(Unsupported, match="supported: 3-13"):
        take(kernel, b"abc", 14)
    call, _, _, buffer = take(kernel, framed(3, 1, BODY_3))
    with pytest.raises(ValueError, match="the call has requests"):
        kernel.take_produces(buffer, call, b"", None, 0, 0, 3, b"", 1, 1, 0, Admission(), 0)
    buffer.join(0, 0)
    with pytest.raises(ValueError, match="joined already"):
        take(kernel, framed(3, 1, BODY_3), buffer=buffer)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transactional_id_is_asked_for_once_until_it_changes(kernel: ModuleType, version: int) -> None:
    ids = [None, "a", "a", "", "größe", "größe", None, "tx", "a"]
    frames = [framed(version, at, request(version, [("t", [BATCH])], name)) for at, name in enumerate(ids)]
    admission = Admission()

    call, end, _, _ = take(kernel, b"".join(frames), version, admission=admission)

    assert (end, call.request_count) == (len(b"".join(frames[:7])), 7)
    assert admission.transactional_ids == ["a", "", "größe", None, "tx"]


def test_a_request_whose_transactional_id_is_malformed_is_left(kernel: ModuleType) -> None:
    body = request(3, [("t", [BATCH])], "ab").replace(b"\0\2ab", b"\0\2\xff\xff")
    admission = Admission()

    call, end, _, _ = take(kernel, framed(3, 1, body), admission=admission)

    assert (end, call.request_count, admission.transactional_ids) == (0, 0, [])

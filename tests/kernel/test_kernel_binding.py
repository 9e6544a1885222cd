"""Produce requests of one client for one topic, whose rules are known: taken without a question, native and in Python."""

from types import ModuleType
from typing import Any

import pytest

from bearlake.errors import Unsupported
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record, encode
from kernel.test_kernel_intake import KEY, NONE, STREAM, Hold, framed, lead_of
from kernel.test_kernel_produce import BATCH, IDEMPOTENT, TOPIC_ID, VERSIONS, request

NOW_MS = 1_000_000
EVER = 2**63 - 1


def rules(**changes: int) -> Any:
    """Rules with times relative to now: those that allow every time."""
    fields = {"partitions": 4, "bytes_max": 10_000, "before": -EVER, "after": EVER, "checks": 0} | changes
    return (STREAM, KEY, *fields.values())


def bound(
    kernel: ModuleType,
    version: int = 3,
    *,
    topic: Any = "t",
    size_max: int = 10_000,
    transaction: Any = None,
    **changes: int,
) -> Any:
    topic = TOPIC_ID.bytes if version >= 13 else topic
    return kernel.ProduceBinding(version, lead_of(version), size_max, topic, rules(**changes), transaction)


def take(kernel: ModuleType, binding: Any, frames: bytes, **options: Any) -> tuple[Any, int, int, Any]:
    """Take requests; returns the call, the position behind them, what is known of the next one, and the buffer."""
    buffer = options.get("buffer") or kernel.WriteBuffer(1 << 20)
    call = kernel.ProduceResults(NONE)
    end, need, _ = binding.take(
        buffer, call, frames, options.get("hold"), 0, options.get("end", len(frames)), options.get("count_max", 10), 0,
        options.get("now_ms", NOW_MS), 0,
    )  # fmt: skip
    return call, end, need, buffer


@pytest.mark.parametrize("version", VERSIONS)
def test_bound_requests_are_committed_and_answered_as_others(kernel: ModuleType, version: int) -> None:
    body = request(version, [("t", [BATCH, IDEMPOTENT])])
    frames = framed(version, 1, body) + framed(version, 2, body)
    hold = Hold()

    call, end, need, buffer = take(kernel, bound(kernel, version), frames, hold=hold)

    assert (end, need, call.request_count, len(call), buffer.count, hold.held) == (len(frames), 0, 2, 4, 4, 4)
    joined = buffer.join(0, 0)
    assert [joined[item.position : item.position + item.length] for item in buffer.commits()] == [
        BATCH,
        BATCH,
        IDEMPOTENT,
        IDEMPOTENT,
    ]
    assert buffer.resolve([(0, 10 + at, 0) for at in range(4)]) == [call]
    topic = TOPIC_ID.bytes if version >= 13 else "t"
    assert call.frames() == b"".join(
        kernel.encode_produce_response(
            version, at + 1, [(topic, 0, 0, 10 + at, -1, 0), (topic, 1, 0, 12 + at, -1, 0)], 0
        )
        for at in range(2)
    )


@pytest.mark.parametrize(
    "last",
    [
        framed(3, 1, request(3, [("u", [BATCH])])),
        framed(3, 1, request(3, [("tt", [BATCH])])),
        framed(3, 1, request(3, [("", [BATCH])])),
        framed(3, 1, request(3, [("t", [BATCH]), ("u", [BATCH])])),
        framed(3, 1, request(3, [("t", [BATCH] * 5)])),
        framed(3, 1, request(3, [("t", [BATCH[:-1] + b"x"])])),
        framed(3, 1, request(3, [("t", [BATCH])], "tx")),
        framed(3, 1, request(3, [])),
        framed(3, 1, request(3, [("t", [BATCH])]), client=b"you"),
        framed(4, 1, request(3, [("t", [BATCH])])),
        b"\xff\xff\xff\xff" + bytes(20),
    ],
)
def test_what_the_rules_do_not_admit_is_left_without_a_question(kernel: ModuleType, last: bytes) -> None:
    first = framed(3, 1, request(3, [("t", [BATCH])]))

    call, end, need, buffer = take(kernel, bound(kernel), first + last + first)

    assert (end, need, call.request_count, buffer.count) == (len(first), 0, 1, 1)


def test_a_topic_without_partitions_needs_no_rules(kernel: ModuleType) -> None:
    frames = framed(3, 1, request(3, [("u", []), ("t", [BATCH]), ("", [])]))

    call, end, _, _ = take(kernel, bound(kernel), frames)

    assert (end, len(call)) == (len(frames), 1)


def test_times_of_the_rules_are_relative_to_now(kernel: ModuleType) -> None:
    frames = framed(3, 1, request(3, [("t", [BATCH])]))  # of the times 1000 to 1700
    binding = bound(kernel, before=-500, after=500)

    for now_ms, taken in ((1199, 0), (1200, 1), (1500, 1), (1501, 0), (-(2**63), 0), (2**63 - 1, 0)):
        assert take(kernel, binding, frames, now_ms=now_ms)[0].request_count == taken
    for now_ms in (-(2**63), 0, 2**63 - 1):  # the sums are beyond 64 bits
        assert take(kernel, bound(kernel), frames, now_ms=now_ms)[0].request_count == (now_ms >= 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_size_of_a_request_is_known_once_its_header_has_arrived(kernel: ModuleType, version: int) -> None:
    whole = framed(version, 1, request(version, [("t", [BATCH])]))
    known = 12 + len(lead_of(version))

    for end in range(len(whole), 2 * len(whole)):
        call, position, need, _ = take(kernel, bound(kernel, version), whole * 2, end=end)
        assert (call.request_count, position) == (1, len(whole))
        assert need == (len(whole) if end - len(whole) >= known else 0)


def test_the_size_of_a_request_with_special_needs_is_not_known(kernel: ModuleType) -> None:
    body = request(3, [("t", [BATCH])])
    for frame in (framed(3, 1, body, client=b"yo"), framed(4, 1, body), framed(3, 1, body, key=1)):
        assert take(kernel, bound(kernel), frame[:-1])[2] == 0
    assert take(kernel, bound(kernel, size_max=len(framed(3, 1, body)) - 5), framed(3, 1, body)[:-1])[2] == 0


def test_a_request_that_needs_another_buffer_is_left(kernel: ModuleType) -> None:
    frames = framed(3, 1, request(3, [("t", [BATCH])])) * 2

    call, end, need, _ = take(kernel, bound(kernel), frames, buffer=kernel.WriteBuffer(2 * len(BATCH) - 1))

    assert (call.request_count, end, need) == (1, len(frames) // 2, -1)


def test_a_binding_is_not_made_of_anything_else(kernel: ModuleType) -> None:
    for version in (2, 14):
        with pytest.raises(Unsupported, match="supported: 3-13"):
            kernel.ProduceBinding(version, b"", 1, "t", rules(), None)
    for arguments in ((3, bytearray(), 1, "t"), (3, b"", 1, b"t"), (13, b"", 1, "t")):
        with pytest.raises(TypeError):
            kernel.ProduceBinding(*arguments, rules(), None)
    with pytest.raises(ValueError, match="rules"):
        kernel.ProduceBinding(3, b"", 1, "t", rules()[:-1], None)
    with pytest.raises(ValueError, match="rules"):
        kernel.ProduceBinding(3, b"", 1, "t", (b"", *rules()[1:]), None)
    for transaction in (("tx", -1, 2), ("tx", 7, -1), (b"tx", 7, 2), ("\udfff", 7, 2), ("tx", 7)):
        with pytest.raises(ValueError, match=r"transaction|surrogates"):
            kernel.ProduceBinding(3, b"", 1, "t", rules(), transaction)


TRANSACTIONAL = encode(
    [Record(timestamp=5)],
    codec=Compression.GZIP,
    producer=Producer(id=7, epoch=1, base_sequence=3, is_transactional=True),
)
OF_ANOTHER = encode([Record(timestamp=5)], producer=Producer(id=8, epoch=1, base_sequence=3, is_transactional=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_the_bound_producer_get_its_flags(kernel: ModuleType, version: int) -> None:
    frame = framed(version, 1, request(version, [("t", [TRANSACTIONAL, BATCH])], "größe"))
    binding = bound(kernel, version, transaction=("größe", 7, 18))

    call, end, need, buffer = take(kernel, binding, frame)

    assert (end, need, call.request_count, buffer.count, buffer.flags) == (len(frame), 0, 1, 2, 18)
    joined = buffer.join(0, 0)
    first, second = buffer.commits()
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.flags) == (7, 1, 3, 18)
    assert joined[first.position : first.position + first.length] == TRANSACTIONAL
    assert second.flags == 0


@pytest.mark.parametrize(
    ("transactional_id", "batch", "transaction"),
    [
        ("tx", TRANSACTIONAL, None),
        (None, TRANSACTIONAL, None),
        (None, TRANSACTIONAL, ("tx", 7, 2)),
        (None, BATCH, ("tx", 7, 2)),
        ("", TRANSACTIONAL, ("tx", 7, 2)),
        ("tx2", TRANSACTIONAL, ("tx", 7, 2)),
        ("ty", TRANSACTIONAL, ("tx", 7, 2)),
        ("tx", OF_ANOTHER, ("tx", 7, 2)),
        ("tx", encode([Record(timestamp=5)], producer=Producer(id=-1, is_transactional=True)), None),
    ],
)
def test_requests_of_other_transactions_are_left(
    kernel: ModuleType, transactional_id: str | None, batch: bytes, transaction: Any
) -> None:
    frame = framed(3, 1, request(3, [("t", [batch])], transactional_id))

    call, end, need, buffer = take(kernel, bound(kernel, transaction=transaction), frame)

    assert (end, need, call.request_count, buffer.count) == (0, 0, 0, 0)


def test_rules_hold_for_batches_of_transactions(kernel: ModuleType) -> None:
    transaction = ("tx", 7, 2)
    frame = framed(3, 1, request(3, [("t", [TRANSACTIONAL])], "tx"))
    for changes in ({"bytes_max": len(TRANSACTIONAL) - 1}, {"partitions": 0}, {"before": 0, "after": 0}):
        assert take(kernel, bound(kernel, transaction=transaction, **changes), frame)[1] == 0
    assert take(kernel, bound(kernel, transaction=transaction), frame)[1] == len(frame)

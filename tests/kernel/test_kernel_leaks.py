"""The native kernel releases every reference and every block, also on its error paths."""

import contextlib
import gc
import resource
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bearlake.errors import BearlakeError
from bearlake.kernel import BatchCommit, CommitRows, PartitionKey, TypedKind, TypedNode, TypedSource
from bearlake.metadata.model import OutcomeRows, SliceRows
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from fixtures.columns import value_page

BATCH = encode([Record(key=b"key", value=b"value", timestamp=2**40, headers=(("name", b"x"),)), Record()])
BODY = b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\1\0\5topic\0\0\0\1\0\0\0\7" + len(BATCH).to_bytes(4, "big") + BATCH
RESULTS = [("topic-name", 2**20, 0, 2**40, -1, 2**41)] * 40
RULES = (bytes(16), 0, 9, 10**6, -1, 2**62, 1)
OUTCOME = (8, 2**40, 2**41)
TOGETHER = 2 * ((10 + len(BODY)).to_bytes(4, "big") + b"\0\0\0\3\0\0\0\1\0\0" + BODY)


def build(native: ModuleType, data: bytes, *arguments: Any) -> Any:
    builder = native.ColumnBuilder(*arguments)
    builder.append(1, 0, data, 0, len(data), [])
    builder.append(1, 2, data, 0, len(data), [])
    return builder.take()


def append_calls(native: ModuleType) -> list[Callable[[], Any]]:
    entries = native.parse_produce(BODY, 0, 3)[3] * 3
    rules = RULES
    appends: list[Any] = []
    native.admit_plain(entries, 0, memoryview(BODY), None, rules, appends)
    buffer = native.WriteBuffer(10**6)
    buffer.add(native.Results(3, OUTCOME), appends, 0, 0)
    buffer.join(0, 0)
    commits = buffer.commits()

    return [
        lambda: native.admit_plain(entries, 0, memoryview(BODY), None, rules, []),
        lambda: native.admit_plain([entries[0], (1,)], 0, memoryview(BODY), None, rules, []),
        lambda: native.admit_plain(entries, 0, 5, None, rules, []),
        *assignment_calls(native, commits.packed),
        *buffer_calls(native, appends),
    ]


class Partitions(dict[Any, Any]):
    """Partitions, each with a new state."""

    def __missing__(self, key: int) -> Any:
        stream = SimpleNamespace(is_open=True)
        known = {5: (1, 2**40, 0, 8, 2**41, 0, 8, 2**42)}
        return SimpleNamespace(stream=stream, start=2**40, end=2**41, size=2**42, changed=0, tail=[], producers=known)


def assignment_calls(native: ModuleType, batches: bytes) -> list[Callable[[], Any]]:
    """Decisions on batches, from the first to the adoption, and with everything that can be wrong."""
    with_producers = CommitRows.of(
        [BatchCommit(PartitionKey(at % 3), 0, 9, 4, 2**40, 5, 1, 9 + 4 * (at // 3), 0, -1) for at in range(9)]
        + [BatchCommit(PartitionKey(1), 9, 9, 4, 2**40, 6, 1, 0)]
    ).packed

    def decided(partitions: Any, batches: Any, producer: Any = (1, 2, 3, 4, 5)) -> Any:
        assignment = native.OffsetAssignment(partitions, batches, 2**40, 6)
        if (at := assignment.assign()) is not None:
            told = at, assignment.known(), assignment.state, assignment.end
            assert told[0] == at
            assignment.accept(producer)
            assignment.assign()
        told = assignment.outcomes, assignment.slices, assignment.sequences
        changed: dict[int, Any] = {}
        assignment.adopt(2**40, changed)
        return told, changed

    def refused() -> Any:
        assignment = native.OffsetAssignment(Partitions(), with_producers, 2**40, 6)
        assignment.assign()
        assignment.refuse(1, 2**40, 2**41)
        return assignment.outcomes

    def left(*names: str) -> Any:
        assignment = native.OffsetAssignment(Partitions(), with_producers, 2**40, 6)
        for name in names:
            getattr(assignment, name)()
        return assignment

    state = Partitions()[0]
    wrong: list[Any] = [
        SimpleNamespace(**{**vars(state), name: "x"}) for name in ("start", "producers", "stream", "tail")
    ]
    return [
        lambda: decided(Partitions(), batches),
        lambda: decided(Partitions(), with_producers),
        refused,
        lambda: left("assign"),
        lambda: left("known"),
        lambda: left("assign", "accept"),
        lambda: left("adopt"),
        lambda: decided(Partitions(), batches[:-1]),
        lambda: decided(Partitions(), 7),
        lambda: decided({}, batches),
        lambda: decided(7, batches),
        *(lambda item=item: decided(dict.fromkeys(range(-9, 99), item), with_producers) for item in wrong),
    ]


def buffer_calls(native: ModuleType, appends: list[Any]) -> list[Callable[[], Any]]:
    """Calls of a buffer and of results, from the first batch to the outcomes, and with everything that can be wrong."""
    held = [item._replace(hold=Holding(), batch=bytearray(BATCH)) for item in appends]

    changes: list[dict[str, Any]] = [
        {"stream_id": b"x"},
        {"flags": "x"},
        {"batch": 7},
        {"batch": b""},
        {"hold": Failing()},
    ]
    wrong = [(1,), *(held[0]._replace(**change) for change in changes)]

    def buffer(*more: Any, count: int = 3) -> Any:
        made = native.WriteBuffer(10**6)
        made.add(native.Results(count, OUTCOME), [*held, *more], 0, 0)
        return made

    def joined() -> Any:
        made = buffer()
        target = made.join(3, 4)
        made.index(target)
        return made

    def arranged(front: Any = 3) -> Any:
        made = buffer()
        made.arrange(front)
        return made

    def released() -> Any:
        made = arranged()
        made.index(None)
        made.release()
        made.release()
        return made

    def join_twice() -> None:
        joined().join(0, 0)

    def results(*arguments: Any) -> list[Any]:
        made = native.Results(*arguments)
        made.fill(OUTCOME)
        made.close()
        return [*made, made[-1]]

    return [
        buffer,
        join_twice,
        lambda: joined().commits(),
        lambda: joined().resolve([OUTCOME] * 3),
        lambda: joined().resolve([OUTCOME] * 2),
        lambda: joined().resolve(OutcomeRows.of([OUTCOME] * 3)),
        lambda: joined().resolve(OutcomeRows.of([OUTCOME] * 2)),
        lambda: joined().resolve(SliceRows(bytes(48))),
        lambda: joined().resolve([OUTCOME, (0, "x", 0), OUTCOME]),
        lambda: joined().resolve(7),
        arranged,
        lambda: arranged("x"),
        lambda: arranged(-1),
        lambda: arranged().arrange(0),
        lambda: arranged().index(bytearray(1)),
        lambda: released().index(None),
        lambda: released().commits(),
        lambda: buffer().release(),
        lambda: joined().index(None),
        lambda: joined().index(bytearray(1)),
        lambda: joined().index(b""),
        lambda: joined().add(native.Results(3, OUTCOME), held, 0, 0),
        *(lambda item=item: buffer(item, count=4) for item in wrong),
        lambda: native.WriteBuffer(10**6).add(7, held, 0, 0),
        lambda: native.WriteBuffer(10**6).join(0, 0),
        lambda: native.WriteBuffer(-1),
        lambda: results(1, OUTCOME),
        lambda: results(40, OUTCOME),
        lambda: results(-1, OUTCOME),
        lambda: results(3, (1, 2)),
        lambda: results(3, (1, 2, "x")),
        lambda: native.Results(3, OUTCOME).__init__(5, OUTCOME),
    ]


def intake_calls(native: ModuleType) -> list[Callable[[], Any]]:
    """Requests that are taken, and everything that can be wrong with them."""

    def taken(admission: Any, hold: Any = None, memory: Any = TOGETHER, version: int = 3, times: int = 1) -> Any:
        buffer, call = native.WriteBuffer(10**6), native.ProduceResults(OUTCOME)
        for _ in range(times):
            native.take_produces(
                buffer, call, memory, hold, 0, len(memory), version, b"\0\0", 1000, 10, 1 << 20, admission, 0
            )
        return buffer, call

    def answered(verdict: int) -> None:
        buffer, call = taken(Admitting(), Holding(), bytearray(TOGETHER))
        buffer.join(0, 0)
        buffer.resolve([(verdict, 2**40, 2**41)] * 2)
        assert (call.frames() is None) == (verdict > 0)
        assert len(call.requests()) == 2

    return [
        lambda: answered(0),
        lambda: answered(1),
        lambda: taken(Admitting()),
        lambda: taken(Admitting(), times=2),
        lambda: taken(Admitting(), Failing()),
        lambda: taken(Admitting(None)),
        lambda: taken(Admitting((1,))),
        lambda: taken(Admitting((b"x", *RULES[1:]))),
        lambda: taken(Admitting((*RULES[:3], "x", *RULES[4:]))),
        lambda: taken(Admitting((*RULES[:3], 0, *RULES[4:]), 1)),
        lambda: taken(Admitting((*RULES[:3], 0, *RULES[4:]), -1)),
        lambda: taken(Admitting((*RULES[:3], 0, *RULES[4:]), "x")),
        lambda: taken(Failing()),
        lambda: taken(Admitting(), memory=TOGETHER[:-1]),
        lambda: taken(Admitting(), memory=TOGETHER.replace(b"topic", b"\xff\xff\xff\xff\xff")),
        lambda: taken(Admitting(), memory=7),
        lambda: taken(Admitting(), version=99),
        lambda: native.ProduceResults(7),
        lambda: native.ProduceResults(OUTCOME, 7),
    ]


def binding_calls(native: ModuleType) -> list[Callable[[], Any]]:
    """Requests that are taken without a question, and everything that can be wrong with them."""

    def taken(
        *options: Any,
        topic: Any = "topic",
        hold: Any = None,
        memory: Any = TOGETHER,
        rules: Any = RULES,
        transaction: Any = None,
    ) -> Any:
        binding = native.ProduceBinding(3, b"\0\0", 1000, topic, rules, transaction)
        call = native.ProduceResults(OUTCOME)
        found = binding.take(native.WriteBuffer(10**6), call, memory, hold, 0, len(memory), *(options or (10, 0, 5, 0)))
        return call, found

    return [
        taken,
        lambda: taken(hold=Holding(), memory=bytearray(TOGETHER)),
        lambda: taken(hold=Failing()),
        lambda: taken(topic="other"),
        lambda: taken(topic="\ud800"),  # not in UTF-8
        lambda: taken(topic=b"topic"),
        lambda: taken(memory=TOGETHER[:-1]),
        lambda: taken(memory=TOGETHER.replace(b"topic", b"\xff\xff\xff\xff\xff")),
        lambda: taken(memory=[1]),
        lambda: taken(1, 0, "x", 0),
        lambda: taken(1, 0, 0),
        lambda: taken(rules=(1,)),
        lambda: taken(rules=(*RULES[:3], "x", *RULES[4:])),
        lambda: native.ProduceBinding(99, b"", 1, "topic", RULES, None),
        lambda: native.ProduceBinding(3, "", 1, "topic", RULES, None),
        lambda: native.ProduceBinding(3, b""),
        lambda: taken(transaction=("id", 7, 2)),
        lambda: taken(transaction=("id", 7)),
        lambda: taken(transaction=("id", 7, "x")),
        lambda: taken(transaction=("id", -1, 2)),
        lambda: taken(transaction=("\udfff", 7, 2)),
    ]


class Holding:
    def acquire(self, count: int) -> None:
        """Nothing to do."""

    release = acquire


class Failing:
    """A hold and an admission."""

    def acquire(self, count: int) -> None:
        raise ValueError("no")

    def rules(self, topic: str) -> None:
        raise BearlakeError("no")


class Admitting:
    def __init__(self, rules: Any = RULES, flags: Any = 0) -> None:
        self._rules, self._flags = rules, flags

    def rules(self, topic: str) -> Any:
        return self._rules

    def flags(self, entry: Any) -> Any:
        return self._flags


def fetch_calls(native: ModuleType) -> list[Callable[[], Any]]:
    body = b"\xff\xff\xff\xff" + bytes(21) + b"\0\0\0\1\0\5topic\0\0\0\1" + bytes(24) + bytes(4)
    entries = native.parse_fetch(body, 7, 9)[3]
    views = [memoryview(bytes(2000)), memoryview(bytes(20))]
    return [
        lambda: native.parse_fetch(body, 7, 9),
        lambda: native.parse_fetch(body, 7, 0),
        lambda: native.parse_fetch(body[:-1], 7, 9),
        lambda: native.parse_fetch(body.replace(b"topic", b"\xff\xff\xff\xff\xff"), 7, 9),
        lambda: native.parse_fetch(body, 99, 9),
        lambda: native.encode_fetch(7, 1, entries, [(0, 2**40, 2**40, views)]),
        lambda: native.encode_fetch(7, 1, entries * 9, [(0, 2**40, 2**40, views)] * 9),
        lambda: native.encode_fetch(7, 1, entries, [(0, 2**40, 2**40, [*views, 5])]),
        lambda: native.encode_fetch(7, 1, entries * 2, [(0, 1, 2, views), (0, 2**70, 0, [])]),
        lambda: native.encode_fetch(7, 1, entries, []),
        lambda: native.encode_fetch(13, 1, entries, [(0, 0, 0, [])]),
    ]


NODES = (
    TypedNode(TypedKind.RECORD, children=(1, 2, 5)),
    TypedNode(TypedKind.STRING),
    TypedNode(TypedKind.MAP, 0, children=(3, 4)),
    TypedNode(TypedKind.STRING),
    TypedNode(TypedKind.BOOLEAN),
    TypedNode(TypedKind.ENUM, symbols=(b"A",)),
)
PEOPLE = b"\2a\2\2\2k\1\0\0" * 3
ENDS = b"".join((at * 9).to_bytes(4, "little") for at in range(4))


JSON_NODES = (
    TypedNode(TypedKind.RECORD, children=(1, 2, 5), symbols=(b"s", b"m", b"l")),
    TypedNode(TypedKind.STRING),
    TypedNode(TypedKind.MAP, children=(3, 4)),
    TypedNode(TypedKind.STRING),
    TypedNode(TypedKind.DOUBLE),
    TypedNode(TypedKind.ARRAY, children=(6,)),
    TypedNode(TypedKind.JSON),
)
JSON_TEXT = rb'{"s": "\u00e9", "m": {"a": 1.23456789012345678901}, "l": [[], {"a": 1}]}'


def json_calls(native: ModuleType) -> list[Callable[[], Any]]:
    """JSON: good values, malformed ones, and everything that can be wrong with the arguments."""
    ends = bytes(4) + len(JSON_TEXT).to_bytes(4, "little")
    good: list[Any] = [JSON_NODES, None, ends, JSON_TEXT, 0, 1, 0, 10**6]

    def decode(at: int, value: Any) -> Any:
        return native.decode_json(*good[:at], value, *good[at + 1 :])

    return [
        lambda: native.decode_json(*good),
        lambda: decode(3, JSON_TEXT.replace(b"[]", b"[,")),
        lambda: decode(3, JSON_TEXT[:-1]),
        lambda: decode(6, 3),
        lambda: decode(7, 20),
        lambda: decode(1, b"\1"),
        lambda: decode(1, b""),
        lambda: decode(2, 7),
        lambda: decode(5, 9),
        lambda: decode(0, JSON_NODES[:3]),
        lambda: decode(0, (*JSON_NODES[:6], TypedNode(TypedKind.INT))),
        lambda: decode(0, (*JSON_NODES[:6], TypedNode(TypedKind.JSON, symbols=(7,)))),  # type: ignore[arg-type]
        lambda: decode(0, NODES),
        lambda: decode(0, list(JSON_NODES)),
    ]


def typed_calls(native: ModuleType) -> list[Callable[[], Any]]:
    """Typed columns: good values, malformed ones, and everything that can be wrong with the arguments."""
    _, slots = native.decode_avro(NODES, None, ENDS, PEOPLE, 0, 3, 0, 1, 10**6)
    columns = [TypedSource(0, length, *buffers) for length, _, *buffers in slots]
    good: list[Any] = [NODES, None, ENDS, PEOPLE, 0, 3, 0, 1, 10**6]

    def decode(at: int, value: Any) -> Any:
        return native.decode_avro(*good[:at], value, *good[at + 1 :])

    def encode(at: int, **change: Any) -> Any:
        return native.encode_avro(NODES, [*columns[:at], columns[at]._replace(**change), *columns[at + 1 :]], b"x")

    return [
        lambda: native.decode_avro(*good),
        lambda: decode(3, PEOPLE.replace(b"k", b"\xff")),
        lambda: decode(3, PEOPLE[:-1]),
        lambda: decode(8, 50),
        lambda: decode(1, b"\5"),
        lambda: decode(1, b""),
        lambda: decode(2, 7),
        lambda: decode(5, 9),
        lambda: decode(0, NODES[:3]),
        lambda: decode(0, list(NODES)),
        lambda: decode(0, (*NODES[:5], TypedNode(TypedKind.ENUM, symbols=(7,)))),  # type: ignore[arg-type]
        lambda: decode(0, (*NODES[:5], (1,))),
        lambda: native.encode_avro(NODES, columns, b"x"),
        lambda: native.encode_avro(NODES, iter(columns), b"x"),
        lambda: native.encode_avro(NODES, columns[1:], b"x"),
        lambda: native.encode_avro(NODES, columns, 7),
        lambda: native.encode_avro(NODES, 7, b"x"),
        lambda: encode(1, offsets=b""),
        lambda: encode(1, content=b""),
        lambda: encode(1, content=7),
        lambda: encode(5, content=b"BBB"),
        lambda: encode(1, indices=bytes(12), entry_count=1),
        lambda: encode(1, indices=b"\xff" * 12, entry_count=1),
        lambda: encode(1, indices=bytes(12), entry_count=-1),
        lambda: encode(1, indices=bytes(12), entry_count="1"),
        lambda: encode(1, indices=b""),
        lambda: encode(1, indices=7),
        lambda: encode(0, indices=bytes(12)),
    ]


def calls(native: ModuleType) -> list[Callable[[], Any]]:
    buffer = bytearray(BATCH)
    columns = build(native, BATCH)
    builder = native.ColumnBuilder()
    packed = encode([Record()], codec=Compression.GZIP)
    entry = (2**40, 2**41, 2, 0, len(BATCH), 0)
    return [
        lambda: native.crc32c(BATCH),
        lambda: native.crc32c(BATCH, 5, 1),
        lambda: native.inspect(BATCH, 0, len(BATCH)),
        lambda: native.inspect(BATCH, 0, 50),
        lambda: native.batches(BATCH, 0, len(BATCH)),
        lambda: native.batches(BATCH + b"x", 0, len(BATCH) + 1),
        lambda: native.rebase(buffer, [entry], 0),
        lambda: native.rebase(buffer, [entry, (0, 0, 0, 0, 9, 0)], 0),
        lambda: native.rebase(buffer, SliceRows.of([entry]), 0),
        lambda: native.rebase(buffer, SliceRows.of([entry, (0, 0, 0, 0, 9, 0)]), 0),
        lambda: native.rebase(buffer, OutcomeRows(bytes(24)), 0),
        lambda: native.rebase(buffer, (entry for _ in range(3)), 0),
        lambda: native.rebase(BATCH, [entry], 0),
        lambda: native.seek(BATCH, 0, len(BATCH), 1),
        lambda: native.seek(BATCH, 0, 70, 1),
        lambda: native.find_run(BATCH, 0, len(BATCH), 0, 1, 1),
        lambda: native.find_run(BATCH, 0, 70, 1, 1, 1),
        *append_calls(native),
        *intake_calls(native),
        *binding_calls(native),
        *fetch_calls(native),
        *typed_calls(native),
        *json_calls(native),
        lambda: native.parse_produce(BODY, 0, 3),
        lambda: native.parse_produce(BODY[:-1], 0, 3),
        lambda: native.parse_produce(BODY.replace(b"topic", b"\xff\xff\xff\xff\xff"), 0, 3),
        lambda: native.parse_produce(BODY + b"x", 0, 3),
        lambda: native.parse_produce(BODY, 0, 99),
        lambda: native.encode_produce_response(9, 1, RESULTS, 0),
        lambda: native.encode_produce_response(9, 1, [*RESULTS, ("t", 2**40, 0, 0, 0, 0)], 0),
        lambda: native.encode_produce_response(9, 1, [*RESULTS, ("t",)], 0),
        lambda: native.check_records(BATCH[61:], 2),
        lambda: native.decode_part(BATCH[61:], 0, 0, 2, 2**40),
        lambda: native.decode_part(BATCH[61:], 0, 0, 3, 2**40),
        lambda: native.decode_records(BATCH[61:], 2, 2**40),
        lambda: native.decode_records(BATCH[61:], 3, 2**40),
        lambda: native.find_timestamp(BATCH[61:], 2, 2**40, 0),
        lambda: native.find_timestamp(BATCH[61:], 3, 0, 2**50),
        lambda: build(native, BATCH),
        lambda: build(native, BATCH[:-1]),
        lambda: build(native, BATCH * 20, 50),
        lambda: build(native, BATCH, 2**31),
        lambda: native.ColumnBuilder(),
        lambda: builder.append(0, 0, packed, 0, len(packed), [b"xxxxxxx"]),
        lambda: builder.append(0, 0, packed, 0, len(packed), [None]),
        lambda: builder.append(0, 0, packed, 0, len(packed), [b"", b""]),
        lambda: builder.append(0, 0, packed, 0, len(packed), [b"", 7]),
        lambda: builder.append(0, 2**63, packed, 0, len(packed), []),
        lambda: builder.append(0, 0, packed, 0, 2**63, []),
        lambda: (builder.row_count, builder.size_bytes),
        lambda: native.encode_columns(columns, 0, 4),
        lambda: native.encode_columns(columns, 1, 5),
        lambda: native.encode_columns(columns._replace(offset=bytes(32)), 0, 4),
        lambda: native.encode_columns(columns._replace(offset=b""), 0, 4),
        lambda: native.encode_columns(columns._replace(offset=7), 0, 4),
        lambda: native.encode_columns((1, 2), 0, 4),
        lambda: native.encode_pages(columns, [(value_page([b"v"] * 4), 4)], 99),
        lambda: native.encode_pages(columns, [(value_page([b"v"] * 4)[:-1], 4)], 0),
        lambda: native.encode_pages(columns, [(BATCH, 1), (7, 3)], 0),
        lambda: native.encode_pages(columns, [(BATCH, 1), BATCH], 0),
        lambda: native.encode_pages(columns, (int("x") for _ in range(1)), 0),
        lambda: native.encode_pages(columns, 7, 0),
    ]


@pytest.fixture
def few_tracked() -> Iterator[None]:
    """Keeps everything that exists out of the collections of a test, which would take minutes on a busy machine."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_tracked")
def test_nothing_is_leaked(native: ModuleType) -> None:
    for call in calls(native):
        repeat(call, 50)
        blocks = allocated()
        counts = [sys.getrefcount(value) for value in (None, native, BATCH, BODY, RESULTS, RESULTS[0], BearlakeError)]

        repeat(call, 500)

        assert allocated() - blocks < 250  # a leak has one or more per call
        after = [sys.getrefcount(value) for value in (None, native, BATCH, BODY, RESULTS, RESULTS[0], BearlakeError)]
        assert all(abs(now - before) < 250 for now, before in zip(after, counts, strict=True))


def allocated() -> int:
    """Blocks of memory, without those that Python keeps for its next tuples and frames."""
    gc.collect()
    return sys.getallocatedblocks()


def repeat(call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        with contextlib.suppress(BearlakeError, ValueError, BufferError, TypeError, LookupError, AttributeError):
            call()


def test_buffers_are_released(native: ModuleType) -> None:
    buffer = bytearray(BODY)
    columns = build(native, BATCH)
    for call in (
        lambda: native.parse_produce(buffer, 0, 3),
        lambda: native.parse_produce(buffer, 3, 3),
        lambda: native.rebase(buffer, [(0, 0, 1, 0, 9, 0)], 0),
        lambda: native.crc32c(buffer, 9, 1),
        lambda: native.decode_records(buffer, 1, 0),
        lambda: native.ColumnBuilder().append(0, 0, buffer, 0, len(buffer), []),
        lambda: native.ColumnBuilder().append(0, 0, BATCH, 0, len(BATCH), [buffer, buffer]),
        lambda: native.encode_columns((1, *[buffer] * 20), 0, 1),
        lambda: native.encode_columns((1, buffer, *[b""] * 19), 0, 1),
        lambda: native.encode_pages(columns, [(buffer, 1), (buffer, 3)], 0),
        lambda: native.encode_pages(columns, [(buffer, 1), (7, 3)], 0),
        lambda: native.decode_avro(NODES, buffer, buffer, buffer, 0, 1, 0, 0, 0),
        lambda: native.decode_avro(NODES, None, ENDS, buffer, 0, 1, 0, 0, 10**6),
        lambda: native.encode_avro(NODES, [TypedSource(0, 1, buffer, buffer, buffer)] * 6, buffer),
        lambda: native.encode_avro(NODES, [TypedSource(0, 1, buffer, buffer, buffer, buffer, 1)] * 6, buffer),
        lambda: native.decode_json(JSON_NODES, buffer, ENDS, buffer, 0, 1, 0, 10**6),
    ):
        repeat(call, 3)

    buffer.append(0)  # raises BufferError while a view is held


def test_columns_give_their_memory_back_to_the_pool(native: ModuleType) -> None:
    data = encode([Record(value=bytes(1000))] * 1000)
    build(native, data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(500):  # a gigabyte
        build(native, data)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB

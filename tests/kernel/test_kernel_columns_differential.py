"""The native columns and the Python ones agree on every input, hostile ones included, and neither breaks."""

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from bearlake.errors import BearlakeError
from bearlake.kernel import Columns, DecodeStatus, fallback
from bearlake.records.codec import Producer, Record, encode
from fixtures.columns import batch, record

SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=3).map(str.encode))


def mostly(usual: Any, other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 11).flatmap(lambda number: other if number == 0 else st.just(usual))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A mostly valid batch."""
    count = draw(st.sampled_from([1, 2, 2, 3, 9, 0]))
    records = [
        record(
            draw(mostly(index, st.integers(-2, 12))),
            time=draw(mostly(index, INT64)),
            key=draw(TEXT),
            value=draw(TEXT),
            headers=draw(st.lists(st.tuples(mostly(b"h", TEXT), TEXT), max_size=2)),
            attributes=draw(mostly(0, st.integers(0, 255))),
            tail=draw(mostly(b"", st.binary(max_size=3))),
            length=draw(mostly(None, st.integers(-3, 90))),
        )
        for index in range(count)
    ]
    return batch(
        *records,
        count=draw(mostly(count, INT32)),
        last_delta=draw(mostly(count - 1, INT32)),
        attributes=draw(mostly(0, st.integers(-(2**15), 2**15 - 1))),
        base_time=draw(mostly(2**40, INT64)),
        max_time=draw(mostly(2**40, INT64)),
        producer=draw(st.sampled_from([(-1, -1, -1), (2**63 - 1, 2**15 - 1, 2**31 - 1), (-1, 0, 0)])),
        magic=draw(mostly(2, st.integers(0, 3))),
    )


def plain(columns: Columns) -> list[Any]:
    return [part if part is None or isinstance(part, int) else bytes(part) for part in columns]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (BearlakeError, ValueError, BufferError) as error:
        return type(error), str(error)


def run(module: ModuleType, limit: int, base: int, data: bytes, bodies: list[bytes | None]) -> list[Any]:
    """All events while a caller goes through `data` according to the contract."""
    builder = module.ColumnBuilder(limit)
    happened: list[Any] = []
    position = 0
    while position < len(data):
        answer = outcome(builder.append, 1, base, data, position, len(data), bodies)
        happened += [answer, builder.row_count, builder.size_bytes]
        if not isinstance(answer[1], DecodeStatus) or answer[1] is DecodeStatus.OK:
            break
        position, status = answer
        base += 1000  # offsets of a partition never go back
        if status is DecodeStatus.OVERFLOW:
            happened.append(plain(builder.take()))
            continue
        step = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + 12
        position += step if step > 0 else 12
    columns = builder.take()
    again, encoded = module.encode_columns(columns, 0, columns.row_count)
    return [*happened, plain(columns), bytes(again), encoded]


@SETTINGS
@given(
    parts=st.lists(st.one_of(batches(), batches(), batches(), st.binary(max_size=70)), max_size=5),
    bodies=st.lists(st.one_of(st.none(), st.just(record()), st.binary(max_size=20)), max_size=2),
    base=st.one_of(st.integers(0, 50), st.integers(0, 2**63 - 1)),
    limit=st.one_of(st.just(2**31 - 1), st.integers(0, 2000)),
)
def test_decoding_agrees(
    native: ModuleType, parts: list[bytes], bodies: list[bytes | None], base: int, limit: int
) -> None:
    data = b"".join(parts)
    needed = [body for part in parts for body in bodies[:1] if len(part) > 22 and part[22] & 7]

    for given_bodies in (bodies, needed):
        ours, theirs = run(native, limit, base, data, given_bodies), run(fallback, limit, base, data, given_bodies)
        assert ours == theirs
        assert [type(part) for part in ours] == [type(part) for part in theirs]


@SETTINGS
@given(key=st.binary(max_size=12))
def test_replaced_text_agrees(native: ModuleType, key: bytes) -> None:
    data = batch(record(headers=[(key, None)]))

    assert run(native, 1000, 0, data, []) == run(fallback, 1000, 0, data, [])


def test_text_of_every_pair_of_lead_bytes_agrees(native: ModuleType) -> None:
    keys = [
        bytes([first, second, *rest])
        for first in range(0x7F, 256)
        for second in range(0x7E, 256)
        for rest in ((), (0x80,))
    ]
    data = batch(record(headers=[(key, None) for key in keys]))

    assert run(native, 2**20, 0, data, []) == run(fallback, 2**20, 0, data, [])


GOOD = encode(
    [
        Record(key=b"key", value=b"value", timestamp=2**40, headers=(("name", b"x"), ("n", None))),
        Record(),
        Record(value=b"v"),
    ],
    producer=Producer(id=7, epoch=1, base_sequence=3),
)


def spoil(source: random.Random, data: bytes, changes: int) -> bytes:
    out = bytearray(data)
    for _ in range(changes):
        out[source.randrange(len(out))] = source.choice([0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)])
    return bytes(out)


def test_both_kernels_read_spoiled_batches_alike(native: ModuleType) -> None:
    source = random.Random(17)
    for _ in range(3000):
        data = spoil(source, GOOD * 2, source.randrange(1, 4))
        data = data[: source.choice([len(data), source.randrange(len(data) + 1)])]

        assert run(native, 500, 5, data, []) == run(fallback, 500, 5, data, [])


def test_both_kernels_read_spoiled_columns_alike(native: ModuleType) -> None:
    source = random.Random(18)
    builder = native.ColumnBuilder()
    for base in (0, 3, 6):
        builder.append(1, base, GOOD, 0, len(GOOD), [])
    columns = builder.take()
    names = [name for name, part in columns._asdict().items() if part is not None and name != "row_count"]
    for _ in range(3000):
        chosen = source.sample(names, source.randrange(1, 3))
        parts = {name: bytes(getattr(columns, name)) for name in chosen}
        spoiled = {
            name: None if source.random() < 0.03 else spoil(source, part, source.randrange(1, 3)) if part else part
            for name, part in parts.items()
        }
        spoiled = {name: part[:-1] if part and source.random() < 0.05 else part for name, part in spoiled.items()}
        hostile = columns._replace(**spoiled)
        start, end = source.choice([(0, 9), (2, 7), (8, 9)])

        assert outcome(native.encode_columns, hostile, start, end) == outcome(
            fallback.encode_columns, hostile, start, end
        )

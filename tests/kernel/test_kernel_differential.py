"""The native kernel and the Python one agree on every input, including hostile input: same results, same errors, same messages."""

from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from bearlake.errors import BearlakeError
from bearlake.kernel import BATCH_NAMED, Append, BatchHeader, BoundTransaction, PartitionKey, fallback
from fixtures import produces
from fixtures.produces import Reads

SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HEADER = Struct(">qiibIhiqqqhii")
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-3, 300)


@st.composite
def batch_bytes(draw: st.DrawFn) -> bytes:
    """Strategy: a record batch with few errors."""
    body = draw(st.binary(max_size=80))
    count = draw(st.one_of(st.integers(1, 4), st.integers(-(2**31), 2**31 - 1)))
    fields = Struct(">hiqqqhii").pack(
        draw(st.one_of(st.integers(0, 4), st.integers(-(2**15), 2**15 - 1))),
        draw(st.one_of(st.just(max(count - 1, -(2**31))), st.integers(-2, 5))),
        draw(st.integers(-2, 5)),
        draw(st.one_of(st.integers(-2, 5), INT64)),
        draw(st.one_of(st.just(-1), st.integers(-2, 5), INT64)),
        draw(st.integers(-2, 5)),
        draw(st.integers(-2, 5)),
        count,
    )
    crc = draw(st.sampled_from([fallback.crc32c(fields + body), 1]))
    length = draw(st.sampled_from([49 + len(body)] * 5 + [0, -13, 48, 2**31 - 1]))
    magic = draw(st.sampled_from([2] * 6 + [0, 1, 3, -1]))
    base = draw(st.one_of(st.just(0), INT64))
    return Struct(">qiibI").pack(base, length, draw(st.integers(-1, 3)), magic, crc) + fields + body


RUNS = st.lists(st.one_of(batch_bytes(), batch_bytes(), st.binary(max_size=70)), max_size=4).map(b"".join)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (BearlakeError, ValueError, BufferError) as error:
        return type(error), str(error)


@SETTINGS
@given(data=st.binary(max_size=2000), start=SMALL, end=st.one_of(st.none(), SMALL))
def test_checksums_agree(native: ModuleType, data: bytes, start: int, end: int | None) -> None:
    assert outcome(native.crc32c, data, start, end) == outcome(fallback.crc32c, data, start, end)


@SETTINGS
@given(data=RUNS, start=st.one_of(st.just(0), SMALL), end=st.one_of(st.none(), SMALL))
def test_inspections_agree(native: ModuleType, data: bytes, start: int, end: int | None) -> None:
    end = len(data) if end is None else end

    ours, theirs = outcome(native.inspect, data, start, end), outcome(fallback.inspect, data, start, end)

    assert ours == theirs
    assert isinstance(ours, BatchHeader) == isinstance(theirs, BatchHeader)


@SETTINGS
@given(
    data=RUNS,
    start=st.one_of(st.just(0), SMALL),
    end=st.one_of(st.none(), SMALL),
    limit=st.one_of(SMALL, INT64),
    bytes_max=st.one_of(SMALL, INT64),
    is_first=st.integers(0, 1),
)
def test_walks_agree(
    native: ModuleType, data: bytes, start: int, end: int | None, limit: int, bytes_max: int, is_first: int
) -> None:
    end = len(data) if end is None else end

    for name, arguments in (("batches", ()), ("seek", (limit,)), ("find_run", (limit, bytes_max, is_first))):
        ours = outcome(getattr(native, name), data, start, end, *arguments)
        assert ours == outcome(getattr(fallback, name), data, start, end, *arguments)


SLICES = st.lists(
    st.tuples(
        st.just(0),
        st.one_of(st.integers(-1, 9), INT64),
        st.one_of(st.integers(-1, 9), INT64),
        st.one_of(st.just(0), SMALL, INT64),
        st.one_of(st.integers(61, 300), SMALL, INT64),
        st.just(0),
    ),
    max_size=3,
)


@SETTINGS
@given(data=RUNS, slices=SLICES, epoch=st.one_of(st.integers(-1, 3), INT64), origin=st.one_of(st.just(0), SMALL, INT64))
def test_rebasing_agrees(native: ModuleType, data: bytes, slices: list[Any], epoch: int, origin: int) -> None:
    ours, theirs = bytearray(data), bytearray(data)

    assert outcome(native.rebase, ours, slices, epoch, origin) == outcome(
        fallback.rebase, theirs, slices, epoch, origin
    )
    assert ours == theirs


@SETTINGS
@given(batches=st.lists(batch_bytes(), min_size=1, max_size=4), more=st.integers(-1, 1), base=st.integers(0, 2**62))
def test_rebasing_whole_runs_agrees(native: ModuleType, batches: list[bytes], more: int, base: int) -> None:
    data = b"".join(batches)
    count = sum(int.from_bytes(batch[23:27], "big", signed=True) + 1 for batch in batches) + more
    ours, theirs = bytearray(data), bytearray(data)
    slices = [(1, base, max(count, 0), 7, len(data), 0)]

    assert outcome(native.rebase, ours, slices, 5, 7) == outcome(fallback.rebase, theirs, slices, 5, 7)
    assert ours == theirs


VARINTS = st.one_of(
    st.integers(0, 255).map(lambda value: bytes([value])),
    st.sampled_from(
        [b"\x80\x80\x80\x80\x0f", b"\x80\x80\x80\x80\x10", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 11]
    ),
)


@st.composite
def record_bytes(draw: st.DrawFn) -> bytes:
    """Strategy: a record with few errors."""
    small = st.integers(0, 3).map(lambda value: bytes([2 * value]) + b"x" * value)
    field = st.one_of(small, small, small, st.just(b"\1"), VARINTS)
    body = b"\0" + draw(st.one_of(st.just(b"\4"), VARINTS)) + bytes([2 * draw(st.integers(0, 2))])
    body += draw(field) + draw(field)
    headers = draw(st.integers(0, 2))
    body += draw(st.one_of(st.just(bytes([2 * headers])), VARINTS))
    body += b"".join(draw(field) + draw(field) for _ in range(headers))
    length = draw(st.one_of(st.just(len(body)), st.just(len(body)), st.integers(0, 60)))
    return bytes([2 * length]) + body


@SETTINGS
@given(
    records=st.lists(st.one_of(record_bytes(), record_bytes(), VARINTS), max_size=4),
    count=st.integers(-1, 5),
    base=st.one_of(st.integers(-1, 5), INT64),
    wanted=st.one_of(st.integers(-1, 9), INT64),
)
def test_record_checks_agree(native: ModuleType, records: list[bytes], count: int, base: int, wanted: int) -> None:
    body = b"".join(records)

    assert outcome(native.check_records, body, count) == outcome(fallback.check_records, body, count)
    assert outcome(native.decode_records, body, count, base) == outcome(fallback.decode_records, body, count, base)
    ours = outcome(native.find_timestamp, body, count, base, wanted)
    assert ours == outcome(fallback.find_timestamp, body, count, base, wanted)


@st.composite
def produce_bytes(draw: st.DrawFn, version: int) -> bytes:
    """Strategy: a Produce body with few errors."""
    flexible = version >= 9

    def count(number: int, width: int) -> bytes:
        number = draw(st.sampled_from([number] * 30 + [-1, number + 1, 10000]))
        return bytes(varint(number + 1)) if flexible else number.to_bytes(width, "big", signed=True)

    def tags() -> bytes:
        return (
            draw(st.sampled_from([b"\0"] * 9 + [b"\1\5\2ab", b"\2\0\0\1\0", b"\x80\0", b"\1\0\xff"]))
            if flexible
            else b""
        )

    name = draw(st.sampled_from([b"t", "größe".encode(), b"", b"\xff"])) if version < 13 else b"i" * 16
    out = count(-1, 2) if draw(st.booleans()) else count(2, 2) + b"id"
    out += b"\xff\xff\0\0\x75\x30"
    topics = draw(st.integers(0, 2))
    out += count(topics, 4)
    for _ in range(topics):
        out += name if version >= 13 else count(len(name), 2) + name
        partitions = draw(st.integers(0, 2))
        out += count(partitions, 4)
        for index in range(partitions):
            records = draw(st.one_of(batch_bytes(), st.binary(max_size=20)))
            out += index.to_bytes(4, "big") + count(len(records), 4) + records + tags()
        out += tags()
    return out + tags() + draw(st.sampled_from([b""] * 5 + [b"x"]))


def varint(value: int) -> list[int]:
    return [value] if value < 128 else [value & 0x7F | 0x80, *varint(value >> 7)]


@SETTINGS
@given(st.data())
def test_produce_requests_agree(native: ModuleType, data: st.DataObject) -> None:
    version = data.draw(st.integers(2, 14))
    body = data.draw(st.one_of(produce_bytes(version), produce_bytes(version), st.binary(max_size=60)))
    body = body[: data.draw(st.one_of(st.just(len(body)), st.just(len(body)), st.integers(0, len(body))))]
    position = data.draw(st.sampled_from([0, 0, 0, 0, 1, -1, 1000]))

    ours = outcome(native.parse_produce, body, position, version)
    assert ours == outcome(fallback.parse_produce, body, position, version)


@st.composite
def produce_frames(draw: st.DrawFn, version: int, lead: bytes) -> bytes:
    """Strategy: Produce requests back to back, with few errors."""
    frames = b""
    for correlation_id in range(draw(st.integers(0, 4))):
        key = draw(st.sampled_from([0, 0, 0, 0, 3]))
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + lead
        content = header + draw(produce_bytes(version))
        size = len(content) + draw(st.sampled_from([0] * 8 + [-1, 1]))
        frames += size.to_bytes(4, "big") + content
    return frames


APPENDS = st.lists(
    st.builds(
        Append,
        partition=st.one_of(st.integers(0, 3), INT64).map(PartitionKey),
        stream_id=st.sampled_from([bytes(16), b"\1" * 16]),
        batch=st.binary(min_size=1, max_size=60),
        hold=st.none(),
        record_count=INT64,
        max_timestamp=INT64,
        producer_id=st.integers(-1, 1),
        producer_epoch=INT64,
        base_sequence=st.integers(-1, 1),
        flags=st.sampled_from([0, BATCH_NAMED]),
        expected_offset=INT64,
        after_sequence=st.integers(-1, 1),
    ),
    max_size=4,
)


@SETTINGS
@given(st.data())
def test_produce_requests_agree_on_their_way_to_their_responses(native: ModuleType, data: st.DataObject) -> None:
    version = data.draw(st.integers(3, 13))
    lead = b"\0\1c" + (b"\0" if version >= 9 else b"")
    reads = Reads(
        memories=data.draw(st.lists(produce_frames(version, lead), max_size=3)),
        version=version,
        lead=lead,
        size_max=data.draw(st.sampled_from([10_000, 10_000, 100])),
        count_max=data.draw(st.sampled_from([64, 64, 1, 0, -1])),
        buffer_bytes=data.draw(st.sampled_from([10_000, 10_000, 400, 150, 0])),
        shift=data.draw(st.integers(0, 30)),
        appends=data.draw(APPENDS),
        seen=data.draw(st.integers(0, 3)),
        bound=data.draw(st.sampled_from([None, b"i" * 16] if version >= 13 else [None, "t", "größe", ""])),
        transaction=data.draw(
            st.sampled_from([None, None, BoundTransaction("id", 1, 2), BoundTransaction("id", 2**40, 18)])
        ),
    )

    produces.agreed(native, fallback, reads)


@SETTINGS
@given(start=st.integers(-2, 9), end=st.integers(-2, 9), version=st.integers(1, 15))
def test_wrong_positions_and_versions_are_refused_alike(native: ModuleType, start: int, end: int, version: int) -> None:
    def taken(kernel: ModuleType) -> Any:
        buffer, call = kernel.WriteBuffer(1000), kernel.ProduceResults(produces.UNAVAILABLE)
        arguments = (buffer, call, bytes(5), None, start, end, version, b"", 1000, 64, 0, None, 0)
        return outcome(kernel.take_produces, *arguments)

    assert taken(native) == taken(fallback)


RESULTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "größe", "x" * 200, b"i" * 16, b"j" * 16]),
        st.integers(0, 3),
        st.one_of(st.integers(-1, 90), st.just(40000)),
        INT64,
        INT64,
        INT64,
    ),
    max_size=20,
)


@SETTINGS
@given(st.data())
def test_produce_responses_agree(native: ModuleType, data: st.DataObject) -> None:
    version = data.draw(st.integers(2, 14))
    results = [r for r in data.draw(RESULTS) if isinstance(r[0], bytes) == (version >= 13)]
    numbers = data.draw(st.tuples(st.one_of(st.integers(0, 2**31 - 1), INT64), st.one_of(st.just(0), INT64)))

    ours = outcome(native.encode_produce_response, version, numbers[0], results, numbers[1])
    theirs = outcome(fallback.encode_produce_response, version, numbers[0], results, numbers[1])

    if isinstance(theirs, bytes):
        assert ours == theirs
    else:
        assert ours[0] is theirs[0]

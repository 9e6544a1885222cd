from types import ModuleType

import pytest

from bearlake.errors import Corrupt


def zigzag(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(value: bytes | None) -> bytes:
    return b"\1" if value is None else zigzag(len(value)) + value


def record(
    offset: int,
    timestamp: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: list[tuple[bytes, bytes | None]] | None = None,
    length: int | None = None,
) -> bytes:
    inner = b"\0" + zigzag(timestamp) + zigzag(offset) + field(key) + field(value) + zigzag(len(headers or []))
    inner += b"".join(field(name) + field(content) for name, content in headers or [])
    return zigzag(len(inner) if length is None else length) + inner


GOOD = record(0) + record(1, 5, b"k", b"", [(b"h", b"x"), (b"", None)]) + record(2, -3, b"", None)


def test_well_formed_records_pass(kernel: ModuleType) -> None:
    assert kernel.check_records(GOOD, 3) == -1
    assert kernel.check_records(b"", 0) == -1
    assert kernel.check_records(b"".join(record(index, index * 1000) for index in range(300)), 300) == -1


@pytest.mark.parametrize(
    ("body", "count", "index"),
    [
        (b"", 1, 0),
        (GOOD, 2, 2),
        (GOOD, 4, 3),
        (GOOD[:-1], 3, 2),
        (GOOD + b"\0", 3, 3),
        (record(0) + record(2), 2, 1),
        (record(1), 1, 0),
        (record(0, length=6), 1, 0),
        (record(0, length=8) + b"\0", 1, 0),
        (b"\0", 1, 0),
        (b"\1" + record(0)[1:], 1, 0),
        (b"\x80\x80\x80\x80\x10" + record(0)[1:], 1, 0),
        (zigzag(7) + b"\0\0\0\3\2v\0", 1, 0),
        (zigzag(7) + b"\0\0\0\1\2v\1", 1, 0),
        (zigzag(7) + b"\0\0\0\1\2v\2", 1, 0),
        (record(0, headers=[(b"h", b"x")]).replace(b"\2h", b"\1h"), 1, 0),
    ],
)
def test_the_first_bad_record_is_named(kernel: ModuleType, body: bytes, count: int, index: int) -> None:
    assert kernel.check_records(body, count) == index


def test_null_and_empty_are_decoded_as_different_values(kernel: ModuleType) -> None:
    assert kernel.decode_records(GOOD, 3, 1000) == [
        (0, 1000, None, b"v", ()),
        (1, 1005, b"k", b"", (("h", b"x"), ("", None))),
        (2, 997, b"", None, ()),
    ]


def test_header_keys_that_are_not_utf8_keep_their_bytes(kernel: ModuleType) -> None:
    (found,) = kernel.decode_records(record(0, headers=[(b"\xff\xc3\xa9", b"x")]), 1, 0)

    assert found[4][0][0] == "\udcff\u00e9"


@pytest.mark.parametrize(("body", "count", "bad"), [(GOOD[:-1], 3, 2), (GOOD, 2, 2), (GOOD, 4, 3), (b"", 1, 0)])
def test_malformed_records_are_not_decoded(kernel: ModuleType, body: bytes, count: int, bad: int) -> None:
    with pytest.raises(Corrupt, match=f"record {bad} "):
        kernel.decode_records(body, count, 0)


@pytest.mark.parametrize(
    ("timestamp", "found"), [(-5, (0, 1000)), (1000, (0, 1000)), (1001, (1, 1005)), (1005, (1, 1005)), (1006, None)]
)
def test_the_first_record_at_a_time_is_found(kernel: ModuleType, timestamp: int, found: tuple[int, int] | None) -> None:
    assert kernel.find_timestamp(GOOD, 3, 1000, timestamp) == found


def test_a_search_by_time_stops_at_a_malformed_record(kernel: ModuleType) -> None:
    with pytest.raises(Corrupt, match="record 2 of a batch is malformed"):
        kernel.find_timestamp(GOOD[:-1], 3, 0, 10)
    assert kernel.find_timestamp(GOOD[:-1], 3, 0, 5) == (1, 5)


def test_a_timestamp_beyond_64_bits_is_corrupt(kernel: ModuleType) -> None:
    body = record(0, 2**63 - 1)

    with pytest.raises(Corrupt):
        kernel.find_timestamp(body, 1, 1, 0)
    with pytest.raises(Corrupt):
        kernel.decode_records(body, 1, 1)
    assert kernel.find_timestamp(body, 1, 0, 2**63 - 1) == (0, 2**63 - 1)


@pytest.mark.parametrize("function", ["check_records", "decode_records", "find_timestamp"])
def test_a_negative_count_is_refused(kernel: ModuleType, function: str) -> None:
    more = {"check_records": (), "decode_records": (0,), "find_timestamp": (0, 0)}[function]

    with pytest.raises(ValueError, match="record count -1 is negative"):
        getattr(kernel, function)(b"", -1, *more)


def test_large_sections_are_checked_without_the_lock(kernel: ModuleType) -> None:
    body = record(0, value=b"v" * 300_000) + record(1, 9)

    assert kernel.check_records(body, 2) == -1
    assert kernel.find_timestamp(body, 2, 0, 9) == (1, 9)

"""The native kernel against its Python twin: the same results, the same errors, the same messages; under sanitizers in `sanitized` runs.

The native kernel gets its bytes in memory that ends with them, so that a read beyond the end is an error of AddressSanitizer.
"""

import struct
from importlib import import_module
from random import Random
from typing import Any

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.kernel import Columns, DecodeStatus, fallback
from bearlake.metadata.model import Slice
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record, encode
from fixtures.columns import batch, record, value_page
from fuzz.target import Choices, Target, exact, outcome

native: Any = import_module("bearlake.kernel._native") if kernel.IS_NATIVE else fallback
"""The kernel in C (Any: an extension module); without a compiler the twin itself."""

ERRORS = (BearlakeError, ValueError, BufferError)
"""A wrong position is a `ValueError`, as `kernel.fallback` says."""
CRC_AT, CRC_START, HEADER_BYTES = 17, 21, 61
LIMIT = 2**31 - 1

RECORDS = [
    Record(key=b"key", value=b"value", timestamp=2**40, headers=(("name", b"x"), ("n", None))),
    Record(),
    Record(value=b"v" * 100, timestamp=2**40 + 5),
    Record(key=b"", value=b"", headers=(("\xe9", b""),)),
]


def batches() -> list[bytes]:
    """Record batches of our own encoder, and some that only other encoders make."""
    made = [encode(RECORDS[:count], codec=codec) for codec in Compression for count in (1, 4)]
    made.append(encode(RECORDS, producer=Producer(id=7, epoch=1, base_sequence=3)))
    made.append(encode([Record(value=bytes([at])) for at in range(50)]))
    made.append(batch(record(0, attributes=1, tail=b"x"), record(1, key=b"k"), base_time=2**40, max_time=2**40))
    made.append(batch(record(0, headers=[(b"\xff", b"x"), (b"h", None)])))
    return made


def agreed(name: str, *arguments: Any) -> Any:
    """Call both kernels; the native one gets exact memory. Returns the result or the error's kind and message."""
    theirs = outcome(ERRORS, getattr(fallback, name), *arguments)
    exactly = [exact(bytes(argument)) if isinstance(argument, bytes) else argument for argument in arguments]
    ours = outcome(ERRORS, getattr(native, name), *exactly)
    assert ours == theirs, f"{name}: native {ours!r:.300}, Python {theirs!r:.300}"
    return theirs


def repair(random: Random, data: bytearray, lead: int = 0) -> None:
    """Give every batch from `lead` on the length and the CRC of its bytes, where they can be found."""
    at = lead
    while len(data) - at >= HEADER_BYTES:
        (length,) = struct.unpack_from(">i", data, at + 8)
        end = at + 12 + length
        if not at + HEADER_BYTES <= end <= len(data):
            end = len(data)
            struct.pack_into(">i", data, at + 8, end - at - 12)
        if random.random() < 0.9:
            data[at + 16] = 2
        if random.random() < 0.5:
            data[at : at + 8] = bytes(8)
        struct.pack_into(">I", data, at + CRC_AT, fallback.crc32c(data, at + CRC_START, end))
        at = end


def _lead(width: int) -> Any:
    return lambda random, data: repair(random, data, width)


def whole_batches(data: bytes) -> object:
    """Check, walk, search, cut and rebase batches."""
    choices = Choices(data)
    wanted, base, count = choices.number(), choices.offset(), choices.number()
    first, last = choices.byte(), choices.byte()
    body = choices.rest
    start = 0 if first < 200 else first - 210
    end = len(body) if last < 200 else last
    agreed("crc32c", body, start, end)
    found = agreed("inspect", body, start, end)
    walked = agreed("batches", body, start, end)
    agreed("seek", body, start, end, wanted)
    for is_first in (0, 1):
        agreed("find_run", body, start, end, wanted, count, is_first)
    if isinstance(walked, list):
        count = sum(header.last_offset_delta + 1 for _, _, header in walked) + (count if first % 8 == 0 else 0)
    slices = [Slice(1, base, count, start, end - start, 0)]  # type: ignore[arg-type]  # a number is enough
    ours, theirs = bytearray(body), bytearray(body)
    answers = [
        outcome(ERRORS, module.rebase, out, slices, wanted, 0) for module, out in ((native, ours), (fallback, theirs))
    ]
    assert answers[0] == answers[1]
    assert ours == theirs
    return int(found) if isinstance(found, int) else (type(found), len(walked) if isinstance(walked, list) else -1)


def records(data: bytes) -> object:
    """Check and decode the records of an uncompressed section, whole and in parts, and search them by time."""
    choices = Choices(data)
    count, base, wanted = choices.byte() - 2, choices.number(), choices.number()
    body = choices.rest
    bad = agreed("check_records", body, count)
    agreed("decode_records", body, count, base)
    found = agreed("find_timestamp", body, count, base, wanted)
    position, index = 0, 0
    while index < count:
        part = agreed("decode_part", body, position, index, min(3, count - index), base)
        if not isinstance(part[0], list):
            break
        position, index = part[1], index + 3
    return bad, found is None


def compressed(data: bytes) -> object:
    """Check the records of a whole batch; what the native kernel knows as good, its twin knows with the same size."""
    choices = Choices(data)
    size_max, body = choices.of((LIMIT, LIMIT, 1000, 100)), choices.rest
    found = native.check_batch(exact(body), size_max)
    if found >= 0:
        assert found == fallback.check_batch(body, size_max)
    return body[22] & 7 if len(body) > 22 else -1, found >= 0, found > 100


def _compressed_seeds() -> list[bytes]:
    long = [Record(key=bytes([at]) * 9, value=b"%d, " % at * at, timestamp=at) for at in range(60)]
    made = [encode(long, codec=codec) for codec in (Compression.LZ4, Compression.ZSTD)]
    return [b"\0" + batch for batch in (*made, *batches())]


def _plain(columns: Columns) -> list[Any]:
    return [part if part is None or isinstance(part, int) else bytes(part) for part in columns]


def _built(module: Any, limit: int, base: int, data: bytes, bodies: list[bytes | None]) -> list[Any]:
    builder = module.ColumnBuilder(limit)
    view = exact(data) if module is native else data
    happened: list[Any] = []
    position = 0
    while position < len(data):
        answer = outcome(ERRORS, builder.append, 1, base, view, position, len(data), bodies)
        happened += [answer, builder.row_count, builder.size_bytes]
        if not isinstance(answer[1], DecodeStatus) or answer[1] is DecodeStatus.OK:
            break
        position, status = answer
        base = min(base + 1000, 2**63 - 1)
        if status is DecodeStatus.OVERFLOW:
            happened.append(_plain(builder.take()))
            continue
        step = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + 12
        position += step if step > 0 else 12
    columns = builder.take()
    again = outcome(ERRORS, module.encode_columns, columns, 0, columns.row_count)
    return [*happened, _plain(columns), again]


def columns(data: bytes) -> object:
    """Decode batches into columns, as compaction does, and encode them again."""
    choices = Choices(data)
    limit = choices.of((LIMIT, LIMIT, 100, 1000))
    base = choices.offset()
    bodies = choices.of(([], [], [None], [record()], [b"x"]))
    body = choices.rest
    ours, theirs = _built(native, limit, base, body, bodies), _built(fallback, limit, base, body, bodies)
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    return [type(part).__name__ if not isinstance(part, tuple) else str(part[1])[:40] for part in theirs[:12]]


_NAMES = Columns._fields[1:]
_SIZES = struct.Struct(">B20H")


def _column_seeds() -> list[bytes]:
    seeds = []
    for count in (1, 3):
        builder = fallback.ColumnBuilder()
        for number in range(count):
            data = encode(RECORDS)
            builder.append(1, 10 * number, data, 0, len(data), [])
        taken = builder.take()
        parts = [b"" if part is None else bytes(part) for part in taken[1:]]
        absent = [at for at, part in enumerate(taken[1:]) if part is None]
        sizes = [0xFFFF if at in absent else len(part) for at, part in enumerate(parts)]
        seeds.append(_SIZES.pack(taken.row_count, *sizes) + bytes([0, taken.row_count]) + b"".join(parts))
    return seeds


def hostile_columns(data: bytes) -> object:
    """Encode columns that a Parquet file or an Arrow message holds."""
    if len(data) < _SIZES.size + 2:
        return None
    count, *sizes = _SIZES.unpack_from(data)
    at = _SIZES.size
    start, end = data[at], data[at + 1]
    at += 2
    parts: list[bytes | None] = []
    for size in sizes:
        parts.append(None if size == 0xFFFF else data[at : at + size])
        at += 0 if size == 0xFFFF else size
    theirs = outcome(ERRORS, fallback.encode_columns, Columns(count, *parts), start, end)  # type: ignore[arg-type]
    exactly = [None if part is None else exact(part) for part in parts]
    ours = outcome(ERRORS, native.encode_columns, Columns(count, *exactly), start, end)  # type: ignore[arg-type]
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    return type(theirs[0])


def _page_seeds() -> list[bytes]:
    values: list[bytes | None] = [b"a", None, b"ccc" * 50, b""]
    parts = [value_page(values), value_page(values, is_packed=True), value_page([None] * 9 + [b"x"])]
    return [bytes([4, len(part) % 256]) + part for part in parts] + [bytes([4, len(parts[0])]) + parts[0] + parts[1]]


def value_pages(data: bytes) -> object:
    """Encode columns whose values are in the pages of a Parquet file."""
    if len(data) < 2:
        return None
    count, first = data[0] % 32, data[1]
    parts = [data[2 : 2 + first], data[2 + first :]]
    builder = fallback.ColumnBuilder()
    row = encode([Record(value=None)])
    for number in range(count + 4):
        builder.append(1, number, row, 0, len(row), [])
    taken = builder.take()
    pages = list(zip(parts, (count, 4), strict=True))
    theirs = outcome(ERRORS, fallback.encode_pages, taken, pages, len(data))
    exactly = [(exact(part), rows) for part, rows in pages]
    ours = outcome(ERRORS, native.encode_pages, taken, exactly, len(data))
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    return type(theirs[0])


def _with(lead: bytes, bodies: list[bytes]) -> list[bytes]:
    return [lead + body for body in bodies]


BATCH_LEAD = bytes([0, 1, 0, 5, 0, 0, 0, 0])  # three numbers and the two bounds
TARGETS = [
    Target(
        name="kernel batches",
        seeds=lambda: _with(BATCH_LEAD, [*batches(), b"".join(batches()[:3])]),
        run=whole_batches,
        change=_lead(len(BATCH_LEAD)),
        share=2,
    ),
    Target(
        name="kernel records",
        seeds=lambda: _with(bytes([6, 0, 0, 0, 5]), [batch_bytes[HEADER_BYTES:] for batch_bytes in batches()]),
        run=records,
        share=2,
    ),
    Target(
        name="kernel compressed batches",
        seeds=_compressed_seeds,
        run=compressed,
        change=_lead(1),
        memory_bytes=4 * 1024 * 1024,  # the twin decompresses into 1 MiB
    ),
    Target(
        name="kernel columns",
        seeds=lambda: _with(bytes([0, 0, 5, 0]), [*batches(), b"".join(batches()[:5])]),
        run=columns,
        change=_lead(4),
        memory_bytes=1024 * 1024,
        short_inputs=750,
    ),
    Target(name="kernel encode columns", seeds=_column_seeds, run=hostile_columns, short_inputs=750),
    Target(name="kernel value pages", seeds=_page_seeds, run=value_pages, short_inputs=750),
]

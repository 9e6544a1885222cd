"""Values in pages: batches are the same as from a column of values, and both kernels refuse the same pages."""

import mmap
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from bearlake.errors import Corrupt
from bearlake.kernel import Columns
from bearlake.records.codec import Record, encode
from fixtures.columns import value_page

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=1, max_size=40)
THREE = [b"a", None, b"ccc"]
MIB = 1 << 20
STATM = Path("/proc/self/statm")


def columns_of(kernel: ModuleType, values: list[bytes | None]) -> Columns:
    """The columns of one batch with these values."""
    data = encode([Record(key=b"k", value=value, timestamp=5) for value in values])
    builder = kernel.ColumnBuilder()
    builder.append(2, 100, data, 0, len(data), [])
    columns: Columns = builder.take()
    return columns


def without_values(columns: Columns) -> Columns:
    return columns._replace(value_offsets=b"", value_data=b"", value_validity=None)


@SETTINGS
@given(values=VALUES, is_packed=st.booleans(), cut=st.integers(0, 40), size_bytes=st.sampled_from((-1, 0, 5000)))
def test_values_in_pages_give_the_batches_of_a_column_of_values(
    kernel: ModuleType, values: list[bytes | None], is_packed: bool, cut: int, size_bytes: int
) -> None:
    columns = columns_of(kernel, values)
    parts = [part for part in (values[:cut], values[cut:]) if part]
    pages = [(value_page(part, is_packed=is_packed), len(part)) for part in parts]

    found = kernel.encode_pages(without_values(columns), pages, size_bytes)

    assert found == kernel.encode_columns(columns, 0, len(values))


def test_several_batches_take_their_values_from_several_pages(kernel: ModuleType) -> None:
    first = encode([Record(value=value) for value in THREE])
    builder = kernel.ColumnBuilder()
    for partition, base in ((2, 100), (2, 103), (3, 0)):
        builder.append(partition, base, first, 0, len(first), [])
    columns: Columns = builder.take()
    values = THREE * 3
    pages = [
        (value_page(values[:4]), 4),
        (value_page([]), 0),
        (memoryview(value_page(values[4:])), 5),
        (value_page([]), 0),
    ]

    found = kernel.encode_pages(without_values(columns), iter(pages), 0)

    assert found == kernel.encode_columns(columns, 0, 9)
    assert [batch.base_offset for batch in found[1]] == [100, 103, 0]


def test_a_page_is_asked_for_when_the_one_before_is_used_up(native: ModuleType) -> None:
    values = [*THREE, b"d"]
    columns = columns_of(native, values)
    pages = [bytearray(value_page(values[:2])), bytearray(value_page(values[2:]))]

    def made() -> Iterator[tuple[bytearray, int]]:
        for page in pages:
            yield page, 2
            page.clear()  # nobody looks at it any more: a buffer in use cannot be resized

    found = native.encode_pages(without_values(columns), made(), 0)

    assert found == native.encode_columns(columns, 0, 4)


def test_what_the_maker_of_pages_raises_is_passed_on(kernel: ModuleType) -> None:
    def made() -> Iterator[tuple[bytes, int]]:
        yield value_page(THREE[:1]), 1
        raise OSError("no such page")

    with pytest.raises(OSError, match="no such page"):
        kernel.encode_pages(columns_of(kernel, THREE), made(), 0)


@pytest.mark.parametrize("name", ["offset", "attributes", "header_list_offsets"])
def test_an_impossible_row_is_corrupt_wherever_its_value_is(kernel: ModuleType, name: str) -> None:
    columns = columns_of(kernel, THREE)
    spoil: Any = {name: b"\x7f" * len(bytes(getattr(columns, name)))}
    spoiled = columns._replace(**spoil)
    pages = [(value_page(THREE[:2]), 2), (value_page(THREE[2:]), 1)]

    with pytest.raises(Corrupt, match="row 0 of the columns is impossible"):
        kernel.encode_pages(spoiled, pages, 0)


def test_a_large_row_group_of_many_pages_is_encoded_in_one_piece(kernel: ModuleType) -> None:
    values: list[bytes | None] = [bytes([at % 251]) * 700 for at in range(6_000)]
    columns = columns_of(kernel, values)
    pages = [(value_page(values[at : at + 500]), 500) for at in range(0, 6_000, 500)]

    for size_bytes in (0, 6_000 * 704):
        assert kernel.encode_pages(without_values(columns), pages, size_bytes) == kernel.encode_columns(
            columns, 0, 6_000
        )


def test_a_footer_that_announces_too_much_reserves_little(native: ModuleType) -> None:
    columns, pages = without_values(columns_of(native, THREE)), [(value_page(THREE), 3)]
    kept: list[Any] = []
    grown: list[int] = []
    for _ in range(3):
        before = address_bytes()
        kept.append(native.encode_pages(columns, pages, 1 << 40))
        grown.append(address_bytes() - before)

    assert min(grown) < 256 * MIB  # those of the block; other threads may take some meanwhile
    assert [len(found[1]) for found in kept] == [1, 1, 1]


def address_bytes() -> int:
    """Bytes of the process's address space; 0 where the system does not tell."""
    return int(STATM.read_text().split()[0]) * mmap.PAGESIZE if STATM.exists() else 0


def test_bytes_behind_the_last_run_and_the_last_value_are_ignored(kernel: ModuleType) -> None:
    columns = columns_of(kernel, THREE)
    page = value_page(THREE, after_levels=b"\xff\xff", after_values=b"more")

    assert kernel.encode_pages(columns, [(page, 3)], 0) == kernel.encode_columns(columns, 0, 3)


@pytest.mark.parametrize("counts", [(), (2,), (4,), (-1,), (2, 2), (3, -1), (2**63, 1)])
def test_pages_with_another_number_of_rows_are_refused(kernel: ModuleType, counts: tuple[int, ...]) -> None:
    pages = [(value_page(THREE), count) for count in counts]

    with pytest.raises(ValueError, match="the pages do not have as many values"):
        kernel.encode_pages(columns_of(kernel, THREE), pages, 0)


@pytest.mark.parametrize("pages", [[b""], [(b"", 3, 3)]])
def test_what_is_not_a_page_is_refused(kernel: ModuleType, pages: Any) -> None:
    with pytest.raises(ValueError, match="a page is not a tuple of 2"):
        kernel.encode_pages(columns_of(kernel, THREE), pages, 0)


WHOLE = value_page(THREE)
RUN = b"\x02\x00\x00\x00\x06\x01"  # three values


@pytest.mark.parametrize(
    "page",
    [
        b"",
        WHOLE[:3],
        WHOLE[:-1],
        b"\xff\xff\xff\xff" + WHOLE[4:],
        b"\x02\x00\x00\x00\x00\x01" + b"\0" * 12,  # a run of no rows
        b"\x02\x00\x00\x00\x01\x01" + b"\0" * 12,  # the same, packed
        b"\x02\x00\x00\x00\x06\x02" + b"\0" * 12,  # a level of 2
        b"\x01\x00\x00\x00\x06" + b"\0" * 12,  # a run without its level
        b"\x01\x00\x00\x00\x03" + b"\0" * 12,  # bits that are missing
        b"\x01\x00\x00\x00\x86" + b"\0" * 12,  # half a varint
        b"\x06\x00\x00\x00\x80\x80\x80\x80\x80\x01" + b"\0" * 12,  # a varint of 36 bits
        b"\x06\x00\x00\x00\x80\x80\x80\x80\x10\x01" + b"\0" * 12,  # a varint above 32 bits
        b"\x02\x00\x00\x00\x04\x01" + b"\0" * 12,  # a row without a level
        RUN + b"\0" * 11,
        RUN + b"\1\0\0\0a" + b"\xff\xff\xff\xff",
    ],
)
def test_a_malformed_page_is_corrupt(kernel: ModuleType, page: bytes) -> None:
    columns = columns_of(kernel, [b"x", *THREE])
    pages = [(value_page([b"x"]), 1), (page, 3)]

    with pytest.raises(Corrupt, match="page 1 of the values is malformed"):
        kernel.encode_pages(columns, pages, 0)


def test_both_kernels_read_spoiled_pages_alike(native: ModuleType) -> None:
    from bearlake.kernel import fallback

    source = random.Random(7)
    columns = columns_of(native, [*THREE, *THREE])
    for _ in range(3000):
        pages = []
        for part in ([*THREE, None], [b"a", b"ccc"]):
            page = bytearray(value_page(part, is_packed=source.random() < 0.5))
            for _ in range(source.randrange(3)):
                page[source.randrange(len(page))] = source.choice((0, 1, 2, 6, 8, 127, 128, 255))
            pages.append((bytes(page[: len(page) - (source.random() < 0.1)]), len(part)))
        outcomes = []
        for module in (native, fallback):
            try:
                outcomes.append(module.encode_pages(columns, pages, 0))
            except Corrupt as error:
                outcomes.append(str(error))

        assert outcomes[0] == outcomes[1]

from array import array
from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_are_those_of_the_standard(kernel: ModuleType, data: bytes, crc: int) -> None:
    assert kernel.crc32c(data) == crc


def test_every_length_around_the_strides_agrees_with_the_tables(kernel: ModuleType, native: ModuleType) -> None:
    from bearlake.kernel import fallback

    data = bytes(index * 7 % 251 for index in range(13_000))

    for length in (*range(70), 191, 192, 193, 767, 768, 769, 999, 12_287, 12_288, 12_289):
        for start in (0, 1, 3):
            expected = fallback.crc32c(data, start, start + length)
            assert native.crc32c(data, start, start + length) == expected


def test_any_contiguous_buffer_is_read(kernel: ModuleType) -> None:
    data = b"123456789"

    assert kernel.crc32c(bytearray(data)) == kernel.crc32c(memoryview(b"__" + data)[2:]) == kernel.crc32c(data)
    assert kernel.crc32c(b"__" + data + b"_", 2, 11) == kernel.crc32c(b"__" + data, 2, None) == kernel.crc32c(data)
    assert kernel.crc32c(array("H", [0x3231, 0x3433])) == kernel.crc32c(array("H", [0x3231, 0x3433]).tobytes())


def test_a_buffer_with_gaps_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(BufferError):
        kernel.crc32c(memoryview(b"123456789")[::2])


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 3), (0, 10), (4, 3), (10, None), (2**70, None), (0, 2**70), (-(2**70), 1)]
)
def test_bounds_outside_the_buffer_are_refused(kernel: ModuleType, start: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="is not inside a buffer of 9 bytes"):
        kernel.crc32c(b"123456789", start, end)


@pytest.mark.parametrize("arguments", [(), (1,), ("text",), (b"", "a"), (b"", 0, 0, 0)])
def test_wrong_types_are_refused(kernel: ModuleType, arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        kernel.crc32c(*arguments)

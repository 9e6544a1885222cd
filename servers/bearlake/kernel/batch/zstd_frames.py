"""Decompress zstd sections with contexts that are used again: a new one for each section costs a quarter more.

A context keeps the memory of the largest window that it has seen, so frames with large windows, which few clients send, go to cramjam. So
do sections of several frames, and frames that say a size above that of a block: zstandard checks them less than consumers do.
"""

from typing import Final

import cramjam
import zstandard

from bearlake.kernel.buffers import Buffer

WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest window of frames whose context is kept; levels up to 19 need no more, the default level 2 MiB."""
IDLE_MAX: Final = 4
"""Contexts that are kept: more are needed only while more threads check at once."""
_BLOCK_BYTES_MAX: Final = 128 * 1024
_BLOCK_COUNT_MAX: Final = 64
"""Blocks that are looked at to find a frame's end. Blocks are as large as they may be unless the encoder is flushed."""
_BLOCK_HEADER_BYTES: Final = 3
_REPEATED_BYTE: Final = 1
"""Type of a block of one byte that is repeated."""
_CHECKSUM_BYTES: Final = 4

_idle: list[zstandard.ZstdDecompressor] = []  # a context serves one thread at a time


def decompress(section: Buffer, room: int, /) -> bytes | memoryview | None:
    """Return the content of a section of zstd frames if it is whole and has at most `room` bytes, else None.

    Refused are also dictionaries, and windows above 2^27 bytes, which consumers refuse.
    Source: RFC 8878; zstd.h, ZSTD_WINDOWLOG_LIMIT_DEFAULT.
    """
    content = _by_kept(section, room)
    return _anew(section, room) if content is None else content


def _by_kept(section: Buffer, room: int) -> bytes | None:
    try:
        context = _idle.pop()
    except IndexError:
        context = _new_context()
    try:
        if not _suits_kept(section, room):
            return None
        return context.decompress(section, max_output_size=room, allow_extra_data=False)
    except zstandard.ZstdError:
        return None
    finally:
        if len(_idle) < IDLE_MAX:
            _idle.append(context)


def _suits_kept(section: Buffer, room: int) -> bool:
    """Return whether `ZstdDecompressor.decompress` refuses all that consumers refuse of this section.

    If the frame says its size, `decompress` reserves as much and decodes it in one step, which bounds neither windows nor the content of a
    block. If the frame says 0, or is skippable, `decompress` reads nothing else. If it says no size, `decompress` ignores what follows it.
    Raises `zstandard.ZstdError`: there is no frame.
    """
    content_bytes = zstandard.frame_content_size(section)
    if content_bytes == -1:
        return _is_one_frame(section)
    window_bytes = zstandard.get_frame_parameters(section).window_size
    return window_bytes <= WINDOW_BYTES_MAX and 0 < content_bytes <= min(room, window_bytes, _BLOCK_BYTES_MAX)


def _is_one_frame(section: Buffer) -> bool:
    """Return whether the section ends where its first frame ends, by the sizes of the blocks; False also if there are many blocks.

    Source: RFC 8878, 3.1.1 (Zstandard Frames).
    """
    position = zstandard.frame_header_size(section)
    for _ in range(_BLOCK_COUNT_MAX):
        block = int.from_bytes(section[position : position + _BLOCK_HEADER_BYTES], "little")
        is_last, type_, size = block & 1, block >> 1 & 3, block >> 3
        position += _BLOCK_HEADER_BYTES + (1 if type_ == _REPEATED_BYTE else size)
        if is_last:
            has_checksum = section[4] & 4
            return position + (_CHECKSUM_BYTES if has_checksum else 0) == len(section)
    return False


def _new_context() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)


def _anew(section: Buffer, room: int) -> memoryview | None:
    target = memoryview(bytearray(room))
    try:
        return target[: cramjam.zstd.decompress_into(section, target)]
    except (cramjam.DecompressionError, OSError):
        return None

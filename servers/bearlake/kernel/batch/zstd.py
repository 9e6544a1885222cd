"""Decompress zstd sections with contexts that are used again: a new one for each section costs a quarter more.

A context keeps the memory of the largest window that it has seen, so frames with large windows, which few clients send, go to cramjam,
as do sections of several frames. Nothing is reserved because a frame says so.
"""

from typing import Final

import cramjam
import zstandard

from bearlake.kernel.buffers import Buffer

WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Largest window of frames whose context is kept; levels up to 19 need no more, the default level 2 MiB."""
IDLE_MAX: Final = 4
"""Contexts that are kept: more are needed only while more threads check at once."""

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
        said = zstandard.frame_content_size(
            section
        )  # -1: the frame does not say it; `decompress` would reserve what it says
        if said == 0 or said > room:
            return None  # of a frame that says 0, `decompress` reads nothing else
        return context.decompress(section, max_output_size=room, allow_extra_data=False)
    except zstandard.ZstdError:
        return None
    finally:
        if len(_idle) < IDLE_MAX:
            _idle.append(context)


def _new_context() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)


def _anew(section: Buffer, room: int) -> memoryview | None:
    target = memoryview(bytearray(room))
    try:
        return target[: cramjam.zstd.decompress_into(section, target)]
    except (cramjam.DecompressionError, OSError):
        return None

"""Loads the decoder of zstd sections (`zstd_frames.py`) with the first of them: its libraries take 2 MB (decision 362).

The native kernel holds `decompress`, so its name stays here.
"""

from collections.abc import Callable
from functools import cache

from bearlake.kernel.buffers import Buffer

Decompress = Callable[[Buffer, int], bytes | memoryview | None]


def decompress(section: Buffer, room: int, /) -> bytes | memoryview | None:
    """As `zstd_frames.decompress`."""
    return _loaded()(section, room)


@cache
def _loaded() -> Decompress:
    from bearlake.kernel.batch.zstd_frames import decompress as loaded

    return loaded

"""Answers that are kept encoded: the metadata of all streams, which takes 2.5 us per partition to make and is the same for everybody.

A handler may return `Rendered` instead of a message. What was rendered counts until the catalog or the live servers change.
"""

import struct
from collections.abc import Callable, Hashable, Sequence

from bearlake.protocols.kafka import codec

ENTRY_COUNT_MAX = 8
"""Kept answers: versions, listeners and zones in use at the same time."""

_SIZE_AND_CORRELATION = struct.Struct(">ii")


class Rendered:
    """An encoded answer without its header."""

    __slots__ = ("chunks", "size")

    def __init__(self, chunks: Sequence[codec.Buffer]) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))

    def frame(self, correlation_id: int, header_version: int) -> list[codec.Buffer]:
        """The whole response, as `codec.ResponseCodec.frame` makes it."""
        tags = b"\0" * header_version
        head = _SIZE_AND_CORRELATION.pack(4 + len(tags) + self.size, correlation_id)
        return [head + tags, *self.chunks]


class Renderings:
    """Kept answers by key, all of one `state`."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._kept: dict[Hashable, Rendered] = {}

    def get(self, state: Hashable, key: Hashable, render: Callable[[], Rendered]) -> Rendered:
        """The answer kept under `key` in this state, rendered if there is none."""
        if state != self._state:
            self._state = state
            self._kept.clear()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= ENTRY_COUNT_MAX:
                self._kept.pop(next(iter(self._kept)))
            found = self._kept[key] = render()
        return found

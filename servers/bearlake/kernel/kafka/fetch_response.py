"""Encode the responses to ordinary Fetch requests, versions 4-18.

Source: Apache Kafka, FetchResponse.json.
"""

from collections.abc import Sequence
from struct import Struct, error

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.kafka import FetchAnswer, FetchEntry
from bearlake.kernel.kafka.fetch import (
    FLEXIBLE,
    SINCE_RACK,
    SINCE_SESSIONS,
    SINCE_START_OFFSET,
    SINCE_TOPIC_IDS,
    check_fetch_version,
)
from bearlake.kernel.kafka.frame import Encoding

INLINE_BYTES_MAX = 1024
"""Views up to this size (bytes) are copied between the other fields: a separate chunk costs about as much when it is sent."""
CHUNK_BYTES = 64 * 1024
"""A chunk with copied views is complete at this size (bytes): larger buffers cost page faults whenever one is allocated."""

_INT32 = Struct(">i")
_ANSWER = Struct(">ihqq")
_START = Struct(">q")
_NO_REPLICA = _INT32.pack(-1)


def encode_fetch(
    version: int, correlation_id: int, entries: Sequence[FetchEntry], answers: Sequence[FetchAnswer], /
) -> list[Buffer]:
    """Return the response frame to a request whose partitions are all answered without an error, as chunks.

    Consecutive entries with equal topics share one topic entry. Views of more than `INLINE_BYTES_MAX` bytes are chunks of their own,
    not copies. A chunk of the other fields is complete with the view that brings it to `CHUNK_BYTES`. The response has session id 0, no
    aborted transactions, no preferred replica and no tagged fields.

    Raises:
        Unsupported: the version is not in 4-18.
        ValueError: a number does not fit its field, a topic is not a name (from version 13 on: not a 16-byte id), or the numbers of
            entries and answers differ.
    """
    check_fetch_version(version)
    if len(entries) != len(answers):
        raise ValueError("Fetch response: expected one answer per entry")
    groups: list[tuple[str | bytes, list[tuple[int, FetchAnswer]]]] = []
    for entry, answer in zip(entries, answers, strict=True):
        if not groups or groups[-1][0] != entry[0]:
            groups.append((entry[0], []))
        groups[-1][1].append((entry[1], answer))
    encoding = Encoding("Fetch response", version >= FLEXIBLE, version >= SINCE_TOPIC_IDS)
    try:
        out = _Writer(_INT32.pack(0) + _INT32.pack(correlation_id) + encoding.tags)
        out += b"\0\0\0\0" + (b"\0\0\0\0\0\0" if version >= SINCE_SESSIONS else b"") + encoding.count(len(groups))
        for topic, parts in groups:
            out += encoding.topic(topic) + encoding.count(len(parts))
            for index, (start, end, last_stable, views) in parts:
                out += _ANSWER.pack(index, 0, end, last_stable)
                out += _START.pack(start) if version >= SINCE_START_OFFSET else b""
                out += encoding.count(0)  # aborted transactions
                out += (_NO_REPLICA if version >= SINCE_RACK else b"") + encoding.count(sum(map(len, views)))
                for view in views:
                    out.refer(view)
                out += encoding.tags
            out += encoding.tags
        out += encoding.tags
    except error as cause:
        raise ValueError(f"Fetch response: {cause}") from None
    return out.chunks()


class _Writer:
    """A frame under construction, as chunks."""

    def __init__(self, head: bytes) -> None:
        self.done: list[Buffer] = []
        self.last = bytearray(head)

    def __iadd__(self, more: bytes) -> "_Writer":
        self.last += more
        return self

    def refer(self, view: memoryview) -> None:
        if len(view) <= INLINE_BYTES_MAX:
            self.last += view
            if len(self.last) >= CHUNK_BYTES:
                self._close()
            return
        self._close()
        self.done.append(view)

    def _close(self) -> None:
        if self.last:
            self.done.append(self.last)
        self.last = bytearray()

    def chunks(self) -> list[Buffer]:
        chunks = [*self.done, self.last] if self.last else self.done
        size = sum(map(len, chunks)) - 4
        if size > 2**31 - 1:
            raise ValueError("Fetch response: 2 GiB or more")
        return [
            _INT32.pack(size) + bytes(chunks[0])[4:],
            *(part if isinstance(part, memoryview) else bytes(part) for part in chunks[1:]),
        ]

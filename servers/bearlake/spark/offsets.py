"""Offsets as Spark's checkpoints hold them, and how much a micro-batch may read. Pure.

    {"version": 1, "streams": {name: {"id": the stream's id, "ends": {partition: offset}}}, "began": {the same as "streams"}}

The id tells a stream from one of the same name that was created later. `began` is in the end of a query's first micro-batch only: where the
query began. Spark asks for the first offsets again after a crash, and "latest" would then be another offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from bearlake.errors import Corrupt, Unsupported

K = TypeVar("K")

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offsets of a stream by partition; `id` is that of the stream."""

    id: str
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of streams by name."""

    streams: Mapping[str, StreamOffsets]
    began: Mapping[str, StreamOffsets] | None = None

    def at(self, name: str, id_: str, index: int) -> int:
        """Return the offset of a partition; 0 for a partition that was not there."""
        found = self.streams.get(name)
        return found.ends.get(index, 0) if found is not None and found.id == id_ else 0


def encode(offsets: Offsets) -> dict[str, Any]:
    """Return the offsets as JSON's types."""
    fields: dict[str, Any] = {"version": FORMAT_VERSION, "streams": _encoded(offsets.streams)}
    if offsets.began is not None:
        fields["began"] = _encoded(offsets.began)
    return fields


def decode(fields: Mapping[str, Any]) -> Offsets:
    """Decode offsets of a checkpoint.

    Raises:
        Corrupt: not such offsets.
        Unsupported: a newer format.
    """
    try:
        if fields["version"] != FORMAT_VERSION:
            raise Unsupported(f"the checkpoint has offsets of format {fields['version']}; expected {FORMAT_VERSION}")
        began = fields.get("began")
        return Offsets(_decoded(fields["streams"]), None if began is None else _decoded(began))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"the checkpoint has no offsets of Bearlake: {error!r}") from error


def _encoded(streams: Mapping[str, StreamOffsets]) -> dict[str, Any]:
    return {
        name: {"id": found.id, "ends": {str(index): end for index, end in sorted(found.ends.items())}}
        for name, found in sorted(streams.items())
    }


def _decoded(fields: Mapping[str, Any]) -> dict[str, StreamOffsets]:
    return {
        name: StreamOffsets(str(found["id"]), {int(index): int(end) for index, end in found["ends"].items()})
        for name, found in fields.items()
    }


def shares(backlog: Mapping[K, int], limit: int) -> dict[K, int]:
    """Divide `limit` among partitions in proportion to their backlog, at least 1 each where there is one. Unit: that of both."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {key: min(size, max(1, size * limit // total)) if size else 0 for key, size in backlog.items()}


def split(start: int, end: int, count: int) -> list[tuple[int, int]]:
    """Divide `[start, end)` into at most `count` ranges of about the same size."""
    count = max(1, min(count, end - start))
    cuts = [start + (end - start) * at // count for at in range(count + 1)]
    return [(low, high) for low, high in pairwise(cuts) if low < high]

"""What a reader requests and gets: ranges of partitions, and their record batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey


class FetchRange(NamedTuple):
    """A request to read about `bytes_max` bytes of `partition` from `offset` on."""

    partition: PartitionKey
    offset: int
    bytes_max: int


@dataclass(slots=True)
class Fetched:
    """The answer for one range: `views` are runs of whole record batches in offset order; unknown bounds are -1.

    Readers of committed records get the end and the last stable offset of one state. For readers of all records, `last_stable` is the end.

    `error` is `OutOfRange`, `NotFound`, `Corrupt` or `Unavailable`; there are no bytes then.
    """

    range: FetchRange
    start: int = -1
    end: int = -1
    last_stable: int = -1
    views: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    error: BearlakeError | None = None


def has_enough(results: Sequence[Fetched], bytes_min: int) -> bool:
    """Whether a reader that wants `bytes_min` bytes gets these answers without waiting for records."""
    for result in results:
        if result.error is not None:
            return True
        bytes_min -= result.size_bytes
    return bytes_min <= 0


def least(bytes_min: int, bytes_max: int) -> int:
    """Return the bytes for which a read waits: at most as many as its answer may have. The first batch is never too large."""
    return min(bytes_min, max(bytes_max, 1))

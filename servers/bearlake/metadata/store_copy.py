"""Values of a copy of a metadata store; see `metadata/backup.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import PartitionKey

OBJECTS: Final = "objects.tsv"
"""The file with the objects that the copy's index names: key and size in bytes, a line each, by key."""

RESTORING: Final = 1_000_000
"""The layout of a store while a restore is under way. No program opens such a store, except to restore it."""

STREAM_JUMP: Final = 1 << 20
TASK_JUMP: Final = 1 << 32
PRODUCER_JUMP: Final = 1 << 32
EPOCH_JUMP: Final = 1 << 20
SCHEMA_JUMP: Final = 10_000
"""How much further a restored store counts, for each restore that there was. Ids of schemas have 31 bits, and people read them, so that
their jump is small, and ends at `metadata.schemas.NUMBER_MAX`."""

Progress = Callable[[int], None]
"""Called with the number of bytes that were copied so far, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A compaction task that was open: its ranges, and the epochs of which it has results."""

    ranges: Sequence[OffsetRange]
    epochs: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCopy:
    """What a copy has, all as of one moment."""

    kind: str
    """`sqlite` or `postgresql`."""
    layout: int
    cluster_id: str
    position: int
    """The newest log position."""
    files: Sequence[str]
    """Names of the copy's files in its folder."""
    object_count: int
    stream_number: int
    """The largest number of a stream; 0: none."""
    task_id: int
    """The largest id that a task ever had; 0: none."""
    compacted: Mapping[PartitionKey, int]
    """Compacted offsets that are not 0."""
    open_tasks: Mapping[int, OpenTask]
    """By task id."""

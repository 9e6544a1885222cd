"""What work items need besides the object store: limits, a clock, a random source, and a compute thread."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from bearlake.clock import Clock, SystemClock

T = TypeVar("T")
MIB = 1024 * 1024
COLUMN_BYTES_MAX = 1536 * MIB
"""Bytes of a column that is computed at once: Arrow's offsets have 32 bits, and some values get a prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Limits of one work item. Memory of an item: two windows, three row groups, one data file and one batch (in addition to 150 MB of
    libraries)."""

    window_bytes: int = 32 * MIB
    """Bytes of WAL slices read at once; the next window is read while the current window is processed. Smaller windows need more requests
    for objects with many partitions."""

    batch_bytes_max: int = 256 * MIB
    """Uncompressed records section of one batch; a larger batch is kept unchanged and has no rows. Guards against compression bombs."""

    kept_bytes: int = 8 * MIB
    """Size at which an object of kept batches is sealed."""

    read_concurrent_count: int = 8
    """Objects read at once."""

    merge_bytes: int = field(default=96 * MIB, metadata={"max": COLUMN_BYTES_MAX})
    """Uncompressed rows that a merge or cleaning holds in memory; larger inputs are read in several passes by partition and offset."""

    key_bytes: int = field(default=96 * MIB, metadata={"max": COLUMN_BYTES_MAX})
    """Memory (bytes) of the keys that a cleaning compares at once, with 40 bytes per record: about a million keys of 50 bytes. With less
    memory, the keys of dirty files are read more often."""

    current_bytes: int = field(default=256 * MIB, metadata={"max": COLUMN_BYTES_MAX})
    """Memory (bytes) of the records, uncompressed, that an item of a current table's round takes. A round whose records take more is made
    again with fewer of them. Also the memory in which a row group of a data file is decoded, slice by slice, since other engines may have
    written the file; a file whose row takes more is refused."""

    current_group_bytes: int = 256 * MIB
    """Bytes of a row group of a data file, as they are in the file, that an item of a current table's round holds at once. A file with a
    larger row group is refused: the stream's current table waits until the setting is raised, or the engine's row groups are smaller."""

    current_footer_bytes: int = 32 * MIB
    """Largest footer (bytes) of a data file that an item of a current table's round reads, one after the other. A row group takes about
    120 bytes for each column. In memory, a footer takes up to 24 times its bytes. A file with a larger footer is refused, as with a larger
    row group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """The environment of work items. `threads` None: compute in the event loop's own thread (Spark executors, simulation)."""

    limits: TaskLimits = field(default_factory=TaskLimits)
    clock: Clock = field(default_factory=SystemClock)
    random_bits: Callable[[int], int] = random.SystemRandom().getrandbits
    threads: Executor | None = None

    async def compute(self, step: Callable[[], T]) -> T:
        """Return the result of `step`, which takes milliseconds to seconds of CPU time."""
        if self.threads is None:
            await asyncio.sleep(0)
            return step()
        return await asyncio.get_running_loop().run_in_executor(self.threads, step)

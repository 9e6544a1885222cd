"""Settings of the SQLite store."""

from dataclasses import dataclass
from typing import Literal

from bearlake.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    """How the store uses its file, and how much it keeps in memory and in the file."""

    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"
    """FULL: a commit survives a power loss (one fsync). NORMAL: a commit survives only a crash of the process, but is faster."""

    busy_timeout_ms: int = 10_000
    """Longest wait for the transaction of another process before an operation fails as `Unavailable`."""

    queue_length_max: int = 10_000
    """Operations that may wait for the thread of the store; more are refused with `Overloaded`."""

    poll_interval_ms: int = 5
    """How often a waiting follower polls for commits of other processes on this host; 0: never, because there are no other processes."""

    poll_interval_idle_ms: int = 25
    """How often a waiting follower polls after a second without commits: polling every 5 ms costs 3 % of a core in every process. 0: as
    `poll_interval_ms`."""

    partition_count_cached_max: int = 200_000
    """Partition states in memory, about 0.5 KB each and 0.6 KB per producer; other states are read from the file when needed."""

    page_slice_count_max: int = 256
    """Slices per index page, 48 bytes each. A look-up reads whole pages; an append rewrites a page only while it is small."""

    roll_entry_count_max: int = 2_000
    """Log entries that one round of roll-up takes, at about 4 µs each in one transaction."""

    roll_slice_count_max: int = 100_000
    """Slices that one round of roll-up takes (an entry is never split). Bounds the memory of the round: about 100 bytes each."""

    roll_partition_count_max: int = 200
    """Partitions that a round writes in one transaction, at about 30 µs each: so long may a commit wait for a round."""

    unrolled_entry_count_max: int = 5_000
    """A commit that finds more entries that are not rolled up rolls some of them up first, so that memory stays bounded without
    maintenance. An entry takes about 50 bytes of memory for each of its partitions."""

    sweep_page_count_max: int = 1_000
    """Index pages (and rows of deleted streams) that one maintenance round deletes."""

    token_result_keep_ms: int = 600_000
    """How long the store keeps the result of a commit for repeats of the commit (24 bytes per batch); far longer than a writer retries."""

    deleted_keep_ms: int = 6 * 3_600_000
    """How long the store remembers the key of an object after the bytes of the object were deleted, about 100 bytes each. After it forgets
    a key, the store refuses commits of objects that were sealed earlier. This time is therefore how far the host's clock may step back, and
    how long a process may be paused, before the process must restart."""

    forbidden_keep_ms: int = 7 * 24 * 3_600_000
    """How long the store remembers a forbidden or refused token; as `deleted_keep_ms`."""

    wal_checkpoint_pages: int = 4_000
    """Pages (4 KiB) in SQLite's own write-ahead log at which a commit copies the log into the database file."""

    def __post_init__(self) -> None:
        for name in (
            "queue_length_max",
            "page_slice_count_max",
            "roll_entry_count_max",
            "roll_slice_count_max",
            "roll_partition_count_max",
            "sweep_page_count_max",
        ):
            if getattr(self, name) < 1:
                raise Invalid(f"metadata.sqlite.{name} is {getattr(self, name)}; expected at least 1")
        if min(self.poll_interval_ms, self.poll_interval_idle_ms, self.busy_timeout_ms) < 0:
            raise Invalid(
                "metadata.sqlite: poll_interval_ms, poll_interval_idle_ms and busy_timeout_ms must not be negative"
            )

"""Settings of the SQLite store."""

from dataclasses import dataclass
from typing import Literal

from bearlake.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    """How the store uses its file, and how much it keeps where."""

    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"
    """FULL: a commit survives a power cut (one fsync). NORMAL: it survives a crash of the process only, and is faster."""

    busy_timeout_ms: int = 10_000
    """How long a step waits for another process's transaction before it is `Unavailable`."""

    queue_length_max: int = 10_000
    """Steps that may wait for the store's thread; more are refused with `Overloaded`."""

    poll_interval_ms: int = 5
    """How often a waiting follower looks for commits of other processes on this host; 0: there are none, do not look."""

    poll_interval_idle_ms: int = 25
    """The same when there was none for a second: a look each 5 ms costs 3 % of a core in every process. 0: as `poll_interval_ms`."""

    partition_count_cached_max: int = 200_000
    """Partition states in memory, about 0.5 KB each and 0.6 KB per producer; others are read from the file when needed."""

    page_slice_count_max: int = 256
    """Slices per index page: a look-up reads about two pages, an append rewrites one (48 bytes per slice)."""

    roll_entry_count_max: int = 2_000
    """Log entries rolled up by one round of maintenance, a bound on how long commits wait behind it."""

    roll_slice_count_max: int = 20_000
    """Slices rolled up by one round (an entry is never split); bounds the round as the former does."""

    roll_partition_count_max: int = 2_000
    """Partitions that one round may touch, at 20 to 45 µs each: what bounds a round when each slice is of another partition."""

    unrolled_entry_count_max: int = 5_000
    """A commit that finds more entries not rolled up rolls some up first, so that memory stays bounded without maintenance.

    An entry takes about 50 bytes of memory for each partition that it touched.
    """

    sweep_page_count_max: int = 1_000
    """Index pages (and rows of deleted streams) dropped by one round of maintenance."""

    token_result_keep_ms: int = 600_000
    """How long a commit that is asked again gets its first result (24 bytes per batch); far longer than a writer asks."""

    deleted_keep_ms: int = 6 * 3_600_000
    """How long the key of an object is remembered after its bytes were deleted, about 100 bytes each. When a key is forgotten, commits
    of objects that were sealed before it are refused: this is how far the host's clock may step back, and how long a process may
    stand still, before it has to start again."""

    forbidden_keep_ms: int = 7 * 24 * 3_600_000
    """How long a forbidden or refused token is remembered; as `deleted_keep_ms`."""

    wal_checkpoint_pages: int = 4_000
    """Pages (4 KiB) in SQLite's own log before it is copied into the file by the commit that finds it so long."""

    def __post_init__(self) -> None:
        for name in (
            "queue_length_max",
            "page_slice_count_max",
            "roll_entry_count_max",
            "roll_slice_count_max",
            "sweep_page_count_max",
        ):
            if getattr(self, name) < 1:
                raise Invalid(f"metadata.sqlite.{name} is {getattr(self, name)}; expected at least 1")
        if min(self.poll_interval_ms, self.poll_interval_idle_ms, self.busy_timeout_ms) < 0:
            raise Invalid(
                "metadata.sqlite: poll_interval_ms, poll_interval_idle_ms and busy_timeout_ms must not be negative"
            )

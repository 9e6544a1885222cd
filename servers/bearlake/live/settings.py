"""Settings of live views."""

from dataclasses import dataclass, field
from typing import Final

from bearlake.compaction.workbench import TaskLimits

MIB = 1024 * 1024
TAIL_PREFIX: Final = "tail/"
"""Key prefix of pieces and of the manifests that name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRowsSettings:
    """Readers of the log as rows, such as tasks of Spark. Memory of a reader: a window, and some row groups."""

    window_bytes: int = 16 * MIB
    """Bytes of record batches that are read at once, unless one slice has more. Smaller windows need more requests for objects."""
    row_group_bytes: int = 8 * MIB
    """Bytes of decoded rows that are returned at once."""
    slices_per_lookup: int = 1_000
    """Slices that one look-up in the metadata store returns."""
    batch_bytes_max: int = 256 * MIB
    """Uncompressed records of one batch (bytes); a larger batch has no rows. Guards against compression bombs."""
    read_concurrent_count: int = 8
    """Objects read at once."""
    footer_count_max: int = 16
    """Footers of data files in memory, 50 KiB each for large files."""
    schema_count_max: int = 256
    """Rounds in which the values of one window may name schemas that have no columns yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """Plans of scans, which the warehouse `planned` makes for engines."""

    file_count_max: int = 50_000
    """Files of a table whose scans are planned; those of a larger one are refused, and its readers use the warehouse `live`. A plan holds
    all of them in memory while it is made."""
    manifest_bytes_max: int = 64 * MIB
    """Bytes of the manifests of a table whose scans are planned, likewise. They grow with files and columns; a plan takes about ten times
    as much memory while it is made."""
    page_file_count: int = 1_000
    """Files in one answer; the client fetches the others one answer after the other. All servers of a deployment need
    the same number."""
    scan_bytes_max: int = 256 * 1024
    """Bytes of the filter and the names of columns in a request. Each answer that is not the last one repeats them, compressed."""
    cache_bytes_max: int = 64 * MIB
    """Bytes of plans that a server remembers. A plan beyond them is made again for each of its answers."""
    concurrent_count: int = 2
    """Plans made at once; others wait."""
    wait_ms: int = 30_000
    """Longest such wait (ms); then the request is refused with 503."""
    view_count_max: int = 10_000
    """Views whose places a server remembers; others are looked up in the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """Views of tables with the records that compaction has not reached. All servers of a deployment need the same times."""

    tail_bytes_max: int = 1024 * MIB
    """Bytes of the log that a view may add to one table. If compaction is further behind, loads fail; the table without its tail can still
    be read."""
    piece_bytes_max: int = 64 * MIB
    """Bytes of the log in one piece, unless one slice has more. A piece is in memory while it is written. If a build fails, the next one
    goes on with the pieces that are there."""
    tail_slice_count_max: int = 100_000
    """Slices of the log that a view may add to one table."""
    reuse_ms: int = 1_800_000
    """Age (ms) at which a piece is written again instead of used in a new view."""
    keep_ms: int = 3_600_000
    """Time (ms) for which a view's files exist at least after it was loaded. Queries that run longer fail."""
    clock_margin_ms: int = 600_000
    """Age (ms) of a view's snapshot. DuckDB reads the snapshot as of its transaction's start, by its own clock, so the margin must exceed
    the difference of the clocks and the time between that start and the load."""
    stream_count_max: int = 1_000
    """Streams whose pieces a server remembers. The tail of a forgotten stream is written anew."""
    answer_bytes_max: int = 64 * MIB
    """Bytes of answers that a server remembers. An answer beyond them is composed again for each load, and nothing is written."""
    manifest_list_count_max: int = 64
    """Manifest lists of tables that a server remembers, about 1 KiB for each manifest; others are read again for each new view."""
    build_concurrent_count: int = 2
    """Pieces written at once."""
    build_pause_ms: int = 100
    """Shortest time (ms) between two views of one table. A view with new records writes three objects; loads that come sooner wait, and
    share the next view."""
    deadline_ms: int = 30_000
    """Longest time (ms) of one build."""
    sweep_interval_ms: int = 600_000
    """Time (ms) between two sweeps of old pieces."""
    rows: LogRowsSettings = field(default_factory=LogRowsSettings)
    plans: PlanSettings = field(default_factory=PlanSettings)
    task: TaskLimits = field(default_factory=lambda: TaskLimits(window_bytes=8 * MIB))

    def __post_init__(self) -> None:
        if self.reuse_ms <= 0 or self.keep_ms <= 0 or self.clock_margin_ms < 0:
            raise ValueError("reuse_ms and keep_ms must be positive, and clock_margin_ms must not be negative")

    @property
    def life_ms(self) -> int:
        """The age (ms) from which no view names a piece or manifest: the last view that reuses it is at most `reuse_ms` younger."""
        return self.reuse_ms + self.keep_ms

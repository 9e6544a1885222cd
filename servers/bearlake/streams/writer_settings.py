"""The settings of the write path (`writer.py`, `flush_policy.py`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """When the write path flushes, and how much it holds in memory."""

    object_bytes_max: int = 8 * 1024 * 1024
    """Bytes of batches in one WAL object (except for a single larger batch). Larger objects mean fewer PUTs and more latency."""
    object_batch_count_max: int = 5_000
    """Batches in one WAL object. What is done at once after a commit (outcomes, tail index) depends on them: 5,000 take 10 to 30 ms.
    Fewer mean shorter pauses for other clients, and more PUTs if batches are very small."""
    flush_bytes: int = 4 * 1024 * 1024
    """Bytes that are flushed as soon as an upload slot is free, even before the linger has passed."""
    linger_ms: float = 5.0
    """Longest wait (ms) for more batches after an object's first: 250 suits object stores (4 PUTs/s per server), 5 local disks."""
    gather_ms: float = 0.5
    """Longest pause (ms) between a flush and an immediate next flush: clients that were just answered send their next batches in this time.
    If they do, the pause saves up to half of the objects and commits; if not, it adds latency, up to 1 ms: timers tick in milliseconds."""
    gather_batches_min: int = 8
    """Fewest batches in a flush that the pause `gather_ms` follows: after fewer, too few clients are expected to send again."""
    flush_when_idle: bool = True
    """Flush at once when nothing is in flight. Gives the lowest latency, but more PUTs to the object store at low load."""
    puts_in_flight_max: int = 4
    """Objects that are being uploaded or committed at once."""
    bytes_max: int = 192 * 1024 * 1024
    """Bytes of batches waiting or in flight at which sockets are no longer read (backpressure). What calls of REST and gRPC have read for
    further batches counts too, at most half of it (decision 171)."""
    client_share_percent: int = 50
    """What the calls of one client of REST or gRPC may have of that half, in percent, and one call more: so that no client can take all of
    it. Clients are users, or the addresses of those that need not log in; clients behind one proxy or NAT share an address."""
    batch_count_max: int = 200_000
    """Batches waiting or in flight at which sockets are no longer read. A batch takes up to 2 KiB beside its own bytes. More help only if
    the stores are slow and batches are smaller than 1 KiB."""
    deadline_ms: int = 30_000
    """Time (ms) after which a caller gets the answer that the outcome is unknown. The write itself continues."""
    retry_pause_ms: int = 50
    """First pause (ms) before a commit is retried; doubles up to `retry_pause_max_ms`, with jitter."""
    retry_pause_max_ms: int = 2_000
    """Longest pause (ms) between two attempts to commit."""
    commit_unknown_ms_max: int = 600_000
    """Longest time (ms) for which a commit of unknown outcome is retried; then the server stops. After the same time without room on the
    store's disk, the batches of an object fail, and the server stays. Only availability depends on it (I8)."""

    def __post_init__(self) -> None:
        if not 0 < self.client_share_percent <= 100:
            raise ValueError("client_share_percent must be from 1 to 100")

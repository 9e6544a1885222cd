"""Limits of SQL for clients of the catalog."""

from dataclasses import dataclass

from bearlake.errors import Invalid

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSettings:
    """SQL for clients of the catalog: `POST /v1/sql`, which the console uses."""

    is_enabled: bool = True
    """Whether the catalog runs statements of clients."""
    deadline_ms: int = 30_000
    """Longest time (ms) of a statement; then its process is killed."""
    row_count_max: int = 1_000
    """Rows of a result at most; further rows are omitted, and the answer says so."""
    answer_bytes_max: int = 8 * MIB
    """Bytes of an answer at most; a larger result is refused."""
    engine_bytes_max: int = 256 * MIB
    """Memory of the engine for one statement. It writes no temporary files."""
    process_bytes_max: int = 1536 * MIB
    """Memory of the process of one statement beyond what its libraries need, also for values that the engine does not count."""
    concurrent_count_max: int = 2
    """Statements that run at once, each in its own process with one thread."""
    client_concurrent_count_max: int = 1
    """Statements of one user, or of one address without a login, that run at once."""
    waiting_count_max: int = 32
    """Statements that wait for a place; further ones are answered with 503."""
    client_waiting_count_max: int = 2
    """Statements of one client that wait for a place; further ones are answered with 503."""
    wait_ms: int = 10_000
    """Longest time (ms) that a statement waits for a place."""

    def __post_init__(self) -> None:
        if min(self.concurrent_count_max, self.client_concurrent_count_max, self.row_count_max, self.deadline_ms) < 1:
            raise Invalid("catalog.sql: counts and times must be at least 1")

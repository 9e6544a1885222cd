"""Settings of the PostgreSQL store."""

import re
from dataclasses import dataclass

from bearlake.errors import Invalid

_AT_LEAST_ONE = (
    "connections_max",
    "read_connections_max",
    "connect_timeout_ms",
    "acquire_timeout_ms",
    "statement_timeout_ms",
    "lock_timeout_ms",
    "idle_transaction_timeout_ms",
    "client_check_interval_ms",
    "client_silence_ms",
    "migrate_timeout_ms",
    "migrate_lock_timeout_ms",
    "poll_interval_ms",
    "poll_interval_listening_ms",
    "page_slice_count_max",
    "roll_entry_count_max",
    "roll_slice_count_max",
    "sweep_page_count_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlSettings:
    """How the store uses its database, and how long it waits for it."""

    schema: str = "bearlake"
    """The database schema that holds the tables, so that several deployments may share a database. `?schema=` in the URL overrides it."""

    password_file: str = ""
    """File with the user's password, read anew for every new connection, so that it can be rotated. It wins over one in the URL."""

    connections_max: int = 8
    """Connections of this process that write. More do not speed commits up: they end one by one."""

    read_connections_max: int = 4
    """Connections that only read, besides one that listens for hints; so that reads do not queue behind writes that hang."""

    connect_timeout_ms: int = 5_000
    """How long a new connection may take."""

    acquire_timeout_ms: int = 5_000
    """How long a step waits for a free connection before it is `Unavailable`."""

    statement_timeout_ms: int = 10_000
    """How long one statement may take in the database; this process gives up a second later."""

    lock_timeout_ms: int = 5_000
    """How long a statement waits for another one's row locks; shorter than the former, so that the cause is told."""

    idle_transaction_timeout_ms: int = 10_000
    """When the database ends a transaction whose client has fallen silent, so that a stalled host cannot keep the locks."""

    client_check_interval_ms: int = 500
    """How often the database looks whether the client of a running statement has closed its connection: a statement that was given up
    and waits for a lock ends after this time. Shorter than `lock_timeout_ms`, so that the next write succeeds."""

    client_silence_ms: int = 12_000
    """After about this time the database's TCP takes a silent client host for gone (keepalives; whole seconds)."""

    migrate_timeout_ms: int = 60_000
    """How long a change of the layout, and waiting for another process that makes one, may take when the store is opened."""

    migrate_lock_timeout_ms: int = 5_000
    """How long a change of the layout waits for the lock of one table; statements of running servers queue behind it for that long."""

    statement_cache_count: int = 100
    """Prepared statements per connection; 0 disables them. A pooler between must be in session mode: sessions belong to connections."""

    poll_interval_ms: int = 50
    """How often a waiting follower asks for the head while there is no listening connection (none yet, or it was lost)."""

    poll_interval_listening_ms: int = 1_000
    """How often it asks although it listens, since notifications are only hints."""

    listen_backoff_min_ms: int = 100
    """Pause after the listening connection was lost; doubled by each failure."""

    listen_backoff_max_ms: int = 5_000
    """The longest such pause."""

    page_slice_count_max: int = 128
    """Slices per index page (about: one round of maintenance is never split): 48 bytes each, rewritten as a whole by an append."""

    roll_entry_count_max: int = 256
    """Log entries rolled up by one round of maintenance, a bound on its duration."""

    roll_slice_count_max: int = 20_000
    """Slices rolled up by one round (an entry is never split); bounds the round as the former does."""

    sweep_page_count_max: int = 1_000
    """Index pages (and rows of deleted streams) dropped, and trims and deletions looked after, by one round of maintenance."""

    token_result_keep_ms: int = 3_600_000
    """How long the result of a commit token, and of a task that is done, can be asked for again; a retry comes within minutes."""

    forbidden_keep_ms: int = 7 * 24 * 3_600_000
    """How long a forbidden or refused token, and the key of an object whose bytes are deleted, is remembered: one row each. A server whose
    clock is further behind the database's, or that stood still for longer, is refused and stops; no commit is ever lost by it."""

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise Invalid(f"metadata.postgresql.{name} is {getattr(self, name)}, it must be at least 1")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", self.schema):
            raise Invalid(
                f"metadata.postgresql.schema is {self.schema!r}; it must be lower-case letters, digits and `_`, at most 48 of them"
            )

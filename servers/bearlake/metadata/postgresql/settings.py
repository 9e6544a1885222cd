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
    """The database schema of the tables, so that several deployments may share a database. `?schema=` in the URL overrides it."""

    password_file: str = ""
    """File with the user's password; overrides a password in the URL. The file is read for every new connection, so that the password can
    be rotated."""

    connections_max: int = 8
    """Connections of this process that write; one more exists while lost sessions are ended. More connections do not speed up commits:
    commits end one after the other."""

    read_connections_max: int = 4
    """Connections that only read, in addition to one that listens for hints. With separate connections, reads do not queue behind hanging
    writes."""

    connect_timeout_ms: int = 5_000
    """Longest time to open a connection; of several hosts in the URL, each has its part of it."""

    acquire_timeout_ms: int = 5_000
    """Longest wait for a free connection before an operation fails as `Unavailable`."""

    statement_timeout_ms: int = 10_000
    """Longest time of a statement in the database; this process gives up one second later."""

    lock_timeout_ms: int = 5_000
    """Longest wait of a statement for row locks; shorter than `statement_timeout_ms`, so that the error names the lock."""

    idle_transaction_timeout_ms: int = 10_000
    """Time after which the database ends a transaction whose client is silent, so that a stalled host cannot hold locks."""

    client_check_interval_ms: int = 500
    """How often the database checks whether the client of a running statement has closed its connection. An abandoned statement that waits
    for a lock ends after this time. Shorter than `lock_timeout_ms`, so that the next write succeeds."""

    client_silence_ms: int = 12_000
    """Approximate time after which TCP keepalives of the database consider a silent client host gone (in whole seconds)."""

    migrate_timeout_ms: int = 60_000
    """Longest time to change the layout when the store is opened, including the wait for another process that changes it."""

    migrate_lock_timeout_ms: int = 5_000
    """Longest wait of a layout change for the lock of one table; statements of running servers queue behind the wait."""

    statement_cache_count: int = 100
    """Prepared statements per connection; 0 disables them. A connection pooler must be in session mode, because sessions belong to
    connections."""

    poll_interval_ms: int = 50
    """How often a waiting follower polls the head of the log while there is no listening connection (not yet opened, or lost)."""

    poll_interval_listening_ms: int = 1_000
    """How often a waiting follower polls while it listens, since notifications are only hints."""

    listen_backoff_min_ms: int = 100
    """Pause after the listening connection is lost; doubles with each failure."""

    listen_backoff_max_ms: int = 5_000
    """Longest pause before the listening connection is opened again."""

    page_slice_count_max: int = 128
    """Approximate slices per index page (one maintenance round is never split): 48 bytes each; an append rewrites the whole page."""

    roll_entry_count_max: int = 256
    """Log entries that one maintenance round rolls up. Bounds the duration of the round."""

    roll_slice_count_max: int = 20_000
    """Slices that one maintenance round rolls up (an entry is never split); bounds the round like `roll_entry_count_max`."""

    sweep_page_count_max: int = 1_000
    """Index pages (and rows of deleted streams) that one maintenance round deletes, and trims and deletions that it processes."""

    token_result_keep_ms: int = 3_600_000
    """How long the result of a commit token and of a finished task can be read again; a retry comes within minutes."""

    forbidden_keep_ms: int = 7 * 24 * 3_600_000
    """How long the store remembers a forbidden or refused token, and the key of an object whose bytes are deleted: one row each. A server
    whose clock is further behind the database's clock, or that was paused for longer, is refused and stops; no commit is ever lost."""

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise Invalid(f"metadata.postgresql.{name} is {getattr(self, name)}, it must be at least 1")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", self.schema):
            raise Invalid(
                f"metadata.postgresql.schema is {self.schema!r}; it must be lower-case letters, digits and `_`, at most 48 of them"
            )

"""Translation of the driver's errors into the kinds of `bearlake.errors`; nothing of asyncpg leaves `metadata/postgresql/`.

Messages contain the database's error code and text. Both are free of passwords (the driver's errors about a URL are not: see `store.py`).
"""

import asyncpg

from bearlake.errors import (
    AlreadyExists,
    BearlakeError,
    Conflict,
    Denied,
    Fenced,
    Invalid,
    NotFound,
    OutOfRange,
    OutOfRoom,
    Unavailable,
    Unsupported,
)
from bearlake.metadata.postgresql.layout import VERSION
from bearlake.metadata.tokens import Forgotten

FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""The errors that a call of the driver may raise."""

BROKEN = (asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
"""Errors of the driver for a connection that broke. The driver raises the internal error for a statement after PostgreSQL has ended an
idle connection with a FATAL message (a restart, a fail-over) and before its socket is closed; the statement is not sent."""

TOKEN_KNOWN = "BL009"  # noqa: S105 (an error code)
"""`commit_object`: the token already has a result."""


class TokenKnown(Conflict):
    """Never leaves the package: the commit fetches the first result instead."""


_OWN = {
    "BL001": Fenced,
    "BL002": NotFound,
    "BL004": Conflict,
    "BL005": AlreadyExists,
    "BL006": Invalid,
    TOKEN_KNOWN: TokenKnown,
    "BL011": Forgotten,
    "BL012": Unsupported,  # `begin_session` of a layout that older programs cannot use (decision 101)
}

_SESSION_OVER = "BL010"
"""`check_session`: the session of this connection was ended."""

_ROLLED_BACK = ("40001", "40P01", _SESSION_OVER)
"""Serialization failure, deadlock, ended session: certainly without effect."""


_UNDEFINED = ("42703", "42883", "42P01")
"""Undefined column, function, table. An upgrade replaces functions and changes tables while other servers run (decision 107). PostgreSQL
plans the next statement of a function that is already running against the new layout, so the old body may name what is gone."""


_DISK_FULL = "53100"
"""No room for what the statement adds. PostgreSQL rolls it back; a commit record that lacks room stops PostgreSQL, without an answer."""

_INTERNAL, _NO_INIT_FILE = "XX000", "could not write init file"
"""How PostgreSQL 15 refuses a new connection on a full disk, once a restart has removed the file. PostgreSQL does not translate this text.
Nothing was sent on the connection."""

_REFUSALS = ("BL001", "BL002", "BL004", "BL005", "BL006")


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the step certainly had no effect and may succeed if it is repeated at once."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _ROLLED_BACK


def is_undefined(error: BaseException) -> bool:
    """Return whether the statement named what the store does not have. It had no effect; during an upgrade, a repeat may succeed."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _UNDEFINED


def is_refusal(error: BaseException) -> bool:
    """Return whether the statement refused to change anything; an earlier attempt may still have had an effect."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate in _REFUSALS or lacks_room(error))


def lacks_room(error: asyncpg.PostgresError) -> bool:
    """Return whether the disk of the database is full, and the step had no effect for this reason."""
    return error.sqlstate == _DISK_FULL or (error.sqlstate == _INTERNAL and str(error).startswith(_NO_INIT_FILE))


def is_lost(error: BaseException) -> bool:
    """Return whether the connection broke, so that the step may or may not have happened."""
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate).startswith(("08", "57P0"))
    return isinstance(error, BROKEN) and not isinstance(error, ValueError)


def is_answer(error: BaseException) -> bool:
    """Return whether the database answered, or the statement was never sent: it can have no effect after this."""
    if isinstance(error, asyncpg.PostgresError):
        return not is_lost(error)
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


def is_session_over(error: BaseException) -> bool:
    """Return whether the store refuses every write of this connection."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == _SESSION_OVER


def is_unknown_user(error: BaseException) -> bool:
    """Return whether the database refused the login: no such user, or a wrong password."""
    return isinstance(error, asyncpg.PostgresError) and str(error.sqlstate).startswith("28")


def is_unknown_database(error: BaseException) -> bool:
    """Return whether the server has no database of this name."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == "3D000"


def translated(error: BaseException) -> BearlakeError:
    """Translate a foreign error into its kind; raise the result chained."""
    if isinstance(error, asyncpg.PostgresError):
        return _of_database(error)
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return Invalid(f"a value does not fit the metadata store: {error}")
    if isinstance(error, TimeoutError):
        return Unavailable("the metadata store did not answer in time")
    if isinstance(error, asyncpg.InternalClientError):  # its text names states of the driver
        return Unavailable("the metadata store cannot be reached: it has ended the connection")
    return Unavailable(f"the metadata store cannot be reached: {error}")


def _of_database(error: asyncpg.PostgresError) -> BearlakeError:
    code, text = str(error.sqlstate), str(error)
    if code in _OWN:
        return _OWN[code](text)
    if code == "BL003":
        start, end = map(int, str(error.as_dict()["detail"]).split())
        return OutOfRange(text, start=start, end=end)
    if code == "23505" and error.as_dict().get("constraint_name") == "stream_active_name":
        return AlreadyExists("an active stream has this name")
    if code.startswith("22"):
        return Invalid(f"a value does not fit the metadata store: {text}")
    if code.startswith("28") or code == "42501":
        return Denied(f"the metadata store refuses this user: {text}")
    if lacks_room(error):
        return OutOfRoom(f"the disk of the metadata store is full ({code}): {text}")
    if code in _UNDEFINED:
        return Unavailable(
            f"the metadata store lacks what this program, of layout {VERSION}, uses; if a newer program has upgraded the store,"
            f" use the newer version ({code}): {text}"
        )
    if is_unknown_database(error):
        return NotFound(f"the metadata store does not exist: {text}")
    return Unavailable(f"the metadata store failed ({code}): {text}")

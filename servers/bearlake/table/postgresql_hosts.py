"""Opens connections to a PostgreSQL catalog whose URL names several hosts: to the first of them that leads to a primary.

The hosts are tried one by one, the last one that was reached first, as those of the metadata URL are (decision 321). Each has an equal
part of the deadline, so that a host that does not answer leaves time for the others; statements have the same part. pg8000 alone knows
one host.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from bearlake.errors import Invalid
from bearlake.table.foreign import BROKEN
from bearlake.urls import one_host_each

_STARTING = "57P03"
"""PostgreSQL, appendix A: `cannot_connect_now`."""


class LeadsToStandby(OSError):
    """The host is a standby, which refuses commits."""


def hosts_of(url: str) -> list[URL]:
    """Return a URL for each host of `tables.catalog_url`. Raises `Invalid`, without the URL: it may have a password."""
    try:
        return [make_url(found) for found in one_host_each(url)]
    except (ArgumentError, ValueError):
        raise Invalid(
            "tables.catalog_url is malformed; expected postgresql://user@host:port,host:port/database"
        ) from None


class Hosts:
    """The hosts of one catalog; of use to several threads."""

    def __init__(self, urls: Sequence[URL]) -> None:
        self._urls = urls
        self._lock = threading.Lock()
        self._first = 0
        """Place of the host to try first: the last one that was reached."""

    def connect(
        self, dialect: Any, arguments: Sequence[Any], options: dict[str, Any]
    ) -> Any:  # Any: SQLAlchemy's, and pg8000's connection
        """Return a connection of the driver. `options` are those of the first host. Raises what the last host's attempt raised."""
        first = self._first
        for step in range(len(self._urls)):
            place = (first + step) % len(self._urls)
            own = {"host": self._urls[place].host, "port": self._urls[place].port or 5432}
            try:
                connection = _primary(dialect, arguments, {**options, **own})
            except (dialect.loaded_dbapi.Error, OSError, *BROKEN) as error:
                if step == len(self._urls) - 1 or not _may_another_answer(dialect, error):
                    raise
            else:
                with self._lock:
                    self._first = place
                return connection
        raise AssertionError("a URL has a host")


def _primary(dialect: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    connection = dialect.connect(*arguments, **options)
    try:
        cursor = connection.cursor()
        cursor.execute("select pg_is_in_recovery()")
        (is_standby,) = cursor.fetchone()
        cursor.close()
        connection.rollback()
        if is_standby:
            raise LeadsToStandby(f"{options['host']}:{options['port']} leads to a standby")
    except BaseException:
        with suppress(dialect.loaded_dbapi.Error, OSError, *BROKEN):
            connection.close()
        raise
    return connection


def _may_another_answer(dialect: Any, error: BaseException) -> bool:
    """Whether another host may be the primary. A refused login is final."""
    if isinstance(error, dialect.loaded_dbapi.DatabaseError):
        return any(isinstance(found, dict) and found.get("C") == _STARTING for found in error.args)
    return True

"""A table catalog that speaks Iceberg's REST protocol. Its answers are bounded, and choose nothing of this process.

PyIceberg lets a catalog's answers replace any property of the client: the Python class that reads files, the one that logs in, the address
that gets the token. `requests` waits for every byte anew and keeps an answer of any size. Here,

- an answer may set only the properties in `_FROM_ANSWERS`, and an address only on the catalog's own host,
- an exchange ends after `catalog_deadline_ms`, however slowly its bytes come, and at `catalog_answer_bytes_max`,
- redirects lead to no other host.

All functions block. Source: Apache Iceberg REST specification; PyIceberg 0.12, `catalog/rest`; requests 2, `adapters.py`.
"""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ContentDecodingError, ReadTimeout, TooManyRedirects
from typing_extensions import override
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from bearlake.errors import Unsupported
from bearlake.table.io import StoreFileIO
from bearlake.table.light import lighten
from bearlake.table.settings import TableSettings

log = logging.getLogger(__name__)

_FROM_ANSWERS: Final = frozenset({"namespace-separator", "prefix", "rest-page-size", "warehouse"})
"""Properties that the catalog may set; and `uri`, on its own host."""
_PIECE_BYTES: Final = 64 * 1024


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with limits. `load_table` returns light metadata."""

    def __init__(self, settings: TableSettings, properties: Mapping[str, str]) -> None:
        """Connect, and read the catalog's configuration. `properties`: of the client; they include those of a `StoreBridge`.

        Raises:
            Unsupported: the configuration cannot be used.
        """
        self._adapter = (settings.catalog_deadline_ms / 1000, settings.catalog_answer_bytes_max)
        self._host = urlsplit(settings.catalog_url).hostname
        warehouse = {"warehouse": settings.catalog_warehouse} if settings.catalog_warehouse else {}
        super().__init__(settings.catalog_name, uri=settings.catalog_url, **{**warehouse, **properties})

    def _fetch_config(self) -> None:
        asked = dict(self.properties)
        try:
            super()._fetch_config()
            found = {name: str(value) for name, value in self.properties.items() if name in _FROM_ANSWERS}
            host = urlsplit(self.uri).hostname
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise Unsupported(f"the catalog's configuration cannot be used: {type(error).__name__}") from error
        if host != self._host:
            log.warning("the catalog names another host; keeping its address", extra={"host": str(host)[:253]})
            self.uri = asked["uri"]
        self.properties = {**asked, **found, "uri": self.uri}

    def _create_session(self) -> Session:
        session = super()._create_session()
        for prefix in ("http://", "https://"):
            session.mount(prefix, _Adapter(*self._adapter, hosts=self._hosts()))
        return session

    def _hosts(self) -> frozenset[str | None]:
        return frozenset({self._host, urlsplit(self.properties.get("oauth2-server-uri", "")).hostname or self._host})

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        """Return our files, whatever the table's properties and the catalog's answer say."""
        return StoreFileIO(dict(self.properties))

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        table: Table = super().load_table(identifier)
        table.metadata = lighten(table.metadata)
        return table

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _Adapter(HTTPAdapter):
    """Bounds each exchange of a request and its answer, with the whole body."""

    def __init__(self, deadline_s: float, answer_bytes_max: int, hosts: frozenset[str | None]) -> None:
        """`hosts`: requests to other hosts, which redirects name, are refused."""
        self._deadline_s = deadline_s
        self._answer_bytes_max = answer_bytes_max
        self._hosts = hosts
        super().__init__()

    @override
    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:  # Any: passed on as they are
        super().init_poolmanager(*arguments, **named)  # type: ignore[no-untyped-call]
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    @override
    def send(self, request: PreparedRequest, *arguments: Any, **named: Any) -> Response:
        if urlsplit(request.url or "").hostname not in self._hosts:
            raise TooManyRedirects("the catalog redirects to another host", request=request)
        exchange = _Exchange(self._deadline_s)
        named |= {"timeout": self._deadline_s, "stream": True}
        with exchange:
            response = super().send(request, *arguments, **named)
            response._content = self._body(response)
            response._content_consumed = True  # type: ignore[attr-defined]
        if exchange.is_late:
            raise ReadTimeout("the catalog's answer takes too long", request=request)
        return response

    def _body(self, response: Response) -> bytes:
        body = bytearray()
        for piece in response.iter_content(_PIECE_BYTES):
            body += piece
            if len(body) > self._answer_bytes_max:
                response.close()
                raise ContentDecodingError(f"the catalog's answer has more than {self._answer_bytes_max} bytes")
        return bytes(body)


class _Exchange:
    """Shuts the connection of the block's request down at the deadline: the read that waits for it fails."""

    _of_thread = threading.local()

    def __init__(self, deadline_s: float) -> None:
        self.is_late = False
        self._ends_s = time.monotonic() + deadline_s
        self._timer = threading.Timer(deadline_s, self._end)
        self._timer.daemon = True
        self._connection: HTTPConnection | None = None

    @classmethod
    def begin(cls, connection: HTTPConnection) -> None:
        """Note the connection that this thread's exchange uses."""
        exchange: _Exchange | None = getattr(cls._of_thread, "exchange", None)
        if exchange is not None:
            exchange._connection = connection

    def __enter__(self) -> None:
        self._of_thread.exchange = self
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._of_thread.exchange = None
        self._timer.cancel()

    def _end(self) -> None:
        self.is_late = True
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of a TLS socket, which forgets its state


class _Connection(HTTPConnection):
    @override
    def request(self, *arguments: Any, **named: Any) -> None:  # Any: passed on as they are
        _Exchange.begin(self)
        super().request(*arguments, **named)


class _TlsConnection(HTTPSConnection):
    @override
    def request(self, *arguments: Any, **named: Any) -> None:  # Any: passed on as they are
        _Exchange.begin(self)
        super().request(*arguments, **named)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection

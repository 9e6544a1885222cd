"""Gives TLS one record of a client at a time, so that a client cannot make it work much by records without data.

OpenSSL takes all records that it is given until one has data. A client that sent 9,000 key updates (243 KB, no login needed) held the event
loop for 0.4 s, and 20 connections held it for 3.4 s. Clients update keys once in millions of records, if at all.

    the event loop's TLS -> its buffer -> whole records -> own buffer, one record -> OpenSSL

Source: RFC 8446, 4.6.3 (key update) and 5.1 (record layer).
"""

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import override

R = TypeVar("R")

EMPTY_RECORD_COUNT_MAX = 32
"""Records without data that a client may send before it has sent `DATA_BYTES` more; also those of one handshake. Each takes 0.05 ms."""
DATA_BYTES = 1024 * 1024
_HEAD_BYTES = 5
_RECORD_TYPES = range(20, 25)
_RECORD_BYTES_MAX = 16 * 1024 + 2048


class RecordsSslObject(ssl.SSLObject):
    """The TLS of one connection; see the module. Made by `wrap`."""

    _incoming: ssl.MemoryBIO
    _record: ssl.MemoryBIO
    _arrived = memoryview(b"")
    _empty_count = 0
    _data_bytes = 0
    _is_fed = False

    @classmethod
    def wrap(
        cls, context: ssl.SSLContext, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any
    ) -> ssl.SSLObject:  # Any: as of `wrap_bio`
        """As `SSLContext.wrap_bio`."""
        context.sslobject_class = cls
        record = ssl.MemoryBIO()
        made = context.wrap_bio(record, outgoing, *arguments, **options)
        assert isinstance(made, cls)
        made._incoming, made._record = incoming, record
        return made

    @override
    def do_handshake(self) -> None:
        self._step(super().do_handshake)
        self._is_fed, self._empty_count = False, 0

    @override
    def pending(self) -> int:
        """The bytes that wait here, decrypted or not; uvloop reads until there are none."""
        return super().pending() + len(self._arrived)

    @override
    def unwrap(self) -> Any:  # Any: None, as of SSLObject
        return self._step(super().unwrap)

    @override
    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # Any: as of SSLObject
        """As of SSLObject. Raises `ssl.SSLError` if the client sends too many records without data."""
        if not super().pending() and not self._record.pending:  # saves an exception per record
            self._feed()
        take = super().read
        got: Any = self._step(lambda: take(len, buffer))
        self._is_fed = False
        self._data_bytes += _size(got)
        if self._data_bytes >= DATA_BYTES:
            self._data_bytes = self._empty_count = 0
        return got

    def _step(self, work: Callable[[], R]) -> R:
        """Do some work of TLS, with more records as long as it needs more and they are there."""
        while True:
            try:
                return work()
            except ssl.SSLWantReadError:
                self._note_empty()
                if not self._feed():
                    raise

    def _note_empty(self) -> None:
        """Count the last record, if it had no data."""
        if self._is_fed:
            self._is_fed = False
            self._empty_count += 1
            if self._empty_count > EMPTY_RECORD_COUNT_MAX:
                raise ssl.SSLError("too many TLS records without data")

    def _feed(self) -> bool:
        """Pass one whole record on; returns False if none is there."""
        size = self._record_bytes()
        if len(self._arrived) < size and self._incoming.pending:
            self._arrived = memoryview(b"".join((self._arrived, self._incoming.read())))
            size = self._record_bytes()
        if len(self._arrived) < size:
            return False
        self._record.write(self._arrived[:size])
        self._arrived = self._arrived[size:]
        self._is_fed = True
        return True

    def _record_bytes(self) -> int:
        """The length of the first record; that of its head if that is not there, and of all if it is no record, which OpenSSL refuses."""
        head = self._arrived[:_HEAD_BYTES]
        if len(head) < _HEAD_BYTES:
            return _HEAD_BYTES
        length = int.from_bytes(head[3:], "big")
        if head[0] not in _RECORD_TYPES or length > _RECORD_BYTES_MAX:
            return len(self._arrived)
        return _HEAD_BYTES + length


def _size(got: int | bytes) -> int:
    return got if isinstance(got, int) else len(got)

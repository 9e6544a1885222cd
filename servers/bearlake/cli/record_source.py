"""Where `produce` takes its records from: delimited pieces of standard input, lines of JSON, or whole files."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from bearlake.cli.record_format import Record, from_json
from bearlake.errors import Invalid

PIECE_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What the options give to every record; None: what the record itself says."""

    partition: int | None = None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes]] = field(default_factory=tuple)
    are_empty_values_null: bool = False

    def of(self, record: Record) -> Record:
        """Return the record with the fixed parts."""
        is_null = self.are_empty_values_null and record.value == b""
        return replace(
            record,
            headers=[*record.headers, *self.headers],
            partition=record.partition if self.partition is None else self.partition,
            key=record.key if self.key is None else self.key,
            timestamp_ms=record.timestamp_ms if self.timestamp_ms is None else self.timestamp_ms,
            value=None if is_null else record.value,
        )


class RecordSource:
    """Records of one stream. `fraction` says how much was read, if the size of the input is known."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._read_bytes = 0
        self._size_bytes: int | None = None

    @property
    def fraction(self) -> float | None:
        """The part of the input that was read (0 to 1); None: unknown."""
        return None if not self._size_bytes else min(self._read_bytes / self._size_bytes, 1.0)

    def of_files(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Yield one record per file, whose value is the whole file. Raises `Invalid`."""
        try:
            self._size_bytes = sum(path.stat().st_size for path in paths)
            for path in paths:
                value = path.read_bytes()
                self._read_bytes += len(value)
                yield Record(stream=self._stream, value=value)
        except OSError as error:
            raise Invalid(f"cannot read {error.filename}: {error.strerror}") from error

    def of_pieces(
        self, source: BinaryIO, format_: str, delimiter: bytes, key_separator: bytes | None
    ) -> Iterator[Record]:
        """Yield the records of an input that ends each with a delimiter. Raises `Invalid`, which names the record."""
        self._size_bytes = _size(source)
        for number, piece in enumerate(self._pieces(source, delimiter), start=1):
            try:
                if format_ == "json":
                    yield from_json(piece, self._stream)
                else:
                    yield _split(piece, self._stream, key_separator)
            except Invalid as error:
                raise Invalid(f"{'line' if delimiter == LINE else 'record'} {number}: {error}") from error

    def _pieces(self, source: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
        if delimiter == LINE:
            for line in iter(lambda: source.readline(PIECE_BYTES_MAX), b""):
                self._read_bytes += len(line)
                yield line.removesuffix(LINE)
            return
        waiting = bytearray()
        while chunk := _some(source):
            self._read_bytes += len(chunk)
            searched = max(0, len(waiting) - len(delimiter) + 1)
            waiting += chunk
            start = 0
            while (found := waiting.find(delimiter, max(start, searched))) >= 0:
                yield bytes(waiting[start:found])
                start = found + len(delimiter)
            del waiting[:start]
            if len(waiting) > PIECE_BYTES_MAX:
                raise Invalid(f"no delimiter {delimiter!r} within {PIECE_BYTES_MAX:,} bytes")
        if waiting:
            yield bytes(waiting)


LINE = b"\n"


def delimiter_of(text: str, option: str) -> bytes:
    r"""Return the bytes that an option names, which may have escapes such as `\t` and `\0`. Raises `Invalid`."""
    try:
        found = text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{option} {text!r}: {error.reason}") from error
    if not found:
        raise Invalid(f"{option}: expected at least one character")
    return found


def _some(source: BinaryIO) -> bytes:
    """Return what is there, at least one byte; empty at the end."""
    read1 = getattr(source, "read1", None)
    found: bytes = source.read(_CHUNK_BYTES) if read1 is None else read1(_CHUNK_BYTES)
    return found


def _size(source: BinaryIO) -> int | None:
    """Return the bytes that a regular file has from its position on; None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
        return status.st_size - source.tell() if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _split(piece: bytes, stream: str, separator: bytes | None) -> Record:
    if separator is None:
        return Record(stream=stream, value=piece)
    key, found, value = piece.partition(separator)
    return Record(stream=stream, key=key, value=value) if found else Record(stream=stream, value=piece)

"""Iceberg's metadata files in our object store: PyIceberg's `FileIO` over an `ObjectStore`.

Metadata files are therefore as durable as WAL objects, share their metrics, retries and injected faults, and need no second set of
credentials. PyIceberg blocks: its threads hand each call to the store's event loop and wait with a deadline. The loop never waits for
such a thread, so there is no deadlock.

PyIceberg creates its own `FileIO` objects from a class name and text properties. The properties therefore contain the number of a
`StoreBridge` in this process. Source: `pyiceberg.io` 0.12.
"""

import asyncio
import gzip
import io
import itertools
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from typing_extensions import override

from bearlake.errors import AlreadyExists, Invalid, NotFound, TooLarge, Unavailable
from bearlake.objects import ByteRange, ObjectStore
from bearlake.records.json_values import check_values

T = TypeVar("T")

BRIDGE_PROPERTY: Final = "bearlake.bridge"
"""Catalog property with the number of the bridge for its files."""
METADATA_SUFFIXES: Final = (".avro", ".metadata.json")
"""Suffixes of Iceberg's metadata files."""
_TABLE_METADATA: Final = (".metadata.json", ".metadata.json.gz")
_COMPRESSED: Final = (".gz.metadata.json", ".metadata.json.gz")
_OWN_PREFIX: Final = "table/"
"""Folder of the tables of streams, whose metadata grows with their schemas."""
RANGE_BYTES: Final = 1 << 20
"""Smallest read (bytes) from a large file."""
WHOLE_BYTES_MAX: Final = 8 << 20
"""Files up to this size (metadata files) are read as a whole; larger files (data files) are read in the requested ranges."""

_bridges: "weakref.WeakValueDictionary[str, StoreBridge]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class Outside(Invalid):
    """The location is outside the object store."""


class Locations:
    """Maps object keys to Iceberg locations. `urls`: the store's URLs, as written by us or other engines; new locations use the first."""

    def __init__(self, *urls: str) -> None:
        self._bases = [_normal(url).rstrip("/") + "/" if _normal(url) != "memory:///" else "memory:///" for url in urls]

    @property
    def base(self) -> str:
        """The store's first URL without scheme and slash at the end."""
        return self._bases[0].partition("://")[2].rstrip("/")

    def location(self, key: str) -> str:
        """Return the location of an object."""
        return self._bases[0] + key

    def key(self, location: str) -> str:
        """Return the key of the object at a location, whichever engine wrote it (`file:/a`, `s3a://…`).

        Raises:
            Outside: the location is not in this object store.
        """
        normal = _normal(location)
        for base in self._bases:
            if normal.startswith(base):
                return normal[len(base) :]
        raise Outside(f"{location} is not in the object store {self._bases[0]}")

    def key_or_none(self, location: str) -> str | None:
        """Return the key, or None for a location outside this object store."""
        try:
            return self.key(location)
        except Outside:
            return None


def _normal(location: str) -> str:
    if location.startswith("file:"):
        parts = urlsplit(location)
        return "file://" + unquote(parts.path) if "%" in location else "file://" + re.sub("^/+", "/", parts.path)
    return re.sub(r"^s3[an]://", "s3://", location)


class StoreBridge:
    """Gives threads access to an object store. Create on the store's event loop; other threads may use it while the loop runs.

    Metadata files are immutable, so recently written and read files are cached, up to `cache_bytes_max` bytes. A commit to one of our
    tables then reads nothing from the store.
    """

    def __init__(self, store: ObjectStore, locations: Locations, *, deadline_ms: int, cache_bytes_max: int) -> None:
        self.locations = locations
        self.store = store
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._deadline_s = deadline_ms / 1000
        self._is_closed = False
        self._roots: tuple[StoreBridge, ...] = ()
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._files_bytes = 0
        self._files_bytes_max = cache_bytes_max
        self._files_lock = threading.Lock()
        self.other_metadata_bytes_max: int | None = None
        self.other_metadata_value_count_max = 0
        self.own_prefix: str | None = _OWN_PREFIX
        self.name = str(next(_numbers))
        _bridges[self.name] = self

    def properties(self) -> dict[str, str]:
        """Return the properties that make PyIceberg use this bridge."""
        return {"py-io-impl": f"{StoreFileIO.__module__}.{StoreFileIO.__qualname__}", BRIDGE_PROPERTY: self.name}

    def add_root(self, root: "StoreBridge") -> None:
        """Let files at the locations of another store be used too, through its bridge. The caller closes `root`."""
        self._roots = (*self._roots, root)

    def limit_metadata_of_others(self, bytes_max: int, value_count_max: int) -> None:
        """Bound metadata files outside of our folder for tables, uncompressed, and their JSON values; those of the roots, too."""
        for bridge in (self, *self._roots):
            bridge.other_metadata_bytes_max, bridge.other_metadata_value_count_max = bytes_max, value_count_max
        for root in self._roots:
            root.own_prefix = None

    def metadata_bytes_max(self, key: str) -> int | None:
        """Return how many bytes a file may have, uncompressed; None: any number."""
        return self.other_metadata_bytes_max if key.endswith(_TABLE_METADATA) and not self.is_own(key) else None

    def is_own(self, key: str) -> bool:
        """Return whether an object is in our folder for the tables of streams."""
        return self.own_prefix is not None and key.startswith(self.own_prefix)

    def at(self, location: str) -> "StoreBridge":
        """Return the bridge of the store with this location: this one, unless only a root has it."""
        if self.locations.key_or_none(location) is not None:
            return self
        return next((root for root in self._roots if root.locations.key_or_none(location) is not None), self)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the store's loop and wait for it. Raises its exceptions, and `Unavailable` after the deadline."""
        assert threading.get_ident() != self._thread, "the event loop would wait for itself"
        if self._is_closed or self._loop.is_closed():
            raise Unavailable("the object store is being closed")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(self._deadline_s)
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise Unavailable(f"the object store did not answer within {self._deadline_s:g} s") from error

    def close(self) -> None:
        """Let further calls raise `Unavailable`; the store stays open."""
        self._is_closed = True

    def whole(self, key: str) -> bytes | None:
        """Return a small file's bytes, from the cache if possible; None for a large file.

        Raises:
            FileNotFoundError: no such object, as PyIceberg expects.
        """
        if (content := self._cached(key)) is not None:
            return content
        size = self.size(key)
        if size > WHOLE_BYTES_MAX:
            return None
        content = self.read(key, 0, size)
        self._cache(key, content)
        return content

    def read(self, key: str, start: int, end: int) -> bytes:
        """Read bytes `[start, end)` of an object. Raises as `whole` does."""

        async def read() -> bytes:
            return bytes((await self.store.read(key, [ByteRange(start, end)]))[0])

        try:
            return self.call(read)
        except NotFound as error:
            raise FileNotFoundError(f"{key} does not exist") from error

    def size(self, key: str) -> int:
        """Return the size of an object. Raises as `whole` does."""
        if (content := self._cached(key)) is not None:
            return len(content)
        try:
            return self.call(lambda: self.store.size(key))
        except NotFound as error:
            raise FileNotFoundError(f"{key} does not exist") from error

    def put(self, key: str, content: bytes) -> None:
        """Store an object durably.

        Raises:
            FileExistsError: the key exists, as PyIceberg expects.
        """
        try:
            self.call(lambda: self.store.put(key, [content]))
        except AlreadyExists as error:
            raise FileExistsError(f"{key} exists") from error
        self._cache(key, content)

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects; absent objects are ignored."""
        with self._files_lock:
            for key in keys:
                self._files_bytes -= len(self._files.pop(key, b""))
        self.call(lambda: self.store.delete(keys))

    def _cached(self, key: str) -> bytes | None:
        with self._files_lock:
            content = self._files.get(key)
            if content is not None:
                self._files.move_to_end(key)
            return content

    def _cache(self, key: str, content: bytes) -> None:
        if not key.endswith(METADATA_SUFFIXES):
            return
        with self._files_lock:
            self._files_bytes += len(content) - len(self._files.pop(key, b""))
            self._files[key] = content
            while self._files_bytes > self._files_bytes_max:
                _, gone = self._files.popitem(last=False)
                self._files_bytes -= len(gone)


class StoreFileIO(FileIO):
    """Files of a bridge, by location. See `pyiceberg.io.FileIO`."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        bridge = _bridges.get(properties.get(BRIDGE_PROPERTY, ""))
        if bridge is None:
            raise Unavailable("the object store of this catalog is closed")
        self._bridge = bridge

    @override
    def new_input(self, location: str) -> "StoreInput":
        return StoreInput(self._bridge.at(location), location)

    @override
    def new_output(self, location: str) -> "StoreOutput":
        return StoreOutput(self._bridge.at(location), location)

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; an absent file is ignored."""
        place = location if isinstance(location, str) else location.location
        bridge = self._bridge.at(place)
        bridge.delete([bridge.locations.key(place)])


class StoreInput(InputFile):
    """A file open for reading."""

    def __init__(self, bridge: StoreBridge, location: str) -> None:
        super().__init__(location)
        self._bridge = bridge
        self._key = bridge.locations.key(location)

    @property
    def is_own(self) -> bool:
        """Whether the file is in our folder for the tables of streams."""
        return self._bridge.is_own(self._key)

    def __len__(self) -> int:
        return self._bridge.size(self._key)

    @override
    def exists(self) -> bool:
        try:
            self._bridge.size(self._key)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Return the file as a stream; a small file is read at once. Raises `TooLarge` for metadata beyond its limit."""
        if (limit := self._bridge.metadata_bytes_max(self._key)) is not None:
            return io.BytesIO(self._bounded(limit))
        content = self._bridge.whole(self._key)
        if content is not None:
            return io.BytesIO(content)
        return io.BufferedReader(_Ranged(self._bridge, self._key, self._bridge.size(self._key)), RANGE_BYTES)

    def _bounded(self, bytes_max: int) -> bytes:
        size = len(self)
        if size > bytes_max:
            raise TooLarge(f"the metadata file {self._key}", size, bytes_max)
        content = expanded = self._bridge.whole(self._key) or self._bridge.read(self._key, 0, size)
        if self._key.endswith(_COMPRESSED):
            with gzip.open(io.BytesIO(content)) as stream:  # of any number of parts, as readers expand them
                expanded = stream.read(bytes_max + 1)
            if len(expanded) > bytes_max:
                raise TooLarge(f"the metadata file {self._key}, uncompressed,", len(expanded), bytes_max)
        check_values(f"the metadata file {self._key}", expanded, self._bridge.other_metadata_value_count_max)
        return content


class _Ranged(io.RawIOBase):
    """A large file, read in the requested ranges."""

    def __init__(self, bridge: StoreBridge, key: str, size: int) -> None:
        self._bridge, self._key, self._size, self._position = bridge, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:  # any writable buffer, as io.RawIOBase has it
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        found = self._bridge.read(self._key, self._position, end)
        buffer[: len(found)] = found
        self._position = end
        return len(found)


class StoreOutput(OutputFile):
    """A file open for writing: one put when the stream is closed."""

    def __init__(self, bridge: StoreBridge, location: str) -> None:
        super().__init__(location)
        self._bridge = bridge
        self._key = bridge.locations.key(location)

    def __len__(self) -> int:
        return self._bridge.size(self._key)

    @override
    def exists(self) -> bool:
        return self.to_input_file().exists()

    @override
    def to_input_file(self) -> StoreInput:
        return StoreInput(self._bridge, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream; closing it creates the object. Never overwrites: objects are immutable and metadata file names are unique."""
        return _Put(self._bridge, self._key)


class _Put(OutputStream):
    """Collects a file's bytes. A stream left by an exception, or never closed, stores nothing."""

    def __init__(self, bridge: StoreBridge, key: str) -> None:
        self._bridge, self._key = bridge, key
        self._parts: list[bytes] | None = []
        self._size = 0

    def write(self, b: bytes) -> int:
        assert self._parts is not None, "write after close"
        self._parts.append(bytes(b))
        self._size += len(b)
        return len(b)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            return
        self._bridge.put(self._key, b"".join(parts))

    def __enter__(self) -> "_Put":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._parts = None

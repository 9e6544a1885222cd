"""PyIceberg's files over an object store: locations of all spellings, durable puts, no deadlock, deadlines."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from bearlake.errors import Unavailable
from bearlake.objects import Buffer
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table import io as table_io
from bearlake.table.io import Locations, Outside, StoreBridge, StoreFileIO

T = TypeVar("T")
BASE = "memory:///"


class CountingStore(MemoryObjectStore):
    """Counts puts and reads; a put of a key that is in `stuck` never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.put_keys: list[str] = []
        self.stuck: set[str] = set()

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self.put_keys.append(key)
        if key in self.stuck:
            await asyncio.Event().wait()
        await super().put(key, parts)


def files(
    store: MemoryObjectStore, *, deadline_ms: int = 10_000, cache_bytes_max: int = 100
) -> tuple[StoreBridge, StoreFileIO]:
    bridge = StoreBridge(store, Locations(BASE), deadline_ms=deadline_ms, cache_bytes_max=cache_bytes_max)
    return bridge, StoreFileIO(bridge.properties())


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///var/lake", "file:///var/lake/a/b.avro"),
        ("file:///var/lake/", "file:/var/lake/a/b.avro"),
        ("file:///var/my%20lake", "file:///var/my%20lake/a/b.avro"),
        ("s3://bucket/prefix", "s3a://bucket/prefix/a/b.avro"),
        ("s3://bucket", "s3://bucket/a/b.avro"),
        ("memory:///", "memory:///a/b.avro"),
    ],
)
def test_the_key_of_a_location_does_not_depend_on_its_spelling(url: str, location: str) -> None:
    locations = Locations(url)

    assert locations.key(location) == "a/b.avro"
    assert locations.key(locations.location("a/b.avro")) == "a/b.avro"


def test_a_location_outside_the_store_has_no_key() -> None:
    locations = Locations("s3://bucket/prefix")

    assert locations.key_or_none("s3://bucket/prefix-of-others/a") is None
    with pytest.raises(Outside, match="not in the object store"):
        locations.key("file:///a")


def test_the_name_that_other_engines_use_is_written_and_both_are_read() -> None:
    locations = Locations("abfss://lake@account.dfs.core.windows.net/x", "az://lake/x")

    assert locations.location("a") == "abfss://lake@account.dfs.core.windows.net/x/a"
    assert locations.key("az://lake/x/a") == "a"


async def test_a_file_exists_when_it_is_closed_and_reads_back() -> None:
    store = CountingStore()
    _bridge, file_io = files(store)

    def write() -> tuple[bool, bytes, int]:
        output = file_io.new_output(BASE + "metadata/a.avro")
        with output.create() as stream:
            stream.write(b"abc")
            stream.write(b"def")
            existed = output.exists()
        with output.to_input_file().open() as found:
            return existed, found.read(-1), len(output)

    assert await in_thread(write) == (False, b"abcdef", 6)
    assert store.put_keys == ["metadata/a.avro"]


async def test_a_large_file_is_read_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    content = bytes(range(256)) * 40
    await store.put("a", [content])
    monkeypatch.setattr(table_io, "WHOLE_BYTES_MAX", 100)
    _bridge, file_io = files(store)

    def read() -> tuple[bytes, bytes, bytes]:
        with file_io.new_input(BASE + "a").open() as stream:
            stream.seek(-3, 2)
            tail = stream.read(3)
            stream.seek(300)
            return tail, stream.read(2), stream.read(-1)

    assert await in_thread(read) == (content[-3:], content[300:302], content[302:])


async def test_a_file_that_an_exception_interrupts_is_not_put() -> None:
    store = CountingStore()
    _bridge, file_io = files(store)

    def fail() -> None:
        with file_io.new_output(BASE + "a").create() as stream:
            stream.write(b"half")
            raise ValueError("no")

    def forget() -> None:
        file_io.new_output(BASE + "b").create().write(b"half")

    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)
    await in_thread(forget)
    gc.collect()
    assert store.put_keys == []


async def test_absent_and_taken_files_raise_what_pyiceberg_expects() -> None:
    store = MemoryObjectStore()
    await store.put("taken", [b""])
    _bridge, file_io = files(store)

    def write() -> None:
        with file_io.new_output(BASE + "taken").create(overwrite=True) as stream:
            stream.write(b"x")

    with pytest.raises(FileNotFoundError):
        await in_thread(file_io.new_input(BASE + "absent").open)
    with pytest.raises(FileExistsError):
        await in_thread(write)
    await in_thread(lambda: file_io.delete(BASE + "absent"))
    assert not await in_thread(file_io.new_input(BASE + "absent").exists)


async def test_a_store_that_does_not_answer_is_unavailable_after_the_deadline() -> None:
    store = CountingStore()
    store.stuck.add("a")
    _bridge, file_io = files(store, deadline_ms=20)

    def write() -> None:
        with file_io.new_output(BASE + "a").create() as stream:
            stream.write(b"x")

    with pytest.raises(Unavailable, match="did not answer"):
        await in_thread(write)


async def test_the_event_loop_never_waits_for_itself() -> None:
    bridge, _file_io = files(MemoryObjectStore())

    with pytest.raises(AssertionError, match="wait for itself"):
        bridge.size("a")


async def test_files_of_a_closed_bridge_are_unavailable() -> None:
    bridge, _file_io = files(MemoryObjectStore())
    properties = bridge.properties()
    del bridge, _file_io
    gc.collect()

    with pytest.raises(Unavailable):
        StoreFileIO(properties)


async def test_metadata_files_that_were_written_or_read_are_kept_up_to_the_limit() -> None:
    store = MemoryObjectStore()
    await store.put("a.metadata.json", [b"a" * 40])
    await store.put("b.parquet", [b"b" * 40])
    bridge, _file_io = files(store)
    await in_thread(lambda: [bridge.whole(key) for key in ("a.metadata.json", "b.parquet")])
    await in_thread(lambda: bridge.put("c.avro", b"c" * 40))
    await store.delete(["a.metadata.json", "b.parquet", "c.avro"])

    assert await in_thread(lambda: bridge.whole("a.metadata.json")) == b"a" * 40
    assert await in_thread(lambda: bridge.size("c.avro")) == 40
    with pytest.raises(FileNotFoundError):
        await in_thread(lambda: bridge.whole("b.parquet"))
    await in_thread(lambda: bridge.put("d.avro", b"d" * 40))  # the least recently used makes room
    with pytest.raises(FileNotFoundError):
        await in_thread(lambda: bridge.whole("a.metadata.json"))
    await in_thread(lambda: bridge.delete(["d.avro"]))
    with pytest.raises(FileNotFoundError):
        await in_thread(lambda: bridge.whole("d.avro"))

"""One server's view of the stream catalog: all active streams in memory, kept up to date by the commit log.

Look-ups on the hot path are dictionary reads. If a name is missing, the catalog asks the store once before it reports NotFound, and so
finds a stream that another server has just created. The commit itself refuses batches for a deleted stream (I1), not this view.
A stream or partition that this view lacks is deleted only if it is still absent after `catch_up` (decision 157).

A request that changes a stream by name resolves the name once, in the store (`resolve`); its later steps name that incarnation (I12).
"""

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

from bearlake.errors import AlreadyExists, Conflict, Invalid, NotFound, Overloaded
from bearlake.kernel import PlainRules
from bearlake.metadata import StreamCatalog
from bearlake.metadata.model import PARTITION_BITS, PARTITION_COUNT_MAX, PartitionKey, Stream, StreamSpec
from bearlake.streams import config_changes
from bearlake.streams import configs as stream_configs
from bearlake.streams.catching_up import CatchingUp
from bearlake.streams.long_lists import LongLists
from bearlake.streams.principal import Principal
from bearlake.streams.promotions import Note
from bearlake.streams.turns import in_turns
from bearlake.streams.value_rules import schema_rules
from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

NAME_PATTERN = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
"""Legal stream names. Source: Apache Kafka, `org.apache.kafka.common.internals.Topic`."""

PAGE_SIZE = 1000

TRY_COUNT = 10
"""Attempts at a change before giving up because of concurrent changes."""

ConfigChanges = tuple[Mapping[str, str], Collection[str]]
"""Configs to set, and those to unset."""

ConfigDecision = Callable[[Mapping[str, str]], ConfigChanges]
"""Takes the stream's current configs; returns the configs to set and the names to unset."""


def check_name(name: str) -> None:
    """Raise `Invalid` unless `name` is a legal stream name (1 to 249 of a-z A-Z 0-9 . _ -, but not . or ..)."""
    if name in (".", "..") or not NAME_PATTERN.match(name):
        raise Invalid(
            f"topic name {name!r} is illegal: expected 1 to 249 characters of a-z A-Z 0-9 . _ - (not '.' or '..')"
        )


class StreamView:
    """A stream with its parsed rules, for the hot path."""

    __slots__ = ("_is_plain", "first_key", "id_bytes", "name", "partition_count", "rules", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.id_bytes = stream.id.bytes
        self.partition_count = stream.partition_count
        self.first_key = stream.number << PARTITION_BITS
        self.rules = stream_configs.rules(stream.configs, schema_rules(stream.name, stream.configs))
        self._is_plain = self.rules.is_plain

    def plain_rules(self, now_ms: int) -> PlainRules | None:
        """Rules for `kernel.admit_plain`, the fast path of `admission.admit`; batches that it does not admit go to `admit`.

        None if `admit` must check every batch of the stream.
        """
        rules = self.rules
        if not self._is_plain:
            return None
        earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        size_max, checks = rules.batch_bytes_max, int(rules.validates_records)
        return self.id_bytes, self.first_key, self.partition_count, size_max, earliest, latest, checks

    def partition(self, index: int) -> PartitionKey:
        """Return the key of partition `index`. Raises `NotFound` if there is no such partition."""
        if not 0 <= index < self.partition_count:
            raise NotFound(f"stream {self.name!r} has partitions 0 to {self.partition_count - 1}, not {index}")
        return PartitionKey(self.first_key | index)

    def partitions(self) -> list[PartitionKey]:
        """Keys of all partitions, by index."""
        return [PartitionKey(self.first_key | index) for index in range(self.partition_count)]


class Catalog:
    """All active streams of the deployment. Use it from the event loop's thread only."""

    def __init__(
        self,
        store: StreamCatalog,
        stream_count_max: int,
        partition_count_max: int = PARTITION_COUNT_MAX,
        stream_partition_count_max: int = PARTITION_COUNT_MAX,
        head: Callable[[], Awaitable[int]] | None = None,
        note_promotion: Note | None = None,
    ) -> None:
        """The largest numbers of streams and of partitions in this deployment, and of partitions in one stream.

        Concurrent changes may exceed the numbers of the deployment a little, because each server compares with what it knows.
        `head`: see `CatchingUp`. `note_promotion` notes a promotion outside of the metadata store, before it happens there.
        """
        self._store = store
        self._note_promotion = note_promotion
        self._partition_count_max = partition_count_max
        self._stream_partition_count_max = min(stream_partition_count_max, PARTITION_COUNT_MAX)
        self.partition_count = 0
        """Partitions of all streams."""
        self._stream_count_max = stream_count_max
        self._by_name: dict[str, StreamView] = {}
        self._by_number: dict[int, StreamView] = {}
        self._by_id: dict[bytes, StreamView] = {}
        self._names: tuple[str, ...] = ()
        self._changed_names: dict[str, None] = {}
        """Names that streams got or lost since `_names` was sorted, in that order: a load adds them nearly sorted."""
        self._dropped: set[int] | None = None
        """While `load` runs: numbers of the streams that this server has deleted meanwhile."""
        self.version = 0
        """Grows with every change of this view; for caches of rendered answers."""
        self.catching_up = CatchingUp(head)
        """The log position of this view, and who waits for it."""
        self._lists = LongLists()
        self.on_change: set[Callable[[], None]] = set()
        """Called after every change of this view; must return at once."""

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> Sequence[str]:
        """Names of all streams, sorted. Callers share them until the next change, so that requests for lists need no lists of their own."""
        if self._changed_names:
            kept = [name for name in self._names if name not in self._changed_names]
            kept += [name for name in self._changed_names if name in self._by_name]
            self._names, self._changed_names = tuple(sorted(kept)), {}
        return self._names

    def listing(self, who: Principal, size: int | None = None) -> AbstractAsyncContextManager[None]:
        """Make a list for `who` of streams that it does not name, in the block. Raises `Overloaded` if too many are under way for long.

        `size`: items of the list, if they are not the names of all streams.
        """
        return self._lists.making(who, len(self._by_name) if size is None else size)

    def listing_partitions(self, who: Principal) -> AbstractAsyncContextManager[None]:
        """As `listing`, for a list of the partitions of all streams."""
        return self.listing(who, max(len(self._by_name), self.partition_count))

    def views(self) -> Collection[StreamView]:
        """All streams, in no order; good until the next await."""
        return self._by_name.values()

    @property
    def position(self) -> int:
        """Log position up to which this view includes changes of streams."""
        return self.catching_up.position

    def reached(self, position: int) -> None:
        """Record that this view includes all changes of streams up to this log position; for the follower."""
        self.catching_up.reached(position)

    async def catch_up(self) -> None:
        """Return when this view includes every change that the store had at the time of this call. Raises `Unavailable`."""
        await self.catching_up.wait()

    def peek(self, name: str) -> StreamView | None:
        """Return the stream with this name if this server knows it; never waits."""
        return self._by_name.get(name)

    def peek_id(self, stream_id: bytes) -> StreamView | None:
        """Return the active stream with this id (16 bytes) if this server knows it; never waits."""
        return self._by_id.get(stream_id)

    def peek_number(self, number: int) -> StreamView | None:
        """Return the active stream with this number if this server knows it; never waits."""
        return self._by_number.get(number)

    async def find(self, name: str) -> StreamView:
        """Return the stream with this name; asks the store if this server does not know it. Raises `NotFound`."""
        view = self._by_name.get(name)
        return view if view is not None else self._put(await self._store.get(name))

    async def load(self, position: int) -> None:
        """Read all streams from the store, page by page, then replace this view, in turns of the event loop.

        `position` is a log position that the store had reached before the read; the follower applies later changes. Meanwhile the view has
        some streams as they were before, and others as they were read, as between two changes that the follower applies.
        """
        known = list(self._by_number.values())
        dropped = self._dropped = set()
        try:
            listed = await self._listed()
            async for views in in_turns(known):
                for view in views:
                    if view.stream.number not in listed:
                        self._drop(view.stream)
            async for streams in in_turns(list(listed.values())):
                for stream in streams:
                    if stream.number not in dropped:
                        contained(log, "read a stream", partial(self._put, stream))
        finally:
            self._dropped = None
        self.reached(position)

    async def _listed(self) -> dict[int, Stream]:
        """Read all streams from the store; returns them by number."""
        listed: dict[int, Stream] = {}
        after = ""
        while True:
            page = await self._store.list(after=after, limit=PAGE_SIZE)
            listed.update((stream.number, stream) for stream in page)
            if len(page) < PAGE_SIZE:
                return listed
            after = page[-1].name

    async def refresh(self, numbers: Collection[int]) -> list[Stream]:
        """Read these streams again after log entries reported changes, page by page; returns their current state."""
        found: list[Stream] = []
        async for page in in_turns(list(numbers), PAGE_SIZE):
            async for streams in in_turns(await self._store.by_numbers(page)):
                for stream in streams:
                    contained(log, "read a stream", partial(self._drop if stream.is_deleted else self._put, stream))
                found += streams
        return found

    async def resolve(self, name: str) -> StreamView:
        """Read the stream with this name from the store, for a request that changes it. Raises `NotFound`."""
        return self._put(await self._store.get(name))

    async def current(self, views: Collection[StreamView]) -> dict[str, StreamView]:
        """Return the streams that have the names of `views` at some moment after this call, by name; absent ones are left out.

        Reads the store, for answers that are wrong for any other incarnation: another server may have deleted a stream, and created it
        again with the same name. Raises `Unavailable`, `Overloaded`.
        """
        read = await self.refresh([view.stream.number for view in views])
        active = {stream.number: stream for stream in read if not stream.is_deleted}
        found: dict[str, StreamView] = {}
        for view in views:
            stream = active.get(view.stream.number)
            if stream is not None:
                found[view.name] = self.peek_number(stream.number) or StreamView(stream)
                continue
            with suppress(NotFound):
                found[view.name] = await self.resolve(view.name)
        return found

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> StreamView:
        """Create a stream. Raises `Invalid`, `AlreadyExists`.

        If the stream was created and deleted during this call, this raises `AlreadyExists`, and the stream stays deleted.
        This call's client may have given up before the deletion, so this call must not create the stream after it (decision 109).
        """
        self.check_new(name, partition_count, configs)
        after = await self._store.newest(name)
        spec = StreamSpec(name=name, partition_count=partition_count, configs=dict(configs), after=after)
        try:
            return self._put(await self._store.create(spec))
        except Conflict as error:
            raise AlreadyExists(f"stream {name!r} was created and deleted meanwhile") from error

    def check_new(self, name: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Raise `Invalid`, naming the expected value, unless a stream with these properties may be created."""
        check_name(name)
        self.check_partitions(partition_count, 0)
        if len(self._by_name) >= self._stream_count_max:
            raise Invalid(f"there are {len(self._by_name)} streams already, the limit is {self._stream_count_max}")
        stream_configs.check(configs)
        config_changes.check_consistent(configs)

    async def alter(self, stream: Stream, set_configs: Mapping[str, str], unset_configs: Collection[str]) -> StreamView:
        """Set and unset configs, if `stream` is still the current version. Raises `Invalid`, `NotFound`, `Conflict`."""
        stream_configs.check(set_configs)
        config_changes.check_change(stream.configs, set_configs, unset_configs)
        if self._note_promotion is not None and _is_promotion(stream, set_configs, unset_configs):
            await self._note_promotion(stream.id)
        return self._put(
            await self._store.alter(
                stream.number, set_configs=set_configs, unset_configs=unset_configs, version=stream.version
            )
        )

    async def change(self, stream: Stream, decide: ConfigDecision) -> StreamView:
        """Set and unset the configs that `decide` returns; after a concurrent change, calls `decide` again with the new configs.

        Changes only this incarnation. Raises `Invalid`, `NotFound`; `Overloaded` after too many concurrent changes.
        """
        for _ in range(TRY_COUNT):
            set_configs, unset_configs = decide(stream.configs)
            try:
                return await self.alter(stream, set_configs, unset_configs)
            except Conflict:
                stream = await self._again(stream)
        raise Overloaded(f"stream {stream.name!r} changes all the time")

    async def _again(self, stream: Stream) -> Stream:
        for found in await self.refresh([stream.number]):
            if not found.is_deleted:
                return found
        raise NotFound(f"stream {stream.name!r} is deleted")

    async def add_partitions(self, stream: Stream, partition_count: int) -> StreamView:
        """Grow a stream. Raises `Invalid`, `NotFound`."""
        self.check_growth(stream, partition_count)
        return self._put(await self._store.add_partitions(stream.number, partition_count))

    def check_growth(self, stream: Stream, partition_count: int) -> None:
        """Raise `Invalid`, naming the expected value, if the stream may not have so many partitions."""
        self.check_partitions(partition_count, stream.partition_count)

    def check_partitions(self, requested: int, present: int) -> None:
        """Raise `Invalid` unless a stream that has `present` partitions may have `requested`."""
        if not 1 <= requested <= self._stream_partition_count_max:
            raise Invalid(f"partition count {requested}: expected 1 to {self._stream_partition_count_max}")
        if self.partition_count + requested - present > self._partition_count_max:
            raise Invalid(
                f"partition count {requested}: all streams have {self.partition_count} partitions already,"
                f" the limit is {self._partition_count_max}"
            )

    async def terminate(self, stream: Stream) -> StreamView:
        """Make a stream refuse new batches permanently; see `metadata.StreamCatalog.terminate`. Raises `NotFound`."""
        return self._put(await self._store.terminate(stream.number))

    async def delete(self, stream: Stream, *, is_unchanged: bool = False) -> Stream:
        """Soft-delete this incarnation; with `is_unchanged`, only if `stream` is still the current version.

        Raises `NotFound`, `Conflict`.
        """
        deleted = await self._store.delete(stream.number, version=stream.version if is_unchanged else None)
        self._drop(deleted)
        return deleted

    def _put(self, stream: Stream) -> StreamView:
        known = self._by_number.get(stream.number)
        if known is not None and known.stream.version >= stream.version:
            return known  # the known version is the same or newer
        view = StreamView(stream)
        if known is None and stream.version <= self.position:
            return view  # a late answer: the stream was deleted since
        before = self._by_name.get(stream.name)
        if before is not None and before.stream.number > stream.number:
            return before  # a late answer about an older incarnation
        if before is not None and before.stream.number != stream.number:
            self._drop(before.stream)
        self.partition_count += view.partition_count - (known.partition_count if known is not None else 0)
        if stream.name not in self._by_name:
            self._changed_names[stream.name] = None
        self._by_name[stream.name] = view
        self._by_number[stream.number] = view
        self._by_id[view.id_bytes] = view
        self._changed()
        return view

    def _drop(self, stream: Stream) -> None:
        if self._dropped is not None:
            self._dropped.add(stream.number)
        view = self._by_number.pop(stream.number, None)
        if view is None:
            return
        self.partition_count -= view.partition_count
        self._by_id.pop(view.id_bytes, None)
        if self._by_name.get(stream.name) is view:
            del self._by_name[stream.name]
            self._changed_names[stream.name] = None
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        for notify in list(self.on_change):
            contained(log, "notify of changed streams", notify)


def _is_promotion(stream: Stream, set_configs: Mapping[str, str], unset_configs: Collection[str]) -> bool:
    name = stream_configs.IMPORT_SOURCE
    before = stream_configs.value(stream.configs, name)
    return bool(before) and (name in unset_configs or set_configs.get(name) == "")

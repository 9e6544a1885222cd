"""The stores of a simulated deployment; `Truth` observes every effect as it happens."""

from collections.abc import Collection, Sequence
from typing import Any

from typing_extensions import override

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import Swap
from bearlake.metadata.model import (
    Lease,
    ObjectCommit,
    ObjectCommitted,
    PartitionBounds,
    PartitionKey,
    Registration,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.tokens import surely_not_stored
from bearlake.metadata.transactions import Decide, End, Put, Transaction
from bearlake.objects import Buffer, ObjectStore
from bearlake.objects.memory import MemoryObjectStore
from simulator.truth import Truth


class ObservedStore(MemoryObjectStore, ObjectStore):
    """Objects in memory."""

    truth: Truth

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await super().put(key, parts)
        self.truth.objects[key] = b"".join(parts)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            is_needed = key in self.truth.commits and not self.truth.is_unused(key)
            self.truth.expect(not is_needed, "I4: what can be read is not deleted", key=key)
        await super().delete(keys)
        self.truth.lake.check_deletion(keys)
        self.truth.deleted.update(keys)


class _Noun:
    """Forwards every call that a subclass does not observe."""

    def __init__(self, inner: Any, truth: Truth) -> None:
        # Any: it replaces the noun of the store that it wraps.
        self._inner = inner
        self._truth = truth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Log(_Noun):
    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        try:
            result: ObjectCommitted = await self._inner.commit(commit)
        except Fenced as error:
            self._truth.fenced(commit, is_forgotten=not surely_not_stored(error))
            raise
        except Conflict:
            self._truth.expect(
                commit.token in self._truth.commits or commit.token in self._truth.refused,
                "only a result can be forgotten",
                token=commit.token,
            )
            raise
        self._truth.committed(commit, result)
        return result

    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        bounds: PartitionBounds = await self._inner.trim(partition, start)
        self._truth.trimmed(partition, start, bounds, await self._inner.head())
        return bounds

    async def swap(self, swap: Swap) -> int:
        position: int = await self._inner.swap(swap)
        self._truth.swapped(swap, position)
        return position

    async def retain(
        self, stream: Stream, indexes: Collection[int], **more: Any
    ) -> dict[PartitionKey, PartitionBounds]:
        moved: dict[PartitionKey, PartitionBounds] = await self._inner.retain(stream, indexes, **more)
        self._truth.retained(moved)
        return moved

    async def forbid(self, tokens: Collection[str]) -> set[str]:
        forbidden: set[str] = await self._inner.forbid(tokens)
        self._truth.forbade(tokens, forbidden)
        return forbidden


class _Streams(_Noun):
    async def create(self, spec: StreamSpec) -> Stream:
        return self._changed(await self._inner.create(spec))

    async def alter(self, number: int, **changes: Any) -> Stream:
        return self._changed(await self._inner.alter(number, **changes))

    async def add_partitions(self, number: int, partition_count: int) -> Stream:
        return self._changed(await self._inner.add_partitions(number, partition_count))

    async def terminate(self, number: int) -> Stream:
        stream: Stream = await self._inner.terminate(number)
        known = self._truth.streams.get(stream.number)
        return stream if known is not None and known.is_terminated else self._changed(stream)

    async def delete(self, number: int, **condition: Any) -> Stream:
        return self._changed(await self._inner.delete(number, **condition))

    def _changed(self, stream: Stream) -> Stream:
        self._truth.stream_changed(stream)
        return stream


class _Servers(_Noun):
    async def register(self, name: str, **more: Any) -> Registration:
        registration: Registration = await self._inner.register(name, **more)
        self._truth.registered(registration.server)
        return registration

    async def leave(self, server: ServerRef) -> None:
        await self._inner.leave(server)
        self._truth.left(server)


class _Producers(_Noun):
    def __init__(self, inner: Any, truth: Truth, log: Any) -> None:
        super().__init__(inner, truth)
        self._log = log

    async def expire(self, **limits: Any) -> int:
        count: int = await self._inner.expire(**limits)
        self._truth.forgot(count, await self._log.head())
        return count

    async def raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        epoch: int = await self._inner.raise_epoch(partition, lease)
        known = self._truth.partition(partition)
        self._truth.expect(epoch > known.epoch, "epochs grow", partition=partition, returned=epoch, before=known.epoch)
        known.epoch = epoch
        return epoch

    async def share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        epoch: int = await self._inner.share_epoch(partition, lease_name)
        known = self._truth.partition(partition)
        known.epoch = max(known.epoch, epoch)
        return epoch


class _Transactions(_Noun):
    def __init__(self, inner: Any, truth: Truth, log: Any) -> None:
        super().__init__(inner, truth)
        self._log = log

    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        step: Put | End | None = None

        def recorded(held: Transaction | None) -> Put | End | None:
            nonlocal step
            step = decide(held)
            return step

        row: Transaction | None = await self._inner.change(transactional_id, recorded)
        if isinstance(step, End):
            await self._ended()
        return row if row is None else self._stored(row)

    async def put(self, after: Transaction, version: int) -> Transaction:
        return self._stored(await self._inner.put(after, version))

    async def put_offsets(self, after: Transaction, version: int, *more: Any) -> Transaction:
        return self._stored(await self._inner.put_offsets(after, version, *more))

    async def end(self, after: Transaction, version: int, *, is_commit: bool) -> Transaction:
        row: Transaction = await self._inner.end(after, version, is_commit=is_commit)
        await self._ended()
        return self._stored(row)

    async def _ended(self) -> None:
        for entry in (await self._log.follow(self._truth.position, limit=1)).entries:
            self._truth.transaction_ended(entry)

    def _stored(self, row: Transaction) -> Transaction:
        self._truth.transactions.stored(row)
        return row


class ObservedMetadata:
    """`metadata.Metadata` whose commits, trims, stream changes and registrations are reported to `Truth`."""

    def __init__(self, inner: Metadata, truth: Truth) -> None:
        # Any: see `_Noun`.
        self.log: Any = _Log(inner.log, truth)
        self.streams: Any = _Streams(inner.streams, truth)
        self.servers: Any = _Servers(inner.servers, truth)
        self.producers: Any = _Producers(inner.producers, truth, inner.log)
        self.groups: Any = inner.groups
        self.leases: Any = inner.leases
        self.tasks: Any = inner.tasks
        self.objects: Any = inner.objects
        self.schemas: Any = inner.schemas
        self.cursors: Any = inner.cursors
        self.defaults: Any = inner.defaults
        self.users: Any = inner.users
        self.access: Any = inner.access
        self.quotas: Any = inner.quotas
        self.transactions: Any = _Transactions(inner.transactions, truth, inner.log)
        self.table_columns: Any = inner.table_columns
        self.cluster_id = inner.cluster_id
        self.now_ms = inner.now_ms
        self.close = inner.close

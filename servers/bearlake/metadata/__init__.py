"""The metadata store, as small interfaces (log, streams, groups, …); one backend object has them all.

Each method is a *domain operation*, one transaction of the backend. So SQLite (`metadata/sqlite/`, embedded) and PostgreSQL
(`metadata/postgresql/`, a cluster) can each implement it in the best way for them. `open_metadata(url)` in `metadata/open.py` picks one.
Both pass the behaviour suite in `tests/metadata/`, also behind the fault-injecting wrapper (`metadata/faulty.py`).

Rules that hold for every method:
- Time is the store's: retention and expiry never compare the clocks of two hosts. Liveness does not depend on time; it is a fact of the
  store (I13): `metadata/liveness.py`.
- `Unavailable`: the step may or may not have happened. Every write is safe to repeat (a token, an epoch, or idempotent by nature).
- A write that was given up (`Unavailable`, or its await was cancelled) may still happen until this process begins its next write, but
  not later (I12). A write names what its caller read, so that the store can detect changes by other processes.
- A write that a newer epoch has overtaken raises `Fenced` and changes nothing.
- Every change of what readers see (commits, trims, deletions, later swaps to segments) is an entry of the *commit log*: one total
  order of `position`s. A follower never misses an entry (PostgreSQL sequences alone do not guarantee that).

The values are in `metadata/model.py`. Compaction, the schema registry, subscriptions, defaults, users, access rules and quotas have values
and Protocols in `metadata/compaction.py`, `metadata/schemas.py`, `metadata/subscriptions.py`, `metadata/defaults.py`, `metadata/users.py`,
`metadata/access_rules.py`, `metadata/quotas.py` and `metadata/transactions.py`. The Protocol for producers is in
`metadata/producer_ids.py`, that for typed columns in `metadata/table_columns.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from bearlake.metadata.access_rules import AccessRules
from bearlake.metadata.compaction import ObjectRegister, OffsetRange, Swap, TaskQueue
from bearlake.metadata.defaults import DefaultsStore
from bearlake.metadata.model import (
    CommittedOffset,
    Entries,
    GroupListing,
    GroupSnapshot,
    Lease,
    Located,
    LocatedSlice,
    ObjectCommit,
    ObjectCommitted,
    PartitionBounds,
    PartitionKey,
    PartitionUsage,
    ProducerState,
    Registration,
    Server,
    ServerRef,
    Stream,
    StreamSpec,
)
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.quotas import Quotas
from bearlake.metadata.schemas import SchemaStore
from bearlake.metadata.subscriptions import CursorStore
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.metadata.transactions import Transactions
from bearlake.metadata.users import UserStore


class StreamCatalog(Protocol):
    """Streams by name. One active stream per name; every incarnation has its own id (UUID) and number, never reused.

    Each write names what its caller read (I12): a change names the incarnation by number; a creation names the previous incarnation.
    So a late write of any process cannot change or replace an incarnation that its caller has not seen.
    """

    async def create(self, spec: StreamSpec) -> Stream:
        """Create a stream; its partitions are empty and readable when this returns.

        Raises:
            AlreadyExists: an active stream has the name.
            Conflict: the newest incarnation of the name is not `spec.after`.
        """

    async def newest(self, name: str) -> int:
        """Return the number of the newest incarnation of that name, which may be deleted; 0 if there is none."""

    async def get(self, name: str) -> Stream:
        """Return the active stream of that name, read from the store now. Raises `NotFound`."""

    async def list(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> Sequence[Stream]:
        """List at most `limit` active streams whose name starts with `prefix` and sorts after `after`, by name."""

    async def alter(
        self, number: int, *, set_configs: Mapping[str, str], unset_configs: Collection[str], version: int
    ) -> Stream:
        """Set and unset configs in one step if the stream has that version; other keys stay. Returns the stream after the change.

        Raises:
            NotFound: no active stream has that number.
            Conflict: the stream has another version; it was changed after the caller read it.
        """

    async def add_partitions(self, number: int, partition_count: int) -> Stream:
        """Grow the stream to `partition_count` partitions.

        Raises:
            NotFound: no active stream has that number.
            Invalid: `partition_count` is not larger than the current count, or the stream is terminated.
        """

    async def terminate(self, number: int) -> Stream:
        """Stop taking batches, permanently: the stream only ever holds what is committed when this returns. Safe to repeat.

        The commit log decides: a commit, by any server, is before this entry in the log, or its batches are `TERMINATED`.
        Raises `NotFound`.
        """

    async def delete(self, number: int, *, version: int | None = None) -> Stream:
        """Soft-delete the stream: the name is free at once, commits to its partitions are refused, and the bytes are deleted later.

        With a `version`, delete only if the stream has that version. Raises `NotFound`, `Conflict` as `alter`.
        """

    async def by_numbers(self, numbers: Collection[int]) -> Sequence[Stream]:
        """Return the incarnations with these numbers, including deleted ones; unknown numbers are left out."""

    async def incarnations(self, *, after: int = 0, limit: int = 1000) -> Sequence[Stream]:
        """List at most `limit` incarnations of all streams, including deleted ones, with number > `after`, by number.

        Numbers have gaps of any size: only a page with fewer than `limit` incarnations is the last one.
        """


class Membership(Protocol):
    """Servers: registration with an epoch, heartbeats, fencing, zones, draining."""

    async def last_epoch(self, name: str) -> int:
        """Return the epoch of the newest registration of that name, even if it has ended; 0 if there is none."""

    async def register(
        self,
        name: str,
        *,
        zone: str | None,
        endpoints: Mapping[str, str],
        version: str,
        timeout_ms: int,
        after: int = 0,
    ) -> Registration:
        """Register a server process under its stable `name`, if `after` is the last epoch of the name (0: there has been none).

        So a registration that arrives late cannot fence a process that registered in the meantime (I12).

        The same name gets the same `node_id` (>= 0, small, never given to another name) and an epoch larger than any before. Writes with
        the previous epoch are `Fenced`. The server is live from then on. It must send heartbeats: an observer that sees none for
        `timeout_ms` declares it lapsed.

        Raises:
            Conflict: the name has another last epoch.
        """

    async def heartbeat(self, server: ServerRef) -> int:
        """Keep the registration live, or revive it after a lapse. Returns how often this epoch has lapsed so far.

        If the count has grown, peers may have taken the server's leases and claims; the server must look them up. Reads after this call
        are reliable: no peer can take anything because of a lapse that this count includes.
        Raises `Fenced` when a newer epoch was registered under the name, or the server has left.
        """

    async def lapse_count(self, server: ServerRef) -> int:
        """Return how often this epoch has lapsed, as of now; a read. Raises `Fenced` as `heartbeat`.

        If the count equals that of the last heartbeat, no peer could have taken anything since that heartbeat.
        """

    async def lapse(self, server: ServerRef, heartbeat_count: int) -> bool:
        """Declare the server lapsed if its count is still `heartbeat_count`; peers may take its leases and claims until its next heartbeat.

        Returns True if it has lapsed with that count, by this call or an earlier one; False if it sent a heartbeat, left, or registered
        again. The caller has seen no change of the count for the server's `timeout_ms` (`serving/watching.py`).
        """

    async def drain(self, server: ServerRef) -> None:
        """Mark the server as draining: it is live and may commit, but is no longer offered to clients. Raises `Fenced`."""

    async def leave(self, server: ServerRef) -> None:
        """End the registration at once, which frees all leases; later commits of this epoch are `Fenced`. No effect if it is absent."""

    async def live(self) -> list[Server]:
        """List servers that have neither left nor lapsed, including draining ones, by node id, with their heartbeat counts.

        A server that died is listed until an observer has declared it lapsed.
        """


class BlockingCommit(Protocol):
    """`CommitLog.commit` as a blocking call."""

    def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Commit in the calling thread, which is not the event loop's. Wakes nobody in this process."""

    def announce(self, position: int, *, is_applied: bool) -> None:
        """Tell this process's callers of `wait` that the log has reached `position`, that of a commit; called on the event loop.

        `is_applied`: the process's follower has applied the commit and needs no wake-up. Then callers return up to a poll interval later.
        """


class CommitLog(Protocol):
    """Committed state (end offsets, slices, producer states) and the log by which servers follow it."""

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Make the batches of one WAL object part of their partitions: one transaction, all or nothing per batch.

        Each batch is accepted (offsets `[base, base + record_count)` assigned; I2: dense, unique, never reassigned), answered as a
        duplicate with its original base offset, or rejected alone (see `Outcome`). A repeated call with the same token (the object's key)
        returns the first result and changes nothing, however late it comes (I8). If no batch is accepted, no log entry is written
        (`position == 0`); a repeat returns the same answer.

        Raises:
            Fenced: the server's epoch is not the newest registered, it has left, the orphan sweep has forbidden the token, or the token is
                older than the decisions that the store remembers (`metadata/tokens.py`): the server's clock is far behind the store's.
            Conflict: the token was decided, but the store has forgotten the result (it remembers results for at least ten minutes).
            Unavailable: the commit may or may not have happened; ask again with the same token.

        Source: KIP-98 (sequences, last five batches), DESIGN.md I1-I3.
        """

    def blocking_commit(self) -> BlockingCommit | None:
        """Return `commit` for threads that store objects; None if the store is on another machine."""

    async def follow(self, after: int, *, limit: int) -> Entries:
        """Return at most `limit` log entries with position > `after`, oldest first, as of now (may be empty).

        Raises:
            OutOfRange: entries after `after` were truncated. Start over from `head()`, and use `locate` for older offsets.
        """

    async def wait(self, after: int, *, wait_ms: int) -> None:
        """Return when the head has passed `after`, or after `wait_ms` at the latest. Only a hint: it may return early."""

    async def head(self) -> int:
        """Return the position of the newest entry (0 if there is none)."""

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """Return start, end and last stable offset as of now. Partitions that do not exist are left out."""

    async def locate(self, partition: PartitionKey, offset: int, *, limit: int) -> Located:
        """Return at most `limit` slices of the partition, from the one that holds `offset` (or the first after it), with current bounds.

        Raises:
            NotFound: no such partition.
        """

    async def locate_timestamp(self, partition: PartitionKey, timestamp: int) -> Located:
        """Return the first slice (at most one) with a max timestamp (ms) >= `timestamp`, with current bounds. Raises `NotFound`."""

    async def locate_max_timestamp(self, partition: PartitionKey) -> Located:
        """Return the first slice (at most one) that holds the partition's largest timestamp, with current bounds. Raises `NotFound`."""

    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        """Move the start offset forward to `start`; no effect if `start` is below the current start offset.

        Raises:
            NotFound: no such partition.
            OutOfRange: `start` is larger than the end offset.
        """

    async def producers(self, partition: PartitionKey) -> list[ProducerState]:
        """Return the states of the partition's idempotent producers, by producer id; without named producers. Raises `NotFound`."""

    async def usage(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionUsage]:
        """Return the committed bytes and records that are still readable, per partition; absent partitions are left out."""

    async def forbid(self, tokens: Collection[str]) -> set[str]:
        """Forbid keys of orphaned WAL objects; returns those that are now forbidden (never a key that is committed, in the index, or
        registered by an open task).

        First step of the orphan sweep: the store decides before any bytes are deleted. `commit` refuses forbidden tokens. Objects of
        compaction tasks are forbidden by `ObjectRegister.forbid`.
        """

    async def slices(self, ranges: Collection[OffsetRange], *, count_max: int | None = None) -> list[LocatedSlice]:
        """Return the slices and segments of the index that overlap the ranges, by partition and offset, as of now.

        Absent partitions and offsets below a start offset are left out. `count_max`: the first ones only; None: all.
        """

    async def swap(self, swap: Swap) -> int:
        """Repoint existing offsets to new objects, in one transaction; returns the SWAP entry's log position.

        Per partition the new slices replace the index rows of the same offsets, whose objects lose those references. Replaced ranges
        begin and end at row boundaries and keep their bytes (`Slice.length` in all). Rows that were trimmed and partitions that were
        deleted in the meantime are skipped. If `is_final`, the compacted offsets of a COMPACT task's ranges move to the ends of the
        ranges, and the task is done. A repeat of a successful swap returns the same position and changes nothing (for at least ten
        minutes).

        Raises:
            Fenced: the claim is not the task's newest, or its worker's registration is not the newest.
            Conflict: the task has not prepared one of the keys (I10), the index does not have such rows, or the swap leaves out a part
                of its task's ranges. Nothing was changed, and the same swap never succeeds.
            Unavailable: the swap may or may not have happened; call again.
        """

    async def retain(
        self, stream: Stream, indexes: Collection[int], *, before_ms: int | None, size_max: int | None
    ) -> dict[PartitionKey, PartitionBounds]:
        """Trim partitions by rule: drop whole slices or segments from the front while their max timestamp is more than `before_ms`
        before the store's time, or while the partition holds more than `size_max` bytes without them (None: no such rule). Returns the
        bounds of the partitions that moved; each gets one TRIM entry. Raises `NotFound` (the stream is deleted), `Conflict` (its version
        is not `stream.version`, so the rule may have changed; I12).
        """

    async def maintain(self, *, entry_count_min: int) -> int:
        """Roll the log entries of this moment up into the per-partition index, and truncate entries that followers can miss.

        Works in short transactions, between which commits run. Later entries wait for the next call: the index costs least if each
        call finds many slices per partition. Keeps at least the newest `entry_count_min` entries in the log. Any server may call this at
        any time; one call works, the others return. Returns the number of entries rolled up, 0 if there was nothing to do.
        """


class GroupStore(Protocol):
    """Consumer groups: what a coordinator must not lose. Writes carry the coordinator's lease; an overtaken lease is `Fenced`."""

    async def load(self, group: str) -> GroupSnapshot | None:
        """Return the last saved snapshot of the group's membership, or None."""

    async def save(self, snapshot: GroupSnapshot, lease: Lease) -> None:
        """Replace the group's snapshot. Raises `Fenced`."""

    async def commit_offsets(self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], lease: Lease) -> None:
        """Store committed offsets, all or nothing; drop those that open transactions hold for the same partitions. Raises `Fenced`."""

    async def offsets(
        self, group: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Return committed offsets of the partitions (None: all of the group), as of now; partitions without a commit are left out."""

    async def delete_offsets(self, group: str, partitions: Collection[PartitionKey], lease: Lease) -> None:
        """Delete committed offsets, and those of open transactions; absent offsets are ignored. Raises `Fenced`."""

    async def delete(self, group: str, lease: Lease) -> None:
        """Delete the group: its snapshot, its offsets, and those of open transactions. Raises `Fenced`; `NotFound` if it has none."""

    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[GroupListing]:
        """List at most `limit` groups with a snapshot or committed offsets, by name, after `after`."""


class Leases(Protocol):
    """One owner at a time for a name. A lease lives as long as its holder's registration and needs no renewal of its own."""

    async def acquire(self, name: str, holder: ServerRef) -> Lease:
        """Take the lease, or return it unchanged if `holder` already has it. Each change of holder raises the lease's epoch.

        Raises:
            Conflict: a live server (in its newest epoch) holds it.
            Fenced: `holder` is not the newest epoch of its name, has left, or has lapsed (a heartbeat revives it).
        """

    async def holder(self, name: str) -> Lease | None:
        """Return the lease that a live server holds now, as of the store; None if there is none."""
        return (await self.holders([name])).get(name)

    async def holders(self, names: Collection[str]) -> Mapping[str, Lease]:
        """Return the leases of these names that live servers hold now, by name, from one read of the store; at most 1000 names."""

    async def release(self, lease: Lease) -> None:
        """Give up the lease; no effect if another server holds it now."""


class Metadata(Protocol):
    """One backend with all interfaces."""

    streams: StreamCatalog
    servers: Membership
    log: CommitLog
    producers: ProducerIds
    groups: GroupStore
    leases: Leases
    tasks: TaskQueue
    objects: ObjectRegister
    schemas: SchemaStore
    cursors: CursorStore
    defaults: DefaultsStore
    users: UserStore
    access: AccessRules
    quotas: Quotas
    transactions: Transactions
    table_columns: TableColumnsStore

    async def cluster_id(self) -> str:
        """Return the deployment's id: 22 characters of URL-safe base64 (a UUID), created when the store is first opened."""

    async def now_ms(self) -> int:
        """Return the store's time in milliseconds since 1970, for decisions that several servers must agree on."""

    async def close(self) -> None:
        """Close connections and threads; the store must not be used afterwards."""

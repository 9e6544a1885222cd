"""The metadata store, as small Protocols by noun; one backend object holds them all.

These are *domain operations*, each one transaction of the backend, so that SQLite (`metadata/sqlite/`, embedded) and PostgreSQL
(`metadata/postgresql/`, a cluster) can each do them their own best way. `open_metadata(url)` in `metadata/open.py` picks one.
Both pass `tests/metadata/` (one behaviour suite), also behind the fault-injecting wrapper (`metadata/faulty.py`).

Rules that hold for every method:
- Time is the store's: retention and expiry never compare clocks of two hosts. Who is live is no question of time at all, but a fact of the
  store (I13): `metadata/liveness.py`.
- `Unavailable` means the step may or may not have happened; every write is safe to repeat (a token, an epoch, or idempotent by nature).
- A write that was given up (`Unavailable`, or its await was cancelled) may still happen until this process begins its next write, but
  not later (I12). Writes of other processes name what they read, so that they meet what changed meanwhile.
- A write that a newer epoch has overtaken raises `Fenced` and changes nothing.
- Every change of what readers see (commits, trims, deletions, later swaps to segments) is an entry of the *commit log*, in one total
  order of `position`s without gaps that a follower could miss (facts of PostgreSQL sequences notwithstanding).

The values are in `metadata/model.py`; those of compaction, of the schema registry, of subscriptions and of defaults, with their Protocols,
in `metadata/compaction.py`, `metadata/schemas.py`, `metadata/subscriptions.py` and `metadata/defaults.py`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

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
    NamedProducer,
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
from bearlake.metadata.schemas import SchemaStore
from bearlake.metadata.subscriptions import CursorStore


class StreamCatalog(Protocol):
    """Streams by name. One active stream per name; every incarnation has its own id (UUID) and number, never reused.

    Each write names what its caller read (I12): a change names the incarnation, by number, and a creation the incarnation before it.
    So a write that arrives late, of whichever process, cannot change or replace what its caller never saw.
    """

    async def create(self, spec: StreamSpec) -> Stream:
        """Create a stream; its partitions are empty and readable when this returns.

        Raises:
            AlreadyExists: an active stream has the name.
            Conflict: the newest incarnation of the name is not `spec.after`.
        """

    async def newest(self, name: str) -> int:
        """Number of the newest incarnation of that name, which may be deleted; 0 when there has been none."""

    async def get(self, name: str) -> Stream:
        """The active stream of that name, read from the store now. Raises `NotFound`."""

    async def list(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> Sequence[Stream]:
        """Active streams whose name starts with `prefix` and sorts behind `after`, by name, at most `limit`."""

    async def alter(
        self, number: int, *, set_configs: Mapping[str, str], unset_configs: Collection[str], version: int
    ) -> Stream:
        """Set and unset configs in one step (other keys stay), if the stream has that version; returns it as it is then.

        Raises:
            NotFound: no active stream has that number.
            Conflict: the stream has another version: somebody changed it since it was read.
        """

    async def add_partitions(self, number: int, partition_count: int) -> Stream:
        """Grow the stream to `partition_count` partitions.

        Raises:
            NotFound: no active stream has that number.
            Invalid: `partition_count` is not larger than the present count, or the stream is terminated.
        """

    async def terminate(self, number: int) -> Stream:
        """Take no more batches, ever: what is committed when this returns is all that the stream will have. Repeatable.

        The end is the commit's own: a commit comes before this in the log, or its batches are `TERMINATED`, whichever server makes it.
        Raises `NotFound`.
        """

    async def delete(self, number: int, *, version: int | None = None) -> Stream:
        """Delete softly: the name is free at once, commits to its partitions are refused, bytes go later.

        With a `version`, only if that is the stream's. Raises `NotFound`, `Conflict` as `alter`.
        """

    async def by_numbers(self, numbers: Collection[int]) -> Sequence[Stream]:
        """The incarnations with these numbers, also deleted ones; unknown numbers are left out."""

    async def incarnations(self, *, after: int = 0, limit: int = 1000) -> Sequence[Stream]:
        """All incarnations of all streams, deleted ones too, whose number is larger than `after`; by number, at most `limit`.

        Numbers have gaps of any size: a page that is shorter than `limit` is the last one, and nothing else is.
        """


class Membership(Protocol):
    """Servers: registration with an epoch, heartbeats, fencing, zones, draining."""

    async def last_epoch(self, name: str) -> int:
        """The epoch of the newest registration of that name, whatever became of it; 0 when there has been none."""

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

        So a registration that arrives late cannot fence the process that registered meanwhile (I12).

        The same name gets the same `node_id` (>= 0, small, never given to another name) and an epoch larger than any before; what
        the former epoch still tries is `Fenced`. The server is live from then on. It must send heartbeats: an observer that sees none
        for `timeout_ms` declares it lapsed.

        Raises:
            Conflict: the name has another last epoch.
        """

    async def heartbeat(self, server: ServerRef) -> int:
        """Be live, also after a lapse; returns how often this epoch has lapsed so far.

        A count that has grown tells the server that others may have taken its leases and claims: it must look them up. What it reads
        after this call is decided: nobody can take anything because of a lapse that this count includes.
        Raises `Fenced` when a newer epoch was registered under the name, or the server has left.
        """

    async def lapse_count(self, server: ServerRef) -> int:
        """How often this epoch has lapsed, as of now; a read. Raises `Fenced` as `heartbeat`.

        The count that the last heartbeat returned says: nobody could have taken anything since.
        """

    async def lapse(self, server: ServerRef, heartbeat_count: int) -> bool:
        """Declare the server lapsed, if its heartbeat count is still this one: what it holds may be taken until its next heartbeat.

        Returns whether it has lapsed with that count, by this call or an earlier one. False: it sent a heartbeat, left, or registered
        again. The caller has seen the count stand still for the server's `timeout_ms` (`serving/watching.py`).
        """

    async def drain(self, server: ServerRef) -> None:
        """Mark as draining: still live and allowed to commit, but not offered to clients any more. Raises `Fenced`."""

    async def leave(self, server: ServerRef) -> None:
        """Stop being live at once, which frees all leases; later commits of this epoch are `Fenced`. Absent: no effect."""

    async def live(self) -> list[Server]:
        """Servers that have neither left nor lapsed, draining ones too, by node id, with their heartbeat counts.

        A server that died is listed until an observer has declared it lapsed.
        """


class CommitLog(Protocol):
    """What is committed: end offsets, slices, producer states; and the log by which servers follow it."""

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Make the batches of one WAL object part of their partitions: one transaction, all or nothing per batch.

        Each batch is accepted (offsets `[base, base + record_count)` assigned; I2: dense, unique, never again), answered as a duplicate
        with its original base offset, or rejected alone (see `Outcome`). A repeated call with the same token (the object's key)
        returns the first result and changes nothing, however late it comes (I8). When no batch is accepted no log entry is written
        (`position == 0`); a repeat gets that answer too.

        Raises:
            Fenced: the server's epoch is not the newest registered, it has left, the token was forbidden by the orphan sweep, or it is
                older than the decisions that the store remembers (`metadata/tokens.py`): the server's clock is far behind the store's.
            Conflict: the token was decided, but so long ago that the result is forgotten (ten minutes at least).
            Unavailable: the commit may or may not have happened; ask again with the same token.

        Source: KIP-98 (sequences, last five batches), DESIGN.md I1-I3.
        """

    def blocking_commit(self) -> Callable[[ObjectCommit], ObjectCommitted] | None:
        """`commit` as a blocking function, for a thread that has just stored the object; None where the store is not on this machine."""

    async def follow(self, after: int, *, limit: int) -> Entries:
        """Log entries with position > `after`, oldest first, at most `limit`, as of now (may be empty).

        Raises:
            OutOfRange: entries behind `after` were truncated already: start over from `head()` and ask `locate` for what is older.
        """

    async def wait(self, after: int, *, wait_ms: int) -> None:
        """Return when the head has passed `after`, or `wait_ms` later at the latest. Only a hint: early returns are fine."""

    async def head(self) -> int:
        """Position of the newest entry (0 when there is none)."""

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """Start, end and last stable offset, the truth as of now. Partitions that do not exist (any more) are left out."""

    async def locate(self, partition: PartitionKey, offset: int, *, limit: int) -> Located:
        """Slices of the partition from the one that holds `offset` (or the first behind it) on, at most `limit`, with bounds as of now.

        Raises:
            NotFound: no such partition.
        """

    async def locate_timestamp(self, partition: PartitionKey, timestamp: int) -> Located:
        """The first slice (at most one) whose max timestamp (ms) is >= `timestamp`, with bounds as of now. Raises `NotFound`."""

    async def locate_max_timestamp(self, partition: PartitionKey) -> Located:
        """The first slice (at most one) that holds the partition's largest timestamp, with bounds as of now. Raises `NotFound`."""

    async def trim(self, partition: PartitionKey, start: int) -> PartitionBounds:
        """Move the start offset forward to `start` (a smaller value than the present one has no effect).

        Raises:
            NotFound: no such partition.
            OutOfRange: `start` is larger than the end offset.
        """

    async def producers(self, partition: PartitionKey) -> list[ProducerState]:
        """States of the partition's idempotent producers, by producer id; not those of named ones. Raises `NotFound`."""

    async def usage(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionUsage]:
        """Committed bytes and records that are still readable, per partition (those that exist)."""

    async def forbid(self, tokens: Collection[str]) -> set[str]:
        """Forbid keys of orphaned WAL objects; returns those that are forbidden now (never one that is committed, in the index, or
        registered by an open task).

        First step of the orphan sweep: the store decides first, then the bytes go. `commit` refuses forbidden tokens. Objects that
        compaction tasks wrote are forbidden by `ObjectRegister.forbid`.
        """

    async def slices(self, ranges: Collection[OffsetRange]) -> list[LocatedSlice]:
        """What the index has for the ranges now: slices and segments that overlap them, by partition and offset.

        Partitions that do not exist (any more) and offsets below a start are left out.
        """

    async def swap(self, swap: Swap) -> int:
        """Let the index name new objects for offsets that it has already: one transaction; returns the SWAP entry's log position.

        Per partition the new slices replace the index's rows of the same offsets, whose objects lose those references. Replaced
        ranges begin and end where rows do and keep their bytes (`Slice.length` in all); rows that were trimmed meanwhile are not
        missed, partitions deleted meanwhile are left out. If `is_final`, the compacted offsets of a COMPACT task's ranges move to
        their ends, and the task is done. A repeat of a swap that succeeded returns the same position and changes nothing (for ten
        minutes at least).

        Raises:
            Fenced: the claim is not the task's newest, or its worker's registration is not the newest.
            Conflict: the task has not prepared one of the keys (I10), the index does not have such rows, or the swap leaves out a part
                of its task's ranges. Nothing was changed, and the same swap never succeeds.
            Unavailable: it may or may not have happened; ask again.
        """

    async def retain(
        self, stream: Stream, indexes: Collection[int], *, before_ms: int | None, size_max: int | None
    ) -> dict[PartitionKey, PartitionBounds]:
        """Trim partitions by rule: drop whole slices or segments from the front while their max timestamp is more than `before_ms`
        behind the store's time, or while the partition holds more than `size_max` bytes without them; None: no such rule. Returns the
        bounds of those that moved; one TRIM entry each. Raises `NotFound` (the stream is deleted), `Conflict` (it has not
        `stream.version`, so another rule may hold by now, I12).
        """

    async def maintain(self, *, entry_count_min: int) -> int:
        """One bounded round of upkeep: roll log entries up into the per-partition index, truncate what all followers may miss.

        Keeps at least the newest `entry_count_min` entries in the log. Safe to call from any server at any time (one works, the
        others return). Returns the number of entries rolled up, 0 when there was nothing to do.
        """


class ProducerIds(Protocol):
    """Producer ids, unique for ever; names of producers, and the epochs of partitions that fence them."""

    async def allocate(self, count: int) -> range:
        """`count` (>= 1) consecutive producer ids that were never given before."""

    async def named(self, partition: PartitionKey, name: str) -> NamedProducer:
        """The producer of that name in the partition, made if there is none, with what it has written, as of now.

        Its batches carry `BATCH_NAMED`. Names go with their stream, and are forgotten together with the producer's state (`expire`)
        unless they were asked for within the same time. Each protocol puts a prefix of its own before its names.

        Raises:
            NotFound: no such partition.
            Invalid: an empty name, or one of more than `PRODUCER_NAME_BYTES_MAX` bytes.
        """

    async def raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        """Raise the partition's epoch (from 0) and return it: from now on, named batches of an older epoch are FENCED (`BATCH_IN_STEP`
        excepted). `lease` is that of the partition's dispatcher. A repeat raises once more: epochs may skip.

        Raises:
            NotFound: no such partition.
            Fenced: the lease was overtaken.

        Source: Apache Pulsar PIP-68 (exclusive producers, topic epoch).
        """

    async def share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        """The partition's epoch for a producer beside others; a later raise fences that. The first call after a `raise_epoch` raises
        it, too, so that whoever was alone before is fenced, and takes the lease from a holder that is not live.
        Raises `NotFound`: no such partition; `Conflict`: a live server holds the lease of that name, under which epochs are raised.
        """

    async def expire(self, *, idle_ms: int, limit: int) -> int:
        """Forget at most `limit` producer states without a batch for `idle_ms` of the store's time; returns how many.

        Batches of an idempotent producer that goes on are `UNKNOWN_PRODUCER` then, until it begins a new epoch at sequence 0 (I9).
        A named producer that was asked for within that time is kept. Names that never wrote are forgotten too, at most `limit`.
        """


class GroupStore(Protocol):
    """Consumer groups: what a coordinator must not lose. Writes carry the coordinator's lease; an older one is `Fenced`."""

    async def load(self, group: str) -> GroupSnapshot | None:
        """The last saved snapshot of the group's membership, or None."""

    async def save(self, snapshot: GroupSnapshot, lease: Lease) -> None:
        """Replace the group's snapshot. Raises `Fenced`."""

    async def commit_offsets(self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], lease: Lease) -> None:
        """Store committed offsets, all or nothing. Raises `Fenced`."""

    async def offsets(
        self, group: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Committed offsets of the partitions asked for (None: all of the group), as of now; those never committed are left out."""

    async def delete_offsets(self, group: str, partitions: Collection[PartitionKey], lease: Lease) -> None:
        """Forget committed offsets; absent ones are fine. Raises `Fenced`."""

    async def delete(self, group: str, lease: Lease) -> None:
        """Forget the group, its snapshot and its offsets. Raises `Fenced`; `NotFound` when there is neither."""

    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[GroupListing]:
        """Groups that have a snapshot or committed offsets, by name, behind `after`, at most `limit`."""


class Leases(Protocol):
    """One owner at a time for a name. A lease lives as long as its holder's registration: no renewal of its own."""

    async def acquire(self, name: str, holder: ServerRef) -> Lease:
        """Take the lease, or return it unchanged if `holder` has it already; each change of holder raises the lease's epoch.

        Raises:
            Conflict: a live server (in its newest epoch) holds it.
            Fenced: `holder` is not its name's newest epoch, has left, or has lapsed (a heartbeat revives it).
        """

    async def holder(self, name: str) -> Lease | None:
        """Who holds the lease now, as of the store; None when nobody live does."""

    async def release(self, lease: Lease) -> None:
        """Give the lease up; without effect when it is held by another by now."""


class Metadata(Protocol):
    """One backend, all nouns."""

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

    async def cluster_id(self) -> str:
        """The deployment's id: 22 characters of URL-safe base64 (a UUID), made once when the store is first opened."""

    async def now_ms(self) -> int:
        """The store's time: milliseconds since 1970, for what several servers have to agree upon."""

    async def close(self) -> None:
        """Close connections and threads; the store is not used afterwards."""

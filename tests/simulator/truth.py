"""The true state of a simulated deployment, independent of the code under test, and the checks of what is observed.

`Truth` receives every effect on the stores in the order in which the effects happen, and checks it against rules that are implemented
here a second time. It also checks the answers that clients get. The names of the rules are those of DESIGN.md: I1 acknowledged means
durable and committed, I2 offsets are dense, unique and never reassigned, I3 a producer's batches on one connection keep their order,
I4 committed records are readable.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from bearlake import kernel
from bearlake.metadata.compaction import Swap
from bearlake.metadata.model import (
    BATCH_NAMED,
    BatchCommit,
    Entry,
    ObjectCommit,
    ObjectCommitted,
    OutcomeKind,
    PartitionBounds,
    PartitionKey,
    ServerRef,
    Slice,
    Stream,
    partition_index,
    stream_number,
)
from bearlake.records import markers
from simulator.batch_comparison import is_same_batch
from simulator.lake_truth import LakeTruth
from simulator.producer_truth import contradiction, is_for_forgotten, is_repeated, remember
from simulator.transaction_truth import Fate, TransactionTruth
from simulator.true_log import Batch as Batch
from simulator.true_log import Partition as Partition
from simulator.true_log import Sent as Sent


class Violation(AssertionError):
    """An invariant does not hold. `partition` is the partition where the violation appears; None for all."""

    partition: PartitionKey | None = None


class Truth:
    """The true state and its checks. `fail` receives each violation, `trace` each event."""

    def __init__(self, fail: Callable[[Violation], None], trace: Callable[..., None]) -> None:
        self._fail = fail
        self._trace = trace
        self.partitions: dict[PartitionKey, Partition] = {}
        self.streams: dict[int, Stream] = {}
        self.epochs: dict[int, int] = {}
        self.objects: dict[str, bytes] = {}
        """Every object that was ever put."""
        self.deleted: set[str] = set()
        self.commits: dict[str, ObjectCommitted] = {}
        self.refused: dict[str, ObjectCommitted] = {}
        """Commits with no accepted batch; none of their batches may be accepted later (I8)."""
        self.forbidden: set[str] = set()
        self.sent: dict[bytes, Sent] = {}
        self.has_forgotten = False
        """Whether the store has ever expired an idle producer."""
        self.lake = LakeTruth(self)
        self.transactions = TransactionTruth(self)
        self.position = 0
        self.outcomes: Counter[str] = Counter()

    def expect(self, holds: bool, rule: str, **details: object) -> None:
        """Fail with the rule and the details unless `holds`."""
        if not holds:
            violation = Violation(f"{rule}: " + ", ".join(f"{name}={value!r}" for name, value in details.items()))
            partition = details.get("partition")
            violation.partition = PartitionKey(partition) if isinstance(partition, int) else None
            self._fail(violation)

    def partition(self, key: PartitionKey) -> Partition:
        """Return the partition's true log; an empty log if nothing was ever committed."""
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = Partition()
        return found

    def exists(self, key: PartitionKey) -> bool:
        """Return whether the partition belongs to a stream that is not deleted."""
        stream = self.streams.get(stream_number(key))
        return stream is not None and not stream.is_deleted and partition_index(key) < stream.partition_count

    def is_unused(self, token: str) -> bool:
        """Return whether no data of a committed object is readable any more: swapped out, trimmed, or of deleted streams."""
        return token not in self.lake.named()

    def active(self) -> list[Stream]:
        """Return the streams that are not deleted."""
        return [stream for stream in self.streams.values() if not stream.is_deleted]

    # -- effects at the stores -----------------------------------------------------------------------------------

    def registered(self, server: ServerRef) -> None:
        """A server registered with this epoch; commits with its earlier epochs are refused from now on."""
        self.expect(server.epoch > self.epochs.get(server.node_id, -1), "epochs grow", server=server)
        self.epochs[server.node_id] = server.epoch

    def left(self, server: ServerRef) -> None:
        """A server left."""
        if self.epochs.get(server.node_id) == server.epoch:
            self.epochs[server.node_id] = -1

    def stream_changed(self, stream: Stream) -> None:
        """A log entry created, altered, grew or deleted a stream."""
        self._entry(stream.version)
        self._trace("stream changes", stream=stream)
        for other in self.active():
            self.expect(
                other.name != stream.name or other.number == stream.number, "one active stream per name", stream=stream
            )
        self.streams[stream.number] = stream

    def trimmed(self, key: PartitionKey, start: int, bounds: PartitionBounds, position: int) -> None:
        """A trim was executed; `position` is the position of its entry, or the old head if it had no effect."""
        partition = self.partition(key)
        if start > partition.start:
            self._entry(position)
            self._trace("is trimmed", partition=key, start=start, position=position)
            partition.start = start
        expected = (partition.start, partition.end, partition.end)
        self.expect(bounds == expected, "a trim moves the start alone", partition=key, actual=bounds, expected=expected)

    def retained(self, moved: Mapping[PartitionKey, PartitionBounds]) -> None:
        """Retention moved start offsets: each to the beginning of a batch, each with its own log entry."""
        for key, bounds in moved.items():
            partition = self.partition(key)
            self._entry(self.position + 1)
            self._trace("is trimmed by rule", partition=key, start=bounds.start)
            self.expect(
                partition.start < bounds.start <= partition.end == bounds.end
                and (bounds.start == partition.end or partition.at(bounds.start).base == bounds.start),
                "retention moves starts forward, by whole batches",
                partition=key,
                actual=bounds,
                start=partition.start,
            )
            partition.start = bounds.start

    def swapped(self, swap: Swap, position: int) -> None:
        """A swap was executed, or its result was returned again."""
        if self.lake.swapped(swap, position):
            self._entry(position)
            self._trace("swap", task=swap.claim.task_id, epoch=swap.claim.epoch, position=position)

    def forgot(self, count: int, position: int) -> None:
        """`count` idle producers expired, with a log entry if any was idempotent; `position` is the head afterwards."""
        if position > self.position:
            self._entry(position)
        self.has_forgotten = self.has_forgotten or count > 0

    def fenced(self, commit: ObjectCommit, *, is_forgotten: bool) -> None:
        """A commit was refused as a whole; `is_forgotten`: because of its age, whatever an earlier attempt decided."""
        self._trace("commit is fenced", server=commit.server, token=commit.token)
        is_old = self.epochs.get(commit.server.node_id) != commit.server.epoch
        self.expect(
            is_old or is_forgotten or commit.token in self.forbidden,
            "only servers of an old epoch are fenced",
            server=commit.server,
            token=commit.token,
        )

    def committed(self, commit: ObjectCommit, result: ObjectCommitted) -> None:
        """A commit was executed, or its result was returned again."""
        first = self.commits.get(commit.token) or self.refused.get(commit.token)
        self._trace(
            "commit" if first is None else "commit, again",
            server=commit.server,
            position=result.position,
            token=commit.token,
            partitions=[(batch.partition, *kind) for batch, kind in zip(commit.batches, result.outcomes, strict=False)],
        )
        if first is not None:
            self.expect(
                (first.position, list(first.outcomes), list(first.slices))
                == (result.position, list(result.outcomes), list(result.slices)),
                "a repeated token gets the first result",
                token=commit.token,
            )
            return
        stored = self.objects.get(commit.token)
        self.expect(
            not result.slices or (stored is not None and len(stored) == commit.size),
            "I1: the object is durable before its commit",
            token=commit.token,
        )
        self.expect(
            self.epochs.get(commit.server.node_id) == commit.server.epoch,
            "a fenced server commits nothing",
            server=commit.server,
        )
        self.expect(commit.token not in self.forbidden, "a forbidden token is never committed", token=commit.token)
        self.expect(len(result.outcomes) == len(commit.batches), "one outcome per batch", token=commit.token)
        accepted: list[tuple[BatchCommit, int]] = []
        for batch, outcome in zip(commit.batches, result.outcomes, strict=False):
            kind, base, _ = outcome
            reason = self._contradiction(batch, kind, base)
            self.expect(reason is None, "outcomes follow the rules", outcome=outcome, reason=reason, batch=batch)
            self.outcomes[OutcomeKind(kind).name] += 1
            if kind is OutcomeKind.ACCEPTED:
                accepted.append((batch, base))
                self._append(batch, base, stored or b"")
        self._check_slices(accepted, result.slices)
        if accepted:
            self._entry(result.position)
            self.commits[commit.token] = result
            self.lake.committed(commit.token, result.slices)
        else:
            self.refused[commit.token] = result

    def transaction_ended(self, entry: Entry) -> None:
        """A transaction ended: each of its partitions has a marker."""
        self._trace(
            "a transaction ends", markers=entry.object_key, partitions=[piece.partition for piece in entry.slices]
        )
        self._entry(entry.position)
        found = markers.parse(entry.object_key)
        for key, offset in self.transactions.ended(entry).items():
            partition = self.partition(key)
            self.expect(offset == partition.end, "I2: offsets are dense", partition=key, base=offset)
            fate = None if found.is_commit else Fate.ABORT_MARKER
            partition.batches.append(Batch(offset, 1, found.batch(), found.time_ms, None, fate))
            partition.bases.append(offset)
            partition.end = offset + 1
        self.objects[entry.object_key] = found.batch() * found.marker_count
        self.lake.committed(entry.object_key, entry.slices)

    def _entry(self, position: int) -> None:
        self.expect(position == self.position + 1, "log positions are dense", actual=position, before=self.position)
        self.position = position

    def _contradiction(self, batch: BatchCommit, kind: OutcomeKind, base: int) -> str | None:
        """Return how the outcome contradicts the whole history; None if the outcome is correct."""
        refusal = self.transactions.refusal(batch)
        if refusal is not None or kind is OutcomeKind.NO_TRANSACTION:
            return None if kind is refusal else f"due is {refusal}, by its transaction"
        if not self.exists(batch.partition):
            return None if kind is OutcomeKind.NOT_FOUND else "there is no such partition"
        partition = self.partition(batch.partition)
        if self.streams[stream_number(batch.partition)].is_terminated:
            if kind is OutcomeKind.TERMINATED:
                return "what is stored is a duplicate" if is_repeated(partition, batch) else None
            if kind is not OutcomeKind.DUPLICATE:
                return "a terminated stream takes no batches"
        if self.has_forgotten and is_for_forgotten(batch, kind):
            return None
        return contradiction(partition, batch, kind, base)

    def _append(self, batch: BatchCommit, base: int, stored: bytes) -> None:
        partition = self.partition(batch.partition)
        self.expect(base == partition.end, "I2: offsets are dense", partition=batch.partition, base=base)
        part = stored[batch.position : batch.position + batch.length]
        ((_, _, header),) = kernel.batches(part, 0, len(part))
        fields: tuple[int, ...] = (header.record_count, header.max_timestamp)
        if not batch.flags & BATCH_NAMED:
            fields += (header.producer_id, header.producer_epoch, header.base_sequence)
        self.expect(
            fields == batch[3 : 3 + len(fields)],
            "a commit has the fields of its batches",
            batch=batch,
            header=header,
        )
        sent = self.sent.get(part)
        self.expect(sent is not None, "I1: only bytes that were sent are committed", batch=batch)
        assert sent is not None
        self.expect(not sent.is_promised_absent, "what was refused is not stored", batch=batch)
        if batch.producer_id < 0:
            last = partition.last_number.get(sent.connection, -1)
            self.expect(
                sent.number > last,
                "I3: order on a connection",
                partition=batch.partition,
                number=sent.number,
                last=last,
            )
            partition.last_number[sent.connection] = sent.number
        else:
            self.expect(
                remember(partition, batch, base),
                "each sequence at most once, in order",
                batch=batch,
                known=partition.producers[batch.producer_id].batches[-5:],
            )
        appended = Batch(base, batch.record_count, part, batch.max_timestamp, sent)
        self.transactions.appended(batch, appended)
        partition.batches.append(appended)
        partition.bases.append(base)
        partition.end = base + batch.record_count

    def _check_slices(self, accepted: Sequence[tuple[BatchCommit, int]], slices: Sequence[Slice]) -> None:
        """Check that the slices, by position, name exactly the accepted bytes and offsets."""
        left = iter(accepted)
        for piece in slices:
            base, position = piece.base_offset, piece.position
            while base < piece.end_offset:
                batch, due = next(left, (None, -1))
                self.expect(
                    batch is not None
                    and (batch.partition, batch.position, due) == (piece.partition, position, base)
                    and batch.max_timestamp <= piece.max_timestamp,
                    "I2: slices name the accepted batches",
                    slice=piece,
                    batch=batch,
                )
                assert batch is not None
                base += batch.record_count
                position += batch.length
            self.expect(
                (base, position) == (piece.end_offset, piece.position + piece.length),
                "slices end with a batch",
                slice=piece,
            )
        self.expect(next(left, None) is None, "I1: no accepted batch is left out of the slices", slices=slices)

    # -- what clients receive -----------------------------------------------------------------------------------

    def acknowledged(self, key: PartitionKey, sent: Sent, base: int) -> None:
        """A client received the answer that its batch begins at `base`."""
        self._trace("receives a success for its batch", partition=key, base=base)
        partition = self.partition(key)
        self.expect(0 <= base < partition.end, "I1: acknowledged is committed", partition=key, base=base, sent=sent)
        if 0 <= base < partition.end:
            batch = partition.at(base)
            self.expect(
                batch.base == base and batch.sent is sent,
                "I1: the acknowledged offset is the batch's",
                base=base,
                sent=sent,
            )

    def implied(self, key: PartitionKey, sent: Sent) -> None:
        """A client received the answer that a later batch of its producer is stored."""
        self._trace("believes that its batch is stored", partition=key)
        self.expect(self.is_stored(key, sent), "I9: what a later success implies is stored", partition=key, sent=sent)

    def is_stored(self, key: PartitionKey, sent: Sent) -> bool:
        """Return whether the batch is committed."""
        return any(batch.sent is sent for batch in self.partition(key).batches)

    def read(self, key: PartitionKey, offset: int, views: Sequence[memoryview], end: int) -> int:
        """A reader asked for `offset` and got these bytes and the partition's `end`; return the next offset to read."""
        partition = self.partition(key)
        self._trace("reads", partition=key, offset=offset, size=sum(map(len, views)), end=end)
        self.expect(
            end <= partition.end, "I1: nothing uncommitted is shown", partition=key, actual=end, end=partition.end
        )
        following = -1
        for view in views:
            for position, base, header in kernel.batches(view, 0, len(view)):
                part = view[position : position + header.length]
                is_right_place = base == following if following >= 0 else base <= offset
                following = base + header.last_offset_delta + 1
                self.expect(
                    is_right_place and offset < following <= partition.end,
                    "I2: a reader gets dense offsets from the one asked for on",
                    partition=key,
                    offset=offset,
                    base=base,
                )
                if following <= partition.end:
                    true = partition.at(base)
                    is_sent = self.transactions.check_read(key, true, header)
                    self.expect(
                        true.base == base and (not is_sent or is_same_batch(part, true.stored)),
                        "I1, I6: a reader gets the records that were acknowledged",
                        partition=key,
                        base=base,
                    )
        self.expect(following <= end, "the end that a reader gets covers its bytes", partition=key, end=end)
        return max(following, offset)

    def forbade(self, tokens: Collection[str], forbidden: Collection[str]) -> None:
        """The orphan sweep forbade tokens."""
        for token in forbidden:
            self.expect(token not in self.commits, "a committed object is not an orphan", token=token)
        self.forbidden.update(forbidden)
        self.expect(set(forbidden) <= set(tokens), "only what was asked for is forbidden", tokens=forbidden)

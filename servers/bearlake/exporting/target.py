"""The target of an export: topics of another cluster, which get each record of the source once, in order.

Exactly once without transactions, whose markers would take offsets (decision 272):

- the *ledger* says which offset of the source the end of each partition stands for. An entry is written before its records;
- each batch is of one idempotent producer for each partition, which survives restarts. Its sequence is the distance of the target's offset
  to the producer's first one, so a batch that a killed process has sent is stored once, whenever it arrives;
- each answer must have the offset that was expected, and the last batch of a partition must be ours: nobody else writes.

After an error, the copy opens its topics again: it reads the ends of the target's partitions, and goes on there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from typing_extensions import override

from bearlake.errors import BearlakeError, Conflict, Invalid, NotFound, Unavailable
from bearlake.exporting.batches import Outgoing, Sender, outgoing, producer_of, sign
from bearlake.exporting.late import first_difference
from bearlake.exporting.ledger import CONFIGS, Account, Entry, Ledger, Place
from bearlake.exporting.sending import FORGOTTEN, Batches, Refused, produced
from bearlake.exporting.settings import ExportTargetSettings
from bearlake.exporting.topics import TargetTopics
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import Connections, SourceBounds, SourceCluster, SourceTopic, check
from bearlake.importing.progress import CopyTarget
from bearlake.importing.reading import has_records, pieces_of
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode

_OUT_OF_ORDER_MAX = 3
"""Batches out of order in a row, at the same end of the partition, after which the target must have forgotten the producer."""


class Copied(NamedTuple):
    """What the target has of a partition, in offsets of the source: `[start, end)`."""

    start: int
    end: int


@dataclass(slots=True)
class Part:
    """One partition of the target. Offsets."""

    source_next: int
    """Where the source goes on."""
    target_next: int
    """Where the target ends."""
    is_new: bool
    """Whether the next record begins a run, whatever was before."""
    is_sure: bool = False
    """Whether this process has appended since it has read where the target ends: then nothing of an earlier one can arrive any more."""


@dataclass(slots=True, kw_only=True)
class ExportedTopic:
    """A topic of the target."""

    name: str
    source: SourceTopic
    topic: SourceTopic
    """As the target has it."""
    parts: list[Part] = field(default_factory=list)


class ExportTarget(CopyTarget[ExportedTopic]):
    """The topics of one export. Use it from one event loop; close it by the `Connections` that it was given."""

    def __init__(
        self,
        source: SourceCluster,
        cluster: SourceCluster,
        settings: ExportTargetSettings,
        connections: Connections,
        *,
        may_append: bool,
    ) -> None:
        """`cluster`: the target, to which `connections` are.

        `may_append`: whether to write to topics that have records which no export has written.
        """
        self._source = source
        self._cluster = cluster
        self._settings = settings
        self._connections = connections
        self._may_append = may_append
        self.topics = TargetTopics(cluster, settings)
        self.ledger: Ledger
        self._producer: tuple[int, int] | None = None
        """The (id, epoch) of this session's new producer; sequences are counted by partition."""
        self._failed: dict[str, BearlakeError] = {}
        """Topics whose newest append has failed for good."""
        self._sure: dict[Place, Part] = {}
        """Partitions whose end was known after the newest append."""
        self._refusals: dict[Place, tuple[int, int]] = {}
        """(end, count) of batches out of order in a row."""

    async def begin(self, source_id: str) -> None:
        """Begin a session in the ledger of this source. Raises as `TargetTopics.ensure` and `Ledger.begin`."""
        topic = await self.topics.ensure(self._settings.ledger_topic, 1, CONFIGS)
        assert topic is not None
        self.ledger = Ledger(self._cluster, self._settings, topic, source_id)
        await self.ledger.begin(self._connections)

    @override
    async def ensure(self, topic: SourceTopic, configs: Mapping[str, str], *, may_create: bool = True) -> ExportedTopic:
        found = await self.topics.ensure(topic.name, len(topic.leaders), configs, may_create=may_create)
        if found is None:
            raise NotFound(f"topic {topic.name!r} of the target was deleted")
        return ExportedTopic(name=topic.name, source=topic, topic=found)

    @override
    async def find(self, topic: SourceTopic) -> ExportedTopic:
        if (error := self._failed.get(topic.name)) is not None:
            raise error
        return ExportedTopic(name=topic.name, source=topic, topic=topic)

    @override
    async def bounds(self, topic: SourceTopic, view: ExportedTopic) -> Sequence[Copied]:
        """Return the bounds in the source's offsets.

        Raises `Conflict` if the target has records that no export of this source has written; `Fenced`, `Corrupt`, `Unavailable`.
        """
        await self.ledger.load()
        async with Connections(self._cluster) as connections:
            there = await self._cluster.bounds(view.topic, connections)
        view.parts = [await self._part(view, index, bounds) for index, bounds in enumerate(there)]
        ends = [Copied(0, part.source_next) for part in view.parts]
        if any(not part.source_next for part in view.parts):
            await self._skip_deleted(view)
        return ends

    async def _skip_deleted(self, view: ExportedTopic) -> None:
        """Let new partitions begin where the source does, which may be amid a batch."""
        async with Connections(self._source) as connections:
            bounds = await self._source.bounds(view.source, connections)
        for part, source in zip(view.parts, bounds, strict=False):
            part.source_next = max(part.source_next, source.start)

    async def _part(self, view: ExportedTopic, index: int, bounds: SourceBounds) -> Part:
        place, end = (view.name, index), bounds.stable
        what = f"topic {view.name!r}, partition {index}"
        account = self.ledger.accounts.get(place)
        if account is not None and account.target_topic != str(view.topic.id):
            account = None  # that topic was deleted
        if account is None:
            if bounds.start < end and not self._may_append:
                raise Conflict(f"{what}: the target has records that no export has written; --append adds to them")
            await self._open_account(view, place, end)
            return Part(0, end, is_new=True)
        if account.source_topic != str(view.source.id):
            raise Conflict(f"{what}: the target has records of an older topic of this name; delete it there first")
        if place in self._sure and self._sure[place].target_next == end:
            return Part(self._sure[place].source_next, end, is_new=False, is_sure=True)
        await self._check_last(view, index, bounds, account)
        await self._renew(view, place, account, end)
        first = account.runs.first
        if first is None or (end <= first[1] and not account.runs.dropped):
            return Part(first[0] if first and end == first[1] else 0, end, is_new=True)
        source = account.runs.source_of(end)
        if source is None:
            raise Conflict(f"{what}: the target ends at {end}, before what the ledger remembers")
        return Part(source, end, is_new=True)

    async def _check_last(self, view: ExportedTopic, index: int, bounds: SourceBounds, account: Account) -> None:
        """Refuse records after ours, and late ones in place of ours: where they end says nothing about the source."""
        first = account.runs.first
        if first is None or bounds.stable <= first[1] or bounds.start >= bounds.stable:
            return
        async for piece in pieces_of(self._cluster, view.topic, index, bounds.stable - 1, bounds.stable):
            if piece.end == bounds.stable and producer_of(piece.batch) not in account.senders:
                raise Conflict(
                    f"topic {view.name!r}, partition {index}: somebody else has written to the target, up to offset {bounds.stable}"
                )
        await self._check_late(view, index, bounds.stable - 1, bounds.stable)
        if account.doubt is not None:
            start, end = max(account.doubt[0], bounds.start), min(account.doubt[1], bounds.stable)
            if start < end:
                await self._check_late(view, index, start, end)

    async def _check_late(self, view: ExportedTopic, index: int, start: int, end: int) -> None:
        """Raise `Conflict` if a record in this range of the target is not the one that the ledger means."""
        async with Connections(self._source) as connections:
            oldest = (await self._source.bounds(view.source, connections))[index].start
        sides = (self._source, view.source), (self._cluster, view.topic)
        runs = self.ledger.accounts[view.name, index].runs
        found = await first_difference(*sides, index, runs, start, end, oldest)
        if found is not None:
            self._failed[view.name] = Conflict(
                f"topic {view.name!r}, partition {index}: a batch of an earlier export arrived late, when the source had deleted its "
                f"records: from offset {found} on, the target has other records than the ledger says. Delete the topic at the target"
            )
            raise self._failed[view.name]

    async def _open_account(self, view: ExportedTopic, place: Place, end: int) -> None:
        self.ledger.open(place, str(view.source.id), str(view.topic.id), await self._new_sender(end))

    async def _renew(self, view: ExportedTopic, place: Place, account: Account, end: int) -> None:
        """Take a new producer if the target has forgotten the old one: nothing of it can arrive any more."""
        refused_at, count = self._refusals.get(place, (-1, 0))
        if refused_at == end and count >= _OUT_OF_ORDER_MAX:
            del self._refusals[place]
            self._producer = None
            account.sender = await self._new_sender(end)

    async def _new_sender(self, base: int) -> Sender:
        if self._producer is None:
            self._producer = await self._new_producer()
        return Sender(*self._producer, base)

    async def _new_producer(self) -> tuple[int, int]:
        request = messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=self._settings.timeout_ms
        )
        async with await self._cluster.connect() as connection:
            answer = await connection.ask(request)
        check(answer.error_code, "a producer id", self._settings.PEER)
        return answer.producer_id, answer.producer_epoch

    @override
    async def append(self, batches: Sequence[tuple[ExportedTopic, int, Piece]]) -> None:
        """Append the records of pieces; all are durable when this returns. Gaps and markers are left out, and begin a run.

        Raises `Unavailable`; then any of the pieces may be stored, now or later.
        """
        taken: dict[Place, Part] = {}
        views: dict[str, ExportedTopic] = {}
        made: dict[Place, list[tuple[int, Outgoing]]] = {}
        runs: dict[Place, list[tuple[int, int]]] = {}
        unplanned: dict[Place, int] = {}
        for view, index, piece in batches:
            place = (view.name, index)
            self._sure.pop(place, None)
            views[view.name] = view
            if place not in taken:
                part = view.parts[index]
                taken[place] = Part(part.source_next, part.target_next, part.is_new, part.is_sure)
            if has_records(piece):
                batch = self._outgoing(view.name, piece, taken[place].source_next)
                if batch.record_count:
                    made.setdefault(place, []).append((taken[place].target_next, batch))
                    if not taken[place].is_sure and self._is_unplanned(place, taken[place], batch):
                        unplanned.setdefault(place, taken[place].target_next)
                    self._note_runs(place, taken[place], batch, runs.setdefault(place, []))
            taken[place].source_next = max(taken[place].source_next, piece.end)
        doubts = {place: (start, taken[place].target_next) for place, start in unplanned.items()}
        await self._write_runs(views, runs, doubts)
        await self._send(views, made)
        for (name, index), (start, end) in doubts.items():
            try:
                await self._check_late(views[name], index, start, end)
            except Conflict as error:
                raise Unavailable(str(error)) from error  # `find` raises it for this topic
        for (name, index), part in taken.items():
            part.is_sure = part.is_sure or (name, index) in made
            views[name].parts[index] = self._sure[name, index] = part
            self._refusals.pop((name, index), None)

    def _outgoing(self, name: str, piece: Piece, start: int) -> Outgoing:
        try:
            return outgoing(piece, start)
        except Invalid as error:
            self._failed[name] = Invalid(f"topic {name!r}: the batch at offset {piece.start} cannot be sent: {error}")
            raise Unavailable(str(self._failed[name])) from error

    def _is_unplanned(self, place: Place, part: Part, batch: Outgoing) -> bool:
        """Whether an earlier process has planned another record for this place at the target: its batch may arrive in place of ours."""
        account = self.ledger.accounts[place]
        if account.doubt is not None and account.doubt[0] <= part.target_next < account.doubt[1]:
            return True  # the newest plan is ours, but not the only one
        planned = account.runs.source_of(part.target_next)
        return planned is not None and planned != batch.stretches[0].start

    def _note_runs(self, place: Place, part: Part, batch: Outgoing, runs: list[tuple[int, int]]) -> None:
        """Move the part behind the batch; adds the runs that begin in it."""
        for start, count in batch.stretches:
            newest = runs[-1] if runs else None if part.is_new else self.ledger.accounts[place].runs.last
            if newest is None or newest[0] - newest[1] != start - part.target_next:
                runs.append((start, part.target_next))
            part.is_new = False
            part.target_next += count

    async def _write_runs(
        self,
        views: Mapping[str, ExportedTopic],
        runs: Mapping[Place, list[tuple[int, int]]],
        doubts: Mapping[Place, tuple[int, int]],
    ) -> None:
        entries = [
            Entry(
                place=place, source_topic=str(views[place[0]].source.id), target_topic=str(views[place[0]].topic.id),
                sender=self.ledger.accounts[place].sender, runs=found, doubt=doubts.get(place),
            )
            for place, found in runs.items()
            if found
        ]  # fmt: skip
        if entries:
            await self.ledger.write(entries, self._connections)

    async def _send(
        self, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> None:
        """Send to all leaders at once."""
        by_leader: dict[str, list[Place]] = {}
        for place, found in made.items():
            for offset, batch in found:
                sign(batch.batch, self.ledger.accounts[place].sender, offset)
            leader = views[place[0]].topic.leaders[place[1]]
            if not leader:
                raise Unavailable(f"the target has no leader of topic {place[0]!r}, partition {place[1]}")
            by_leader.setdefault(leader, []).append(place)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._tried(leader, views, {place: made[place] for place in places}))
                for leader, places in by_leader.items()
            ]
        for task in tasks:
            if (error := task.result()) is not None:
                raise Unavailable(str(error)) from error  # `find` says which topics have failed for good

    async def _tried(
        self, leader: str, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> BearlakeError | None:
        """Send to one leader; returns the error, so that the answers of the other leaders are waited for."""
        try:
            await self._send_to(leader, views, made)
        except BearlakeError as error:
            return error
        return None

    async def _send_to(
        self, leader: str, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> None:
        rounds: list[Batches] = []
        expected: list[dict[Place, int]] = []
        for found in zip_longest(*made.values()):
            row = {place: item for place, item in zip(made, found, strict=True) if item is not None}
            rounds.append({place: batch.batch for place, (_, batch) in row.items()})
            expected.append({place: offset for place, (offset, _) in row.items()})
        connection = await self._connections.to(leader)
        topics = {name: views[name].topic for name, _ in made}

        def failed(place: Place, error: BearlakeError) -> None:
            self._note_failure(place, error, views[place[0]].parts[place[1]].target_next)

        answers = await produced(connection, topics, rounds, self._settings, failed)
        for wanted, answer in zip(expected, answers, strict=True):
            for (name, index), offset in answer.items():
                if offset != wanted[name, index]:
                    error = Conflict(
                        f"topic {name!r}, partition {index}: somebody else writes to the target: a batch for offset "
                        f"{wanted[name, index]} got offset {offset}"
                    )
                    self._failed[name] = error
                    raise error

    def _note_failure(self, place: Place, error: BearlakeError, end: int) -> None:
        """Remember what a refusal at this end of the partition means for the next attempt."""
        if not isinstance(error, Refused):
            self._failed[place[0]] = error
        elif error.code in FORGOTTEN:
            self._refusals[place] = (end, _OUT_OF_ORDER_MAX)
        elif error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            before, count = self._refusals.get(place, (end, 0))
            self._refusals[place] = (end, count + 1 if before == end else 1)

    @override
    async def trim(self, topic: SourceTopic, view: ExportedTopic, index: int, start: int) -> None:
        """Nothing: the target deletes its records by its own retention."""

"""The Consume call: a member of a consumer group, which uses the classic group protocol internally.

    join → (leader: assign) → sync → committed offsets → read, with heartbeats → the group changes → revoke, wait → join again

The server acts as the member, whichever server coordinates the group: it sends heartbeats while the call is open and leaves the group
when the call ends. A member led by us may be a Kafka client, and a Kafka client may lead us; the assignor is `range` or `roundrobin`.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

from bearlake.errors import BearlakeError, Denied, OutOfRange
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.protocols.grpc.call import Node, Writer
from bearlake.protocols.grpc.errors import BadField, Failure, draining, failure_of
from bearlake.protocols.grpc.fetching import Assigned, Feed, locate, put
from bearlake.protocols.grpc.grouping import failure_of_refusal
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups import assignment, leading
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.shared import AWAY
from bearlake.streams.principal import Operation, Principal, Resource, require
from bearlake.streams.turns import in_turns

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_MS = 1_000
_PROTOCOL_TYPE = "consumer"
_AGAIN = (Problem.UNKNOWN_MEMBER, Problem.ILLEGAL_GENERATION, Problem.REBALANCE_IN_PROGRESS)
"""Answers after which the server joins again: as a new member if the group has forgotten the member, otherwise with its id, as in Kafka."""


async def consume(node: Node, who: Principal, requests: AsyncIterator[pb.ConsumeRequest], writer: Writer) -> None:
    """Act as a group member until the client closes its side. Raises error kinds, `Failure`."""
    first = await anext(requests, None)
    if first is None:
        return
    if not first.join.group or not first.join.streams:
        raise BadField("join", "required in the first message, with a group and its streams")
    require(node.streams.authorizer, who, Operation.READ, Resource.GROUP, first.join.group)
    async for part in in_turns(first.join.streams):
        for name in part:
            if not node.streams.may(who, Operation.READ, name):
                raise Denied(f"{who} may not read stream {name!r}")
            await node.streams.catalog.find(name)
    member = _Member(node, who, writer, first.join)
    member.feed.add_credit(max(first.credit.bytes, 0), max(first.credit.messages, 0))
    tasks = {
        asyncio.create_task(member.listen(requests)),
        asyncio.create_task(member.run()),
        asyncio.create_task(member.feed.run()),
        asyncio.create_task(member.announce_drain()),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except GroupRefusal as refusal:
        raise failure_of_refusal(refusal) from refusal
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await member.leave()


class _GroupFeed(Feed):
    """Sends records to a group member; when the committed offset is no longer available, continues at the member's default."""

    def __init__(self, node: Node, who: Principal, writer: Writer, join: pb.Join) -> None:
        super().__init__(node, who, writer)
        self.form = join.form or pb.FORM_RECORDS
        self._group_node = node
        self._group_writer = writer
        self._from_latest = join.from_latest
        self._lock = asyncio.Lock()

    async def announce(self, assigned: pb.Assigned, positions: Sequence[Assigned]) -> None:
        """Assign the partitions and tell the client, which may seek in them before our write returns. Records follow the message."""
        async with self._lock:
            for item in positions:
                self.assign(item)
            await self._group_writer.write(pb.ConsumeResponse(assigned=assigned))

    async def send(self, message: pb.FetchResponse) -> None:
        """Send a payload; if the partition was revoked while the message waited, take its credit back."""
        async with self._lock:
            if self.has(message.stream, message.partition) or message.HasField("error"):
                await self._group_writer.write(pb.ConsumeResponse(records=message))
            else:
                self.add_credit(message.credit_bytes, 1)

    async def send_control(self, response: pb.ConsumeResponse) -> None:
        """Send one message after the previous message has left."""
        async with self._lock:
            await self._group_writer.write(response)

    async def deliver_error(self, assigned: Assigned, error: BearlakeError) -> None:
        """Continue at the start or the end when the committed offset is no longer available."""
        if not isinstance(error, OutOfRange):
            await super().deliver_error(assigned, error)
            return
        position = self.begin(assigned.stream, assigned.partition)
        position.tag = assigned.tag
        found = await locate(self._group_node, self._who, position)
        if isinstance(found, Failure):
            raise found
        if self.reads(assigned):  # neither revoked nor moved by a seek in the meantime
            self.assign(found)

    def begin(self, stream: str, partition: int) -> pb.Position:
        """Return the position where a partition starts if the group has no offset for it."""
        position = pb.Position(stream=stream, partition=partition)
        if self._from_latest:
            position.latest = True
        else:
            position.earliest = True
        return position


class _Member:
    """One group member, over all generations."""

    def __init__(self, node: Node, who: Principal, writer: Writer, join: pb.Join) -> None:
        self._node = node
        self._who = who
        self._wish = join
        self._groups = node.streams.groups
        self.feed = _GroupFeed(node, who, writer, join)
        self._instance_id = join.instance_id or None
        self._session_ms = join.session_timeout_ms or SESSION_TIMEOUT_MS
        self._rebalance_ms = join.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS
        self._member_id = ""
        self._generation = -1
        self._leads_counts: dict[str, int] | None = None
        """As leader: the partition count of each stream at the last assignment; a change triggers a rebalance."""
        self._released = asyncio.Event()
        self._owned: frozenset[PartitionKey] = frozenset()
        """Partitions that the client may commit: from assignment until the client releases them or the wait for the release times out."""

    async def run(self) -> None:
        """Rejoin after every rebalance. Raises `GroupRefusal`, error kinds."""
        while True:
            try:
                joined = await self._join()
                positions = await self._sync(joined)
                await self._begin(positions)
                await self._stay()
                await self._give_up()
                self._owned = frozenset()
            except GroupRefusal as refusal:
                if refusal.problem not in _AGAIN:
                    raise
                if refusal.problem is Problem.UNKNOWN_MEMBER:
                    self._member_id = ""
                self.feed.clear()
                self._owned = frozenset()

    async def announce_drain(self) -> None:
        """Tell the client to leave when the server drains or the call reaches its age. Raises the `Failure` that ends the call."""
        left_ms = await self._node.drain_notice()
        await self.feed.send_control(pb.ConsumeResponse(drain=pb.Drain(deadline_ms=left_ms)))
        await asyncio.sleep(left_ms / 1000)
        raise draining()

    async def listen(self, requests: AsyncIterator[pb.ConsumeRequest]) -> None:
        """Process the client's messages until the client closes its side."""
        async for request in requests:
            if request.credit.bytes < 0 or request.credit.messages < 0:
                raise BadField("credit", "expected numbers of at least 0")
            self.feed.add_credit(request.credit.bytes, request.credit.messages)
            if request.HasField("commit"):
                answer = pb.Committed(tag=request.commit.tag)
                try:
                    await self._commit(request.commit.offsets)
                except GroupRefusal as refusal:
                    answer.error.CopyFrom(failure_of_refusal(refusal).status())
                except BearlakeError as error:
                    answer.error.CopyFrom(failure_of(error).status())
                await self.feed.send_control(pb.ConsumeResponse(committed=answer))
            if request.released:
                self._released.set()
            for position in request.seek:
                if self.feed.has(position.stream, position.partition):
                    await put(self.feed, self._node, self._who, position)

    async def leave(self) -> None:
        """Leave the group. A static member stays until its session expires."""
        if self._member_id and self._instance_id is None:
            try:
                await self._groups.leave(MemberRef(group=self._wish.group, member_id=self._member_id))
            except GroupRefusal:
                return  # already gone, or the group has moved: the session expires

    def _ref(self) -> MemberRef:
        return MemberRef(
            group=self._wish.group,
            member_id=self._member_id,
            generation=self._generation,
            instance_id=self._instance_id,
        )

    # -- one generation --------------------------------------------------------------------------------------------

    async def _join(self) -> Joined:
        subscription = await leading.encoded_subscription(self._wish.streams, self._node.streams.checks.off_loop)
        joined = await self._groups.join(
            self._wish.group,
            JoinRequest(
                member_id=self._member_id,
                instance_id=self._instance_id,
                client_id=self._wish.client_id or "grpc",
                client_host="",
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                protocol_type=_PROTOCOL_TYPE,
                protocols=((assignment.RANGE, subscription), (assignment.ROUND_ROBIN, subscription)),
                requires_known_id=False,
                can_skip_assignment=False,
            ),
        )
        self._member_id, self._generation = joined.member_id, joined.generation
        return joined

    async def _sync(self, joined: Joined) -> list[Assigned]:
        assignments: dict[str, bytes] = {}
        self._leads_counts = None
        if joined.leader == joined.member_id:
            off_loop = self._node.streams.checks.off_loop
            subscriptions, names = await leading.subscriptions_of(joined, off_loop)
            counts = await self._counts(names)
            if 0 in counts.values():  # other members may subscribe to streams that are new here
                await self._node.streams.catalog.catch_up()
                counts = await self._counts(names)
            present = {name: count for name, count in counts.items() if count}
            assignments = await leading.assignments_of(joined.protocol_name, subscriptions, present, off_loop)
            self._leads_counts = counts
        synced = await self._groups.sync(
            self._ref(),
            (joined.protocol_type, joined.protocol_name),
            assignments,
        )
        off_loop = self._node.streams.checks.off_loop
        return await self._positions(await leading.decoded_assignment(synced.assignment, off_loop))

    async def _counts(self, names: Collection[str]) -> dict[str, int]:
        """The streams' partition counts, 0 if absent, in turns of the event loop: other members may subscribe to very many."""
        counts: dict[str, int] = {}
        async for part in in_turns(list(names)):
            views = {name: self._node.streams.catalog.peek(name) for name in part}
            counts |= {name: 0 if view is None else view.partition_count for name, view in views.items()}
        return counts

    async def _positions(self, partitions: assignment.Partitions) -> list[Assigned]:
        """Where to read each assigned partition. Raises `BadField` over `partitions_max`, before any work."""
        limit = self._node.settings.partitions_max
        if sum(map(len, partitions.values())) > limit:
            raise BadField("assign", f"expected at most {limit} partitions")
        catalog = self._node.streams.catalog
        views = {name: await catalog.find(name) for name in partitions}
        if any(index >= views[name].partition_count for name, indexes in partitions.items() for index in indexes):
            await catalog.catch_up()  # the leader knows newer partitions
            views = {name: await catalog.find(name) for name in partitions}
        keys = [views[name].partition(index) for name, indexes in partitions.items() for index in indexes]
        committed = await self._groups.offsets(self._wish.group, keys) if keys else {}
        return [
            await self._position(views[name], index, committed)
            for name, indexes in partitions.items()
            for index in indexes
        ]

    async def _position(self, view: StreamView, index: int, committed: dict[PartitionKey, CommittedOffset]) -> Assigned:
        known = committed.get(view.partition(index))
        if known is not None and known.offset >= 0:
            return Assigned(view.partition(index), view.name, index, known.offset, 0)
        found = await locate(self._node, self._who, self.feed.begin(view.name, index))
        if isinstance(found, Failure):
            raise found
        return found

    async def _begin(self, positions: Sequence[Assigned]) -> None:
        offsets = [
            pb.GroupOffset(stream=item.stream, partition=item.partition, offset=item.offset) for item in positions
        ]
        assigned = pb.Assigned(member_id=self._member_id, generation=self._generation, positions=offsets)
        self._owned = frozenset(item.key for item in positions)
        await self.feed.announce(assigned, positions)

    async def _stay(self) -> None:
        """Send heartbeats until the group changes. Reads continue while the coordinator is unreachable, as in Kafka's clients."""
        while True:
            await asyncio.sleep(min(HEARTBEAT_MS, self._session_ms / 3) / 1000)
            try:
                await self._groups.heartbeat(self._ref())
            except GroupRefusal as refusal:
                if refusal.problem is Problem.REBALANCE_IN_PROGRESS:
                    return
                if refusal.problem not in AWAY:
                    raise
            if self._leads_counts is not None and await self._counts(self._leads_counts) != self._leads_counts:
                return

    async def _give_up(self) -> None:
        """Revoke the partitions and wait until the client has committed its progress."""
        self.feed.clear()
        self._released.clear()
        wait_ms = min(self._rebalance_ms, self._session_ms) // 2
        await self.feed.send_control(pb.ConsumeResponse(revoked=pb.Revoked(deadline_ms=wait_ms)))
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._released.wait()
        except TimeoutError:
            return

    async def _commit(self, offsets: Sequence[pb.GroupOffset]) -> None:
        limit = self._groups.settings.offset_metadata_bytes_max
        # Those of the revoked partitions, even if the server rejoins in the meantime.
        member = self._ref()
        found: dict[PartitionKey, CommittedOffset] = {}
        for item in offsets:
            if item.offset < 0 or len(item.metadata.encode()) > limit:
                raise BadField(
                    "commit.offsets", f"expected offsets of at least 0, and at most {limit} bytes of metadata"
                )
            if "\0" in item.metadata:  # PostgreSQL cannot store it
                raise BadField("commit.offsets", "expected metadata without NUL")
            view = await self._node.streams.catalog.find(item.stream)
            key = view.partition(item.partition)
            if key not in self._owned:  # the server has already moved to a new generation, the client has not
                raise GroupRefusal(
                    Problem.ILLEGAL_GENERATION, f"{item.stream}-{item.partition} is not assigned to this member"
                )
            found[key] = CommittedOffset(offset=item.offset, metadata=item.metadata)
        await self._groups.commit(member, found)

"""Consumers of subscriptions in a simulated deployment: they attach through changing servers, acknowledge in any order and in parts, ask
for redelivery, leave, and lose their connections. `subscription_truth.py` checks what their servers do.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Conflict, NotFound
from bearlake.metadata.model import ServerRef
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.dispatcher import acknowledged_spans
from bearlake.streams.subscriptions.model import (
    EARLIEST,
    Closed,
    ConsumerSpec,
    Delivery,
    EntryAck,
    NotHolder,
    SubscriptionType,
)
from simulator.clients import Client
from simulator.network import run_in
from simulator.nodes import Connection, Node
from simulator.subscription_truth import ConsumerTruth, Place, SimulatedEntries

if TYPE_CHECKING:
    from simulator.deployment import Deployment

IDLE_ROUND_COUNT = 10
"""After production has ended: rounds without a delivery after which a consumer looks for work in other subscriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberSettings:
    """The subscriptions of each partition, and how their consumers behave; rates are probabilities per round, or per delivery."""

    subscriptions: Sequence[tuple[str, SubscriptionType]]
    consumer_count: int = 4
    pause_s: float = 0.1
    permits_max: int = 20
    leave_rate: float = 0.05
    keep_rate: float = 0.2
    nack_rate: float = 0.1
    part_rate: float = 0.1
    flush_rate: float = 0.3


class Session:
    """The client's side of an attached consumer."""

    def __init__(self, connection: Connection, context: contextvars.Context) -> None:
        self.connection = connection
        self.context = context
        self.inbox: list[Delivery] = []
        self.is_over = False

    def arrive(self, what: Callable[[], None]) -> None:
        """A message of the server arrives over a live connection."""
        if not self.connection.is_lost:
            what()

    def end(self) -> None:
        """The server has closed the consumer."""
        self.is_over = True


class ServedConsumer:
    """The server's side: a `Consumer` whose calls `ConsumerTruth` checks, and the user of the attachment. Runs in the node's process."""

    def __init__(self, session: Session, place: Place, type_: SubscriptionType, node: Node) -> None:
        self.node = node
        self.attachment: Attachment | None = None
        self._session = session
        self._deployment = node.deployment
        assert self._deployment.subscription_truth is not None
        self._truth = ConsumerTruth(self._deployment.subscription_truth, node, place, type_)
        self._arrival_s = 0.0
        self._is_refused = False
        """An acknowledgement was refused: the fate of earlier acknowledgements is unknown."""

    # -- `Consumer` ----------------------------------------------------------------------------------------------

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Accept deliveries of the dispatcher."""
        for delivery in deliveries:
            self._truth.delivered(delivery)
        self._deployment.events["entries delivered"] += len(deliveries)
        self._deployment.events["entries redelivered"] += sum(item.redelivery_count > 0 for item in deliveries)
        self._send(partial(self._session.inbox.extend, deliveries))
        return sum(delivery.open_count for delivery in deliveries)

    def is_ready(self) -> bool:
        """Whether the consumer takes messages now."""
        return True

    def activity(self, is_active: bool) -> None:
        """Note whether the consumer is the active one."""
        self._truth.refused(())
        self._deployment.events["activity reported"] += 1

    def end_of_topic(self) -> None:
        """Note that no more messages will follow."""

    def closed(self, reason: Closed) -> None:
        """Note that the server closed the consumer."""
        self._deployment.events[f"closed: {reason.value}"] += 1
        self._truth.end()
        self._send(self._session.end)

    def _send(self, what: Callable[[], None]) -> None:
        """Send to the client, in order."""
        loop = asyncio.get_running_loop()
        self._arrival_s = max(self._arrival_s, loop.time() + self._deployment.network.delay_s())
        loop.call_at(self._arrival_s, self._session.arrive, what, context=self._session.context)

    # -- what the client says ------------------------------------------------------------------------------------

    def attached(self, attachment: Attachment) -> None:
        """Take the attachment; its client may be gone by then."""
        self.attachment = attachment
        if self._truth.is_over:
            attachment.detach()

    def flow(self, permits: int) -> None:
        """Grant more permits."""
        if self.attachment is not None:
            self.attachment.flow(permits)

    def acknowledge(self, acks: Sequence[tuple[EntryAck, int]]) -> None:
        """Acknowledge entries, given with their end offsets."""
        if self.attachment is not None and not self._truth.is_over:
            for ack, end in acks:
                self._truth.acknowledged(acknowledged_spans(ack.base_offset, end, ack.open_bits))
            self._take(partial(self.attachment.acknowledge, [ack for ack, _ in acks]))

    def acknowledge_through(self, base: int) -> None:
        """Acknowledge the entry and all entries before it."""
        if self.attachment is not None and not self._truth.is_over:
            self._truth.acknowledged_through(base)
            self._take(partial(self.attachment.acknowledge_through, EntryAck(base)))

    def _take(self, acknowledge: Callable[[], None]) -> None:
        try:
            acknowledge()
        except BearlakeError:
            self._is_refused = True
            self._deployment.events["acknowledgements refused"] += 1

    def redeliver(self, bases: Sequence[int]) -> None:
        """Refuse entries."""
        if self.attachment is not None and not self._truth.is_over:
            self._truth.refused(bases)
            self.attachment.redeliver(bases)

    async def flush(self, streams: Streams) -> None:
        """Wait until all acknowledgements are saved."""
        if self.attachment is not None and not self._truth.is_over:
            given = self._truth.given()
            await self.attachment.flushed()
            if not self._is_refused:
                self._truth.saved(given)

    async def detach(self) -> None:
        """The client leaves, or its connection is closed."""
        self._truth.end()
        if self.attachment is not None:
            self.attachment.detach()


class Subscriber(Client):
    """One client with one consumer at a time."""

    def __init__(self, deployment: "Deployment", number: int) -> None:
        super().__init__(deployment, f"subscriber {number}")
        assert deployment.settings.subscribers is not None
        self._settings: SubscriberSettings = deployment.settings.subscribers
        self._holder: ServerRef | None = None

    async def run(self) -> None:
        """Attach, consume and leave, until nothing more can be stored and all subscriptions are at the end."""
        while True:
            can_more_be_stored = self.deployment.can_more_be_stored
            choices = self._all() if self.deployment.is_producing else await self._undone()
            if not choices and not can_more_be_stored:
                return
            if choices:
                await self._consume(*self.random.choice(choices))
            await self.pause(self._settings.pause_s)

    def _all(self) -> list[tuple[Place, SubscriptionType]]:
        keys = [key for stream in self.deployment.truth.active() for key in self.deployment.keys(stream)]
        return [((key, name), type_) for key in keys for name, type_ in self._settings.subscriptions]

    async def _undone(self) -> list[tuple[Place, SubscriptionType]]:
        """Return the subscriptions whose saved cursors are not at their partition's end."""
        undone = []
        for (key, name), type_ in self._all():
            saved = [
                cursor.mark_delete for cursor in await self.deployment.metadata.cursors.load(key) if cursor.name == name
            ]
            if not saved or saved[0] < self.deployment.truth.partition(key).end:
                undone.append(((key, name), type_))
        return undone

    async def _consume(self, place: Place, type_: SubscriptionType) -> None:
        connection = await self._connect()
        session = Session(connection, self.process.context)
        served = ServedConsumer(session, place, type_, connection.node)
        try:
            await self.call(connection, partial(self._attach, served, place, type_))
            await self._rounds(session, served, type_)
        except NotHolder as error:
            self._holder = error.holder
        except (Conflict, NotFound):
            self.deployment.events["consumer refused"] += 1
        except BearlakeError as error:
            self.deployment.trace("consumer gives up", error=repr(error))
        if not connection.node.is_gone or connection.node.streams is not None:  # the server sees its connection closed
            run_in(connection.node.process, self.deployment.loop, served.detach())

    async def _connect(self) -> Connection:
        """Connect to the server that was named as the holder, else to any server."""
        holder, self._holder = self._holder, None
        for node in self.deployment.serving():
            if node.server == holder:
                self.deployment.connection_count += 1
                return Connection(node, self.deployment.connection_count)
        return await self.deployment.connect(self.random)

    async def _attach(self, served: ServedConsumer, place: Place, type_: SubscriptionType, streams: Streams) -> None:
        priority = self.random.choice([0, 0, 1])
        spec = ConsumerSpec(type=type_, name=self.name, position=EARLIEST, priority=priority)
        served.attached(await streams.subscriptions.attach(*place, spec, served, SimulatedEntries()))
        self.deployment.events["consumer attached"] += 1

    async def _rounds(self, session: Session, served: ServedConsumer, type_: SubscriptionType) -> None:
        settings, draw = self._settings, self.random.random
        await self._tell(session, partial(served.flow, self.random.randint(1, settings.permits_max)))
        kept: list[Delivery] = []
        idle_count = 0
        while not (session.is_over or session.connection.is_lost):
            await self.pause(settings.pause_s)
            received, session.inbox = session.inbox, []
            idle_count = 0 if received else idle_count + 1
            if self.deployment.is_producing and draw() < settings.leave_rate:
                return
            kept = await self._answer(session, served, type_, kept + received)
            count = sum(item.open_count for item in received)
            if count:
                await self._tell(session, partial(served.flow, count))
            is_done = not self.deployment.is_producing and idle_count > IDLE_ROUND_COUNT
            if is_done or draw() < settings.flush_rate:
                await self.call(session.connection, served.flush)
            if is_done:
                return

    async def _answer(
        self, session: Session, served: ServedConsumer, type_: SubscriptionType, kept: list[Delivery]
    ) -> list[Delivery]:
        """Acknowledge or refuse some of the consumer's entries; return the rest."""
        settings, draw = self._settings, self.random.random
        is_shared = type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
        if kept and not is_shared and draw() < 0.4:
            await self._tell(session, partial(served.acknowledge_through, kept[-1].base_offset))
            return []
        left: list[Delivery] = []
        acks: list[tuple[EntryAck, int]] = []
        refused: list[int] = []
        for item in kept:
            end = item.base_offset + item.record_count
            if self.deployment.is_producing and draw() < settings.keep_rate:
                left.append(item)
            elif self.deployment.is_producing and draw() < settings.nack_rate:
                refused.append(item.base_offset)
            elif self.deployment.is_producing and draw() < settings.part_rate and item.record_count > 1:
                acks.append((EntryAck(item.base_offset, self.random.randrange(1, 1 << item.record_count)), end))
                left.append(item)
            else:
                acks.append((EntryAck(item.base_offset), end))
        if acks:
            self.random.shuffle(acks)
            await self._tell(session, partial(served.acknowledge, acks))
        if refused:
            await self._tell(session, partial(served.redeliver, refused))
        return left if is_shared or not refused else []

    async def _tell(self, session: Session, what: Callable[[], None]) -> None:
        """Send a command to the server; commands arrive in the order of the calls."""
        work: Callable[[Streams], Awaitable[Any]] = partial(_do, what)
        await self.call(session.connection, work)


async def _do(what: Callable[[], None], streams: Streams) -> None:
    what()


def start(deployment: "Deployment") -> "list[asyncio.Task[None]]":
    """Start the scenario's subscribers, if it has any."""
    settings = deployment.settings.subscribers
    clients = [
        Subscriber(deployment, number) for number in range(settings.consumer_count if settings is not None else 0)
    ]
    return [run_in(client.process, deployment.loop, client.run()) for client in clients]

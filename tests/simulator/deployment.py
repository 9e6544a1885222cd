"""One simulated deployment: the loop, the stores, the network, the servers, and the shared state and counters."""

import asyncio
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionKey, Stream, partition_key
from bearlake.metadata.open import open_metadata
from bearlake.records import codec as record_codec
from bearlake.streams.append import Result, Verdict
from bearlake.streams.offsets import OffsetAnswer
from simulator.client_history import ClientHistory
from simulator.history.writer import Recorder
from simulator.lake import Lake
from simulator.loop import SimulationLoop, current_process
from simulator.members import Members
from simulator.network import Network
from simulator.nodes import BatchRequest, Connection, Node
from simulator.observed import ObservedMetadata, ObservedStore
from simulator.share_truth import ShareTruth
from simulator.subscription_truth import SubscriptionTruth, WatchedLeases
from simulator.transaction_history import TransactionHistory
from simulator.truth import Sent, Truth, Violation

if TYPE_CHECKING:
    from simulator.scenario import ScenarioSettings

TRACE_EVENT_COUNT_MAX = 4_000
EPOCH_MS = 1_700_000_000_000
BATCH_BYTES_MAX = 1 << 20


class LoopClock:
    """Wall-clock time that follows the loop's virtual time."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self.offset_ms = 0
        """By how many ms the clock was set forward."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z."""
        return EPOCH_MS + int(self._loop.time() * 1000) + self.offset_ms


class Deployment:
    """One simulated deployment; call `open` inside the running loop before use."""

    def __init__(self, seed: int, settings: "ScenarioSettings", loop: SimulationLoop) -> None:
        self.seed = seed
        self.settings = settings
        self.loop = loop
        self.clock = LoopClock(loop)
        self._newest_ns = 0
        self.wire = loop.process("wire")
        """The process that runs the network and the stores."""
        self.network = Network(
            settings.network, self.randomness("network"), self.wire, self._bug, self.randomness("disks")
        )
        self.truth = Truth(self._violated, self.trace)
        self.store = ObservedStore(self.clock)
        self.store.truth = self.truth
        self.metadata: ObservedMetadata
        self._inner: Metadata | None = None
        stamped = [
            name
            for name, (_, configs) in settings.streams_of.items()
            if configs.get("message.timestamp.type") == "LogAppendTime"
        ]
        self.client_history = ClientHistory(
            Recorder(self.now_ns),
            stamped,
            lambda number: self.truth.streams[number].name,
            has_retention=settings.lake is not None,
        )
        self.transaction_history = TransactionHistory(self.fail, lambda key: self.truth.partition(key).start)
        self.nodes: dict[str, Node] = {}
        self.zombies: list[Node] = []
        self.lake: Lake | None = None
        """Compaction, if the scenario has it; made by `open`."""
        self.subscription_truth: SubscriptionTruth | None = None
        """The true state of subscriptions, if the scenario has consumers of subscriptions; made by `open`."""
        self.share_truth: ShareTruth | None = None
        """The true state of share groups, if the scenario has members of share groups; made by `open`."""
        self.members: Members | None = None
        """Members of consumer groups, if the scenario has members; made by `open`."""
        self.trace_events: deque[tuple[float, str, str, dict[str, object]]] = deque(maxlen=TRACE_EVENT_COUNT_MAX)
        self.is_producing = True
        self.can_more_be_stored = True
        """Whether more batches may still be stored: a producer's last batch, or a batch whose commit is in flight."""
        self.is_consuming = True
        self.connection_count = 0
        self.incarnation_count = 0
        self.request_bytes_max = 0
        self.fetch_count = self.read_count = self.out_of_range_count = 0
        self.unknown_count = self.given_up_count = 0
        self.fenced_count = self.backpressure_count = 0
        self.acks: Counter[str] = Counter()
        self.events: Counter[str] = Counter()

    async def open(self) -> None:
        """Make the metadata store."""
        bits = self.randomness("uuid")
        inner = await open_metadata(
            "memory:///",
            self.settings.metadata,
            clock=self.clock,
            new_uuid=lambda: uuid.UUID(int=bits.getrandbits(128), version=4),
        )
        self._inner = inner
        self.metadata = ObservedMetadata(self.settings.wrap_metadata(inner), self.truth)
        if self.settings.subscribers is not None:
            self.subscription_truth = SubscriptionTruth(self)
            self.metadata.leases = WatchedLeases(self.metadata.leases, self.subscription_truth.leases)
        if self.settings.shares is not None:
            terms = self.settings.streams.groups.share
            self.share_truth = ShareTruth(
                self, lock_s=terms.record_lock_duration_ms / 1000, delivery_count_max=terms.delivery_count_limit
            )
            self.metadata.leases = WatchedLeases(self.metadata.leases, self.share_truth.leases)
        if self.settings.members is not None:
            self.members = Members(self, self.settings.members)
        if self.settings.lake is not None:
            self.lake = Lake(self, self.settings.lake)
            skip_numbers(inner, self.settings.lake.number_gap)

    async def close(self) -> None:
        """Close the metadata store, if it was opened."""
        if self._inner is not None:
            await self._inner.close()

    def randomness(self, name: str) -> random.Random:
        """Return an actor's own random source, so that an extra draw by one actor does not change the others."""
        return random.Random(f"{self.seed} {name}")

    def now_ns(self) -> int:
        """Return the history's time: nanoseconds of virtual time, larger at each call."""
        self._newest_ns = max(self._newest_ns + 1, int(self.loop.time() * 1e9))
        return self._newest_ns

    # -- failing and noting --------------------------------------------------------------------------------------

    def _violated(self, violation: Violation) -> None:
        if self.loop.abort is None:
            self.loop.abort = violation
        raise violation

    def _bug(self, error: Exception) -> None:
        if self.loop.abort is None:
            self.loop.abort = error

    def fail(self, what: str) -> None:
        """End the run as failed."""
        if self.loop.abort is None:
            self.loop.abort = Violation(what)

    def trace(self, what: str, **details: object) -> None:
        """Add an event to the trace."""
        self.trace_events.append((self.loop.time(), current_process(), what, details))

    # -- servers -------------------------------------------------------------------------------------------------

    def start_node(self, name: str) -> Node:
        """Start a server; an earlier server with the same name is fenced as soon as this one has registered."""
        self.incarnation_count += 1
        node = self.nodes[name] = Node(self, name, self.incarnation_count)
        return node

    def serving(self) -> list[Node]:
        """Return the nodes that clients can find: serving nodes, and zombies that run."""
        nodes = [*self.nodes.values(), *self.zombies]
        return [node for node in nodes if node.streams is not None and not node.is_gone and not node.process.is_paused]

    async def connect(self, randomness: random.Random) -> Connection:
        """Open a connection to a random server; wait until there is one."""
        while not (nodes := self.serving()):  # noqa: ASYNC110 - servers come and go without an event
            await asyncio.sleep(0.05)
        # Clients discover servers from servers that reach the store; a server that is cut off is unknown to those.
        nodes = [node for node in nodes if not self.network.is_cut(node.process.name)] or nodes
        self.connection_count += 1
        return Connection(randomness.choice(nodes), self.connection_count)

    # -- streams -------------------------------------------------------------------------------------------------

    def keys(self, stream: Stream) -> list[PartitionKey]:
        """Return the keys of the stream's partitions."""
        return [partition_key(stream.number, index) for index in range(stream.partition_count)]

    def exists(self, name: str, index: int) -> bool:
        """Return whether the partition exists now."""
        return any(stream.name == name and index < stream.partition_count for stream in self.truth.active())

    # -- what clients report -------------------------------------------------------------------------------------

    def produced(self, requests: Iterable[BatchRequest]) -> None:
        """Record that a client sends a request."""
        size = 0
        for item in requests:
            self.truth.sent[item.batch] = item.sent
            self.client_history.sends(item)
            size += len(item.batch)
        self.request_bytes_max = max(self.request_bytes_max, size)

    def sent_in_transactions(self, requests: Iterable[BatchRequest]) -> None:
        """Record that a transactional producer sends a request. Its records are judged by `transaction_history`."""
        size = 0
        for item in requests:
            self.truth.sent[item.batch] = item.sent
            size += len(item.batch)
        self.request_bytes_max = max(self.request_bytes_max, size)

    def acknowledged(self, key: PartitionKey, sent: Sent, result: Result) -> None:
        """Record that a client received a success for its batch."""
        self.acks[Verdict(result[0]).name] += 1
        self.client_history.acknowledged(key, sent, result[1])
        self.truth.acknowledged(key, sent, result[1])

    def promised_absent(self, key: PartitionKey, sent: Sent, result: Result) -> None:
        """Record that a client that sends a batch only once received the answer that the batch is not stored."""
        self.acks[Verdict(result[0]).name] += 1
        self.client_history.refused(key, sent)
        self.truth.expect(not self.truth.is_stored(key, sent), "what was refused is not stored", sent=sent)
        sent.is_promised_absent = True

    # -- look-ups by time ----------------------------------------------------------------------------------------

    def check_time(self, key: PartitionKey, timestamp: int, returned: OffsetAnswer) -> None:
        """Check the answer to a look-up of the first record at or after `timestamp`."""
        due = next(((at, time) for at, time in self._times(key) if time >= timestamp), (-1, -1))
        self.truth.expect(
            (returned.offset, returned.timestamp) == due, "KIP-79: first at a time", returned=returned, due=due
        )

    def check_largest(self, key: PartitionKey, returned: OffsetAnswer) -> None:
        """Check the answer to a look-up of a record with the largest timestamp."""
        times = dict(self._times(key))
        if times:
            newest = max(times.values())
            self.truth.expect(
                returned.timestamp == newest and times.get(returned.offset) == newest,
                "KIP-734",
                returned=returned,
                newest=newest,
            )

    def _times(self, key: PartitionKey) -> Sequence[tuple[int, int]]:
        """Return (offset, timestamp) of all records from the start offset on."""
        partition = self.truth.partition(key)
        found: list[tuple[int, int]] = []
        for batch in partition.batches:
            if batch.end > partition.start:
                records = record_codec.decode(batch.stored, BATCH_BYTES_MAX)
                found += [(batch.base + at, record.timestamp) for at, record in enumerate(records)]
        return [item for item in found if item[0] >= partition.start]


MetadataWrapper = Callable[[Any], Any]


def skip_numbers(metadata: Any, count: int) -> None:
    """Skip the next `count` stream numbers by moving the store's sequence (Any: a SQLite store)."""
    with metadata.log._database.writing() as connection:
        (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM streams").fetchone()
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'streams'")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('streams', ?)", (last + count,))

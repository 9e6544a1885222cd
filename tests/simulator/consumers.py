"""Consumers of a simulated deployment: they read partitions from any server, as Kafka's clients do, and report their reads to `Truth`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bearlake.errors import Corrupt, NotFound, OutOfRange, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetQuestion, OffsetSpec
from simulator.clients import Client
from simulator.nodes import Connection

if TYPE_CHECKING:
    from simulator.deployment import Deployment


class Consumer(Client):
    """Reads partitions through changing servers, seeks to random offsets, and looks up offsets."""

    def __init__(self, deployment: "Deployment", number: int) -> None:
        super().__init__(deployment, f"consumer {number}")
        self._positions: dict[PartitionKey, int] = {}

    async def run(self) -> None:
        """Read until the deployment stops."""
        while self.deployment.is_consuming:
            known = [key for stream in self.deployment.truth.active() for key in self.deployment.keys(stream)]
            if known:
                connection = await self.connection(keep_rate=0.7)
                keys = self.random.sample(known, self.random.randint(1, min(3, len(known))))
                try:
                    if self.random.random() < 0.15:
                        await self._ask(connection, keys[0])
                    else:
                        await self._fetch(connection, keys)
                except (Unavailable, Overloaded):
                    await self.pause(0.05)
            await self.pause(self.deployment.settings.consume_pause_s)

    async def _fetch(self, connection: Connection, keys: Sequence[PartitionKey]) -> None:
        draw = self.random.random
        truth = self.deployment.truth
        ranges = []
        for key in keys:
            partition = truth.partition(key)
            if draw() < 0.1:
                self._positions[key] = self.random.randint(partition.start, partition.end)
            size = int(10 ** (1 + 4 * draw()))
            ranges.append(FetchRange(key, self._positions.get(key, partition.start), size))
        ends = [truth.partition(key).end for key in keys]
        bytes_max, bytes_min = int(10 ** (2 + 4 * draw())), int(draw() ** 8 * 2000)
        wait_ms = int(draw() * self.deployment.settings.fetch_wait_ms)
        client_history = self.deployment.client_history
        numbers = [
            client_history.begins_read(range_.partition, range_.offset, connection.node.name) for range_ in ranges
        ]
        results: list[Fetched] = await self.call(
            connection,
            lambda streams: streams.fetch(ranges, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms),
        )
        for number, fetched in zip(numbers, results, strict=True):
            client_history.ends_read(number, fetched)
        is_room_left = True
        for fetched, end in zip(results, ends, strict=True):
            self._read(fetched, end, is_room_left=is_room_left and bytes_max > 0)
            is_room_left = is_room_left and not fetched.views and fetched.error is None
        self.deployment.fetch_count += 1

    def _read(self, fetched: Fetched, end_when_asked: int, *, is_room_left: bool) -> None:
        truth = self.deployment.truth
        key, offset, _ = fetched.range
        partition = truth.partition(key)
        error = fetched.error
        if error is None:
            self._positions[key] = truth.read(key, offset, fetched.views, fetched.end)
            self.deployment.transaction_history.reads(fetched.views)
            truth.expect(
                fetched.start <= partition.start, "no start from the future", partition=key, returned=fetched.start
            )
            truth.expect(
                bool(fetched.views) or not is_room_left or offset >= fetched.end,
                "KIP-74: there is something, so something is returned",
                partition=key,
                offset=offset,
                end=fetched.end,
            )
            self.deployment.read_count += len(fetched.views)
        elif isinstance(error, OutOfRange):
            truth.expect(
                offset < partition.start or offset > end_when_asked,
                "I4: what is committed is in range",
                partition=key,
                offset=offset,
                start=partition.start,
                end=end_when_asked,
            )
            self._positions[key] = self.random.choice([error.start, error.end])
            self.deployment.out_of_range_count += 1
        elif isinstance(error, NotFound):
            truth.expect(not truth.exists(key), "I4: what exists is found", partition=key)
            self._positions.pop(key, None)
        else:
            truth.expect(not isinstance(error, Corrupt), "I1: nothing is damaged", error=error)

    async def _ask(self, connection: Connection, key: PartitionKey) -> None:
        truth = self.deployment.truth
        partition = truth.partition(key)
        before = (partition.start, partition.end)
        timestamp = self.deployment.clock.now_ms() - int(self.random.random() * 3_000)
        asked = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, timestamp]
        questions = [OffsetQuestion(key, int(spec)) for spec in asked]
        number = self.deployment.client_history.begins_bounds(key, connection.node.name)
        answers = await self.call(connection, lambda streams: streams.offsets(questions))
        self.deployment.client_history.ends_bounds(number, *answers[:2])
        if any(found.error is not None for found in answers):
            for found in answers:
                truth.expect(
                    not isinstance(found.error, NotFound) or not truth.exists(key), "what exists is found", error=found
                )
            return
        earliest, latest, largest, first = answers
        truth.expect(before[0] <= earliest.offset <= partition.start, "the start is the store's", returned=earliest)
        truth.expect(before[1] <= latest.offset <= partition.end, "the end is the store's", returned=latest)
        is_readable = not any(batch.sent is not None and batch.sent.is_undecodable for batch in partition.batches)
        if before == (partition.start, partition.end) and is_readable:
            self.deployment.check_time(key, timestamp, first)
            self.deployment.check_largest(key, largest)

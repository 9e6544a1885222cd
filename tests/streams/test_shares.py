"""Share groups at a server that does not dispatch the partition: it reads what another server has acquired."""

from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from bearlake.errors import Corrupt, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.shares import BEHIND_MS, ShareReach, Shares
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.subscriptions.share_dispatch import ShareDispatch
from fixtures.deployment import batch_of
from fixtures.share_dispatch import TERMS, ask_of

KEY = PartitionKey(1 << 20)
OTHER = ServerRef(node_id=2, epoch=1)


class Dispatch(ShareDispatch):
    """Another server's dispatcher, which has acquired offsets 0 and 1."""

    def __init__(self) -> None:
        self.given_back: list[tuple[int, int]] = []
        self.is_lost = False
        self.asks: list[ShareAsk] = []
        self.has_records = True

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        self.asks.append(ask)
        if not self.has_records:
            return [ShareAnswer(partition=key) for key in ask.partitions]
        return [ShareAnswer(partition=key, acquired=[Acquired(0, 2, 1)]) for key in ask.partitions]

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        raise AssertionError

    @override
    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        raise AssertionError

    @override
    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        if self.is_lost:
            raise Unavailable("no answer")
        self.given_back += ranges

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        raise AssertionError

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        raise AssertionError


class Elsewhere(ShareDispatch):
    """This server's dispatcher: another server holds every partition."""

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        holders = {KEY: OTHER, KEY + 1: ServerRef(node_id=3, epoch=1)}
        return [ShareAnswer(partition=key, error=NotHolder("elsewhere", holders[key])) for key in ask.partitions]

    def terms_of(self, group: str) -> Any:
        return TERMS


class Log:
    """A partition with one record in each batch; this server learns of a batch only while it waits, and not of those behind `end`."""

    def __init__(self, end: int = 2, error: Exception | None = None) -> None:
        self.end, self.error = end, error

    async def fetch(self, ranges: Sequence[FetchRange], *, wait_ms: int, **options: Any) -> list[Fetched]:
        (item,) = ranges
        found = Fetched(item)
        if item.offset < self.end and wait_ms >= BEHIND_MS:
            batch = bytearray(batch_of(b"%d" % item.offset))
            batch[:8] = item.offset.to_bytes(8, "big")
            found.views = [memoryview(batch)]
        elif self.error is not None:
            found.error = self.error  # type: ignore[assignment]
        return [found]


class Reach(ShareReach):
    def __init__(self, *dispatches: Dispatch) -> None:
        self.dispatches = dispatches

    @override
    def reach_shares(self, server: ServerRef) -> ShareDispatch | None:
        return self.dispatches[server.node_id - OTHER.node_id]


def shares(log: Log, dispatch: Dispatch) -> Shares:
    return Shares(Elsewhere(), None, log, Reach(dispatch))  # type: ignore[arg-type]


async def test_a_server_that_is_behind_waits_for_the_records_that_another_has_acquired() -> None:
    dispatch = Dispatch()

    (answer,) = await shares(Log(), dispatch).acquire(ask_of(KEY))

    assert answer.acquired == [Acquired(0, 2, 1)]
    assert len(answer.views) == 2
    assert dispatch.given_back == []


async def test_what_cannot_be_read_is_given_back() -> None:
    dispatch = Dispatch()

    (answer,) = await shares(Log(end=1), dispatch).acquire(ask_of(KEY))

    assert answer.acquired == [Acquired(0, 1, 1)]
    assert len(answer.views) == 1
    assert dispatch.given_back == [(1, 2)]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_damaged_record_is_an_error_and_what_was_acquired_is_given_back(is_lost: bool) -> None:
    dispatch = Dispatch()
    dispatch.is_lost = is_lost

    (answer,) = await shares(Log(end=0, error=Corrupt("bad")), dispatch).acquire(ask_of(KEY))

    assert (answer.acquired, answer.views) == ([], [])
    assert isinstance(answer.error, Corrupt)
    assert dispatch.given_back == ([] if is_lost else [(0, 2)])


async def test_a_member_that_wants_one_record_gets_one_although_two_servers_have_some() -> None:
    first, second = Dispatch(), Dispatch()
    first.has_records = False
    both = Shares(Elsewhere(), None, Log(), Reach(first, second))  # type: ignore[arg-type]
    keys = KEY, PartitionKey(KEY + 1)
    await both.acquire(ask_of(*keys, wait_ms=1))  # learns who dispatches the partitions
    first.asks.clear()
    second.asks.clear()

    await both.acquire(ask_of(*keys, wait_ms=60_000, record_count_max=1, is_strict=True))

    assert [ask.record_count_max for ask in first.asks + second.asks] == [1, 1]
    assert [ask.partitions for ask in first.asks + second.asks] == [[keys[0]], [keys[1]]]


async def test_what_several_servers_answer_together_is_no_larger_than_what_a_member_asks_for() -> None:
    first, second = Dispatch(), Dispatch()
    both = Shares(Elsewhere(), None, Log(), Reach(first, second))  # type: ignore[arg-type]
    keys = KEY, PartitionKey(KEY + 1)

    await both.acquire(ask_of(*keys, record_count_max=11, bytes_max=1_001))

    assert [(ask.record_count_max, ask.bytes_max) for ask in first.asks + second.asks] == [(5, 500), (5, 500)]

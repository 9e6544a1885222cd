"""A server's access to transactional ids on every store: requests that are decided anew, and transactions that take too long."""

from typing import Any, cast

import pytest

from bearlake.errors import Invalid, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import BATCH_TRANSACTIONAL, CommittedOffset, PartitionKey
from bearlake.metadata.transaction_rules import Problem
from bearlake.metadata.transactions import Decide, Transaction, Transactions, change_in_two_steps
from bearlake.streams import transactions as served
from bearlake.streams.transactions import TransactionRefusal, TransactionService, TransactionSettings

Who = tuple[int, int]


def service(metadata: Any) -> TransactionService:
    return TransactionService(metadata, TransactionSettings())


class Instead:
    """A metadata store with other transactions."""

    def __init__(self, inner: Metadata, transactions: Any) -> None:
        self._inner = inner
        self.transactions = transactions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class OwnClock:
    """The servers' own clock, which the test moves."""

    time_s = 1_000.0


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> OwnClock:
    clock = OwnClock()
    monkeypatch.setattr(served, "monotonic_s", lambda: clock.time_s)
    return clock


class Overtaken:
    """The store of transactions of a server whose next write comes late: `before` happens first."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.before: Any = None

    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        return await change_in_two_steps(cast("Transactions", self), transactional_id, decide)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in ("end", "put", "put_offsets") or self.before is None:
            return call

        async def late(*values: Any, **named: Any) -> Any:
            before, self.before = self.before, None
            if before is not None:
                await before()
            return await call(*values, **named)

        return late


async def write(scene: Any, partition: PartitionKey, who: Who, sequence: int) -> Any:
    """Commit one record of a V1 transaction; returns what became of it."""
    batch = scene.batch(partition, 1, producer=who[0], epoch=who[1], sequence=sequence, flags=BATCH_TRANSACTIONAL)
    return (await scene.commit(batch)).outcomes[0].kind


async def begun(scene: Any, others: TransactionService, partition: PartitionKey) -> Who:
    """A producer of the first protocol with one record in its transaction."""
    who = await others.initialize("copier", 60_000)
    await others.add("copier", who, partitions=[partition])
    await write(scene, partition, who, 0)
    return who


@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_that_another_server_overtakes_does_not_end_the_next_transaction(
    scene: Any, peer: Metadata, is_commit: bool
) -> None:
    """The producer repeated EndTxn through another server, and went on. Its transactions share an epoch (KIP-98)."""
    partition = await scene.partition()
    store = Overtaken(scene.metadata.transactions)
    others, slow = service(peer), service(Instead(scene.metadata, store))
    who = await begun(scene, others, partition)

    async def go_on() -> None:
        await others.end("copier", who, is_commit=is_commit, bumps=False)
        await scene.backend.advance(5)
        await others.add("copier", who, partitions=[partition])
        await write(scene, partition, who, 1)

    store.before = go_on
    with pytest.raises(TransactionRefusal) as refused:
        await slow.end("copier", who, is_commit=is_commit, bumps=False)
    bounds = (await scene.metadata.log.bounds([partition]))[partition]

    assert refused.value.problem is Problem.INVALID_STATE
    assert bounds == (0, 3, 2)  # the next transaction is open


async def test_offsets_that_another_server_overtakes_are_not_those_of_the_next_transaction(
    scene: Any, peer: Metadata
) -> None:
    partition = await scene.partition()
    store = Overtaken(scene.metadata.transactions)
    others, slow = service(peer), service(Instead(scene.metadata, store))
    who = await begun(scene, others, partition)
    await others.add("copier", who, group="g")
    lease = await scene.metadata.leases.acquire("group/g", scene.server)

    async def go_on() -> None:
        await others.end("copier", who, is_commit=False, bumps=False)
        await scene.backend.advance(5)
        await others.add("copier", who, group="g")

    store.before = go_on
    with pytest.raises(TransactionRefusal):
        await slow.keep_offsets(
            "copier", who, "g", {partition: CommittedOffset(offset=3)}, lambda put: put(lease), begins=False
        )

    assert await peer.transactions.pending("g") == set()


async def test_a_store_whose_clock_steps_back_delays_no_abort_for_longer_than_the_timeout(
    scene: Any, own_clock: OwnClock
) -> None:
    partition = await scene.partition()
    transactions = service(scene.metadata)
    await begun(scene, transactions, partition)
    await scene.backend.step(-86_400_000)
    await transactions.expire()
    own_clock.time_s += 59
    await transactions.expire()
    before = await scene.metadata.transactions.open_offsets()
    own_clock.time_s += 2
    await transactions.expire()

    assert len(before) == 1
    assert await scene.metadata.transactions.open_offsets() == []


async def test_the_next_transaction_of_a_producer_has_the_whole_timeout(scene: Any, own_clock: OwnClock) -> None:
    partition = await scene.partition()
    transactions = service(scene.metadata)
    who = await begun(scene, transactions, partition)
    await transactions.expire()
    own_clock.time_s += 59
    await transactions.end("copier", who, is_commit=True, bumps=False)
    await scene.backend.advance(5)
    await transactions.add("copier", who, partitions=[partition])
    await transactions.expire()
    own_clock.time_s += 59
    await transactions.expire()

    assert (await scene.metadata.transactions.get("copier")).is_ongoing


async def test_a_transaction_that_cannot_be_ended_does_not_keep_others_from_their_end(scene: Any) -> None:
    store = scene.metadata.transactions

    class Broken(Overtaken):
        is_broken = True

        async def end(self, after: Transaction, version: int, *, is_commit: bool) -> Transaction:
            if self.is_broken and after.transactional_id == "a":
                raise Invalid("this one cannot be ended")
            ended: Transaction = await store.end(after, version, is_commit=is_commit)
            return ended

    broken = Broken(store)
    transactions = service(Instead(scene.metadata, broken))
    partition = await scene.partition()
    for name in ("a", "b"):
        who = await transactions.initialize(name, 1)
        await transactions.add(name, who, partitions=[partition])
        await write(scene, partition, who, 0)
    await scene.backend.advance(1_000)
    await transactions.expire()
    left = await store.list(is_ongoing=True)
    broken.is_broken = False
    await transactions.expire()

    assert [row.transactional_id for row in left] == ["a"]
    assert await store.list(is_ongoing=True) == []


async def test_a_server_remembers_whose_a_producer_id_is(scene: Any, peer: Metadata) -> None:
    first, other = service(scene.metadata), service(peer)
    producer_id, _ = await first.initialize("copier", 60_000)
    unknown = other.owner(producer_id)
    found = await other.find_owners([producer_id, 77])

    assert first.owner(producer_id) == "copier"
    assert unknown is None
    assert found == {producer_id: "copier"}
    assert (other.owner(producer_id), other.owner(77)) == ("copier", None)


async def test_a_server_tells_of_ends_and_remembers_that_there_are_transactional_ids(scene: Any) -> None:
    told: list[str] = []
    transactions = TransactionService(scene.metadata, TransactionSettings(), on_ended=lambda: told.append(step))
    before = transactions.is_used
    step = "begin"
    who = await transactions.initialize("copier", 60_000)
    step = "add"
    await transactions.add("copier", who, partitions=[PartitionKey(1)])
    step = "end"
    await transactions.end("copier", who, is_commit=True, bumps=False)
    step = "its repeat"
    await transactions.end("copier", who, is_commit=True, bumps=False)

    assert told == ["begin", "end", "its repeat"]
    assert (before, transactions.is_used) == (False, True)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1_025], ids=["empty", "nul", "long"])
async def test_a_name_that_no_store_keeps_is_unknown(scene: Any, name: str) -> None:
    transactions = service(scene.metadata)
    with pytest.raises(TransactionRefusal) as refused:
        await transactions.end(name, (0, 0), is_commit=True, bumps=True)
    with pytest.raises(NotFound):
        await transactions.get(name)

    assert refused.value.problem is Problem.INVALID_MAPPING

"""Transactions in every store: what a commit lets into them, and that their end is one step (decision 130). KIP-98, KIP-447, KIP-890."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata, transaction_rules
from bearlake.metadata.model import (
    ChangeKind,
    CommittedOffset,
    OutcomeKind,
    PartitionKey,
    TransactionChange,
)
from bearlake.metadata.transactions import Aborted, End, Put, Transaction, TransactionState
from bearlake.records import markers
from fixtures.store_producer import Producer

ACCEPTED, DUPLICATE, FENCED, NO_TRANSACTION = (
    OutcomeKind.ACCEPTED,
    OutcomeKind.DUPLICATE,
    OutcomeKind.FENCED,
    OutcomeKind.NO_TRANSACTION,
)


def kinds(committed: Any) -> list[OutcomeKind]:
    return [outcome.kind for outcome in committed.outcomes]


async def last_stable(scene: Any, partition: PartitionKey) -> int:
    return (await scene.metadata.log.bounds([partition]))[partition].last_stable


async def test_an_open_transaction_holds_the_last_stable_offset_until_it_ends(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await scene.commit(scene.batch(partition, 5))
    await producer.write(partition)
    await scene.commit(scene.batch(partition, 2))
    before = await last_stable(scene, partition)
    await producer.end()

    assert before == 5
    assert (await scene.metadata.log.bounds([partition]))[partition] == (0, 9, 9)  # the marker has offset 8


async def test_one_entry_has_the_markers_of_all_partitions(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=40)
    partitions = [stream.partition(index) for index in (3, 0, 39)]
    producer = await Producer(scene).begin()
    first = await producer.write(*partitions)
    await producer.end()
    entries = (await peer.log.follow(first.position - 1, limit=10)).entries

    begun, ended = entries
    in_order = sorted(partitions)
    assert [(piece.partition, piece.base_offset, piece.record_count) for piece in ended.slices] == [
        (key, 1, 1) for key in in_order
    ]
    assert sorted(begun.changes) == [TransactionChange(ChangeKind.BEGUN, key, 0, 0, -1, 0) for key in in_order]
    assert sorted(ended.changes) == [TransactionChange(ChangeKind.COMMITTED, key, 0, 0, 1, -1) for key in in_order]
    found = markers.parse(ended.object_key)
    assert (found.producer_id, found.epoch, found.is_commit, found.marker_count) == (0, 1, True, 3)
    assert ended.object_size == found.size
    assert sorted(piece.position for piece in ended.slices) == [at * markers.MARKER_BYTES for at in range(3)]


async def test_markers_are_found_in_the_index_as_other_slices(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    await producer.end()
    await scene.commit(scene.batch(partition))
    before = await scene.metadata.log.locate(partition, 0, limit=10)
    await scene.maintain(entry_count_min=0)
    after = await scene.metadata.log.locate(partition, 0, limit=10)

    assert [found.slice.base_offset for found in after.slices] == [0, 1, 2]
    assert list(after.slices) == list(before.slices)
    assert after.slices[1].object_key.startswith(markers.PREFIX)


async def test_what_is_aborted_is_listed_with_its_marker(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    await producer.end(is_commit=False)
    await producer.write(partition)
    found = (await peer.transactions.isolation([partition]))[partition]

    assert found.aborted == [Aborted(0, 0, 1)]
    assert found.open_offset == 2
    assert found.position == await peer.log.head()


async def test_aborted_transactions_back_to_back_are_one_until_another_record_lies_between(
    scene: Any, peer: Metadata
) -> None:
    partition, shared = await scene.partition(), await scene.partition("shared")
    producer = await Producer(scene).begin()
    for _ in range(5):
        await producer.write(partition, shared)
        await producer.end(is_commit=False)
        await scene.commit(scene.batch(shared))
    await producer.write(partition)
    await producer.end()
    await producer.write(partition)
    await producer.end(is_commit=False)
    found = await peer.transactions.isolation([partition, shared])

    assert found[partition].aborted == [Aborted(0, 0, 9), Aborted(0, 12, 13)]
    assert [item.marker_offset for item in found[shared].aborted] == [1, 4, 7, 10, 13]


async def test_nothing_is_written_to_a_transaction_after_its_end(scene: Any) -> None:
    partition = await scene.partition()
    for is_v2, expected in ((True, FENCED), (False, NO_TRANSACTION)):
        producer = await Producer(scene, f"copier-{is_v2}", is_v2=is_v2).begin()
        if not is_v2:
            await producer.add(partition)
        await producer.write(partition)
        late = producer.batch(partition)
        await producer.end()
        committed = await scene.commit(late)

        assert kinds(committed) == [expected]
        assert await last_stable(scene, partition) == (await scene.metadata.log.bounds([partition]))[partition].end


async def test_only_added_partitions_take_batches_of_the_first_protocol(scene: Any) -> None:
    stream = await scene.stream(partition_count=2)
    producer = await Producer(scene, is_v2=False).begin()
    refused = await producer.write(stream.partition(0))
    await producer.add(stream.partition(1))
    producer.sequences.clear()
    committed = await producer.write(stream.partition(0), stream.partition(1))

    assert kinds(refused) == [NO_TRANSACTION]
    assert kinds(committed) == [NO_TRANSACTION, ACCEPTED]


async def test_a_refused_batch_between_others_is_refused_alone(scene: Any) -> None:
    partition = await scene.partition()
    zombie = await Producer(scene).begin()
    late = zombie.batch(partition)
    await Producer(scene).begin()
    commit = scene.object(scene.batch(partition, 2), late, scene.batch(partition, 3))
    committed = await scene.metadata.log.commit(commit)
    again = await scene.metadata.log.commit(commit)

    assert kinds(committed) == [ACCEPTED, FENCED, ACCEPTED]
    assert [(piece.base_offset, piece.position) for piece in committed.slices] == [(0, 0), (2, 200)]
    assert again == committed


async def test_a_repeated_commit_begins_nothing_twice(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    commit = scene.object(producer.batch(partition))
    first = await scene.metadata.log.commit(commit)
    await producer.end()
    again = await scene.metadata.log.commit(commit)

    assert again == first
    assert await scene.metadata.transactions.open_offsets() == []
    assert await last_stable(scene, partition) == 2


async def test_a_repeated_batch_is_a_duplicate_and_begins_nothing(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    batch = producer.batch(partition)
    await scene.commit(batch)
    committed = await scene.commit(batch)

    assert kinds(committed) == [DUPLICATE]
    assert committed.outcomes[0].base_offset == 0
    assert [item.first_offset for item in await scene.metadata.transactions.open_offsets()] == [0]


async def test_a_transaction_ends_once(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    held = await scene.metadata.transactions.get("copier")
    step = transaction_rules.end(held, (0, 0), 99, is_commit=True, bumps=True)
    assert isinstance(step, End)
    await scene.metadata.transactions.end(step.after, held.version, is_commit=True)
    head = await scene.metadata.log.head()
    with pytest.raises(Conflict):
        await scene.metadata.transactions.end(step.after, held.version, is_commit=True)

    assert await scene.metadata.log.head() == head


async def test_of_two_ends_at_once_one_wins(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    held = await scene.metadata.transactions.get("copier")
    commit = transaction_rules.end(held, (0, 0), 99, is_commit=True, bumps=True)
    abort = transaction_rules.expire(held, 99)
    assert isinstance(commit, End)
    assert isinstance(abort, End)
    results = await asyncio.gather(
        scene.metadata.transactions.end(commit.after, held.version, is_commit=True),
        peer.transactions.end(abort.after, held.version, is_commit=False),
        return_exceptions=True,
    )

    assert sorted(isinstance(result, Conflict) for result in results) == [False, True]
    assert (await scene.metadata.log.bounds([partition]))[partition] == (0, 2, 2)
    is_aborted = (await scene.metadata.transactions.isolation([partition]))[partition].aborted != []
    assert is_aborted == isinstance(results[0], Conflict)


async def test_pending_offsets_take_effect_with_the_commit(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING, groups=frozenset({"g"}))
    stored = await scene.metadata.transactions.put_offsets(
        after, held.version, "g", {partition: CommittedOffset(offset=3)}, lease
    )
    await scene.metadata.transactions.put_offsets(
        stored, stored.version, "g", {partition: CommittedOffset(offset=7, metadata="x", leader_epoch=2)}, lease
    )
    during = await peer.groups.offsets("g"), await peer.transactions.pending("g")
    await producer.end()
    (found,) = (await peer.groups.offsets("g")).values()

    assert during == ({}, {partition})
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "x", 2)
    assert await peer.transactions.pending("g") == set()


async def test_pending_offsets_of_an_aborted_transaction_are_dropped(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING)
    await scene.metadata.transactions.put_offsets(
        after, held.version, "g", {partition: CommittedOffset(offset=3)}, lease
    )
    await producer.end(is_commit=False)

    assert await scene.metadata.groups.offsets("g") == {}
    assert await scene.metadata.transactions.pending("g") == set()


@pytest.mark.parametrize("is_whole_group", [True, False])
async def test_deleted_offsets_do_not_come_back_when_a_transaction_commits(scene: Any, is_whole_group: bool) -> None:
    partition, other = await scene.partition(), await scene.partition("others")
    producer = await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    after = replace(held, state=TransactionState.ONGOING)
    offset = CommittedOffset(offset=3)
    await scene.metadata.transactions.put_offsets(after, held.version, "g", {partition: offset, other: offset}, lease)
    if is_whole_group:
        await scene.metadata.groups.delete("g", lease)
    else:
        await scene.metadata.groups.delete_offsets("g", [partition], lease)
    pending = await scene.metadata.transactions.pending("g")
    await producer.end()

    assert pending == (set() if is_whole_group else {other})
    assert set(await scene.metadata.groups.offsets("g")) == pending


async def test_offsets_of_an_overtaken_group_lease_are_refused(scene: Any) -> None:
    partition = await scene.partition()
    await Producer(scene).begin()
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    held = await scene.metadata.transactions.get("copier")
    with pytest.raises(Fenced):
        await scene.metadata.transactions.put_offsets(
            held, held.version, "g", {partition: CommittedOffset(offset=3)}, replace(lease, epoch=lease.epoch + 1)
        )

    assert await scene.metadata.transactions.get("copier") == held
    assert await scene.metadata.transactions.pending("g") == set()


async def test_a_row_changes_only_from_the_version_that_was_read(scene: Any, peer: Metadata) -> None:
    producer = await Producer(scene).begin()
    held = await peer.transactions.get("copier")
    assert held is not None
    with pytest.raises(Conflict):
        await peer.transactions.put(held, held.version + 1)
    with pytest.raises(Conflict):
        await peer.transactions.put(held, 0)
    stored = await peer.transactions.put(replace(held, timeout_ms=5), held.version)

    assert held == producer.row
    assert (stored.version, stored.timeout_ms) == (held.version + 1, 5)
    assert await scene.metadata.transactions.get("copier") == stored


async def test_a_change_stores_what_was_decided_by_the_row_as_of_now(scene: Any, peer: Metadata) -> None:
    producer = await Producer(scene).begin()
    seen: list[Transaction | None] = []

    def longer(held: Transaction | None) -> Put:
        seen.append(held)
        assert held is not None
        return Put(replace(held, timeout_ms=held.timeout_ms + 1))

    first = await scene.metadata.transactions.change("copier", longer)
    seen_first = seen[-1]
    second = await peer.transactions.change("copier", longer)

    assert [seen_first, seen[-1]] == [producer.row, first]
    assert second.timeout_ms == producer.row.timeout_ms + 2
    assert await scene.metadata.transactions.get("copier") == second


async def test_a_change_creates_a_row(scene: Any) -> None:
    row = Transaction(transactional_id="new", producer_id=7, epoch=0)
    stored = await scene.metadata.transactions.change("new", lambda held: Put(row) if held is None else Put(held))

    assert (stored.producer_id, stored.version) == (7, 1)
    assert await scene.metadata.transactions.get("new") == stored


async def test_a_change_that_is_refused_or_changes_nothing_stores_nothing(scene: Any) -> None:
    producer = await Producer(scene).begin()

    refused = await scene.metadata.transactions.change("copier", lambda held: None)
    same = await scene.metadata.transactions.change("copier", Put)

    assert refused is None
    assert same == producer.row
    assert await scene.metadata.transactions.get("copier") == producer.row


async def test_changes_of_two_servers_lose_nothing(scene: Any, peer: Metadata) -> None:
    await Producer(scene).begin()

    async def add(store: Metadata, group: str) -> None:
        def decide(held: Transaction | None) -> Put:
            assert held is not None
            return Put(replace(held, groups=held.groups | {group}))

        for _ in range(100):
            try:
                await store.transactions.change("copier", decide)
            except Conflict:
                continue
            return
        raise AssertionError("no attempt succeeded")

    groups = [f"g{number}" for number in range(20)]
    await asyncio.gather(*(add((scene.metadata, peer)[at % 2], group) for at, group in enumerate(groups)))

    held = await scene.metadata.transactions.get("copier")
    assert held.groups == set(groups)
    assert held.version == 1 + len(groups)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_change_ends_a_transaction(scene: Any, is_commit: bool) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    head = await scene.metadata.log.head()

    def end(held: Transaction | None) -> End:
        step = transaction_rules.end(held, (0, 0), 99, is_commit=is_commit, bumps=True)
        assert isinstance(step, End)
        return step

    stored = await scene.metadata.transactions.change("copier", end)
    await scene.metadata.log.wait(head, wait_ms=60_000)
    (entry,) = (await scene.metadata.log.follow(head, limit=9)).entries
    kind = ChangeKind.COMMITTED if is_commit else ChangeKind.ABORTED

    assert stored.state is (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
    assert (await scene.metadata.log.bounds([partition]))[partition] == (0, 2, 2)
    assert [(change.kind, change.partition, change.marker_offset) for change in entry.changes] == [(kind, partition, 1)]
    assert markers.parse(entry.object_key).is_commit == is_commit


async def test_a_transaction_knows_when_it_began(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene, is_v2=False).begin()
    await producer.add(partition)
    began_ms = producer.row.started_ms
    await scene.backend.advance(1_000)
    await producer.add(await scene.partition("other"))

    assert began_ms >= 0
    assert producer.row.started_ms == began_ms
    assert producer.row.changed_ms >= began_ms + 1_000
    assert [row.transactional_id for row in await producer.transactions.list(is_ongoing=True)] == ["copier"]
    await producer.end()
    assert producer.row.started_ms == -1
    assert await producer.transactions.list(is_ongoing=True) == []


async def test_the_first_batch_begins_a_transaction(scene: Any) -> None:
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    held = await producer.transactions.get("copier")

    assert held.is_ongoing
    assert held.version == producer.row.version + 1
    assert held.started_ms >= 0


async def test_partitions_of_deleted_streams_get_no_marker(scene: Any) -> None:
    kept, gone = await scene.partition(), await scene.stream("gone")
    producer = await Producer(scene).begin()
    await producer.write(kept, gone.partition(0))
    await scene.metadata.streams.delete(gone.number)
    await producer.end()

    assert (await scene.metadata.log.bounds([kept]))[kept] == (0, 2, 2)
    assert await scene.metadata.transactions.open_offsets() == []


async def test_the_oldest_of_several_open_transactions_holds_the_last_stable_offset(scene: Any) -> None:
    partition = await scene.partition()
    first, second = await Producer(scene, "a").begin(), await Producer(scene, "b").begin()
    await first.write(partition)
    await second.write(partition)
    stable = [await last_stable(scene, partition)]
    await first.end()
    stable.append(await last_stable(scene, partition))
    await second.end()
    stable.append(await last_stable(scene, partition))

    assert stable == [0, 1, 4]


async def test_rows_are_listed_by_name_and_forgotten_when_nothing_is_ongoing(scene: Any) -> None:
    partition = await scene.partition()
    producers = [await Producer(scene, name).begin() for name in ("b", "a", "c")]
    await producers[0].write(partition)
    transactions = scene.metadata.transactions
    for row in await transactions.list():
        await transactions.forget(row.transactional_id, row.version)

    assert [row.transactional_id for row in await transactions.list()] == ["b"]
    assert await transactions.list(after="b") == []


async def test_a_producer_id_belongs_to_one_transactional_id(scene: Any, peer: Metadata) -> None:
    first, second = await Producer(scene, "a").begin(), await Producer(scene, "b").begin()
    ids = [first.row.producer_id, second.row.producer_id]

    assert await peer.transactions.owners([*ids, 77, -1]) == {ids[0]: "a", ids[1]: "b"}
    assert await peer.transactions.owners([]) == {}


async def test_a_trim_past_the_beginning_of_an_open_transaction_moves_the_last_stable_offset(scene: Any) -> None:
    """Otherwise readers that begin at the newest committed offset are sent below the start."""
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    await producer.write(partition)
    await producer.write(partition)
    await scene.commit(scene.batch(partition, 3))
    await scene.metadata.log.trim(partition, 4)
    during = (await scene.metadata.log.bounds([partition]))[partition]
    await producer.end()

    assert during == (4, 5, 4)
    assert (await scene.metadata.log.bounds([partition]))[partition] == (4, 6, 6)


@pytest.mark.parametrize("is_ongoing", [True, False])
async def test_a_list_is_without_the_partitions_and_groups_of_its_rows(scene: Any, is_ongoing: bool) -> None:
    """A search for old transactions reads all rows, and each may have very many partitions."""
    stream = await scene.stream(partition_count=3)
    producer = await Producer(scene, is_v2=False).begin()
    await producer.add(*(stream.partition(index) for index in range(3)))
    (listed,) = await producer.transactions.list(is_ongoing=is_ongoing)

    assert listed == replace(producer.row, partitions=frozenset(), groups=frozenset())


async def test_a_transaction_ends_with_as_many_partitions_as_it_has(scene: Any) -> None:
    stream = await scene.stream(partition_count=100)
    producer = await Producer(scene).begin()
    await producer.write(*(stream.partition(index) for index in range(100)))
    await producer.end(is_commit=False)
    bounds = await scene.metadata.log.bounds([stream.partition(index) for index in range(100)])
    await producer.write(stream.partition(0))

    assert set(bounds.values()) == {(0, 2, 2)}
    assert await last_stable(scene, stream.partition(0)) == 2


async def test_upkeep_forgets_very_many_aborted_transactions_in_steps(backend: Any, new_scene: Any) -> None:
    scene = await new_scene(await backend.fresh(sweep_page_count_max=3))
    partition = await scene.partition()
    producer = await Producer(scene).begin()
    for _ in range(8):
        await producer.write(partition)
        await producer.end(is_commit=False)
        await scene.commit(scene.batch(partition))
    await scene.metadata.log.trim(partition, 24)
    left = [8]
    while left[-1] and len(left) < 20:
        await scene.metadata.log.maintain(entry_count_min=1_000)
        left.append(len((await scene.metadata.transactions.isolation([partition]))[partition].aborted))

    assert left[-1] == 0
    assert len(left) > 3


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "plain", "commit", "abort", "init", "late", "trim", "maintain"]),
        st.integers(0, 1),  # the producer
        st.integers(0, 2),  # the partition
    ),
    max_size=25,
)


@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_committed_records_are_those_of_committed_transactions(
    backend: Any, new_scene: Any, steps: list[tuple[str, int, int]]
) -> None:
    """Random histories against a list of (offset, state) per partition."""
    scene = await new_scene(await backend.fresh())
    stream = await scene.stream(partition_count=3)
    partitions = [stream.partition(index) for index in range(3)]
    producers = [await Producer(scene, name).begin() for name in ("a", "b")]
    logs: dict[PartitionKey, list[str]] = {key: [] for key in partitions}
    starts = dict.fromkeys(partitions, 0)
    formers: list[list[Any]] = [[], []]
    for step, number, index in steps:
        producer, partition = producers[number], partitions[index]
        log = logs[partition]
        if step == "write":
            formers[number].append(producer.batch(partition))
            (outcome,) = (await scene.commit(formers[number][-1])).outcomes
            assert outcome == (ACCEPTED, len(log), starts[partition])
            log.append(f"open {number}")
        elif step == "plain":
            await scene.commit(scene.batch(partition))
            log.append("committed")
        elif step in ("commit", "abort", "init"):
            is_ongoing = any(f"open {number}" in found for found in logs.values())
            if step == "init":
                await producer.begin()
            elif is_ongoing or step == "abort":
                await producer.end(is_commit=step == "commit")
            result = "committed" if step == "commit" else "aborted"
            for found in logs.values():
                if f"open {number}" in found:
                    found[:] = [result if item == f"open {number}" else item for item in found]
                    found.append("committed")  # the marker
            if step != "commit" or is_ongoing:
                formers[number] = [item._replace(base_sequence=99) for item in formers[number][-3:]]
        elif step == "late" and formers[number] and formers[number][0].producer_epoch != producer.row.epoch:
            (outcome,) = (await scene.commit(formers[number][0])).outcomes
            assert outcome.kind is FENCED
        elif step == "trim":
            starts[partition] = max(starts[partition], len(log) // 2)
            await scene.metadata.log.trim(partition, starts[partition])
        elif step == "maintain":
            await scene.maintain(entry_count_min=3)
        await check(scene, logs, starts)


async def check(scene: Any, logs: dict[PartitionKey, list[str]], starts: dict[PartitionKey, int]) -> None:
    """Compare bounds and isolation with the model."""
    bounds = await scene.metadata.log.bounds(list(logs))
    isolation = await scene.metadata.transactions.isolation(list(logs))
    for key, log in logs.items():
        is_open = [offset for offset, state in enumerate(log) if state.startswith("open")]
        stable = max(starts[key], min(is_open, default=len(log)))
        assert bounds[key] == (starts[key], len(log), stable)
        assert isolation[key].open_offset == min(is_open, default=-1)
        is_aborted = {offset for offset, state in enumerate(log) if state == "aborted" and offset >= starts[key]}
        covered = {
            offset
            for found in isolation[key].aborted
            for offset in range(max(found.first_offset, starts[key]), found.marker_offset)
        }
        assert is_aborted <= covered  # other producers' records may lie between
        markers_ = [found.marker_offset for found in isolation[key].aborted]
        assert markers_ == sorted(set(markers_))

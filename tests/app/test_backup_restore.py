"""Backups and restores on both metadata stores, with a local object store and an Iceberg catalog."""

import json
import random
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from bearlake.app.backup.filling import OFFSETS_PER_S, gap_since
from bearlake.app.backup.taking import is_known
from bearlake.app.startup import backend_settings
from bearlake.clock import SystemClock
from bearlake.errors import AlreadyExists, Corrupt, Fenced, Invalid, NotFound
from bearlake.metadata import registering
from bearlake.metadata.backup import copy_store
from bearlake.metadata.model import BatchCommit, CommittedOffset, ObjectCommit, PartitionKey, ServerRef, StreamSpec
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.transactions import TransactionRefusal
from bearlake.table import backup as table_backup
from bearlake.wal.keys import KeySource
from fixtures.backed_up import GAP, Lake, Place, lose_time, write_parts
from fixtures.transactional import TransactionalWriter

pytestmark = pytest.mark.integration


async def test_restored_records_have_their_offsets_and_the_table_has_the_same_rows(place: Place) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
        await lose_time(lake)

    done = await place.restore()

    async with place.opened() as lake:
        view = await lake.find()
        assert await lake.log(view) == before
        assert await lake.table(view) == {offset: value for offset, value in before.items() if value != "tail"}
        assert done.table_count == 1
        assert await lake.write(view, "new") == len(before) + GAP
        await lake.compact(view)
        await lake.sweep()
        after = {**before, len(before) + GAP: "new"}
        assert await lake.log(view) == after
        assert await lake.table(view) == after


async def test_groups_are_at_the_offsets_of_the_backup(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        view = await lake.find()
        await commit(lake, view.partition(0), 4)
        await place.back_up()
        await commit(lake, view.partition(0), 7)

    await place.restore()

    async with place.opened() as lake:
        view = await lake.find()
        found = await lake.stores.metadata.groups.offsets("readers")
        assert {key: item.offset for key, item in found.items()} == {view.partition(0): 4}
        await commit(lake, view.partition(0), 5)  # the lease of the lost store is free


async def commit(lake: Lake, partition: PartitionKey, offset: int) -> None:
    server = lake.streams.server
    lease = await lake.stores.metadata.leases.acquire("group/readers", server)
    await lake.stores.metadata.groups.commit_offsets("readers", {partition: CommittedOffset(offset=offset)}, lease)


async def test_a_process_of_the_lost_store_is_fenced(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
        known = lake.streams.server
        unknown = await register(lake, "made after the backup")

    await place.restore()

    async with place.opened("other") as lake:
        await register(lake, "another")
        view = await lake.find()
        for number, server in enumerate((known, unknown)):
            batches = [BatchCommit(view.partition(0), 0, 10, 1, 0)]
            token = KeySource(SystemClock(), random.Random(number).getrandbits).next()
            with pytest.raises(Fenced):
                await lake.stores.metadata.log.commit(
                    ObjectCommit(token=token, server=server, size=10, batches=batches)
                )


async def register(lake: Lake, name: str) -> ServerRef:
    found = await registering.register(
        lake.stores.metadata.servers, name, zone=None, endpoints={}, version="1", timeout_ms=60_000
    )
    return found.server


async def test_what_the_lost_store_gave_out_is_not_given_out_again(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
        number = (await lake.create("later")).stream.number
        producer = (await lake.stores.metadata.producers.allocate(5))[-1]
        schema = await lake.register({"type": "string"}, "later-value")

    await place.restore()

    async with place.opened() as lake:
        with pytest.raises(NotFound):
            await lake.find("later")
        assert (await lake.create("later")).stream.number > number
        assert (await lake.stores.metadata.producers.allocate(1))[0] > producer
        assert await lake.register({"type": "string"}, "later-value") > schema


async def test_an_imported_stream_keeps_the_offsets_of_its_source(place: Place) -> None:
    async with place.opened() as lake:
        spec = StreamSpec(name="imported", partition_count=1, configs={"import.source": "kafka.example:9092"})
        stream = await lake.stores.metadata.streams.create(spec)
        await place.back_up()

    done = await place.restore()

    async with place.opened() as lake:
        key = stream.partition(0)
        assert (await lake.stores.metadata.log.bounds([key]))[key].end == 0
        assert done.partition_count == 0


async def test_a_stream_that_was_promoted_after_the_backup_stays_promoted(place: Place) -> None:
    async with place.opened() as lake:
        spec = StreamSpec(name="imported", partition_count=1, configs={"import.source": "kafka.example:9092"})
        stream = await lake.stores.metadata.streams.create(spec)
        await place.back_up()
        await lake.streams.catalog.change(stream, lambda _: ({}, ["import.source"]))

    done = await place.restore()

    async with place.opened() as lake:
        key = stream.partition(0)
        assert (await lake.stores.metadata.log.bounds([key]))[key].end == GAP
        assert (await lake.find("imported")).stream.configs == {}
        assert done.partition_count == 1


async def test_an_open_transaction_is_aborted_and_its_producer_begins_anew(place: Place) -> None:
    async with place.opened() as lake:
        view = await lake.create()
        await lake.write(view, "before")
        writer = await TransactionalWriter.of(lake.streams, "orders")
        await writer.send(b"open")
        before = await lake.stores.metadata.transactions.get("copier")
        assert before is not None
        await place.back_up()

    done = await place.restore()

    async with place.opened() as lake:
        view = await lake.find()
        key = view.partition(0)
        bounds = (await lake.stores.metadata.log.bounds([key]))[key]
        assert done.aborted_count == 1
        assert bounds.last_stable == bounds.end == 3 + GAP  # two records and a marker
        with pytest.raises(TransactionRefusal):
            await lake.streams.transactions.end(
                "copier", (before.producer_id, before.epoch), is_commit=True, bumps=False
            )
        again = await TransactionalWriter.of(lake.streams, "orders")
        await again.send(b"anew")
        await again.end()
        now = await lake.stores.metadata.transactions.get("copier")
        assert now is not None
        assert now.producer_id > before.producer_id


async def test_the_same_backup_can_be_restored_again(place: Place) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()
    for _ in range(2):
        await place.restore()
        async with place.opened() as lake:
            assert await lake.log(await lake.find()) == before
            await lose_time(lake)


async def test_what_an_earlier_restore_of_the_same_backup_gave_out_is_not_given_out_again(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
    given: list[tuple[int, int, int, int, int]] = []
    for _ in range(3):
        await place.restore(offset_gap=None)
        async with place.opened() as lake:
            offset = await lake.write(await lake.find(), "new")
            number = (await lake.create("later")).stream.number
            producer = (await lake.stores.metadata.producers.allocate(5))[-1]
            schema = await lake.register({"type": "string"}, "later-value")
            given.append((offset, number, producer, schema, lake.streams.server.epoch))

    for before, after in pairwise(given):
        assert all(new > old for old, new in zip(before, after, strict=True)), given


@pytest.mark.parametrize("first_s", [1, 20_000])
def test_the_gap_of_a_restore_is_above_all_that_earlier_restores_of_the_backup_can_have_given(first_s: int) -> None:
    age_s, given = first_s, first_s * OFFSETS_PER_S
    for ordinal in range(1, 6):
        gap = gap_since(age_s * 1000, ordinal)
        assert gap >= given
        given = gap + 600 * OFFSETS_PER_S  # what the restored store gives until it is lost, too
        age_s += 600


async def test_tables_come_and_go_with_their_streams(place: Place) -> None:
    async with place.opened() as lake:
        dropped = await lake.create("dropped", table__on_delete="drop")
        await lake.create("young")
        await lake.write(dropped, "a")
        await lake.compact(dropped)
        await place.back_up()
        await lake.streams.delete(ANONYMOUS, dropped.stream)
        young = await lake.find("young")
        await lake.write(young, "lost")
        await lake.compact(young)
        await lake.sweep()

    await place.restore()

    async with place.opened() as lake:
        assert await lake.table(await lake.find("dropped")) == {0: "a"}
        young = await lake.find("young")
        assert await lake.stores.metadata.tasks.list() == []
        await lake.write(young, "new")
        await lake.compact(young)
        assert await lake.table(young) == await lake.log(young) == {GAP: "new"}


async def test_a_store_is_replaced_only_on_request(place: Place) -> None:
    async with place.opened() as lake:
        before = await write_parts(lake)
        await place.back_up()

    with pytest.raises(AlreadyExists, match="--replace"):
        await place.restore(may_replace=False)

    async with place.opened() as lake:
        assert await lake.log(await lake.find()) == before


async def test_a_table_is_copied_in_the_version_that_the_copied_store_knows(place: Place) -> None:
    async with place.opened() as lake:
        view = await lake.create()
        await lake.write(view, "a")
        await lake.compact(view)
        state = await lake.tables.state(view.stream)
        (place.folder / "store").mkdir()
        settings = place.settings
        copied = await copy_store(
            settings.metadata.url, backend_settings(settings.metadata), place.folder / "store", lambda count: None
        )
        for value in ("b", "c"):
            await lake.write(view, value)
            await lake.compact(view)

        found = await table_backup.copy(lake.tables, view.stream, partial(is_known, stream=view.stream, copy=copied))

        assert state is not None
        assert found is not None
        assert found.snapshot_id == state.snapshot_id


async def test_a_damaged_or_unfinished_backup_is_refused(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
        await place.back_up()
    backup = place.folder / "backup"
    tables = backup / "tables.json"
    text = tables.read_text()
    for damaged in (text[:-1], text.replace("0", "1")):
        tables.write_text(damaged)
        with pytest.raises(Corrupt, match=r"tables\.json"):
            await place.restore()
    tables.write_text(text)
    manifest = backup / "manifest.json"
    whole = manifest.read_text()
    taken = json.loads(whole)["taken_ms"]
    for damaged in (whole.replace(str(taken), str(taken + 1), 1), json.dumps({**json.loads(whole), "version": 1})):
        manifest.write_text(damaged)
        with pytest.raises(Corrupt, match=r"manifest\.json"):
            await place.restore()
    older = {key: value for key, value in json.loads(whole).items() if key != "checksum"}
    manifest.write_text(json.dumps({**older, "version": 1}))
    assert (await place.restore()).missing == []
    manifest.unlink()
    with pytest.raises(NotFound, match="is no backup"):
        await place.restore()


async def test_a_backup_makes_its_own_folder(place: Place) -> None:
    async with place.opened() as lake:
        await write_parts(lake)
    (place.folder / ".backup.partial" / "store").mkdir(parents=True)  # of a backup that was killed
    (place.folder / ".backup.partial" / "store" / "rest").write_text("")
    await place.back_up()
    with pytest.raises(AlreadyExists, match="exists"):
        await place.back_up()
    assert {path.stat().st_mode & 0o077 for path in (place.folder / "backup").rglob("*")} == {0}
    assert json.loads((place.folder / "backup" / "manifest.json").read_text())["version"] == 2


async def test_a_backup_is_restored_into_the_same_kind_of_store(tmp_path: Path) -> None:
    place = Place(tmp_path, f"sqlite://{tmp_path}/metadata.db")
    async with place.opened():
        await place.back_up()
    with pytest.raises(Invalid, match="sqlite store can only be restored into one"):
        await Place(tmp_path, "postgresql://nobody@127.0.0.1:1/none").restore()

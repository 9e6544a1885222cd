"""Key compaction when something else goes wrong: tasks of other streams that fail, and footers of files whose offsets alternate."""

from bearlake.compaction.cleaned_files import Stamp, StampBook
from bearlake.compaction.stream_index import read_index
from bearlake.metadata.compaction import TaskState
from bearlake.streams.principal import ANONYMOUS
from fixtures.cleaned_stream import PARTITION_COUNT, Life, Scene, scene_of, settings
from fixtures.deployment import deployment
from simulator.loop import virtual_time


@virtual_time
async def test_a_stream_whose_cleaning_fails_again_and_again_does_not_keep_others_from_theirs() -> None:
    async with deployment() as stores:
        broken = await scene_of(stores, "latest")
        await broken.produce(1)
        await broken.work(settings(is_cleaning=False), broken.is_compacted, Life())
        located, _ = await read_index(broken.view.stream, stores.metadata)
        await stores.store.delete([located[0].object_key])

        view = await broken.streams.create(ANONYMOUS, "healthy", PARTITION_COUNT, dict(broken.view.stream.configs))
        healthy = Scene(stores, broken.tables, broken.streams, view)

        async def is_over() -> bool:
            stores.clock.advance(20)  # failed tasks wait by the store's clock
            states = [task.state for task in await stores.metadata.tasks.list(stream_number=broken.view.stream.number)]
            if states == [TaskState.QUARANTINED] and not healthy.sent:
                await healthy.produce(2)
            found, _ = await read_index(view.stream, stores.metadata)
            return bool(found) and await healthy.has_only_cleaned_files()

        assert await broken.work(settings(), is_over, Life())

        assert await healthy.read() == healthy.newest()


@virtual_time
async def test_files_that_were_written_without_a_table_are_cleaned_after_the_stream_gets_one() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest", table__enable="false")
        await scene.produce(1)
        await scene.work(settings(is_cleaning=False), scene.is_compacted, Life())
        scene.view = await scene.streams.change(
            ANONYMOUS, scene.view.stream, lambda present: ({"table.enable": "true"}, [])
        )
        without_table = len(scene.sent)
        await scene.produce(2)

        assert await scene.work(settings(), scene.is_cleaned, Life())

        assert await scene.read() == scene.newest()
        assert len(await scene.rows()) == len(scene.sent) - without_table


def test_stamps_of_files_whose_offsets_alternate_are_all_found() -> None:
    book = StampBook({0: [Stamp(5, 25, 100)]}, {0: [Stamp(12, 15, 100)], 1: [Stamp(7, 7, 50)]})

    assert [book.find(0, offset) for offset in (4, 5, 12, 16, 25, 26)] == [None, 100, 100, 100, 100, None]
    assert book.find(1, 7) == 50

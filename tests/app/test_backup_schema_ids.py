"""A restored registry gives out no id again that the lost one may have given out, in new contexts either: clients keep ids for ever."""

import pytest

from bearlake.errors import Invalid
from bearlake.metadata.schemas import DEFAULT_CONTEXT, Registration, SubjectKey, VersionRow
from bearlake.metadata.schemas import SchemaStore as Store
from fixtures.backed_up import Place

pytestmark = pytest.mark.integration

FIRST, SECOND = {"type": "string"}, {"type": "long"}
LATER = ":.later:orders-value"
LARGEST = 2**31 - 1
"""The largest id that fits the four bytes in which serializers write it."""


async def bring(store: Store, name: str, *, schema_id: int | None, version: int | None = 1) -> VersionRow:
    """Register a schema that has its subject's name, as an import does, in the context of `LATER`."""
    subject = SubjectKey(".later", name)
    revision, mark = (await store.subject(subject)).revision, name.encode().ljust(16)
    row = Registration(
        subject=subject,
        revision=revision,
        fingerprint=mark,
        body=mark,
        content="{}",
        schema_id=schema_id,
        version=version,
    )
    return await store.register(row)


async def test_a_context_that_is_younger_than_the_backup_does_not_give_out_its_ids_again(place: Place) -> None:
    async with place.opened():
        await place.back_up()
    async with place.opened() as lake:
        lost = await lake.register(FIRST, LATER)

    await place.restore()

    async with place.opened() as lake:
        assert await lake.stores.metadata.schemas.contexts() == [DEFAULT_CONTEXT]
        assert await lake.register(SECOND, LATER) > lost


async def test_each_restore_of_a_backup_gives_out_other_ids_in_new_contexts(place: Place) -> None:
    async with place.opened():
        await place.back_up()
    given = []
    for schema in (FIRST, SECOND):
        await place.restore()
        async with place.opened() as lake:
            given.append(await lake.register(schema, LATER))

    assert len(set(given)) == 2


async def test_an_import_into_a_new_context_does_not_set_its_ids_back(place: Place) -> None:
    async with place.opened():
        await place.back_up()
    async with place.opened() as lake:
        first, lost = [await lake.register(schema, LATER) for schema in (FIRST, SECOND)]
    await place.restore()

    async with place.opened() as lake:
        assert (await bring(lake.stores.metadata.schemas, "imported", schema_id=first)).schema_id == first
        assert await lake.register(SECOND, LATER) > lost


async def test_a_backup_with_the_largest_id_can_be_restored_and_the_context_gives_out_no_more(place: Place) -> None:
    async with place.opened() as lake:
        await bring(lake.stores.metadata.schemas, "imported", schema_id=LARGEST)
        await place.back_up()

    await place.restore()

    async with place.opened() as lake:
        store = lake.stores.metadata.schemas
        assert await store.last_id(".later") == LARGEST
        with pytest.raises(Invalid):
            await bring(store, "next", schema_id=None, version=None)
        assert await lake.register(FIRST, "other-value") < LARGEST


async def test_no_id_and_no_version_comes_after_the_largest_one(place: Place) -> None:
    async with place.opened() as lake:
        store = lake.stores.metadata.schemas
        await bring(store, "imported", schema_id=1, version=LARGEST)
        with pytest.raises(Invalid):
            await bring(store, "imported", schema_id=2, version=None)
        await bring(store, "last", schema_id=LARGEST)
        with pytest.raises(Invalid):
            await bring(store, "next", schema_id=None, version=None)

        assert [row.number for row in (await store.subject(SubjectKey(".later", "imported"))).versions] == [LARGEST]
        assert not (await store.subject(SubjectKey(".later", "next"))).versions

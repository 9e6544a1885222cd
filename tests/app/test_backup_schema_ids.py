"""A restored registry gives out no id again that the lost one may have given out, in new contexts either: clients keep ids for ever."""

import pytest

from bearlake.metadata.schemas import DEFAULT_CONTEXT, Registration, SubjectKey
from fixtures.backed_up import Place

pytestmark = pytest.mark.integration

FIRST, SECOND = {"type": "string"}, {"type": "long"}
LATER = ":.later:orders-value"


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
        store, subject = lake.stores.metadata.schemas, SubjectKey(".later", "imported")
        row = Registration(
            subject=subject, revision=0, fingerprint=b"f" * 16, body=b"b" * 16, content="{}", schema_id=first, version=1
        )
        assert (await store.register(row)).schema_id == first
        assert await lake.register(SECOND, LATER) > lost

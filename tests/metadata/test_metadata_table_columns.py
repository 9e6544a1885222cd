"""Behaviour of every metadata store: the typed columns of streams' tables."""

import asyncio

import pytest

from bearlake.errors import Conflict
from bearlake.metadata import Metadata
from bearlake.metadata.table_columns import TableColumns

STREAM = 7


async def test_a_stream_has_no_typed_columns_until_they_are_set(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.table_columns.get(STREAM) == TableColumns("", 0)

    made = await metadata.table_columns.set(STREAM, '{"ü": 1}', version=0)

    assert made == TableColumns('{"ü": 1}', 1)
    assert await peer.table_columns.get(STREAM) == made
    assert await peer.table_columns.get(STREAM + 1) == TableColumns("", 0)


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_columns_change_only_from_their_newest_version(metadata: Metadata, peer: Metadata, version: int) -> None:
    await metadata.table_columns.set(STREAM, "a", version=0)
    await peer.table_columns.set(STREAM, "b", version=1)

    with pytest.raises(Conflict):
        await metadata.table_columns.set(STREAM, "c", version=version)
    assert await metadata.table_columns.get(STREAM) == TableColumns("b", 2)


async def test_one_of_many_workers_that_change_columns_at_once_wins(metadata: Metadata, peer: Metadata) -> None:
    handles = [metadata, peer] * 5
    changes = (handle.table_columns.set(STREAM, str(n), version=0) for n, handle in enumerate(handles))
    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 9

"""Behaviour of every metadata store: default configs of the streams of a group."""

import asyncio

import pytest

from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.defaults import GROUP_NAME_BYTES_MAX, Defaults

GROUP = "pulsar:acme/prod"


async def test_a_group_has_no_defaults_until_they_are_set(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.defaults.get(GROUP) == Defaults({}, 0)

    made = await metadata.defaults.set(GROUP, {"retention.ms": "1", "ü": "ü"}, version=0)

    assert made == Defaults({"retention.ms": "1", "ü": "ü"}, 1)
    assert await peer.defaults.get(GROUP) == made
    assert await peer.defaults.get("pulsar:acme/prod2") == Defaults({}, 0)


async def test_defaults_are_replaced_as_a_whole(metadata: Metadata, peer: Metadata) -> None:
    await metadata.defaults.set(GROUP, {"a": "1", "b": "2"}, version=0)

    changed = await peer.defaults.set(GROUP, {"b": "3"}, version=1)

    assert changed == await metadata.defaults.get(GROUP) == Defaults({"b": "3"}, 2)


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_a_change_of_an_outdated_version_is_a_conflict(metadata: Metadata, version: int) -> None:
    await metadata.defaults.set(GROUP, {}, version=0)
    await metadata.defaults.set(GROUP, {"a": "1"}, version=1)

    with pytest.raises(Conflict):
        await metadata.defaults.set(GROUP, {"a": "2"}, version=version)
    assert await metadata.defaults.get(GROUP) == Defaults({"a": "1"}, 2)


async def test_one_of_many_concurrent_changes_wins(metadata: Metadata, peer: Metadata) -> None:
    handles = [metadata, peer] * 5
    changes = (handle.defaults.set(GROUP, {"by": str(n)}, version=0) for n, handle in enumerate(handles))
    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 9


@pytest.mark.parametrize("group", ["", "x" * (GROUP_NAME_BYTES_MAX + 1)])
async def test_an_invalid_group_name_is_refused(metadata: Metadata, group: str) -> None:
    with pytest.raises(Invalid):
        await metadata.defaults.set(group, {}, version=0)

"""Names of a stream's table and folder: legal in every catalog and object store, for every legal name of a stream."""

import random
import uuid

import pytest

from bearlake.metadata.model import Stream
from bearlake.objects.keys import check_key
from bearlake.streams.catalog import check_name
from bearlake.table.naming import location_key, table_identifiers

FILE = f"metadata/00000-{uuid.UUID(int=0)}.metadata.json"
SQL_NAME_LENGTH_MAX = 255
"""Of the columns of PyIceberg's SQL catalog."""


def stream_of(name: str, number: int = 1, **configs: str) -> Stream:
    return Stream(
        name=name, id=uuid.UUID(int=number << 96), number=number, partition_count=1, configs=configs, created_ms=0
    )


NAMES = ["a" * length for length in (1, 245, 246, 247, 248, 249)] + [
    "." * 249,
    "-" * 249,
    "...",
    "a..b",
    "-rf",
    "_",
    "select",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name[:6]} {len(name)}")
def test_every_stream_has_a_folder_and_names_in_the_catalog(name: str) -> None:
    check_name(name)
    stream = stream_of(name)

    check_key(f"{location_key(stream)}/{FILE}")
    for namespace, table in table_identifiers(stream):
        assert 0 < len(namespace) <= SQL_NAME_LENGTH_MAX
        assert 0 < len(table) <= SQL_NAME_LENGTH_MAX
        assert "." not in table


def test_random_names_have_legal_folders() -> None:
    source = random.Random(5)
    letters = "abcXYZ019._-"
    for number in range(2_000):
        name = "".join(source.choices(letters, k=source.randint(3, 249)))
        check_key(f"{location_key(stream_of(name, number + 1))}/{FILE}")


def test_streams_whose_long_names_differ_at_the_end_have_folders_of_their_own() -> None:
    first, second = stream_of("a" * 248 + "b", 1), stream_of("a" * 248 + "c", 2)

    assert location_key(first) != location_key(second)
    assert len({*table_identifiers(first), *table_identifiers(second)}) == 4


def test_configs_of_the_longest_names_are_legal() -> None:
    longest = "n" * 249
    stream = stream_of("t", **{"table.name": longest, "table.namespace": longest})

    check_key(f"{location_key(stream)}/{FILE}")
    assert table_identifiers(stream)[0] == (longest, longest)

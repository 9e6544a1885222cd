"""Versions of a table are parsed once: which ones, for how long, and that nobody changes them."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from bearlake.table import metadata_text, parsed_metadata, schema
from bearlake.table.parsed_metadata import ParsedMetadata
from fixtures.live_lake import live_lake

RAW = {"table__value__mode": "raw"}


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts that were parsed."""
    found: list[bytes] = []

    def parsed(octets: bytes) -> TableMetadata:
        found.append(octets)
        return metadata_text.parsed(octets)

    monkeypatch.setattr(parsed_metadata, "parsed", parsed)
    return found


METADATA = new_table_metadata(
    schema=schema.iceberg_schema(),
    partition_spec=UNPARTITIONED_PARTITION_SPEC,
    sort_order=UNSORTED_SORT_ORDER,
    location="file:///t",
)
TEXT = METADATA.model_dump_json().encode()


@dataclass
class File:
    """A metadata file."""

    location: str
    is_own: bool = True

    def open(self) -> io.BytesIO:
        return io.BytesIO(TEXT)


def test_there_is_one_version_of_each_folder_and_the_oldest_ones_are_forgotten(texts: list[bytes]) -> None:
    known = ParsedMetadata(2 * len(TEXT))

    def parse_count(*locations: str, **given: Any) -> int:
        texts.clear()
        for location in locations:
            file: Any = File(f"{location}.metadata.json", **given)
            assert known.of(file) == METADATA
        return len(texts)

    assert parse_count("a/1", "a/2", "a/2", "b/1", "b/1", "a/2") == 3
    assert parse_count("c/1") == 1, "b is the oldest"
    assert parse_count("a/2", "c/1") == 0
    assert parse_count("b/1") == 1
    assert parse_count("a/2") == 1


def test_files_of_other_engines_are_read_anew_and_large_ones_are_not_kept(texts: list[bytes]) -> None:
    file: Any = File("a/1.metadata.json", is_own=False)
    known, small = ParsedMetadata(2 * len(TEXT)), ParsedMetadata(len(TEXT) - 1)
    known.of(file)
    known.of(file)
    assert len(texts) == 2
    own: Any = File("a/1.metadata.json")
    small.of(own)
    small.of(own)
    assert len(texts) == 4


def test_a_file_that_is_too_large_takes_no_room_from_others(
    texts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ParsedMetadata(2 * len(TEXT))
    small: list[Any] = [File(f"{folder}/1.metadata.json") for folder in "ab"]
    for file in small:
        known.of(file)
    large: Any = File("c/1.metadata.json")
    monkeypatch.setattr(large, "open", lambda: io.BytesIO(TEXT + b" " * 2 * len(TEXT)))
    known.of(large)
    texts.clear()
    for file in small:
        known.of(file)

    assert texts == []


async def test_a_version_is_parsed_once_and_another_commit_is_seen(tmp_path: Path, texts: list[bytes]) -> None:
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        await lake.lake.produce(view, b"0")
        await lake.lake.compact(view)
        assert await lake.offsets(view) == [0]
        texts.clear()
        for _ in range(3):
            assert await lake.offsets(view) == [0]
        assert texts == []
        await lake.lake.change_table(
            view, lambda table: table.transaction().set_properties(other="engine").commit_transaction()
        )
        texts.clear()
        table = await lake.lake.tables.load(view.stream)
        assert table is not None
        assert table.properties["other"] == "engine"


async def test_commits_of_all_kinds_leave_what_was_parsed_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[bytes, TableMetadata]] = []

    def parsed(octets: bytes) -> TableMetadata:
        given.append((octets, metadata_text.parsed(octets)))
        return given[-1][1]

    monkeypatch.setattr(parsed_metadata, "parsed", parsed)
    async with live_lake(tmp_path) as lake:
        view = await lake.lake.create(**RAW)
        for number in range(6):
            await lake.lake.produce(view, b"%d" % number)
            await lake.lake.compact(view)
            assert await lake.offsets(view) == list(range(number + 1))
        await lake.lake.change_table(view, lambda table: table.transaction().set_properties(a="1").commit_transaction())
        await lake.lake.change_table(
            view, lambda table: table.transaction().remove_properties("a").commit_transaction()
        )
        await lake.lake.change_table(view, lambda table: table.delete("_offset < 3"))
        assert await lake.offsets(view) == [3, 4, 5]
    assert len(given) >= 6
    for octets, metadata in given:
        assert metadata == metadata_text.parsed(octets)

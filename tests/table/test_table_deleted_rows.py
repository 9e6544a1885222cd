"""Files from which another engine has deleted rows: merges refuse exactly these, by any kind of delete, while there are such deletes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from bearlake.errors import Unsupported
from bearlake.table import Unmergeable
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange
from bearlake.table.query import query
from fixtures.foreign_deletes import by_position, by_value, delete_rows, forget_deletes
from fixtures.tables import Work, a_stream, commit_of, local_store, tables_in


class Merged:
    """A table of two files with five offsets each."""

    def __init__(self, tables: IcebergTables, work: Work, keys: list[str]) -> None:
        self.tables, self.stream, self._work, self._keys = tables, work.stream, work, keys

    async def use(self, use: Callable[[Table], None]) -> None:
        """Use the table as another engine does."""

        def call() -> None:
            table = self.tables.lookup().find(self.stream)
            assert table is not None
            use(table)

        await self.tables.run("orders", call)

    async def delete_by_value(self) -> None:
        await self.use(lambda table: delete_rows(table, by_value(table)))

    async def delete_from(self, number: int, branch: str = "main") -> None:
        path = self.tables.locations.location(self._keys[number])
        await self.use(lambda table: delete_rows(table, by_position(table, path), branch))

    async def append(self, task: int, start: int, end: int) -> None:
        await self.tables.commit(self.stream, commit_of(await self._add(task, start, end)), closed_tasks=[])

    async def _add(self, task: int, start: int, end: int) -> TableChange:
        change = await self._work.append(task, start, end)
        self._keys += [file.key for file in change.add]
        return change

    async def merge(self, number: int) -> None:
        """Replace one file."""
        file = await self._work.file(0, 5 * number, 5 * number + 5)
        change = TableChange(task=AppliedTask(task_id=100 + number, epoch=1), add=[file], remove=[self._keys[number]])
        await self.tables.commit(self.stream, commit_of(change), closed_tasks=[])


@pytest.fixture
async def merged(tmp_path: Path) -> AsyncIterator[Merged]:
    store, url = local_store(tmp_path)
    tables = tables_in(tmp_path, store, url)
    stream = a_stream()
    found = Merged(tables, Work(store, stream), [])
    await tables.ensure(stream)
    await found.append(1, 0, 5)
    await found.append(2, 5, 10)
    yield found
    await tables.close()
    await store.close()


async def test_deletes_by_position_concern_the_file_that_they_name(merged: Merged) -> None:
    await merged.delete_from(0)

    with pytest.raises(Unmergeable, match="rewrite-all"):
        await merged.merge(0)
    await merged.merge(1)


async def test_deletes_by_value_concern_the_files_before_them(merged: Merged) -> None:
    await merged.delete_by_value()
    await merged.append(3, 10, 15)

    for number in (0, 1):
        with pytest.raises(Unmergeable, match=r"another engine has deleted rows of .*rewrite-all"):
            await merged.merge(number)
    await merged.merge(2)


async def test_deletes_of_both_kinds_are_found(merged: Merged) -> None:
    await merged.delete_by_value()
    await merged.append(3, 10, 15)
    await merged.delete_from(2)

    for number in (0, 1, 2):
        with pytest.raises(Unmergeable):
            await merged.merge(number)


@pytest.mark.parametrize("is_by_value", [True, False])
async def test_files_are_merged_again_once_there_are_no_deletes(merged: Merged, is_by_value: bool) -> None:
    await (merged.delete_by_value() if is_by_value else merged.delete_from(0))
    with pytest.raises(Unmergeable):
        await merged.merge(0)
    await merged.use(forget_deletes)

    await merged.merge(0)


async def test_deletes_of_another_branch_do_not_matter(merged: Merged) -> None:
    await merged.delete_from(0, "experiment")

    await merged.merge(0)


async def test_compaction_continues_and_queries_say_what_they_cannot_read(merged: Merged) -> None:
    await merged.delete_by_value()
    await merged.append(3, 10, 15)

    with pytest.raises(Unsupported, match="by their values"):
        await query(merged.tables, [merged.stream], "select count(*) from orders")
    await merged.use(forget_deletes)
    found = await query(merged.tables, [merged.stream], "select count(*) from orders")
    assert found.rows == [(15,)]

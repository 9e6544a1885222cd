"""Random histories of a stream with typed keys: consumers and readers of the log get the bytes that producers sent, and key compaction
compares bytes, whatever the modes were when each record was compacted.

Keys of two schemas, keys that differ only in how a number is written, keys that no schema describes, and empty ones.
"""

import random
from pathlib import Path

import pytest

from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.live.log_rows import LogRows, Part
from bearlake.streams.catalog import StreamView
from bearlake.table.projection import Columns, kafka_schema
from fixtures.avro_cases import number, text
from fixtures.typed_lake import TypedLake, settings, typed_lake
from fixtures.typed_orders import ORDER, order, value
from fixtures.typed_values import framed

NARROW = order(("id", "int"), ("city", "string"))
WIDE = order(("id", "long"), ("city", "string"), ("zone", ["null", "string"]))
STEP_COUNT = 14
MODES = ("raw", "keep", "elide")
POLICY = {"cleanup__policy": "compact", "min__cleanable__dirty__ratio": "0.01"}

Row = tuple[int, bytes | None, bytes | None]


class History:
    """Does random things to a stream; `sent` is what producers were told is stored, by offset."""

    def __init__(self, lake: TypedLake, view: StreamView, ids: tuple[int, int, int], rng: random.Random) -> None:
        self.lake, self.view, self.rng = lake, view, rng
        self.of_value, *self.of_keys = ids
        self.sent: list[Row] = []

    def _key(self) -> bytes:
        id_, city = self.rng.randrange(3), text(self.rng.choice(("Bonn", "")))
        narrow, wide = self.of_keys
        return self.rng.choice(
            (
                framed(narrow, number(id_) + city),
                framed(narrow, bytes([2 * id_ | 0x80, 0]) + city),  # the same number, one byte longer
                framed(wide, number(id_) + city + number(0)),
                framed(wide, number(id_) + city + number(1) + text("z")),
                framed(narrow, b""),
                framed(99, number(id_)),
                b"",
                b"raw %d" % id_,
            )
        )

    async def produce(self) -> None:
        """Batches of one key each, with values and tombstones."""
        for _ in range(self.rng.randint(1, 3)):
            key, count = self._key(), self.rng.randint(1, 2)
            values = [
                None if self.rng.random() < 0.2 else framed(self.of_value, value(self.rng.randrange(100)))
                for _ in range(count)
            ]
            await self.lake.produce(self.view, *values, key=key)
            self.sent += [(len(self.sent) + at, key, found) for at, found in enumerate(values)]

    async def change_modes(self) -> None:
        """Other modes of keys and values from now on."""
        streams = self.lake.stores.metadata.streams
        found = await streams.get(self.view.name)
        configs = {f"table.{part}.mode": self.rng.choice(MODES) for part in ("key", "value")}
        await streams.alter(found.number, set_configs=configs, unset_configs=(), version=found.version)

    async def compact(self) -> None:
        """A worker that also merges."""
        await self.lake.compact(self.view, settings(merges=self.rng.random() < 0.5))
        self.check(await self.lake.read(self.view))

    async def clean(self) -> None:
        """Key compaction, until consumers get only the newest record of each key."""
        newest = self.newest()

        async def is_cleaned() -> bool:
            return await self.lake.is_compacted(self.view) and await self.lake.read(self.view) == newest

        await self.lake.work(is_cleaned, settings(cleans=True, merges=self.rng.random() < 0.5))

    def newest(self) -> list[Row]:
        """The newest record of each key, by its bytes."""
        return sorted({key: (offset, key, found) for offset, key, found in self.sent}.values())

    def check(self, found: list[Row]) -> None:
        """Check that nothing is changed, and that no newest record is missing."""
        assert set(self.newest()) <= set(found) <= set(self.sent)
        assert found == sorted(found)

    async def rows_of_log(self) -> list[Row]:
        """What a reader of the stores gets."""
        stores = self.lake.stores
        values = ValueSchemas(stores.metadata, self.lake.tables, ColumnSettings(), self.lake.compiler)
        rows = LogRows(stores.metadata, stores.store, values=lambda: values)
        columns = Columns(kafka_schema(has_headers=False), self.view.name, None, is_typed=False)
        part = Part(self.view.stream.partition(0), 0, len(self.sent))
        read = rows.read(self.view.stream, part, columns, is_typed=False)
        return [(row["offset"], row["key"], row["value"]) async for batch in read for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("table", ["history", "latest"])
async def test_keys_are_the_same_bytes_after_random_histories(tmp_path: Path, table: str, seed: int) -> None:
    rng = random.Random(f"{table} {seed}")
    async with typed_lake(tmp_path) as lake:
        view = await lake.create(**POLICY, table__on_compaction=table, table__key__mode="elide")
        schemas = (ORDER, "orders-value"), (NARROW, "orders-key"), (WIDE, "orders-key")
        of_value, narrow, wide = [await lake.register(schema, subject) for schema, subject in schemas]
        history = History(lake, view, (of_value, narrow, wide), rng)
        steps = [history.produce] * 4 + [history.change_modes] * 2 + [history.compact] * 2 + [history.clean]
        for _ in range(STEP_COUNT):
            await rng.choice(steps)()
        await history.produce()
        await history.clean()

        assert await history.rows_of_log() == await lake.read(view) == history.newest()
        rows = await lake.rows(view)
        kept = {row["_offset"]: row["_key"] for row in rows if row["_key"] is not None or not row.get("_key_schema_id")}
        assert kept.items() <= {offset: key for offset, key, _ in history.sent}.items()

"""What Spark calls: the data source, its batch reader and its stream reader.

Spark runs the data source in Python processes of the driver, and `read` in Python workers of executors. All of them open the stores
themselves. Rows leave as Arrow record batches, with the columns of the query's schema, which may name fewer than there are.

Exactly once: the rows between two offsets are always the same, and Spark's checkpoints hold the offsets. Limits of a micro-batch need its
first offset, which Spark 4.1 does not give to `latestOffset`; the reader takes it from the micro-batch before. After a restart, Spark calls
`partitions` with the last offset as both bounds, before anything else.

Source: Apache Spark 4.1, `pyspark.sql.datasource`; `PythonMicroBatchStream.setLatestSeenOffset`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from bearlake.metadata.model import Stream
from bearlake.spark.filters import RAW, TYPED, Pushed, push
from bearlake.spark.offsets import Offsets, decode, encode
from bearlake.spark.options import EARLIEST, LATEST, Bound, ReadOptions, parse
from bearlake.spark.planning import Planner, Task
from bearlake.spark.stores import Stores, stores_of
from bearlake.table.column_book import ColumnBook, decode_book
from bearlake.table.projection import Columns, kafka_schema, table_schema

_BATCH_BYTES: Final = 1024 * 1024
"""Bytes of the rows that Spark's JVM gets at once (decision 286). It takes memory for larger ones anew each time, and they leave the
processor's cache on their way."""


class BearlakeDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """The data source `bearlake`. `bearlake.spark.register` registers it."""

    @classmethod
    @override
    def name(cls) -> str:
        """Return the name for `format`."""
        return "bearlake"

    @override
    def schema(self) -> StructType:
        """Return Kafka's columns, or those of the stream's table as they are now."""
        options = parse(self.options)
        if options.columns == "raw":
            return from_arrow_schema(kafka_schema(has_headers=options.has_headers))
        stores = stores_of(options.stores)
        return from_arrow_schema(table_schema(stores.run(_current_book(stores, options))))

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return BearlakeReader(parse(self.options), schema)

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        return BearlakeStreamReader(parse(self.options), schema)


class _Rows:
    """What both readers do on executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a task as Arrow record batches."""
        if partition is None:  # nothing to read
            return iter(())
        stores = stores_of(self._options.stores)
        return _small(stores.iterate(self._rows(stores, partition.value)))

    async def _rows(self, stores: Stores, task: Task) -> Any:
        stream, is_typed = await stores.stream(task.number), self._options.columns == "typed"
        book = await _book(stores, stream) if is_typed else None
        columns = Columns(to_arrow_schema(self._schema), stream.name, book, is_typed=is_typed)
        skips_lost = not self._options.fails_on_data_loss
        async for batch in stores.rows.read(
            stream, task.part(stream), columns, is_typed=is_typed, skips_lost=skips_lost
        ):
            yield batch

    def _planner(self) -> tuple[Stores, Planner]:
        stores = stores_of(self._options.stores)
        return stores, Planner(stores.metadata, stores.rows, self._options)


class BearlakeReader(_Rows, DataSourceReader):  # type: ignore[misc]  # pyspark is not typed here
    """Reads what a batch query asks for; its offsets are fixed when Spark plans the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._pushed = Pushed()

    @override
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters on partition, offset and time; return those that Spark must apply."""
        self._pushed, left = push(filters, TYPED if self._options.columns == "typed" else RAW)
        return left

    @override
    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        stores, planner = self._planner()

        async def tasks() -> list[Task]:
            start = await planner.beginning(Bound(EARLIEST))
            return await planner.tasks(start, await planner.ending(), self._pushed)

        return [InputPartition(task) for task in stores.run(tasks())]


class BearlakeStreamReader(_Rows, DataSourceStreamReader):  # type: ignore[misc]  # pyspark is not typed here
    """Reads a streaming query. The driver's reader remembers where the newest micro-batch ends; executors' readers have no state."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._first: dict[str, Any] | None = None
        """Where the query begins, if this process has been asked."""
        self._newest: dict[str, Any] | None = None
        """The end of the newest micro-batch that Spark has planned, exactly as Spark has it."""

    @override
    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins: the same offsets for the life of this reader."""
        if self._first is None:
            stores, planner = self._planner()
            self._first = encode(stores.run(planner.beginning(Bound(LATEST))))
        return self._first

    @override
    def latestOffset(self) -> dict[str, Any]:
        """Return the end of the next micro-batch; the end of the last one, if there is nothing new."""
        stores, planner = self._planner()
        start = decode(self._newest or self.initialOffset())
        end = stores.run(planner.latest(start))
        if self._newest is not None:
            return self._newest if end is None else encode(end)
        return encode(Offsets((end or start).streams, began=start.streams))

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        self._newest = end
        if start == end:
            return []
        stores, planner = self._planner()
        stop = decode(end)
        began = decode(start) if stop.began is None else Offsets(stop.began)
        return [InputPartition(task) for task in stores.run(planner.tasks(began, stop))]

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Note that a micro-batch has ended. Bearlake stores nothing about readers."""
        self._newest = end

    @override
    def stop(self) -> None:
        """Do nothing: the stores stay open for other queries of this process."""


def _small(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of Arrow record batches in smaller ones, of about `_BATCH_BYTES`, without a copy."""
    for batch in batches:
        count = max(1, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, count):
            yield batch.slice(start, count)


async def _current_book(stores: Stores, options: ReadOptions) -> ColumnBook | None:
    """Return the typed columns of the options' stream, with those of its newest records."""
    (stream,) = await Planner(stores.metadata, stores.rows, options).streams()
    await stores.rows.newest_columns(stream)
    return await _book(stores, stream)


async def _book(stores: Stores, stream: Stream) -> ColumnBook | None:
    stored = await stores.metadata.table_columns.get(stream.number)
    return decode_book(stored.text, stored.version) if stored.version else None

# ruff: noqa: SLF001 - what leaves the data source is seen nowhere else without Spark
"""What the data source hands to Spark: all rows, in batches that are small whatever their rows are."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs PySpark: install bearlake[spark]")

from bearlake.spark import source


def batch_of(*sizes: int) -> pa.RecordBatch:
    values = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    return pa.RecordBatch.from_pydict({"offset": list(range(len(sizes))), "value": values})


def test_rows_are_cut_into_batches_of_a_megabyte_in_their_order() -> None:
    whole = batch_of(*[1000] * 5_000)

    found = list(source._small([whole, batch_of(1)]))

    assert pa.Table.from_batches(found) == pa.Table.from_batches([whole, batch_of(1)])
    assert len(found) == 6
    assert max(part.nbytes for part in found) < 1.1 * source._BATCH_BYTES


def test_a_row_that_is_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    found = list(source._small([batch_of(*[3 * source._BATCH_BYTES] * 3)]))

    assert [part.num_rows for part in found] == [1, 1, 1]


def test_batches_without_rows_are_left_out() -> None:
    assert list(source._small([batch_of(), batch_of(5)])) == [batch_of(5)]

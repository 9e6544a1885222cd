"""Hostile records and names on real Spark: what producers give is compacted by Spark's executors, and read by Spark SQL, as it was written.

No stream's records end a worker, or reach another stream; what rows cannot hold is kept as it is.
"""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bearlake import kernel
from bearlake.compaction.runner import InProcess
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import TaskLimits
from bearlake.errors import Conflict
from bearlake.objects import ObjectStore
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.records import codec
from bearlake.records.batch import HEADER_BYTES, Compression
from bearlake.records.codec import Producer, Record
from fixtures.compaction_items import Wal, served, workbench
from fixtures.spark_sql import jars, spark
from fixtures.tables import Work, a_stream, commit_of, local_store, tables_in

__all__ = ["jars"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    # py4j leaves closing the sockets of threads to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TIME_MS = 1_700_000_000_000
MIB = 1024 * 1024
LOCAL = SparkSettings(master="local[2]", archive=False, cancel_deadline_ms=5_000)
LIMITS = TaskLimits(batch_bytes_max=8 * MIB)
TEXTS = (
    "",
    "\0",
    "\n'; drop table orders; --",
    "${jndi:ldap://127.0.0.1/a}",
    "\u202eevil\x1b[2J",
    "ä" * 5_000,
    "_offset",
)
CODECS = list(Compression)


def patched(raw: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one field of its header changed, and a CRC to match."""
    changed = bytearray(raw)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, kernel.crc32c(changed, 21))
    return bytes(changed)


def at_time(timestamp_ms: int) -> bytes:
    """A record whose time is beyond what our encoder writes."""
    raw = codec.encode([Record(value=b"v", timestamp=TIME_MS)])
    return patched(patched(raw, 27, ">q", timestamp_ms), 35, ">q", timestamp_ms)


def batches() -> dict[str, bytes]:
    """What a producer may give, by what is hostile about it."""
    headers = tuple((text, text.encode()) for text in TEXTS)
    small = Record(key=b"k", value=b"v", timestamp=TIME_MS)
    return {
        "header keys": codec.encode([Record(key=b"k", value=b"v", timestamp=TIME_MS, headers=headers)]),
        "header keys that are no text": codec.encode(
            [Record(value=b"v", headers=(("caf\udce9\udcff", b"1"),), timestamp=TIME_MS)]
        ),
        "many headers": codec.encode(
            [Record(value=b"v", headers=tuple(("h", None) for _ in range(20_000)), timestamp=TIME_MS)]
        ),
        "many empty records": codec.encode([Record(timestamp=TIME_MS)] * 50_000, codec=Compression.ZSTD),
        "a large value": codec.encode([Record(key=bytes(MIB), value=bytes(2 * MIB), timestamp=TIME_MS)]),
        "a bomb": codec.encode([Record(value=bytes(16 * MIB), timestamp=TIME_MS)], codec=Compression.GZIP),
        "the earliest time": at_time(-(2**63)),
        "the latest time": at_time(2**63 - 1),
        "a time of the year 300,000": at_time(9_300_000_000_000_000),
        "an extreme producer": codec.encode(
            [small], producer=Producer(id=2**63 - 1, epoch=32767, base_sequence=2**31 - 1)
        ),
        "damaged records": patched(codec.encode([small, small]), HEADER_BYTES, ">b", 101),
        "damaged compression": patched(codec.encode([small]), 21, ">h", int(Compression.LZ4)),
        "a false count": patched(codec.encode([small]), 57, ">i", 2**31 - 1),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(folder: Path) -> AsyncIterator[ObjectStore]:
    opened = open_store(f"file://{folder}")
    yield opened
    await opened.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(folder: Path) -> AsyncIterator[SparkRunner]:
    found = SparkRunner(LOCAL, f"file://{folder}", ObjectStoreSettings(), LIMITS)
    yield found
    await found.close()


async def test_hostile_records_are_compacted_on_spark_or_kept_and_nothing_is_lost(
    runner: SparkRunner, store: ObjectStore
) -> None:
    wal = Wal(store)
    for index, hostile in enumerate(batches().values()):
        good = codec.encode(
            [Record(key=b"good", value=b"%d" % index, timestamp=TIME_MS)], codec=CODECS[index % len(CODECS)]
        )
        await wal.put({index: [good, hostile, good]})
    item = wal.item()

    (found,) = await runner.run([item])
    (alone,) = await InProcess(store, workbench(batch_bytes_max=LIMITS.batch_bytes_max)).run([item])

    rows, same = await served(store, found), await served(store, alone)
    assert rows == same
    assert rows.keys() == wal.batches.keys()
    names = list(batches())
    kept = {names[index] for (index, base), content in rows.items() if base == 1 and isinstance(content, bytes)}
    for (index, base), content in rows.items():
        if isinstance(content, bytes):
            assert content[8:] == wal.batches[index, base][8:], names[index]
        elif base != 1:
            assert content[0]["_value"] == b"%d" % index
    assert kept >= {
        "header keys that are no text",
        "a bomb",
        "the earliest time",
        "the latest time",
        "damaged records",
        "damaged compression",
        "a false count",
    }
    (row,) = rows[names.index("header keys"), 1]
    assert isinstance(row, dict)
    assert [(header["key"], header["value"]) for header in row["_headers"]] == [(text, text.encode()) for text in TEXTS]  # type: ignore[attr-defined]
    assert runner.start_count == 1


HOSTILE_NAMES = [
    ("select", "streams", "drop"),
    ("-rf", "streams", "-rf"),
    ("n" * 249, "m" * 249, "n" * 249),
    ("a..b", "information_schema", "a__b"),
]


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="function")
async def test_spark_sql_reads_tables_of_hostile_names_and_cannot_make_a_worker_run_its_code(
    tmp_path: Path, jars: str
) -> None:
    """Whoever may write a table sets properties that name classes, and moves the table into another one's folder."""
    store, url = local_store(tmp_path)
    tables = tables_in(tmp_path, store, url)
    works = []
    for number, (name, namespace, table) in enumerate(HOSTILE_NAMES):
        configs = {"table.namespace": namespace, "table.name": table}
        work = Work(store, a_stream(name, number + 1, configs))
        state = await tables.ensure(work.stream)
        assert state.identifier == (namespace, table)
        await tables.commit(work.stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
        works.append(work)
    quoted = [f"bearlake.`{namespace}`.`{table}`" for _, namespace, table in HOSTILE_NAMES]
    victim = (await tables.state(works[0].stream)).location_key  # type: ignore[union-attr]

    answers = spark(
        jars,
        tmp_path,
        [
            *(f"select count(*), max(_offset) from {name}" for name in quoted),
            (
                f"alter table {quoted[1]} set tblproperties ('py-io-impl' = 'os.system',"
                f" 'write.py-location-provider.impl' = 'os.abort', 'write.metadata.path' = '{url}/wal')"
            ),
            f"alter table {quoted[1]} add column `x'; drop` struct<`\\n`: array<map<string, struct<a: int>>>>",
            f"alter table {quoted[2]} set location '{url}/{victim}'",
        ],
    )

    assert answers[: len(quoted)] == [[["10", "9"]]] * len(quoted)
    assert answers[len(quoted) :] == [[], [], []]
    state = await tables.commit(works[1].stream, commit_of(await works[1].append(2, 10, 14)), closed_tasks=[])
    assert state.ends == {0: 14}
    assert f"/{state.location_key}/metadata/" in state.metadata_location
    with pytest.raises(Conflict, match="does not lie in the folder"):
        await tables.expire(works[2].stream, keep_ms=-1_000_000, keep_count_min=1)
    assert spark(jars, tmp_path, [f"select count(*) from {quoted[0]}", f"select count(*) from {quoted[1]}"]) == [
        [["10"]],
        [["14"]],
    ]
    await tables.close()
    await store.close()

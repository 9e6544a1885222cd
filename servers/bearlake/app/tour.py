"""The tour: one run of the main use case, on real records through a real client.

It creates a stream, produces records to it, consumes all of them with a group, and checks that each came exactly once and in order. It
prints counts, latencies and what was written. It talks to any Bearlake server, over the network, like any other client. If
compaction runs, the tour then counts the same records by SQL at once, waits until they are in Parquet files, counts them in these
files, and consumes them again from there.
"""

import json
import re
import ssl
import statistics
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import click

from bearlake.app import kafka_client

STREAM = "tour"
PARTITION_COUNT = 4
RECORD_COUNT = 10_000
PING_COUNT = 200
TIMEOUT_S = 60.0
NOTICE_S = 5.0
"""When the tour says that it waits for a first answer."""
COMPACTION_NOTICE_S = 30.0
"""When the tour says that it waits for compaction."""
COMPACTION_TIMEOUT_S = 300.0
"""The first compaction waits for the start of Spark, which takes a minute on a busy or slow machine."""


class TourFailed(Exception):
    """The records that were read differ from those that were written; the text says how."""


@dataclass(slots=True)
class Produced:
    """The producer's measurements: latencies per record (s), end offset per partition before and after, total time (s), and when
    (monotonic clock) the last record was acknowledged."""

    latencies_s: list[float] = field(default_factory=list)
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    total_s: float = 0.0
    last_s: float = 0.0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin API of the server."""

    url: str
    tls: ssl.SSLContext | None = None
    """How its certificate is verified, if the URL has https."""

    def get(self, path: str) -> bytes:
        """Return the content of a path. Raises `OSError`."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10, context=self.tls) as response:  # noqa: S310
            content: bytes = response.read()
        return content


class Query(Protocol):
    """Runs a SQL statement over the tables; returns the rows as mappings by column."""

    def __call__(self, sql: str, *, is_live: bool) -> Sequence[Mapping[str, Any]]:
        """`is_live`: with every acknowledged record; else with those that are in Parquet files."""


def run(
    bootstrap: str, admin: Admin | None, query: Query | None = None, say: Callable[[str], None] = click.echo
) -> None:
    """Run the tour against the server at `bootstrap`; `admin` adds write statistics, `query` the table.

    Raises:
        Invalid: no client library is installed.
        TourFailed: the server does not answer, or a record was lost, duplicated or out of order.
    """
    confluent = kafka_client.library()
    say(click.style(f"A short tour: {RECORD_COUNT:,} records through {bootstrap}", bold=True) + "\n")
    before = _written(admin)
    client = confluent.admin.AdminClient(kafka_client.common(bootstrap))
    reach(confluent, client, bootstrap, say)
    _create_stream(confluent, client, bootstrap)
    say(f"  create    stream {STREAM!r} with {PARTITION_COUNT} partitions")
    latencies_s = _ping(confluent, bootstrap)
    say(f"  ping      {PING_COUNT} records, one by one      acknowledged in {_percentiles(latencies_s)}")
    produced = _produce(confluent, bootstrap)
    say(f"  produce   {_rate(produced.total_s)}  acknowledged in {_percentiles(produced.latencies_s)}")
    total_s = _consume(confluent, bootstrap, produced)
    say(f"  consume   {_rate(total_s)}  each exactly once and in order, by a group")
    offsets = ", ".join(f"{p}: [{produced.start[p]:,}, {produced.end[p]:,})" for p in sorted(produced.end))
    say(f"  offsets   {offsets}")
    after = _written(admin)
    if before is not None and after is not None:
        count, size = (int(new - old) for new, old in zip(after, before, strict=True))
        if count:  # with several servers, other servers may have taken the records
            say(
                f"  written   {count:,} objects, {size / 1024:,.0f} KiB, {size / count / 1024:,.1f} KiB each on average"
            )
    if admin is not None and query is not None:
        _table(confluent, bootstrap, admin, query, produced, say)
    say("")


def _table(
    confluent: ModuleType, bootstrap: str, admin: Admin, query: Query, produced: Produced, say: Callable[[str], None]
) -> None:
    """Count the same records by SQL before and after compaction, and consume them from the files that it wrote."""
    say("\nThe same records as a table (compaction runs on Spark, which takes some seconds to start)\n")
    say(f"  sql       {_count(query, produced, is_live=True)}: every acknowledged record, at once")
    seconds = await_table(admin, produced, say)
    say(f"  compact   all of them are in Parquet files {seconds:.1f} s after the last was acknowledged")
    say(f"  sql       {_count(query, produced, is_live=False)}, from Parquet alone")
    total_s = _consume(confluent, bootstrap, produced)
    say(f"  consume   {_rate(total_s)}  each exactly once and in order, from Parquet: one copy, two ways to read it")


def _count(query: Query, produced: Produced, *, is_live: bool) -> str:
    """Count the produced records by SQL. Raises `TourFailed` unless each is there once."""
    ranges = " or ".join(
        f"(_partition_id = {p} and _offset >= {produced.start[p]} and _offset < {end})"
        for p, end in produced.end.items()
    )
    sql = (
        f"select count(*) as records, count(distinct (_partition_id, _offset)) as offsets from {STREAM} where {ranges}"  # noqa: S608
    )
    (row,) = query(sql, is_live=is_live)
    if (row["records"], row["offsets"]) != (RECORD_COUNT, RECORD_COUNT):
        raise TourFailed(f"the table has {row['records']:,} of {RECORD_COUNT:,} records")
    return f"{row['records']:,} records counted by SQL, {row['offsets']:,} different offsets"


def await_table(admin: Admin, produced: Produced, say: Callable[[str], None]) -> float:
    """Wait until compaction has passed the produced records; returns the seconds since the last acknowledgement.

    Raises:
        TourFailed: compaction did not pass them within `COMPACTION_TIMEOUT_S`, or the server does not answer.
    """
    has_said = False
    while True:
        try:
            rows = json.loads(admin.get(f"/v1/streams/{STREAM}/partitions"))["partitions"]
        except OSError as error:
            raise TourFailed(f"cannot read offsets from {admin.url}: {error}") from error
        found = {row["partition"]: row["compacted_offset"] for row in rows}
        passed_s = time.monotonic() - produced.last_s
        if all(found[partition] >= end for partition, end in produced.end.items()):
            return passed_s
        if passed_s > COMPACTION_NOTICE_S and not has_said:
            has_said = True
            say(f"  compact   not yet; the tour waits for it, {COMPACTION_TIMEOUT_S:.0f} s at most")
        if passed_s > COMPACTION_TIMEOUT_S:
            raise TourFailed(f"the records are not in the table after {passed_s:.0f} s; compacted offsets: {found}")
        time.sleep(0.1)


def reach(confluent: ModuleType, client: Any, bootstrap: str, say: Callable[[str], None]) -> None:
    """Wait until a server answers `client`, an AdminClient; say so if it takes long. Raises `TourFailed` after `TIMEOUT_S`."""
    for limit_s in (NOTICE_S, TIMEOUT_S - NOTICE_S):
        try:
            client.list_topics(timeout=limit_s)
        except confluent.KafkaException as error:
            reason = error.args[0].str()
        else:
            return
        if limit_s == NOTICE_S:
            say(f"  wait      no answer from {bootstrap} yet; the tour waits {TIMEOUT_S:.0f} s at most")
    raise TourFailed(f"no answer from {bootstrap}: {reason} (is the server running? Set its address with --bootstrap)")


def _create_stream(confluent: ModuleType, client: Any, bootstrap: str) -> None:
    futures = client.create_topics([confluent.admin.NewTopic(STREAM, PARTITION_COUNT)], operation_timeout=TIMEOUT_S)
    try:
        futures[STREAM].result(timeout=TIMEOUT_S)
    except confluent.KafkaException as error:
        if error.args[0].code() != confluent.KafkaError.TOPIC_ALREADY_EXISTS:
            raise TourFailed(f"cannot create the stream {STREAM!r}: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise TourFailed(f"{bootstrap} did not answer within {TIMEOUT_S:.0f} s") from error


def _warmed_producer(confluent: ModuleType, bootstrap: str, linger_ms: float) -> Any:  # untyped library
    """Return an idempotent producer with connections and a producer id, for which a client needs up to half a second."""
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": linger_ms}
    producer = confluent.Producer(kafka_client.common(bootstrap, **settings))
    for partition in range(PARTITION_COUNT):
        producer.produce(STREAM, key=b"warm-up", value=b"warm-up", partition=partition)
    if producer.flush(TIMEOUT_S):
        raise TourFailed("the first records were not acknowledged in time")
    return producer


def _ping(confluent: ModuleType, bootstrap: str) -> list[float]:
    """Measure the latency (s) of records that are acknowledged one by one."""
    producer = _warmed_producer(confluent, bootstrap, 0)
    latencies: list[float] = []
    for _ in range(PING_COUNT):
        start = time.perf_counter()
        producer.produce(STREAM, key=b"ping", value=b"ping", partition=0)
        if producer.flush(TIMEOUT_S):
            raise TourFailed("a record was not acknowledged in time")
        latencies.append(time.perf_counter() - start)
    return latencies


def _produce(confluent: ModuleType, bootstrap: str) -> Produced:
    producer = _warmed_producer(confluent, bootstrap, 5)
    produced = Produced()

    def delivered(error: Any, message: Any, sent: float) -> None:
        if error is not None:
            produced.errors.append(error.str())
            return
        partition, offset = message.partition(), message.offset()
        produced.latencies_s.append(time.perf_counter() - sent)
        produced.start[partition] = min(produced.start.get(partition, offset), offset)
        produced.end[partition] = max(produced.end.get(partition, 0), offset + 1)

    start = time.perf_counter()
    for index in range(RECORD_COUNT):
        value = json.dumps({"number": index, "city": "Bern", "bears": index % 7, "note": "x" * 100})
        sent = time.perf_counter()
        producer.produce(
            STREAM,
            key=f"key-{index % 100}",
            value=value,
            on_delivery=lambda error, message, sent=sent: delivered(error, message, sent),
        )
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    produced.total_s = time.perf_counter() - start
    produced.last_s = time.monotonic()
    if left or produced.errors:
        raise TourFailed(f"{left + len(produced.errors)} records were not acknowledged: {produced.errors[:1]}")
    return produced


def _consume(confluent: ModuleType, bootstrap: str, produced: Produced) -> float:
    """Read the produced records with a new group; returns the time (s) from the first to the last record."""
    group = f"tour-{uuid.uuid4().hex[:8]}"
    consumer = confluent.Consumer(
        kafka_client.common(bootstrap, **{"group.id": group, "auto.offset.reset": "earliest"})
    )

    def assigned(client: Any, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            partition.offset = produced.start.get(partition.partition, confluent.OFFSET_END)
        client.assign(partitions)

    consumer.subscribe([STREAM], on_assign=assigned)
    expected = dict(produced.start)
    numbers: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    first = 0.0
    while len(numbers) < RECORD_COUNT:
        messages = consumer.consume(1000, timeout=1.0)
        if time.monotonic() > deadline:
            raise TourFailed(
                f"only {len(numbers):,} of {RECORD_COUNT:,} records were consumed within {TIMEOUT_S:.0f} s"
            )
        first = first or (time.perf_counter() if messages else 0.0)
        for message in messages:
            _check(message, expected, numbers)
    total_s = time.perf_counter() - first
    consumer.close()
    _delete_group(confluent, bootstrap, group)
    return max(total_s, 1e-6)


def _delete_group(confluent: ModuleType, bootstrap: str, group: str) -> None:
    """Delete a group that nobody needs, so that lists of groups have only those of the user. A failure does not matter."""
    client = confluent.admin.AdminClient(kafka_client.common(bootstrap))
    with suppress(confluent.KafkaException):
        client.delete_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result(timeout=TIMEOUT_S)


def _check(message: Any, expected: dict[int, int], numbers: set[int]) -> None:
    if message.error() is not None:
        raise TourFailed(f"the consumer failed: {message.error().str()}")
    partition, offset = message.partition(), message.offset()
    if offset != expected[partition]:
        raise TourFailed(f"partition {partition}: got offset {offset}, expected {expected[partition]}")
    expected[partition] = offset + 1
    number = json.loads(message.value())["number"]
    if number in numbers:
        raise TourFailed(f"record {number} was delivered twice")
    numbers.add(number)


def _written(admin: Admin | None) -> tuple[float, float] | None:
    """Return (objects, bytes) written so far, from the server's metrics; None if the metrics cannot be read."""
    if admin is None:
        return None
    try:
        text = admin.get("/metrics").decode()
    except OSError:
        return None
    found = [re.search(rf"^bearlake_objects_{name}_total (\S+)$", text, re.MULTILINE) for name in ("put", "put_bytes")]
    count, size = (float(match.group(1)) if match else 0.0 for match in found)
    return count, size


def _percentiles(latencies_s: Sequence[float]) -> str:
    cuts = statistics.quantiles(latencies_s, n=100)
    return f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"


def _rate(seconds: float) -> str:
    return f"{RECORD_COUNT:,} records, {RECORD_COUNT / seconds:>9,.0f}/s".ljust(31)

"""Imports from a real Apache Pulsar: readers and subscriptions of the source and of the target get the same."""

import json
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.peer_pulsar import PulsarPeer

from fixtures.cli_process import Cli
from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S

pulsar = pytest.importorskip("pulsar", reason="IMPORT FROM PULSAR NOT TESTED: pip install pulsar-client")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("java") is None or shutil.which("mvn") is None,
        reason="IMPORT FROM PULSAR NOT TESTED: Pulsar needs Java and Maven",
    ),
    pytest.mark.timeout(300),
]

WAIT_MS = int(WAIT_S * 1000)
QUIET_MS = 1_500
"""A consumer that gets nothing for so long has read everything: all messages are there before it begins."""
KILL_COUNT = 4
ROUND_COUNT = 4_000
"""Messages that are sent between two kills."""
PUBLIC = "/admin/v2/persistent/public/default"


class Source:
    """The peer, with a client."""

    def __init__(self, peer: PulsarPeer) -> None:
        self.peer = peer
        self.client = client_of(peer.address)

    def http(self, method: str, path: str, body: object = None) -> Any:
        """Call the admin API."""
        request = urllib.request.Request(
            self.peer.http + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def words(self, pattern: str, target: Path) -> tuple[object, ...]:
        """The command that imports topics."""
        source = ("--from", f"pulsar://{self.peer.address}", "--admin", self.peer.http)
        return ("import", "pulsar", *source, "--topics", pattern, "--data-dir", target)


def client_of(address: str) -> Any:
    """A client that logs errors only."""
    return pulsar.Client(f"pulsar://{address}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    with tempfile.TemporaryDirectory() as folder:
        peer = PulsarPeer(Path(folder) / "pulsar", settings={"acknowledgmentAtBatchIndexLevelEnabled": "true"})
        peer.start()
        source = Source(peer)
        yield source
        source.client.close()
        peer.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ServerProcess]:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        yield server


def fields_of(message: Any) -> tuple[object, ...]:
    """Everything that a client sees of a message, but its id."""
    return (
        message.data(),
        message.properties(),
        message.partition_key(),
        message.ordering_key(),
        message.event_timestamp(),
        message.publish_timestamp(),
        message.producer_name(),
        message.schema_version(),
        message.has_null_value(),
    )


def read(client: Any, topic: str) -> list[tuple[object, ...]]:
    """All messages of a topic or partition, in order."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: list[Any] = []
    while reader.has_message_available():
        found.append(fields_of(reader.read_next(WAIT_MS)))
    reader.close()
    return found


def left(client: Any, topic: str, subscription: str, kind: Any) -> list[str]:
    """The numbers of the messages that a subscription still gets; they are acknowledged."""
    consumer = client.subscribe(topic, subscription, kind)
    found: list[Any] = []
    while True:
        try:
            message = consumer.receive(QUIET_MS if found else WAIT_MS)
        except pulsar.Timeout:
            break
        found.append(message.properties()["n"])
        consumer.acknowledge(message)
    consumer.close()
    return sorted(found, key=int)


def take(consumer: Any, count: int) -> list[Any]:
    """The next messages of a consumer."""
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def test_messages_and_subscriptions_of_all_types_go_on_after_the_promotion(
    source: Source, lake: ServerProcess, tmp_path: Path
) -> None:
    source.http("PUT", f"{PUBLIC}/orders/partitions", 3)
    client = source.client
    kinds = pulsar.ConsumerType
    opened = {
        name: client.subscribe(topic, name, kind, initial_position=pulsar.InitialPosition.Earliest)
        for name, topic, kind in (
            ("audit", "orders", kinds.Failover),
            ("work", "plain", kinds.Shared),
            ("keyed", "plain", kinds.KeyShared),
            ("alone", "plain", kinds.Exclusive),
            ("idle", "plain", kinds.Shared),
        )
    }
    batched = client.create_producer(
        "orders", batching_enabled=True, batching_max_messages=20, compression_type=pulsar.CompressionType.LZ4
    )
    for number in range(900):
        batched.send_async(
            b"v%d" % number * 30, None, partition_key=f"k{number % 31}", properties={"n": str(number)},
            event_timestamp=1_700_000_000_000 + number,
        )  # fmt: skip
    batched.flush()
    plain = client.create_producer("plain", producer_name="writer", batching_enabled=False)
    for number in range(100):
        plain.send(b"m%d" % number, partition_key=f"k{number % 5}", properties={"n": str(number)})
    for number, message in enumerate(take(opened["work"], 60)):
        if number % 3:
            opened["work"].acknowledge(message)
    for message in take(opened["keyed"], 50):
        if message.partition_key() in ("k1", "k4"):
            opened["keyed"].acknowledge(message)
    opened["alone"].acknowledge_cumulative(take(opened["alone"], 41)[-1])
    for message in take(opened["audit"], 300):
        opened["audit"].acknowledge(message)
    for consumer in opened.values():
        consumer.close()

    done = finished(
        *source.words("persistent://public/default/(orders|plain)", tmp_path / "data"), "--verify", "--json"
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    here = client_of(str(lake.ready["pulsar"]))
    with pytest.raises(pulsar.PulsarException):
        here.create_producer("plain")
    promoted = finished("import", "promote", "orders", "plain", "--data-dir", tmp_path / "data")

    assert promoted.returncode == 0, promoted.stderr.decode()
    assert result["lag"] == 0
    assert sum(row["end_offset"] for row in result["partitions"]) == 1_000
    assert [(row["missing"], row["different"]) for row in result["compared"]] == [(0, 0)] * 4
    assert result["subscriptions"] == ["orders/audit", "plain/alone", "plain/idle", "plain/keyed", "plain/work"]
    assert (result["refused_subscriptions"], result["ended"], result["gone"]) == ({}, {}, {})
    for part in ("orders-partition-0", "orders-partition-1", "orders-partition-2", "plain"):
        assert read(here, part) == read(client, part)
    for name, topic, kind in (
        ("work", "plain", kinds.Shared),
        ("keyed", "plain", kinds.KeyShared),
        ("alone", "plain", kinds.Exclusive),
        ("idle", "plain", kinds.Shared),
        ("audit", "orders", kinds.Failover),
    ):
        assert left(here, topic, name, kind) == left(client, topic, name, kind), name
    written = here.create_producer("plain")
    written.send(b"new", properties={"n": "100"})
    assert left(here, "plain", "alone", kinds.Exclusive) == ["100"]
    here.close()


def test_an_import_that_is_killed_under_load_has_each_message_once_and_follows_subscriptions(
    source: Source, lake: ServerProcess, tmp_path: Path
) -> None:
    source.http("PUT", f"{PUBLIC}/live/partitions", 2)
    words = source.words("persistent://public/default/live", tmp_path / "data")
    stop = threading.Event()
    allowed = threading.Semaphore(0)
    sent: list[int] = []
    acknowledged: set[str] = set()

    def produce() -> None:
        producer = client_of(source.peer.address).create_producer(
            "live", batching_enabled=True, batching_max_messages=7, block_if_queue_full=True
        )
        for _ in range(KILL_COUNT + 1):
            assert allowed.acquire(timeout=WAIT_S)
            for _ in range(ROUND_COUNT):
                producer.send_async(b"x%d" % len(sent) * 20, None, properties={"n": str(len(sent))})
                sent.append(len(sent))
        producer.flush()

    consumer = source.client.subscribe(
        "live", "readers", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )

    def consume() -> None:
        while not stop.is_set():
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            if int(message.properties()["n"]) % 10:
                consumer.acknowledge(message)
                acknowledged.add(message.properties()["n"])

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    ends = [0]
    try:
        for _ in range(KILL_COUNT):
            allowed.release()
            with (tmp_path / "out").open("wb") as out:
                killed = subprocess.Popen(
                    [*PROGRAM, *map(str, words), "--follow"],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean_environment(),
                )  # fmt: skip
                ends.append(beyond(lake, ends[-1] + ROUND_COUNT // 4))
                killed.send_signal(signal.SIGKILL)
                assert killed.wait(WAIT_S) == -signal.SIGKILL, (tmp_path / "out").read_text()
        allowed.release()
        threads[0].join(WAIT_S)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
    consumer.close()
    done = finished(*words, "--verify", "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert finished("import", "promote", "live", "--data-dir", tmp_path / "data").returncode == 0
    here = client_of(str(lake.ready["pulsar"]))

    assert (result["lag"], result["ended"], result["refused_subscriptions"]) == (0, {}, {})
    assert [row["different"] for row in result["compared"]] == [0, 0]
    assert sum(row["end_offset"] for row in result["partitions"]) == len(sent)
    copied = [row for index in range(2) for row in read(here, f"live-partition-{index}")]
    assert copied == [row for index in range(2) for row in read(source.client, f"live-partition-{index}")]
    remaining = left(here, "live", "readers", pulsar.ConsumerType.Shared)
    assert remaining == left(source.client, "live", "readers", pulsar.ConsumerType.Shared)
    assert set(remaining) | acknowledged == set(map(str, sent))
    here.close()


def beyond(lake: ServerProcess, offset: int) -> int:
    """Wait until the imported stream `live` has so many records, and return how many."""
    cli = Cli(lake)
    for _ in range(2_000):
        found = cli.json("stream", "list", "--prefix", "live")
        if found:
            ends = [row["end_offset"] for row in cli.json("stream", "describe", "live")["partitions"]]
            if sum(ends) >= offset:
                return sum(ends)
    raise AssertionError(f"the stream has not reached {offset} records")


def test_a_topic_that_was_deleted_and_made_anew_is_not_mixed_with_the_former_one(
    source: Source, lake: ServerProcess, tmp_path: Path
) -> None:
    words = source.words("persistent://public/default/again", tmp_path / "data")
    source.client.create_producer("again").send(b"old")
    first = finished(*words, "--json")
    source.http("DELETE", f"{PUBLIC}/again?force=true")
    source.client.create_producer("again").send(b"new")
    second = finished(*words)

    assert json.loads(first.stdout)["partitions"][0]["end_offset"] == 1
    assert second.returncode == 1
    assert b"deleted and made anew" in second.stderr, second.stderr
    here = client_of(str(lake.ready["pulsar"]))
    assert [row[0] for row in read(here, "again")] == [b"old"]
    here.close()


def test_schemas_and_large_and_empty_messages_are_copied(source: Source, lake: ServerProcess, tmp_path: Path) -> None:
    class Old(pulsar.schema.Record):  # type: ignore[misc, name-defined]
        name = pulsar.schema.String()

    class New(pulsar.schema.Record):  # type: ignore[misc, name-defined]
        name = pulsar.schema.String()
        count = pulsar.schema.Integer()

    source.http("PUT", "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    for record in (Old(name="a"), New(name="b", count=2)):
        schema = pulsar.schema.AvroSchema(type(record))
        source.client.create_producer("typed", schema=schema).send(record, properties={"n": "1"})
    chunked = source.client.create_producer("large", chunking_enabled=True, batching_enabled=False)
    chunked.send(bytes(range(256)) * 50_000)
    chunked.send(b"")
    done = finished(*source.words("persistent://public/default/(typed|large)", tmp_path / "data"), "--verify", "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    here = client_of(str(lake.ready["pulsar"]))
    reader = here.create_reader("typed", pulsar.MessageId.earliest, schema=pulsar.schema.AvroSchema(Old))
    values = [reader.read_next(WAIT_MS).value() for _ in range(2)]

    assert (result["schemas"], result["refused_schemas"]) == ({"typed": 2}, {})
    assert [row["different"] for row in result["compared"]] == [0] * 2
    assert [value.name for value in values] == ["a", "b"]
    for topic in ("typed", "large"):
        assert read(here, topic) == read(source.client, topic)
    here.close()

"""The drill of docs/operations.md with real processes: backups and restores under load, both killed (SIGKILL) on the way.

After the restore, each record that was acknowledged before the backup began is at its offset, and groups are where they were.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from faults.waiting import until
from fixtures.postgresql import execute, in_thread
from fixtures.server_process import PROGRAM, clean_environment, finished, started

pytestmark = [pytest.mark.integration, pytest.mark.long]

GAP = 5_000
PARTITION_COUNT = 3
WAIT_S = 60.0


@dataclass
class Drill:
    """One deployment: the words that name its stores, and how far a restore is."""

    folder: Path
    words: tuple[str, ...]
    is_loading: Callable[[], bool]
    """Whether a restore has begun to make the store."""

    def up(self) -> Any:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        return started("up", *self.words, "--no-tour", ready_file=ready)

    def run(self, *words: str) -> Any:
        done = finished(*words, *self.words, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def killed(self, *words: str, when: Callable[[], bool]) -> None:
        """Run a command, and kill it as soon as the condition holds. It may be faster than that."""
        process = subprocess.Popen(
            [*PROGRAM, *words, *self.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
        )
        try:
            until(lambda: when() or process.poll() is not None, WAIT_S, f"{words[0]} has begun")
        finally:
            process.kill()
            process.wait(WAIT_S)


@pytest.fixture
def sqlite_drill(tmp_path: Path) -> Drill:
    data = tmp_path / "data"
    return Drill(tmp_path, ("--data-dir", str(data)), (data / "metadata.db.restoring").exists)


@pytest.fixture
def postgresql_drill(tmp_path: Path, postgresql_url: str) -> Drill:
    stores = ("--metadata-url", postgresql_url, "--object-store-url", f"file://{tmp_path}/objects")
    catalog = ("--catalog-url", f"sqlite://{tmp_path}/catalog.db")

    def is_loading() -> bool:
        (row,) = in_thread(execute(postgresql_url, "select max(version) > 1000 from bearlake.migration"))
        return bool(row[0])

    return Drill(tmp_path, ("--data-dir", str(tmp_path / "data"), *stores, *catalog), is_loading)


@dataclass
class Load:
    """Numbered records, in order; `acknowledged` maps (partition, offset) to the number."""

    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    number: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def on(self, bootstrap: str) -> Iterator[None]:
        """Produce to `orders` during the block."""
        self.is_over = threading.Event()
        thread = threading.Thread(target=self._run, args=(bootstrap,))
        thread.start()
        try:
            yield
        finally:
            self.is_over.set()
            thread.join(WAIT_S)

    def _run(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        while not self.is_over.is_set():
            self.number += 1
            number = self.number

            def delivered(error: object, message: Any, number: int = number) -> None:
                if error is None:
                    self.acknowledged[message.partition(), message.offset()] = number

            producer.produce("orders", b"%d" % number, partition=number % PARTITION_COUNT, on_delivery=delivered)
            producer.poll(0.002)
        producer.flush(WAIT_S)

    def more(self, count: int) -> None:
        """Wait until that many more records are acknowledged."""
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal, WAIT_S, f"{count} records are acknowledged")


def next_message(consumer: Consumer) -> Any:
    """The next record; None at the end of the partition."""
    message = consumer.poll(WAIT_S)
    assert message is not None, f"no answer within {WAIT_S:g} s"
    if (error := message.error()) is None:
        return message
    assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - the driver's name
    return None


def read_all(bootstrap: str) -> dict[tuple[int, int], int]:
    """All records, by partition and offset."""
    settings = {"group.id": "checker", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    found: dict[tuple[int, int], int] = {}
    try:
        for index in range(PARTITION_COUNT):
            consumer.assign([TopicPartition("orders", index, 0)])
            while (message := next_message(consumer)) is not None:
                found[index, message.offset()] = int(message.value())
    finally:
        consumer.close()
    return found


def committed(bootstrap: str) -> dict[int, int]:
    """Where the group `readers` is."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        places = [TopicPartition("orders", index) for index in range(PARTITION_COUNT)]
        return {place.partition: place.offset for place in consumer.committed(places, timeout=WAIT_S)}
    finally:
        consumer.close()


def commit(bootstrap: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        places = [TopicPartition("orders", index, offset) for index, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_the_drill_survives_kills_in_backup_and_restore(store: str, request: pytest.FixtureRequest) -> None:
    drill: Drill = request.getfixturevalue(f"{store}_drill")
    backup = drill.folder / "backup"
    load = Load()
    with drill.up() as server:
        created = finished("stream", "create", "orders", "--partitions", str(PARTITION_COUNT), "--admin", server.admin)
        assert created.returncode == 0, created.stderr.decode()
        with load.on(server.kafka):
            load.more(500)
            drill.killed("backup", str(backup), when=(drill.folder / ".backup.partial" / "store").exists)
            before = dict(load.acknowledged)
            reached = {index: max(offset for at, offset in before if at == index) for index in range(PARTITION_COUNT)}
            commit(server.kafka, reached)
            made = drill.run("backup", str(backup))
            load.more(500)
            commit(server.kafka, {index: offset + 1 for index, offset in reached.items()})
        after = dict(load.acknowledged)
        server.process.kill()
    assert len(after) > len(before)
    assert json.loads((backup / "manifest.json").read_text())["id"] == made["id"]

    words = ("restore", str(backup), "--replace", "--offset-gap", str(GAP))
    drill.killed(*words, when=drill.is_loading)
    done = drill.run(*words)

    assert done["partition_count"] == PARTITION_COUNT
    with drill.up() as server:
        found = read_all(server.kafka)
        assert {place: found.get(place) for place in before} == before
        assert set(found.items()) <= set(after.items())
        assert committed(server.kafka) == reached
        again = Load(number=load.number)
        with again.on(server.kafka):
            again.more(100)
        lost = {place for place in after if place not in found}
        assert not lost.intersection(again.acknowledged)  # an offset names one record, at all times
        assert all(again.acknowledged[place] == read_all(server.kafka)[place] for place in list(again.acknowledged)[:3])
        assert server.stop() == 0

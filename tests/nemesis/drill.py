"""The drill at the end of a run: restore one of its backups into an empty database, and read everything with new clients.

All servers and workers have ended. The object store is the copy that was made when the backup was given up (`backups.py`), under the same
URL; the database is a new one of the run's PostgreSQL, and holds the tables' catalog too. So nothing but the backup's folder and the copy
is left of the deployment, as after its loss.

What clients read is recorded as if it had been read while the backup was taken: `simulator.history` then checks order, bytes, committed
offsets and key compaction, and `restored.py` that the backup is one moment.
"""

import json
import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka

from faults.cluster import Server
from faults.waiting import until
from fixtures.kafka_bounds import bounds
from fixtures.server_process import PROGRAM, clean_environment
from nemesis import drill_definitions, drill_steps, restored, table_files
from nemesis.backups import Backup, Kept
from nemesis.clients import copying, pulsars, rest, transactional
from nemesis.clients import kafka as kafka_clients
from nemesis.clients.definitions import ERRORS
from nemesis.clients.kafka import by_partition
from nemesis.cluster import Cluster
from nemesis.recording import Recording
from nemesis.restored import Place, Restored
from nemesis.script import CLEANED_TOPIC, COPIES_TOPIC, PULSAR_TOPIC, STREAM, TRANSACTIONAL_TOPIC
from simulator.history.reader import read_events, read_files

log = logging.getLogger("nemesis")

NAME = "restored"
WORKER = "restored-worker"
MORE = {"registry": "rest", "pulsar_http": "pulsar"}
"""Further protocols that the drill asks, if the run has them, and the roles of their servers."""
COMMAND_S = 120.0
READ_S = 90.0
TABLE_S = 150.0
"""Longest time until the restored worker has compacted everything."""
NEW_COUNT = 25
"""Records that are written to each partition after the restore."""
REFUSED_COUNT = 1
"""Killed backups that are tried."""
COUNTS = f"select _partition_id as p, count(*) as n from {STREAM} group by 1"
OFFSETS = f"select _partition_id as p, _offset as o, decode(_value) as v from {STREAM} order by 1, 2"


class Drill:
    """One drill; `problems` has what contradicts the promises of docs/operations.md."""

    def __init__(self, cluster: Cluster, kept: Kept) -> None:
        self._cluster = cluster
        self._kept = kept
        self._backup = kept.backup
        self._url = cluster.postgresql.primary.url(NAME)
        self._settings, self._keys = cluster.deployment(self._url, kept.storage.server.endpoint)
        self._server = self._of_role(NAME, "kafka")
        self._more = {
            protocol: self._of_role(f"{NAME}-{role}", role)
            for protocol, role in MORE.items()
            if protocol in cluster.addresses
        }
        self._history = Recording(cluster.folder / f"{NAME}.jsonl", NAME)
        self._reader: Any = None
        """A consumer of the restored deployment (without types)."""
        self._gap = 0
        self._ends: dict[Place, int] = {}
        self._given: dict[Place, int] = {}
        self._content = Restored(begun=self._backup.begun, ended=self._backup.ended, records={}, committed={})
        self.problems = list(cluster.backups.problems)
        self.figures: list[str] = []

    def run(self) -> None:
        """Run the drill. Raises `AssertionError`, `KafkaException` if something does not answer in time."""
        self._given = {place: self._bounds(self._bootstrap_of_run(), place)[1] for place in self._places()}
        for server in self._cluster.servers.values():
            server.end()
        self._cluster.postgresql.execute(f"create database {NAME}", database="postgres")
        self._kept.storage.start()
        self._server.write_config()
        for killed in self._cluster.backups.killed[-REFUSED_COUNT:]:
            self._refuse(killed)
        self._restore()
        self._look_at_files("restored")
        self._server.start()
        self._read()
        self._look_at_groups()
        if "define" in self._cluster.size.clients:
            self._look_at_definitions()
        self._check()
        self._look_at_rows()
        self._go_on()
        if self._cluster.size.workers:
            self._compact()

    def end(self) -> None:
        """End the restored deployment."""
        if self._reader is not None:
            self._reader.close()
        self._server.end()
        for server in self._more.values():
            server.end()
        for server in self._cluster.servers.values():
            server.end()

    def _places(self) -> list[Place]:
        places = [(STREAM, at) for at in range(self._cluster.size.partition_count)]
        if "produce-pulsar" in self._cluster.size.clients:
            places += [(PULSAR_TOPIC, at) for at in range(pulsars.PARTITION_COUNT)]
        return places

    def _bootstrap_of_run(self) -> str:
        return ",".join(self._cluster.addresses["kafka"].values())

    def _of_role(self, name: str, role: str) -> Server:
        return Server(self._cluster.folder, name, self._settings, self._keys, ("serve", role))

    def _bounds(self, bootstrap: str, place: Place) -> tuple[int, int]:
        return bounds(bootstrap, confluent_kafka.TopicPartition(*place), READ_S)

    # -- restore -------------------------------------------------------------------------------------------------------

    def _refuse(self, killed: Backup) -> None:
        """A backup that was killed cannot be restored, by neither of its names."""
        for folder in (killed.folder, killed.partial):
            done = self._finished("restore", str(folder))
            if done.returncode == 0 or b"is no backup" not in done.stderr:
                self.problems.append(
                    f"restore of the killed backup {folder.name} ended with {done.returncode}: {_end_of(done)}"
                )

    def _restore(self) -> None:
        words = ["restore", str(self._backup.folder), "--json"]
        if self._kill(*words):
            self.figures.append("a restore was killed before")
            if problem := drill_steps.refusal(self._finished):
                self.problems.append(problem)
        else:
            words.append("--replace")
        begun_s = time.monotonic()
        done = self._finished(*words)
        assert done.returncode == 0, f"restore ended with {done.returncode}: {_end_of(done)}"
        found = json.loads(done.stdout)
        self._gap = found["offset_gap"]
        if found["missing"]:
            self.problems.append(f"the object store lacks {len(found['missing'])} objects, as {found['missing'][0]}")
        self.figures.append(
            f"{self._backup.folder.name} of {self._cluster.backups.taken_count}, {self._backup.object_count:,} objects,"
            f" restored in {time.monotonic() - begun_s:.1f} s"
        )
        self.figures.append(f"{found['aborted_count']} open transactions aborted")

    def _kill(self, *words: str) -> bool:
        process = subprocess.Popen(
            [*PROGRAM, *words, "--config", str(self._server.config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment(self._keys),
        )  # fmt: skip
        return drill_steps.killed(process, self._cluster.postgresql, NAME)

    def _look_at_files(self, when: str) -> None:
        """Every file that a table of the new catalog names is there."""
        named = table_files.read_catalog(self._url, self._keys, self._kept.storage.base)
        stored = self._kept.storage.keys(table_files.TABLES)
        if gone := table_files.missing(stored, named):
            self.problems.append(f"{when} tables name {len(gone)} files that are not there, as {gone[0]}")

    # -- read ----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        records = {place: self._read_log(place) for place in self._places()}
        committed = self._read_committed() if "produce-transactional" in self._cluster.size.clients else {}
        if "read-cleaned" in self._cluster.size.clients:
            self._read_cleaned()
        self._content = Restored(
            begun=self._backup.begun, ended=self._backup.ended, records=records, committed=committed
        )
        count = sum(len(found) for found in (*records.values(), *committed.values()))
        self.figures.append(f"{count:,} records read")

    def _read_log(self, place: Place) -> list[tuple[int, str, str]]:
        """Read one partition from its start to its end; its offsets have no gap but the restore's."""
        start, end = self._bounds(self._server.kafka, place)
        self._ends[place] = end
        records = self._whole(place)
        until_offset = end - self._gap
        if [offset for offset, _, _ in records] != list(range(start, until_offset)):
            self.problems.append(
                f"{place[0]}/{place[1]}: {len(records)} records in [{start}, {until_offset}), or gaps in it"
            )
        self._record("bounds", {"start": start, "end": until_offset}, log=place)
        self._record("read", {"records": records}, log=place, start=start)
        return records

    def _read_committed(self) -> dict[Place, list[tuple[int, str, str]]]:
        found = {}
        for topic in (TRANSACTIONAL_TOPIC, COPIES_TOPIC):
            for partition in range(self._cluster.size.partition_count):
                records = [(offset, name, "") for offset, name, _ in self._whole((topic, partition))]
                found[topic, partition] = records
                self._record("scan", {"records": records}, topic=topic, partition=partition)
        return found

    def _read_cleaned(self) -> None:
        for partition in range(self._cluster.size.partition_count):
            records = self._whole((CLEANED_TOPIC, partition))
            self._record("survey", {"records": records}, log=(CLEANED_TOPIC, partition))

    def _whole(self, place: Place) -> list[tuple[int, str, str]]:
        """Read the committed records of a partition from its start to its end."""
        if self._reader is None:
            self._reader = transactional.committed_consumer([self._server.kafka], NAME)
        reader = self._reader
        reader.assign([confluent_kafka.TopicPartition(*place, self._bounds(self._server.kafka, place)[0])])
        records: list[tuple[int, str, str]] = []

        def has_ended() -> bool:
            messages = [found for found in reader.consume(1000, 0.2) if _place(found) == place]
            records.extend(
                by_partition([found for found in messages if found.error() is None], _fail).get(place[1], [])
            )
            return any(found.error() is not None and found.error().name() == "_PARTITION_EOF" for found in messages)

        until(has_ended, READ_S, f"{place[0]}/{place[1]} is read after the restore")
        return records

    def _look_at_groups(self) -> None:
        """Committed offsets are those of the backup; the copiers' fit what they had copied, and a share group's what it had accepted."""
        partitions = range(self._cluster.size.partition_count)
        for group in (kafka_clients.GROUP, rest.GROUP):
            for partition, offset in self._committed(group, STREAM).items():
                self._record("committed", {"offset": offset}, group=group, log=(STREAM, partition))
        if "copy-committed" in self._cluster.size.clients:
            offsets = self._committed(copying.GROUP, TRANSACTIONAL_TOPIC)
            known = {partition: offsets[partition] or 0 for partition in partitions}
            self.problems += restored.copied(self._content, TRANSACTIONAL_TOPIC, COPIES_TOPIC, known)
        if "share-kafka" in self._cluster.size.clients:
            given, problems = drill_steps.drained([self._server.kafka], self._cluster.folder / NAME, NAME)
            operations = read_files(self._cluster.fleet.histories())
            self.problems += [*problems, *restored.shared(operations, self._content, given)]
            self.figures.append(f"{sum(map(len, given.values())):,} records given to a share group")

    def _look_at_definitions(self) -> None:
        """Users, rules, quotas, schemas and subscriptions are those of the backup, and no id of a schema is given out again."""
        histories = [path for path in self._cluster.fleet.histories() if path.stem.startswith("define-")]
        names = drill_definitions.names_of(read_events(histories))
        given = drill_definitions.ids_of(read_events(histories))
        addresses = {"kafka": self._server.kafka}
        for protocol, server in self._more.items():
            server.start()
            addresses[protocol] = server.address(protocol).removeprefix("http://")
        problems, figures = drill_definitions.read(addresses, names, self._record)
        self.problems += problems
        self.figures += figures
        self.problems += drill_definitions.repeated(given, drill_definitions.new_ids(addresses["registry"], given))

    def _committed(self, group: str, topic: str) -> dict[int, int | None]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._server.kafka, "group.id": group, "log_level": 0}
        )
        try:
            parts = [confluent_kafka.TopicPartition(topic, at) for at in range(self._cluster.size.partition_count)]
            found = consumer.committed(parts, timeout=READ_S)
            return {part.partition: part.offset if part.offset >= 0 else None for part in found}
        finally:
            consumer.close()

    def _check(self) -> None:
        self.problems += restored.problems(read_files(self._cluster.fleet.histories()), self._content)

    def _record(self, kind: str, answer: dict[str, Any], **call: Any) -> None:
        """Record an operation as if it had run while the backup was taken."""
        number = self._history.invoke(kind, at=self._backup.begun, **call)
        self._history.ok(number, at=self._backup.ended, **answer)

    # -- SQL, new records and compaction -----------------------------------------------------------------------------------

    def _look_at_rows(self) -> None:
        """Tables and tail have the records of the log."""
        rows = self._query(OFFSETS)
        due = [(at, offset, name) for (topic, at), found in sorted(self._content.records.items()) if topic == STREAM
               for offset, name, _ in found]  # fmt: skip
        if [(row["p"], row["o"], row["v"]) for row in rows] != due:
            self.problems.append(f"SQL has {len(rows):,} rows, {len(due):,} records are in the log, or they differ")

    def _go_on(self) -> None:
        """New records get offsets behind all that the lost deployment gave, also those of a producer with an old transactional id."""
        offsets = self._produce(STREAM, {"enable.idempotence": True}, lambda producer: producer.flush(READ_S))
        for partition, taken in sorted(offsets.items()):
            place = (STREAM, partition)
            due = list(range(self._ends[place], self._ends[place] + NEW_COUNT))
            if taken != due or taken[0] < self._given[place]:
                self.problems.append(f"new records of {STREAM}/{partition} have the offsets {taken[:2]}, not {due[:2]}")
            if [offset for offset, _, _ in self._whole(place)[-NEW_COUNT:]] != taken:
                self.problems.append(f"new records of {STREAM}/{partition} cannot be read")
        if "produce-transactional" in self._cluster.size.clients:
            self._transact()

    def _transact(self) -> None:
        def commit(producer: Any) -> None:
            transactional.commit(producer)

        old = {"transactional.id": "produce-transactional-1", "transaction.timeout.ms": transactional.TRANSACTION_MS}
        offsets = self._produce(TRANSACTIONAL_TOPIC, old, commit)
        for partition, taken in sorted(offsets.items()):
            seen = self._whole((TRANSACTIONAL_TOPIC, partition))[-NEW_COUNT:]
            if len(taken) != NEW_COUNT or [offset for offset, _, _ in seen] != taken:
                self.problems.append(f"a new transaction of {TRANSACTIONAL_TOPIC}/{partition} cannot be read")

    def _produce(self, topic: str, settings: dict[str, Any], finish: Callable[[Any], object]) -> dict[int, list[int]]:
        """Write new records to all partitions; return their offsets."""
        offsets: dict[int, list[int]] = {at: [] for at in range(self._cluster.size.partition_count)}
        producer = confluent_kafka.Producer({"bootstrap.servers": self._server.kafka, "log_level": 0, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(READ_S)
            producer.begin_transaction()

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets[message.partition()].append(message.offset())

        for partition in offsets:
            for number in range(NEW_COUNT):
                producer.produce(topic, b"new-%d" % number, partition=partition, on_delivery=delivered)
        finish(producer)
        return offsets

    def _compact(self) -> None:
        """A worker compacts everything, and deletes nothing that is in use."""
        worker = self._of_role(WORKER, "compactor")
        self._cluster.servers[WORKER] = worker  # so that the run ends its processes
        worker.spawn()
        due = {at: len(found) + NEW_COUNT for (topic, at), found in self._content.records.items() if topic == STREAM}

        def is_compacted() -> bool:
            self._cluster.record_processes()
            assert worker.is_running, f"the worker ended: {worker.said(5)}"
            return {row["p"]: row["n"] for row in self._query(COUNTS, "--compacted")} == due

        took_s = until(is_compacted, TABLE_S, f"the restored worker has compacted everything: {due}")
        self.figures.append(f"compacted after {took_s:.1f} s")
        worker.end()  # it would expire snapshots while their files are read
        self._look_at_files("compacted")

    def _query(self, text: str, *words: str) -> list[dict[str, Any]]:
        done = self._finished("sql", text, "--json", *words)
        assert done.returncode == 0, f"sql ended with {done.returncode}: {_end_of(done)}"
        found = json.loads(done.stdout)
        assert isinstance(found, list)
        return found

    def _finished(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*PROGRAM, *words, "--config", str(self._server.config)],
            capture_output=True, env=clean_environment(self._keys), timeout=COMMAND_S, check=False,
        )  # fmt: skip


def drill(cluster: Cluster) -> tuple[Sequence[str], Sequence[str]] | None:
    """Restore one of the run's backups; return problems and figures, None if there are none of either. Ends all servers of the run."""
    kept = cluster.backups.kept
    if kept is None:
        return (cluster.backups.problems, ["no backup was taken"]) if cluster.backups.problems else None
    found = Drill(cluster, kept)
    try:
        found.run()
    except (AssertionError, *ERRORS, subprocess.TimeoutExpired) as error:
        found.problems.append(f"{type(error).__name__}: {error}"[:300])
    finally:
        found.end()
    for problem in found.problems:
        log.info("the drill found: %s", problem)
    return found.problems, found.figures


def _place(message: Any) -> Place:
    return message.topic(), message.partition()


def _fail(kind: str) -> None:
    raise AssertionError(f"a reader of the restored log got {kind}")


def _end_of(done: "subprocess.CompletedProcess[bytes]") -> str:
    return done.stderr.decode(errors="replace").strip()[-300:]

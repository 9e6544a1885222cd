"""One run from start to verdict: load and faults, healing, waiting for compaction and sweeping, a complete read, and the gates."""

import contextlib
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from faults.load import create_stream
from faults.waiting import until
from fixtures.kafka_bounds import bounds
from nemesis import checking, fault_kinds, gates
from nemesis.backup_faults import TakeBackup
from nemesis.clients import cleaned, copying, pulsars, sharing, transactional
from nemesis.clients.kafka import by_partition
from nemesis.cluster import SETTINGS, Cluster, created
from nemesis.drill import drill
from nemesis.gates import Gate, Leftovers
from nemesis.plan import SIZES
from nemesis.recording import Recording, now
from nemesis.report import Run
from nemesis.schedule import Schedule
from nemesis.script import CLEANED_TOPIC, COPIES_TOPIC, ODD_STREAM, PULSAR_TOPIC, STREAM, TRANSACTIONAL_TOPIC
from nemesis.watch import Watch

log = logging.getLogger("nemesis")

WARM_UP_S = 3.0
STEP_S = 0.2
FINISH_S = 150.0
READ_S = 90.0
IDLE_S = 8.0
TRANSACTIONS_S = 60.0
"""Longest time until the transactions of producers that were killed have ended: they expire after 10 s."""
COPIES_S = 90.0
SHARED_S = 60.0
"""Longest time for which a share group still has records."""
SHARED_IDLE_S = 5.0
"""Time without a record, beyond that of a lock, after which a share group is done."""
TABLE = {"table.freshness_ms": "3000"}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run."""

    size: str
    seconds: float
    seed: int
    per_second: int = 10
    faults: Sequence[str] = ()
    keep: Path | None = None


def run(options: RunOptions) -> Run:
    """Run everything; end and delete the cluster at the end, also after a failure. Raises `ToolMissing`, `ObtainFailed`."""
    start_s = time.monotonic()
    size = replace(SIZES[options.size], per_second=options.per_second)
    with created(size, options.seed, keep=options.keep) as cluster:
        cluster.start()
        log.info("started after %.1f s", time.monotonic() - start_s)
        watch, schedule, impossible = _load(cluster, options)
        found_gates = _finish(cluster, watch, options)
        if TakeBackup.name in schedule.names and found_gates[0].is_passed:
            found_gates.append(gates.restored(drill(cluster), options.seconds))
        text = cluster.folder / "verdict.log"
        histories = cluster.fleet.histories()
        verdict = checking.check(histories, text, checking.limit_s(options.seconds), options.keep)
        log.info("checked: %s", verdict.text)
        found = checking.facts(histories)
        failures = [f"{client.name} {text}" for client in cluster.fleet.clients for text in client.failures]
        found_gates = [
            gates.promises(verdict.violations, verdict.text),
            *found_gates,
            gates.faults_seen(schedule.names, impossible, schedule.injected_faults, options.seconds),
            gates.clients_got_answers(cluster.size.clients, found.answered),
            gates.clients_ended(
                failures, sum(client.hang_count for client in cluster.fleet.clients), len(schedule.injected_faults)
            ),
        ]
        if cluster.keep is None and any(gate.is_passed is False for gate in found_gates):
            cluster.keep = Path(tempfile.mkdtemp(prefix="nemesis-failed-"))
            log.info("a gate was not passed; logs and histories are kept: %s", cluster.keep)
        return Run(
            command=_command(options),
            seed=options.seed,
            load_s=options.seconds,
            total_s=time.monotonic() - start_s,
            size=_describe(cluster),
            injected_faults=schedule.injected_faults,
            impossible=impossible,
            facts=found,
            verdict=verdict,
            gates=found_gates,
            objects=watch.objects,
            exits=[f"{name} with {code}, {at - start_s:.0f} s after the start" for at, name, code in cluster.exits],
            missed=list(watch.missed.values()),
            alarms=watch.alarms,
            client_starts=cluster.fleet.start_counts(),
            client_failures=[f"{client.name}: {text}" for client in cluster.fleet.clients for text in client.failures],
        )


def _load(cluster: Cluster, options: RunOptions) -> tuple[Watch, Schedule, list[str]]:
    """Run clients and faults for the requested time."""
    kafka = list(cluster.addresses["kafka"].values())
    for name in (STREAM, ODD_STREAM, TRANSACTIONAL_TOPIC, COPIES_TOPIC):
        create_stream(kafka[:1], name, cluster.size.partition_count, TABLE)
    if "read-cleaned" in cluster.size.clients:
        create_stream(kafka[:1], CLEANED_TOPIC, cluster.size.partition_count, cleaned.CONFIGS)
    kinds, impossible = ([], []) if list(options.faults) == ["none"] else fault_kinds.select(options.faults, cluster)
    cluster.fleet.start()
    watch, schedule = Watch(cluster), Schedule(cluster, kinds, scale=1.0 if options.seconds >= 300 else 0.7)
    end_s = time.monotonic() + WARM_UP_S + options.seconds
    while time.monotonic() < end_s:
        schedule.step()
        cluster.revive()
        cluster.backups.step()
        watch.step()
        time.sleep(STEP_S)
    schedule.end_all()
    return watch, schedule, impossible


def _finish(cluster: Cluster, watch: Watch, options: RunOptions) -> list[Gate]:
    """Heal the cluster, and check that everything returns to normal."""
    healed_s = time.monotonic()
    try:
        cluster.heal()
    except AssertionError as late:
        for producers in (True, False):  # the checker must not read histories that clients still write
            cluster.fleet.stop(producers=producers)
        return [Gate(name="servers are ready after healing", is_passed=False, figures=str(late))]
    log.info("healed after %.1f s", time.monotonic() - healed_s)
    found = [
        Gate(name="servers are ready after healing", is_passed=True, figures=f"{time.monotonic() - healed_s:.1f} s")
    ]
    cluster.backups.finish()
    cluster.fleet.stop(producers=True)
    has_workers = bool(cluster.size.workers)
    peak = max((sample.orphans + sample.unused for sample in watch.objects), default=0)
    last = _finished(cluster, watch) if has_workers else None
    waited_s = time.monotonic() - healed_s
    found += gates.leftovers(last, peak, has_workers=has_workers, waited_s=waited_s)
    found.append(gates.attempts(len(watch.objects), watch.attempts_max, watch.claims_max, has_workers=has_workers))
    found.append(_readable(cluster))
    if "produce-transactional" in cluster.size.clients:
        found.append(_committed(cluster))
    if "share-kafka" in cluster.size.clients:
        found.append(_shared(cluster))
    if "read-cleaned" in cluster.size.clients:
        found.append(_cleaned(cluster, options.seconds))
    cluster.fleet.stop(producers=False)
    found.append(gates.idle_cpu(watch.idle_cpu(IDLE_S)))
    found.append(gates.memory(watch.memory, options.seconds))
    return found


def _finished(cluster: Cluster, watch: Watch) -> Leftovers | None:
    """Return what the stores hold once compaction and sweeping have finished, or after `FINISH_S`."""
    last: Leftovers | None = None

    def is_finished() -> bool:
        nonlocal last
        cluster.revive()
        found = watch.look_at_objects()
        if found is None or found.open_tasks or found.orphans or found.unused:
            return False
        last = watch.leftovers()
        return last is not None and not (last.stale_files or last.stale_metadata)

    with contextlib.suppress(AssertionError):
        log.info("finished after %.1f s", until(is_finished, FINISH_S, "compaction and sweeping have finished"))
        return last
    return watch.leftovers() or last


def _readable(cluster: Cluster) -> Gate:
    """Read all records from the start with a new client; the reads are part of the history."""
    history = Recording(cluster.folder / "final.jsonl", "final")
    logs = [(STREAM, at) for at in range(cluster.size.partition_count)]
    if "produce-pulsar" in cluster.size.clients:
        logs += [(PULSAR_TOPIC, at) for at in range(pulsars.PARTITION_COUNT)]
    settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
    bootstrap = ",".join(cluster.addresses["kafka"].values())
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    problems: list[str] = []
    count = 0
    try:
        for name, partition in logs:
            count += _read_all(consumer, bootstrap, history, (name, partition), problems)
    except confluent_kafka.KafkaException as error:
        problems.append(str(error))
    finally:
        consumer.close()
    figures = f"{count:,} records read" + (f"; {problems[:3]}" if problems else "")
    return Gate(name="every record is readable after healing", is_passed=not problems, figures=figures)


def _committed(cluster: Cluster) -> Gate:
    """All transactions end and everything is copied; then read all committed records from the start. The reads are part of the history."""
    name = "every transaction ends, and committed records are copied and readable"
    addresses = list(cluster.addresses["kafka"].values())
    partitions = range(cluster.size.partition_count)
    history = Recording(cluster.folder / "final-committed.jsonl", "final-committed")
    consumer = transactional.committed_consumer(addresses, "final-committed")
    figures: list[str] = []
    try:
        for topic in TRANSACTIONAL_TOPIC, COPIES_TOPIC:
            waited_s = _await_end_of_transactions(addresses, topic, len(partitions))
            scans = [transactional.scan_whole(consumer, history, topic, partition, READ_S) for partition in partitions]
            if any(scan is None for scan in scans):
                return Gate(name=name, is_passed=False, figures=f"{topic} was not read in {READ_S:g} s")
            count = sum(len(scan or ()) for scan in scans)
            figures.append(f"{topic}: {count:,} records, no open transaction after {waited_s:.1f} s")
            if topic == TRANSACTIONAL_TOPIC:
                ends = {partition: scan[-1][0] + 1 for partition, scan in enumerate(scans) if scan}
                figures.append(f"copied after {_await_copies(addresses, ends):.1f} s")
    except AssertionError as late:
        return Gate(name=name, is_passed=False, figures=str(late))
    finally:
        consumer.close()
    return Gate(name=name, is_passed=True, figures="; ".join(figures))


def _shared(cluster: Cluster) -> Gate:
    """Let a new member of the share group take records until it gets none for longer than a lock lasts."""
    name = "a share group gets every record"
    addresses = list(cluster.addresses["kafka"].values())
    history = Recording(cluster.folder / "final-shared.jsonl", "final-shared")
    logs = [(STREAM, at) for at in range(cluster.size.partition_count)]
    ends = {log: bounds(",".join(addresses), confluent_kafka.TopicPartition(*log), READ_S) for log in logs}
    drains = {
        log: history.invoke("drain", log=log, group=sharing.GROUP, start=start) for log, (start, _) in ends.items()
    }
    member = sharing.Member(addresses, "final-shared", history)
    begun_s = last_s = time.monotonic()
    count = 0
    try:
        while time.monotonic() - last_s < sharing.LOCK_S + SHARED_IDLE_S:
            if taken := member.step():
                count, last_s = count + taken, time.monotonic()
            if last_s - begun_s > SHARED_S:
                return Gate(name=name, is_passed=False, figures=f"records for more than {SHARED_S:g} s, {count:,} here")
    except confluent_kafka.KafkaException as error:
        return Gate(name=name, is_passed=False, figures=str(error))
    finally:
        member.close()
    for log, drain in drains.items():
        history.ok(drain, end=ends[log][1])
    figures = (
        f"the last {count:,} of {sum(end - start for start, end in ends.values()):,} after {last_s - begun_s:.1f} s"
    )
    return Gate(name=name, is_passed=True, figures=figures)


def _cleaned(cluster: Cluster, load_s: float) -> Gate:
    """Read what key compaction has left, from the start, with a new client. The reads are part of the history."""
    addresses = list(cluster.addresses["kafka"].values())
    bootstrap = ",".join(addresses)
    history = Recording(cluster.folder / "final-cleaned.jsonl", "final-cleaned")
    consumer = cleaned.whole_consumer(addresses, "final-cleaned")
    written, left = 0, []
    try:
        for partition in range(cluster.size.partition_count):
            written += bounds(bootstrap, confluent_kafka.TopicPartition(CLEANED_TOPIC, partition), READ_S)[1]
            left.append(cleaned.survey(consumer, bootstrap, history, partition, READ_S))
    except confluent_kafka.KafkaException as error:
        return gates.key_compaction(written, None, load_s, str(error))
    finally:
        consumer.close()
    is_read = None not in left
    return gates.key_compaction(written, sum(filter(None, left)) if is_read else None, load_s)


def _await_end_of_transactions(addresses: Sequence[str], topic: str, partition_count: int) -> float:
    """Return the seconds until no partition has an open transaction. Raises `AssertionError`."""

    def have_ended() -> bool:
        admin = AdminClient({"bootstrap.servers": ",".join(addresses), "log_level": 0})
        try:
            return not transactional.open_partitions(admin, topic, partition_count, READ_S)
        except confluent_kafka.KafkaException:
            return False

    return until(have_ended, TRANSACTIONS_S, f"all transactions of {topic} have ended")


def _await_copies(addresses: Sequence[str], ends: Mapping[int, int]) -> float:
    """Return the seconds until the copiers' group has committed these offsets of the source. Raises `AssertionError`."""
    settings = {"bootstrap.servers": ",".join(addresses), "group.id": copying.GROUP, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    parts = [confluent_kafka.TopicPartition(TRANSACTIONAL_TOPIC, partition) for partition in ends]

    def are_copied() -> bool:
        try:
            found = consumer.committed(parts, READ_S)
        except confluent_kafka.KafkaException:
            return False
        return all(part.error is None and part.offset >= ends[part.partition] for part in found)

    try:
        return until(are_copied, COPIES_S, "everything is copied")
    finally:
        consumer.close()


def _read_all(consumer: Any, bootstrap: str, history: Recording, name: tuple[str, int], problems: list[str]) -> int:
    """Read one partition up to its end; return the number of records."""
    part = confluent_kafka.TopicPartition(*name, 0)
    operation = history.invoke("bounds", log=name, protocol="kafka")
    start, end = bounds(bootstrap, part, READ_S)
    history.ok(operation, start=start, end=end)
    consumer.assign([part])
    position, end_s = start, time.monotonic() + READ_S
    while position < end and time.monotonic() < end_s:
        asked = now()
        for records in by_partition(consumer.consume(1000, 0.5), problems.append).values():
            operation = history.invoke("read", at=asked, log=name, start=position, protocol="kafka")
            history.ok(operation, records=records)
            position = records[-1][0] + 1
    if position < end:
        problems.append(f"{name} is not readable from {position} to {end}")
    else:
        history.ok(history.invoke("complete", log=name))
    return position - start


def _command(options: RunOptions) -> str:
    words = f"python tests/nemesis/run.py --seconds {options.seconds:g} --seed {options.seed} --size {options.size}"
    words += f" --per-second {options.per_second}"
    return f"{words} --faults {','.join(options.faults)}" if options.faults else words


def _describe(cluster: Cluster) -> str:
    size = cluster.size
    servers = ", ".join(f"{name} ({role})" for name, role in cluster.roles.items())
    standby = "with a synchronous standby" if size.with_standby else "alone"
    short = {name.rpartition(".")[2]: SETTINGS[name] for name in SETTINGS if "keep_ms" in name or "grace_ms" in name}
    clients = len(size.clients)
    return f"{servers}; {clients} client processes at {size.per_second}/s each; PostgreSQL {standby}. {short}"

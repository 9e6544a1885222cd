"""Measurements of a run from outside, every few seconds: memory and CPU time of processes, objects and tasks in the stores."""

import contextlib
import logging
import re
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from nemesis import table_files
from nemesis.cluster import Cluster
from nemesis.gates import Leftovers

log = logging.getLogger("nemesis")

SAMPLE_S = 5.0
TASKS = """select count(*) as open, coalesce(max(attempt_count), 0) as attempts, coalesce(max(epoch), 0) as claims,
 count(*) filter (where state <> 1) as quarantined from bearlake.task"""
UNUSED = """select kind, count(*) filter (where unused_ms <= bearlake.now_ms()) as n,
 count(*) filter (where unused_ms > bearlake.now_ms()) as later
 from bearlake.object where unused_ms is not null and deleted_ms is null group by 1"""
"""`later`: objects that became unused at a time that the store's clock, after a step forward and back, has not reached again."""
KNOWN = "select key from bearlake.object"
INDEXED = """select key from bearlake.object
 where deleted_ms is null and (unused_ms is null or unused_ms > bearlake.now_ms())"""
PREFIXES = ("wal/", "kept/")
MISSED = re.compile(r"object ((?:wal|kept|table)/\S+) does not exist")
ALARM = re.compile(r"^\S+ (ERROR|CRITICAL) +(\S+): (.*?)(?:  |$)")
WAL, PARQUET = 0, 1
"""`metadata.model.ObjectKind`."""


def written_ms(key: str) -> int:
    """The time (ms) in the key of a WAL object, `wal/<hour>/<UUIDv7>`; 0 for other keys."""
    return uuid.UUID(key.rpartition("/")[2]).int >> 80 if key.startswith("wal/") else 0


@dataclass(frozen=True, kw_only=True)
class Objects:
    """Objects and tasks at one time."""

    at_s: float
    stored: int
    """Objects below `PREFIXES` in the object store."""
    orphans: int
    """How many of these the metadata store does not know, without those whose keys say that they are from later than now."""
    unused: int
    """Known WAL objects that no index names and that are not deleted yet."""
    unused_files: int
    """Data files that no index names and that are not deleted yet; live table snapshots may name them."""
    open_tasks: int
    attempts_max: int
    claims_max: int
    quarantined: int
    orphan_keys: Sequence[str] = ()
    """Some of the orphans."""
    later: int = 0
    """Orphans, and unused objects of both kinds, that wait until the store's clock reaches the time at which they were written or became
    unused: the clock went forward and back."""


class Watch:
    """Samples of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next_s = 0.0
        self.memory: dict[tuple[str, int], list[int]] = defaultdict(list)
        """By server and process id: resident bytes of its own process, one sample every `SAMPLE_S`. A JVM's heap has its own bound."""
        self.objects: list[Objects] = []
        self.attempts_max = 0
        self.claims_max = 0
        self.missed: dict[str, str] = {}
        """Objects that a server did not find, and what the stores report about them a moment later."""
        self.alarms: Counter[str] = Counter()
        """ERROR lines of logs, by server and message."""
        self._read_bytes: dict[str, int] = defaultdict(int)

    def step(self) -> None:
        """Take samples if they are due."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + SAMPLE_S
        self._cluster.record_processes()
        for name, server in self._cluster.servers.items():
            if server.is_running and server.is_ready():
                with contextlib.suppress(psutil.Error):
                    self.memory[name, server.pid].append(psutil.Process(server.pid).memory_info().rss)
        self.look_at_objects()
        self.look_at_logs()

    def look_at_logs(self) -> None:
        """Read what the servers have logged since the last call."""
        for name, server in self._cluster.servers.items():
            with server.log.open("rb") as log:
                log.seek(self._read_bytes[name])
                lines = log.read().decode(errors="replace").splitlines()
                self._read_bytes[name] = log.tell()
            for line in lines:
                if found := ALARM.match(line):
                    self.alarms[f"{name}: {found[2]}: {found[3][:100]}"] += 1
                if (found := MISSED.search(line)) and found[1] not in self.missed:
                    self.missed[found[1]] = f"{line[:160]} … {self._describe(found[1])}"

    def _describe(self, key: str) -> str:
        is_there = key in self._cluster.storage.keys(key.partition("/")[0] + "/")
        try:
            rows = self._cluster.postgresql.execute(f"select * from bearlake.object where key = '{key}'")
        except Exception as error:  # noqa: BLE001 - the store is away
            rows = [{"error": repr(error)}]
        shown = [{name: value for name, value in dict(row).items() if name != "key"} for row in rows]
        return f"{'is' if is_there else 'is not'} in the object store; metadata {shown or 'none'}"

    def look_at_objects(self) -> Objects | None:
        """Count objects and tasks; None if a fault makes a store unavailable."""
        try:
            tasks = self._cluster.postgresql.execute(TASKS)[0]
            rows = self._cluster.postgresql.execute(UNUSED)
            unused, later = {row["kind"]: row["n"] for row in rows}, sum(row["later"] for row in rows)
            stored = {key for prefix in PREFIXES for key in self._cluster.storage.keys(prefix)}
            known = {row["key"] for row in self._cluster.postgresql.execute(KNOWN)}
            now_ms = self._cluster.postgresql.execute("select bearlake.now_ms() as now")[0]["now"]
        except Exception:  # noqa: BLE001 - the store is away, or its layout is another one: no sample
            return None
        ahead = {key for key in stored - known if written_ms(key) > now_ms}
        orphans = sorted(stored - known - ahead)
        found = Objects(
            at_s=time.monotonic(), stored=len(stored), orphans=len(orphans), orphan_keys=orphans[:3],
            unused=unused.get(WAL, 0), unused_files=unused.get(PARQUET, 0), open_tasks=tasks["open"],
            later=later + len(ahead), attempts_max=tasks["attempts"], claims_max=tasks["claims"], quarantined=tasks["quarantined"],
        )  # fmt: skip
        self.objects.append(found)
        self.attempts_max = max(self.attempts_max, found.attempts_max)
        self.claims_max = max(self.claims_max, found.claims_max)
        return found

    def look_at_tables(self) -> tuple[list[str], list[str], list[str]] | None:
        """Return stale data files, stale metadata files and missing files (`Leftovers`); None if the stores do not answer."""
        try:
            named = self._named()
            stored = self._cluster.storage.keys(table_files.TABLES)
            indexed = {row["key"] for row in self._cluster.postgresql.execute(INDEXED)}
            gone = table_files.missing(stored, named)
            if gone:  # a sweep between the two listings deletes files that are no longer named
                again = self._named()
                gone = [key for key in gone if key in again.data | again.metadata]
        except Exception as error:  # noqa: BLE001 - of whatever library is below
            log.warning("tables cannot be read: %r", error)
            return None
        return table_files.stale_files(stored, named, indexed), table_files.stale_metadata(stored, named), gone

    def _named(self) -> table_files.TableFiles:
        cluster = self._cluster
        return table_files.read_catalog(cluster.catalog_url, cluster.client_environment(), cluster.storage.base)

    def leftovers(self) -> Leftovers | None:
        """Return what the stores hold now; None if they do not answer."""
        objects = self.look_at_objects()
        tables = self.look_at_tables() if objects is not None else None
        if objects is None or tables is None:
            return None
        return Leftovers(
            orphans=objects.orphans, unused=objects.unused, open_tasks=objects.open_tasks, quarantined=objects.quarantined,
            later=objects.later, orphan_keys=objects.orphan_keys, stale_files=tables[0], stale_metadata=tables[1], missing=tables[2],
        )  # fmt: skip

    def idle_cpu(self, seconds: float) -> dict[str, float]:
        """Return the share of one core that each server uses without load, including its child processes."""
        before = {name: _cpu_s(server.pid) for name, server in self._cluster.servers.items() if server.is_running}
        start = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - start
        return {name: (_cpu_s(self._cluster.servers[name].pid) - spent) / passed for name, spent in before.items()}


def _cpu_s(pid: int) -> float:
    total = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system
    return total

"""One run of load: its clients, their progress since a moment, and the final verdict of the checker.

with Traffic(cluster, producers, readers) as traffic:
    begun_s = monotonic(); cluster["a"].kill()
    traffic.resumed(begun_s)          # seconds until every client progressed in every partition
    counts = traffic.finish()
"""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from faults.checking import Acknowledged, Counts, Name, check
from faults.load import Member, Reader, read_log
from faults.waiting import pause, until

RESUME_TIMEOUT_S = 60.0
Consumer: TypeAlias = Reader | Member


class AnyProducer(Protocol):
    """`load.Producer` or `java_load.JavaProducer`."""

    name: str
    acknowledged: list[Acknowledged]
    failed: dict[Name, str]
    complaints: Counter[str]

    @property
    def unknown(self) -> set[Name]:
        """Names whose outcome is unknown."""

    @property
    def log(self) -> Collection[str]:
        """Lines of the client library's log."""

    def start(self) -> None:
        """Start to produce."""

    def begin_stop(self) -> None:
        """Ask it to stop."""

    def stop(self) -> None:
        """Stop it, wait for its end, and fail if it has failed."""

    def raise_failure(self) -> None:
        """Fail if it has failed."""


class Traffic:
    """Producers and consumers of one stream, started and stopped together."""

    def __init__(
        self,
        stream: str,
        partition_count: int,
        producers: Sequence[AnyProducer],
        readers: Sequence[Reader] = (),
        members: Sequence[Member] = (),
    ) -> None:
        self._stream = stream
        self._partition_count = partition_count
        self.producers = producers
        self.readers = readers
        self.members = members

    def __enter__(self) -> Self:
        for client in self._clients():
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients():
            client.begin_stop()

    def _clients(self) -> list[AnyProducer | Consumer]:
        return [*self.producers, *self.readers, *self.members]

    def run_on(self, seconds: float) -> None:
        """Let the load run for this time; fails if a client has failed."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            pause(min(left_s, 0.2))
            for client in self._clients():
                client.raise_failure()

    def resumed(self, since_s: float, timeout_s: float = RESUME_TIMEOUT_S) -> dict[str, float]:
        """Wait until every client has progressed in every partition since `since_s`; return how many seconds each client took, by name.

        Progress is a record that was sent after `since_s`: a producer got its acknowledgement, a reader received it. The members of a
        group are one client.
        """
        found = {
            producer.name: self._slowest(producer.name, [producer], since_s, timeout_s) for producer in self.producers
        }
        found |= {reader.name: self._slowest(reader.name, [reader], since_s, timeout_s) for reader in self.readers}
        if self.members:
            found["group"] = self._slowest("group", self.members, since_s, timeout_s)
        return found

    def _slowest(self, name: str, clients: Sequence[AnyProducer | Consumer], since_s: float, timeout_s: float) -> float:
        first: dict[int, float] = {}

        def has_progressed() -> bool:
            for client in clients:
                client.raise_failure()
                for partition, at_s in self._progress(client, since_s):
                    first[partition] = min(at_s, first.get(partition, at_s))
            return len(first) == self._partition_count

        try:
            until(has_progressed, timeout_s, "")
        except AssertionError as late:
            for client in clients:
                client.raise_failure()
            said = {client.name: dict(client.complaints) for client in clients}
            lines = [line for client in clients for line in client.log]
            raise AssertionError(
                f"{name} has progressed in partitions {sorted(first)} only within {timeout_s:g} s; complaints: {said}; log:\n"
                + "\n".join(lines)
            ) from late
        return max(first.values()) - since_s

    def _progress(self, client: AnyProducer | Consumer, since_s: float) -> Iterator[tuple[int, float]]:
        """(partition, time) of records sent after `since_s`."""
        if not isinstance(client, Reader | Member):
            yield from (
                (record.partition, record.at_s) for record in list(client.acknowledged) if record.sent_s > since_s
            )
            return
        new: dict[int, int] = {}
        for producer in self.producers:
            for record in list(producer.acknowledged):
                if record.sent_s > since_s:
                    new[record.partition] = min(record.offset, new.get(record.partition, record.offset))
        for read in list(client.read):
            if read.partition in new and read.offset >= new[read.partition]:
                yield read.partition, read.at_s

    def finish(self, bootstrap: str) -> Counts:
        """Stop the producers, let the consumers catch up, stop them, read the log with a new client, and check all."""
        for producer in self.producers:
            producer.begin_stop()
        for producer in self.producers:
            producer.stop()
        log = read_log(bootstrap, self._stream, self._partition_count)
        wanted = sum(map(len, log.values()))
        for reader in self.readers:
            until(partial(_has_read, reader, wanted), RESUME_TIMEOUT_S, f"{reader.name} reads {wanted} records")
        if self.members:
            until(lambda: len(self.group_read()) >= wanted, RESUME_TIMEOUT_S, f"the group reads {wanted}")
        for client in [*self.readers, *self.members]:
            client.stop()
        acknowledged = [record for producer in self.producers for record in producer.acknowledged]
        unknown = {name for producer in self.producers for name in producer.unknown}
        readers = {reader.name: reader.read for reader in self.readers}
        members = {member.name: member.read for member in self.members}
        counts = check(acknowledged, unknown, log, readers, members)
        if self.members:
            counts.read["group"] = sum(len(member.read) for member in self.members)
            counts.lost += wanted - len(self.group_read())
        return counts

    def group_read(self) -> set[tuple[int, int]]:
        """(partition, offset) of all records that any member received."""
        return {(read.partition, read.offset) for member in self.members for read in list(member.read)}

    @property
    def failed(self) -> Counter[str]:
        """Deliveries that were reported as failed, by error."""
        return Counter(error for producer in self.producers for error in producer.failed.values())

    @property
    def complaints(self) -> dict[str, dict[str, int]]:
        """Errors that the clients' libraries reported and recovered from."""
        return {client.name: dict(client.complaints) for client in self._clients() if client.complaints}


def _has_read(reader: Reader, count: int) -> bool:
    reader.raise_failure()
    return len(reader.read) >= count


def seconds(found: Mapping[str, float]) -> str:
    """The result of `resumed` as text."""
    return ", ".join(f"{name} {value:.1f} s" for name, value in found.items())


def quantile_ms(acknowledged: Sequence[Acknowledged], fraction: float) -> float:
    """The time (ms) within which this fraction of the records was acknowledged."""
    waits = sorted(record.at_s - record.sent_s for record in acknowledged)
    return waits[min(int(fraction * len(waits)), len(waits) - 1)] * 1000

"""Load of all four protocols on one stream from outside of the cluster: every client reads the records of all.

    with Loads(release, "orders", partition_count=4, folder=tmp_path) as loads:
        loads.advance()                    # every client makes progress, or the test fails
        …
        counts = loads.finish()            # stops the clients, and checks every record against the log
    loads.assert_no_request_failed()

Kafka and Pulsar producers are idempotent and retry, so a record is stored exactly once. REST and gRPC producers send each record once and
report failed requests. Rates are low, because clients, servers and the cluster share a machine.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import pulsar

from faults.checking import Acknowledged, Counts, Log, Name, check
from faults.grpc_load import FetchReader, StreamProducer, UnaryProducer
from faults.load import Producer, Reader, read_log
from faults.pulsar_load import PulsarConsumer, PulsarProducer
from faults.rest_load import RestMember, RestProducer
from faults.waiting import until
from kube.release import Release

PER_SECOND = 40
ADVANCE_S = 90.0
CATCH_UP_S = 120.0
SUBSCRIPTION = "cluster-tests"

AnyProducer: TypeAlias = Producer | PulsarProducer | RestProducer | UnaryProducer
AnyConsumer: TypeAlias = Reader | PulsarConsumer | RestMember | FetchReader


class Loads:
    """The clients of one run. The test fails if a client library gives up."""

    def __init__(self, release: Release, stream: str, *, partition_count: int, folder: Path) -> None:
        self._bootstrap = ",".join(release.outside("kafka"))
        self._stream = stream
        self._partition_count = partition_count
        brokers, nodes = release.outside("pulsar"), release.outside("grpc")
        urls = [f"http://{address}" for address in release.outside("rest")]
        self.kafka = Producer("kafka", self._bootstrap, stream, partition_count, per_second=PER_SECOND)
        self.pulsar = PulsarProducer("pulsar", brokers, stream, folder, per_second=PER_SECOND)
        self.rest = RestProducer("rest", urls, stream, partition_count, per_second=PER_SECOND)
        self.unary = UnaryProducer("grpc-unary", nodes, stream, partition_count)
        self.streaming = StreamProducer("grpc-stream", nodes, stream, partition_count)
        self.producers: list[AnyProducer] = [self.kafka, self.pulsar, self.rest, self.unary, self.streaming]
        self.reader = Reader("kafka-reader", self._bootstrap, stream, partition_count, debug="broker,metadata,topic")
        self.fetcher = FetchReader("grpc-reader", nodes, stream, partition_count)
        self.member = RestMember("rest-member", urls, stream, "cluster-tests-rest")
        shared = pulsar.ConsumerType.Shared
        self.consumer = PulsarConsumer(
            "pulsar-consumer", brokers, stream, folder, subscription=SUBSCRIPTION, kind=shared
        )
        self.consumers: list[AnyConsumer] = [self.reader, self.fetcher, self.member, self.consumer]

    def __enter__(self) -> Self:
        for client in self._clients():
            client.start()
        try:
            self.advance()
        except BaseException:
            self._begin_stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begin_stop()

    def _clients(self) -> list[AnyProducer | AnyConsumer]:
        return [*self.producers, *self.consumers]

    def _begin_stop(self) -> None:
        for client in self._clients():
            client.begin_stop()

    def advance(self) -> float:
        """Wait until every client has made progress; returns the time of the slowest (s)."""
        before = self._achieved()
        missing = set(before)

        def is_moving() -> bool:
            for client in self._clients():
                client.raise_failure()
            missing.difference_update(name for name, count in self._achieved().items() if count > before[name])
            return not missing

        try:
            return until(is_moving, ADVANCE_S, "")
        except AssertionError as late:
            said = "\n".join(line for client in self._clients() if client.name in missing for line in client.log)
            raise AssertionError(
                f"no progress within {ADVANCE_S:g} s of {missing}: {self.complaints()}\n{said}"
            ) from late

    def _achieved(self) -> dict[str, int]:
        found: dict[str, int] = {producer.name: acknowledged_count(producer) for producer in self.producers}
        return found | {consumer.name: len(consumer.read) for consumer in self.consumers}

    def finish(self) -> Counts:
        """Stop the producers, wait until every consumer has read everything, and check all records against the log."""
        for producer in self.producers:
            producer.begin_stop()
        for producer in self.producers:
            producer.stop()
        log = read_log(self._bootstrap, self._stream, self._partition_count)
        stored = {read.name for reads in log.values() for read in reads}
        for consumer in self.consumers:

            def has_all(consumer: AnyConsumer = consumer) -> bool:
                consumer.raise_failure()
                return stored <= {read.name for read in list(consumer.read)}

            until(has_all, CATCH_UP_S, f"{consumer.name} has everything")
        for consumer in self.consumers:
            consumer.begin_stop()
        for consumer in self.consumers:
            consumer.stop()
        counts = self._check(log)
        for consumer in (self.member, self.consumer):
            counts.read[consumer.name] = len(consumer.read)
        return counts

    def _check(self, log: Log) -> Counts:
        acknowledged: list[Acknowledged] = [record for producer in self.producers for record in producer.acknowledged]
        unknown: set[Name] = {name for producer in self.producers for name in producer.unknown}
        readers = {self.reader.name: self.reader.read, self.fetcher.name: self.fetcher.read}
        counts = check(acknowledged, unknown, log, readers)
        stored = {read.name for reads in log.values() for read in reads}
        for name in self.pulsar.acknowledged_as_duplicates - stored:
            counts.note("lost", f"{name} has a receipt as a duplicate and is not stored")
        return counts

    # -- observations of clients ----------------------------------------------------------------------------------------

    def failed(self) -> Counter[str]:
        """Requests that failed at a client: errors of the library, broken connections, and error statuses."""
        found: Counter[str] = Counter()
        for producer in (self.kafka, self.pulsar):
            found.update(f"{producer.name}: {error}" for error in producer.failed.values())
        for http in (self.rest, self.member):
            found.update(f"{http.name}: {text}" for text in http.broken)
            complaints = {text: count for text, count in http.complaints.items() if text != "refused"}
            found.update({f"{http.name}: {text}": count for text, count in complaints.items()})
        found.update({f"{self.member.name}: commit": self.member.commit_errors} if self.member.commit_errors else {})
        for caller in (self.unary, self.streaming, self.fetcher):
            found.update({f"{caller.name}: {status}": count for status, count in caller.statuses.items()})
        return found

    def request_count(self) -> int:
        """The number of requests and records that clients sent and waited for."""
        http = self.rest.request_count + self.member.request_count
        calls = self.unary.call_count + self.streaming.sent_count + self.fetcher.call_count
        return http + calls + self.kafka.sent_count + self.pulsar.sent_count

    def complaints(self) -> dict[str, dict[str, int]]:
        """Errors that libraries recovered from, and failures."""
        said = {client.name: dict(client.complaints) for client in self._clients()}
        return {name: texts for name, texts in said.items() if texts} | {"failed": dict(self.failed())}

    def gaps(self) -> dict[str, float]:
        """The longest time (s) between two acknowledgements, by producer."""
        return {producer.name: gap_s(producer.acknowledged) for producer in self.producers}

    def twice(self) -> dict[str, int]:
        """Records that a consumer with committed positions received twice."""
        return {
            reader.name: len(reader.read) - len({read.name for read in reader.read})
            for reader in (self.member, self.consumer)
        }


def acknowledged_count(producer: AnyProducer) -> int:
    """Acknowledged records."""
    return producer.acknowledged_count if isinstance(producer, PulsarProducer) else len(producer.acknowledged)


def gap_s(acknowledged: list[Acknowledged]) -> float:
    """The longest time (s) between two acknowledgements."""
    times = sorted(record.at_s for record in acknowledged)
    return round(max((after - before for before, after in pairwise(times)), default=0.0), 1)


def figures(loads: Loads, counts: Counts) -> dict[str, Any]:
    """The figures of a run for the report."""
    return {
        "acknowledged": counts.acknowledged,
        "requests": loads.request_count(),
        "failed_requests": sum(loads.failed().values()),
        "lost": counts.lost,
        "stored_twice": counts.duplicated,
        "reordered": counts.reordered,
        "received_twice": loads.twice(),
        "longest_gap_s": loads.gaps(),
    }

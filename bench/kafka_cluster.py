"""Three Kafka brokers on loopback, in combined mode (each is broker and controller), whose topics have three replicas.

A produce request with `acks=all` is acknowledged when all replicas in sync have the batch in their page cache, at least
`min.insync.replicas` (2) of them. Broker n leads the partitions p with p modulo 3 = n.
"""

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.errors import BenchError
from bench.java_peer import CACHE, free_ports
from bench.peer_kafka import KafkaPeer, fetch_jars, properties_of

from bench import topics

BROKER_COUNT = 3
MIN_INSYNC_REPLICAS = 2


class ClusterBroker(KafkaPeer):
    """One broker of a cluster; `voters` has the controller's port of every broker by node id."""

    def __init__(self, directory: Path, *, node: int, port: int, voters: Mapping[int, int]) -> None:
        super().__init__(directory, port=port)
        self.kept_log = CACHE / f"broker-{node}.log"
        self._node = node
        self._voters = voters

    def start(self) -> None:
        """Format and start; returns once a majority of the brokers runs and this one serves."""
        self._prepare()
        properties = properties_of(self._port, self._voters[self._node], self.directory / "logs")
        del properties["controller.quorum.bootstrap.servers"]  # the voters are static
        properties |= {
            "node.id": str(self._node),
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._voters.items()),
            "default.replication.factor": str(BROKER_COUNT),
            "offsets.topic.replication.factor": str(BROKER_COUNT),
            "min.insync.replicas": str(MIN_INSYNC_REPLICAS),
        }
        self._serve_broker(self._port, properties)


class KafkaCluster:
    """Three brokers as one server under measurement."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._brokers: list[ClusterBroker] = []

    @property
    def pid(self) -> int:
        """Process id of the first broker."""
        return self._first.pid

    @property
    def address(self) -> str:
        """Address of the first broker, for administration."""
        return self._first.address

    @property
    def ports(self) -> list[int]:
        """Ports of all brokers, in the order of their ids."""
        return [int(broker.address.rsplit(":", 1)[1]) for broker in self._brokers]

    @property
    def parts(self) -> dict[str, list[int]]:
        """Roots of the process trees."""
        return {"brokers": [broker.pid for broker in self._brokers]}

    def start(self) -> None:
        """Start all brokers; returns once all serve."""
        fetch_jars()
        ports = free_ports(2 * BROKER_COUNT)
        voters = dict(enumerate(ports[BROKER_COUNT:], start=1))
        self._brokers = [
            ClusterBroker(self._directory / f"broker-{node}", node=node, port=port, voters=voters)
            for node, port in zip(voters, ports, strict=False)
        ]
        with ThreadPoolExecutor(BROKER_COUNT) as pool:
            list(pool.map(ClusterBroker.start, self._brokers))

    def stop(self) -> None:
        """Stop all brokers, the controllers' majority last to go, and wipe their data."""
        with ThreadPoolExecutor(BROKER_COUNT) as pool:
            list(pool.map(ClusterBroker.stop, self._brokers))
        self._brokers = []
        shutil.rmtree(self._directory, ignore_errors=True)

    def prepare_next_run(self) -> None:
        """Wait until the data of deleted topics is removed."""
        for broker in self._brokers:
            broker.prepare_next_run()

    def counters(self) -> None:
        """Brokers have no object store to count."""
        return

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create `topic` with three replicas and wait until it is usable."""
        nodes = [node + 1 for node in range(BROKER_COUNT)]
        replicas = [nodes[at % BROKER_COUNT :] + nodes[: at % BROKER_COUNT] for at in range(partition_count)]
        topics.create(self.address, topic, partition_count, {}, replicas=replicas)

    @property
    def _first(self) -> ClusterBroker:
        if not self._brokers:
            raise BenchError("no Kafka broker was started")
        return self._brokers[0]

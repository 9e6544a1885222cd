"""What open transactions cost a server: memory and processor time of many transactional ids, each with a transaction of one partition.

    python bench/open_transactions.py [--ids 10000] [--json FILE]

One connection opens them one after the other (InitProducerId, AddPartitionsToTxn), after a hundred that are not measured. The memory is
the server's, without the page cache. Goal: 10,000 open transactional ids cost less than 100 MB.
"""

import argparse
import json
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import BearlakeServer
from bench.errors import BenchError
from bench.run import MEMORY_ROOT, workspace
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bench import processes

TOPIC = "transactions"
PARTITION_COUNT = 10
TIMEOUT_S = 60
TRANSACTION_MS = 900_000
WARM_COUNT = 100
GOAL_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What `ids` open transactions cost."""

    ids: int
    server_bytes: int
    """Memory (PSS) that the server has more than before."""
    cpu_us: float
    """The server's processor time per id."""


class Connection:
    """One connection to a Kafka server."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._input = self._socket.makefile("rb")

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        """Send a request; return its answer."""
        self._socket.sendall(b"".join(codec.request(key, version).frame(1, "bench", request)))
        (size,) = struct.unpack(">i", self._input.read(4))
        frame = memoryview(self._input.read(size))
        _, position = codec.read_response_header(frame, key, version)
        return codec.response(key, version).decode(frame, position)

    def close(self) -> None:
        """Close the connection."""
        self._input.close()
        self._socket.close()


def measure(directory: Path, *, ids: int) -> Cost:
    """Start a server, open the transactions, stop the server. Raises `BenchError`."""
    server = BearlakeServer(directory / "bearlake")
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)])[TOPIC].result(TIMEOUT_S)
        connection = Connection(server.address)
        _open(connection, "warm", WARM_COUNT)
        memory, used = processes.proportional_bytes(server.pid), processes.usage(server.pid)
        _open(connection, "measured", ids)
        used_s = processes.usage(server.pid).cpu_s - used.cpu_s
        cost = Cost(ids=ids, server_bytes=processes.proportional_bytes(server.pid) - memory, cpu_us=1e6 * used_s / ids)
        found = connection.ask(
            ApiKey.LIST_TRANSACTIONS, 0, m.ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
        )
        if len(found.transaction_states) != WARM_COUNT + ids:
            raise BenchError(f"{len(found.transaction_states):,} transactions are open, not {WARM_COUNT + ids:,}")
        connection.close()
    finally:
        server.stop()
    return cost


def _open(connection: Connection, name: str, count: int) -> None:
    for number in range(count):
        transactional_id = f"{name}-{number}"
        made = connection.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            m.InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=TRANSACTION_MS,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        topic = m.AddPartitionsToTxnRequest.Topic(name=TOPIC, partitions=[number % PARTITION_COUNT])
        added = connection.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[topic],
            ),
        )
        codes = [
            item.partition_error_code
            for found in added.results_by_topic_v3_and_below
            for item in found.results_by_partition
        ]
        if made.error_code or any(codes):
            raise BenchError(f"transaction {transactional_id} was refused: {made.error_code}, {codes}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        with workspace(MEMORY_ROOT) as root:
            cost = measure(root, ids=options.ids)
    except BenchError as error:
        sys.exit(f"open transactions: {error}")
    verdict = "reached" if cost.server_bytes * 10_000 < GOAL_BYTES * cost.ids else "NOT reached"
    print(
        f"{cost.ids:,} open transactional ids: {cost.server_bytes / 1e6:.1f} MB, {cost.cpu_us:.0f} us of processor time each;"
        f" the goal of 100 MB for 10,000 is {verdict}"
    )
    if options.json:
        Path(options.json).write_text(json.dumps(asdict(cost), indent=2) + "\n")


if __name__ == "__main__":
    main()

"""A REST and a gRPC server get SIGTERM under load, while a second server of each runs: no client sees a failed request.

Defined answers of the protocols are not failures: `Connection: close`, the end of an event stream, 40403 and 307 for consumers,
Drain in a streaming call, GOAWAY on a connection; nor is a refused connection, for which a balancer has the other server.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import requests

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from faults.checking import Acknowledged, Read, check
from faults.cluster import Cluster, Server, Stores, running
from faults.grpc_load import Asker, FetchReader, GrpcMember, StreamProducer, UnaryProducer
from faults.rest_load import V2, AiohttpProducer, CurlProducer, Follower, RestMember, RestProducer
from faults.waiting import pause, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

EVENTS = "events"
PARTS = "parts"
GROUP = "drained"
PARTITION_COUNT = 4
TIMEOUT_S = 60.0
DRAIN_S_MAX = 22.0
"""`server.drain_ms` is 20 s; the rest is for the process to end."""

Tell = Callable[[object], None]
AnyProducer = RestProducer | UnaryProducer
AnyReader = Follower | FetchReader | RestMember | Asker


def pair(cluster: Cluster, role: str) -> tuple[Server, Server]:
    """Two servers of a role, both ready."""
    first, second = cluster.add("one", role=role), cluster.add("two", role=role)
    first.start()
    second.start()
    return first, second


def start(clients: Sequence[AnyProducer | AnyReader]) -> None:
    for client in clients:
        client.start()


def run_on(clients: Sequence[AnyProducer | AnyReader], load_s: float) -> None:
    """Let the load run, until every client has achieved something more."""
    before = {client.name: achieved(client) for client in clients}
    pause(load_s)

    def is_moving() -> bool:
        for client in clients:
            client.raise_failure()
        return all(achieved(client) > before[client.name] for client in clients)

    until(is_moving, TIMEOUT_S, "every client achieves something")


def achieved(client: AnyProducer | AnyReader) -> int:
    if isinstance(client, Asker):
        return client.answered
    return len(client.acknowledged if isinstance(client, RestProducer | UnaryProducer) else client.read)


def acknowledged(producers: Sequence[AnyProducer]) -> list[Acknowledged]:
    return [record for producer in producers for record in producer.acknowledged]


def finish(producers: Sequence[AnyProducer], readers: Sequence[Sequence[AnyReader]]) -> None:
    """Stop the producers, let each of `readers`, together, have everything of its stream, and stop them."""
    for producer in producers:
        producer.stop()
    for together in readers:
        wanted = {(record.partition, record.offset) for record in acknowledged(producers)}
        until(partial(_have, together, wanted), TIMEOUT_S, f"{[reader.name for reader in together]} have everything")
    for together in readers:
        for reader in together:
            reader.stop()


def _have(readers: Sequence[AnyReader], wanted: set[tuple[int, int]]) -> bool:
    return wanted <= {(read.partition, read.offset) for reader in readers for read in list(reader.read)}


def log_of(readers: Sequence[AnyReader]) -> dict[int, list[Read]]:
    """The records of all readers, by partition and offset, which must have no gaps."""
    reads = sorted(read for reader in readers for read in reader.read)
    log: dict[int, list[Read]] = {}
    for read in reads:
        log.setdefault(read.partition, []).append(read)
    for partition, found in log.items():
        assert [read.offset for read in found] == list(range(len(found))), f"partition {partition} was not read once"
    return log


def test_a_rest_server_drains_and_no_request_fails(folder: Path, stores: Stores, load_s: float, tell: Tell) -> None:
    with running(Cluster(folder, stores)) as cluster:
        first, second = pair(cluster, "rest")
        urls = [server.address("rest") for server in (first, second)]
        create_by_rest(urls)
        writers = [
            RestProducer("requests", urls, PARTS, PARTITION_COUNT),
            AiohttpProducer("aiohttp", urls, PARTS, PARTITION_COUNT),
            CurlProducer("curl", urls, PARTS, PARTITION_COUNT),
        ]
        talkers = [RestProducer(f"events-{at}", urls, EVENTS, 1, form="json") for at in range(2)]
        followers = [Follower(f"follower-{at}", urls, EVENTS) for at in range(2)]
        members = [RestMember(f"member-{at}", urls, PARTS, GROUP) for at in range(2)]
        clients = [*writers, *talkers, *followers, *members]
        start(clients)
        run_on(clients, load_s)
        drained_s = first.terminate()
        run_on(clients, load_s)
        finish(talkers, [[follower] for follower in followers])
        finish(writers, [members])

        requests_sent = {client.name: client.request_count for client in clients}
        tell(f"ended {drained_s:.1f} s after SIGTERM; requests {requests_sent}")
        tell(f"complaints { ({client.name: dict(client.complaints) for client in clients if client.complaints}) }")
        tell(f"instances {[m.instances for m in members]}, event streams ended {[f.ends for f in followers]}")
        broken = [text for client in clients for text in client.broken]
        assert not broken
        for producers, readers in ((writers, members), (talkers, followers[:1]), (talkers, followers[1:])):
            unknown = {name for producer in producers for name in producer.unknown}
            counts = check(acknowledged(producers), unknown, log_of(readers), {})
            tell(counts)
            counts.assert_exact()
            assert not counts.unknown
        assert drained_s < DRAIN_S_MAX
        assert not any(member.commit_errors for member in members)
        assert not any(set(client.complaints) - {"refused"} for client in clients)


def create_by_rest(urls: Sequence[str]) -> None:
    """Both streams, known to all servers."""
    cluster_id = requests.get(f"{urls[0]}/v3/clusters", timeout=TIMEOUT_S).json()["data"][0]["cluster_id"]
    topic = json.dumps({"topic_name": PARTS, "partitions_count": PARTITION_COUNT})
    made = requests.post(
        f"{urls[0]}/v3/clusters/{cluster_id}/topics",
        data=topic,
        headers={"Content-Type": "application/json"},
        timeout=TIMEOUT_S,
    )
    assert made.status_code == 201, made.text
    event = requests.put(
        f"{urls[0]}/v1/stream/{EVENTS}", headers={"Content-Type": "application/json"}, timeout=TIMEOUT_S
    )
    assert event.status_code == 201, event.text
    for url in urls:
        until(partial(_knows, url), TIMEOUT_S, f"{url} knows the streams")


def _knows(url: str) -> bool:
    return all(
        requests.get(f"{url}/topics/{name}", headers=V2, timeout=TIMEOUT_S).status_code == 200
        for name in (PARTS, EVENTS)
    )


def test_a_grpc_server_drains_and_no_call_fails(folder: Path, stores: Stores, load_s: float, tell: Tell) -> None:
    with running(Cluster(folder, stores)) as cluster:
        first, second = pair(cluster, "grpc")
        both = [server.address("grpc") for server in (first, second)]
        producers: list[UnaryProducer] = [
            UnaryProducer("unary-0", both, PARTS, PARTITION_COUNT),
            UnaryProducer("unary-1", both, PARTS, PARTITION_COUNT),
            StreamProducer("stream-0", both, PARTS, PARTITION_COUNT),
            StreamProducer("stream-1", both, PARTS, PARTITION_COUNT),
        ]
        create = pb.CreateStreamRequest(name=PARTS, partition_count=PARTITION_COUNT)
        producers[0].unary(methods.CREATE_STREAM, create)
        readers = [FetchReader(f"fetch-{at}", both, PARTS, PARTITION_COUNT) for at in range(2)]
        members = [GrpcMember(f"member-{at}", both, PARTS, GROUP) for at in range(2)]
        askers = [Asker(f"asker-{at}", both, PARTS) for at in range(2)]
        clients = [*producers, *readers, *members, *askers]
        start(clients)
        run_on(clients, load_s)
        drained_s = first.terminate()
        run_on(clients, load_s)
        finish(producers, [*([reader] for reader in readers), members])
        for asker in askers:
            asker.stop()

        tell(f"ended {drained_s:.1f} s after SIGTERM; calls { ({c.name: c.call_count for c in clients}) }")
        tell(f"drains { ({client.name: client.drains for client in clients if client.drains}) }")
        statuses = sum((client.statuses for client in clients), Counter[str]())
        tell(f"statuses other than OK {dict(statuses)}")
        for found in (readers[:1], readers[1:], members):
            unknown = {name for producer in producers for name in producer.unknown}
            counts = check(acknowledged(producers), unknown, log_of(found), {})
            tell(counts)
            counts.assert_exact()
            assert not counts.unknown
        assert not statuses
        assert drained_s < DRAIN_S_MAX
        assert not any(member.commit_errors for member in members)
        assert all(client.drains for client in (*producers[2:], *readers, *members))

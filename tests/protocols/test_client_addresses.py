"""Access rules may name a client's IP address: each protocol passes the address on to the authorizer."""

from typing import Any

import aiohttp
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.serving.http.login import FORWARDED
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.grpc_server import MakeGrpc
from fixtures.logins import Logins, add_user, basic
from fixtures.pulsar_http import ask
from fixtures.pulsar_server import Make
from fixtures.rest_server import MakeServers

V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
BOTH = pytest.mark.parametrize("logs_in", [False, True])


class Seen(Authorizer):
    """Notes callers and their addresses, and allows everything."""

    def __init__(self) -> None:
        self.callers: set[tuple[str, str]] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        self.callers.add((str(who), who.host))
        return True


def expected(logs_in: bool) -> set[tuple[str, str]]:
    return {("User:alice" if logs_in else "User:ANONYMOUS", "127.0.0.1")}


def options(logins: Logins, logs_in: bool) -> dict[str, Any]:
    return {"authentication": logins.settings()} if logs_in else {}


@BOTH
async def test_rest(rest_servers: MakeServers, logins: Logins, logs_in: bool) -> None:
    cluster = await rest_servers(1, **options(logins, logs_in))
    await add_user(cluster[0].metadata)
    await cluster[0].create("t")
    seen = cluster[0].streams.authorizer = Seen()
    answer = await cluster[0].get("/topics/t", headers=basic() if logs_in else {})
    assert answer.status == 200
    assert seen.callers == expected(logs_in)


async def test_a_request_that_claims_to_be_forwarded_has_no_address(rest_servers: MakeServers) -> None:
    """Rules that deny an address then apply to it, and rules that allow one do not."""
    cluster = await rest_servers(1)
    await cluster[0].create("t")
    seen = cluster[0].streams.authorizer = Seen()
    assert (await cluster[0].get("/topics/t", headers={FORWARDED: "1"})).status == 200
    assert seen.callers == {("User:ANONYMOUS", "")}


async def test_a_forwarded_request_has_the_address_of_its_client(rest_servers: MakeServers, logins: Logins) -> None:
    cluster = await rest_servers(2, authentication=logins.settings())
    await add_user(cluster[0].metadata)
    await cluster[1].create("t")
    created = await cluster[1].post("/consumers/g", {"name": "i"}, headers=basic())
    assert created.status == 200
    seen = cluster[0].streams.authorizer = cluster[1].streams.authorizer = Seen()
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with aiohttp.ClientSession(connector=connector, headers=basic()) as client:
        for node in cluster:  # one of them has the instance
            url = f"{node.url}/consumers/g/instances/i/subscription"
            async with client.post(url, json={"topics": ["t"]}, headers=V2) as answer:
                assert answer.status == 204
    assert seen.callers == {("User:alice", "127.0.0.2")}


@BOTH
async def test_grpc(grpc_cluster: MakeGrpc, logins: Logins, logs_in: bool) -> None:
    cluster = await grpc_cluster(1, **options(logins, logs_in))
    await add_user(cluster[0].streams.metadata)
    await cluster[0].create("t")
    seen = cluster[0].streams.authorizer = Seen()
    metadata = [("authorization", basic()["Authorization"])] if logs_in else []
    await cluster[0].call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="t"), metadata=metadata)
    assert seen.callers == expected(logs_in)


@BOTH
async def test_pulsar(pulsar_cluster: Make, logins: Logins, logs_in: bool) -> None:
    cluster = await pulsar_cluster(1, **options(logins, logs_in))
    await add_user(cluster.metadata)
    await cluster[0].create("t")
    seen = cluster[0].streams.authorizer = Seen()
    login = {"auth_method_name": "basic", "auth_data": b"alice:secret"} if logs_in else {}
    client = await cluster[0].client(**login)
    await client.produce("t")
    assert seen.callers == expected(logs_in)


@BOTH
async def test_pulsar_http(pulsar_cluster: Make, logins: Logins, logs_in: bool) -> None:
    cluster = await pulsar_cluster(1, **options(logins, logs_in))
    await add_user(cluster.metadata)
    await cluster[0].create("t")
    seen = cluster[0].streams.authorizer = Seen()
    async with aiohttp.ClientSession(headers=basic() if logs_in else {}) as session:
        status, _ = await ask(session, cluster[0], "GET", "/admin/v2/persistent/public/default/t/partitions")
    assert status == 200
    assert seen.callers == expected(logs_in)

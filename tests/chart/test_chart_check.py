"""The program of `helm test` against real servers: it succeeds only if records were read back, and otherwise reports what it waited for."""

import asyncio
import os
import sys

import pytest

from fixtures.kafka_server import Make, Node
from fixtures.kubernetes import REPOSITORY
from fixtures.logins import Logins, add_user
from fixtures.rest_server import MakeServers, RestNode
from fixtures.waiting import WAIT_S

PROGRAM = REPOSITORY / "charts/bearlake/files/test/produce_and_consume.py"


async def run(protocol: str, address: str, stream: str, seconds: int, **variables: str) -> tuple[int, str]:
    """Status and output of the program, with these variables in its environment."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", PROGRAM, protocol, address, stream, str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **variables},
    )
    async with asyncio.timeout(WAIT_S):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_records_are_read_back_through_kafka_among_other_records(kafka: Node) -> None:
    await kafka.create("checked")

    for _ in range(2):
        status, output = await run("kafka", kafka.address, "checked", 30)

        assert (status, output.splitlines()[-1][:34]) == (0, "100 records were written to checke"), output


async def test_records_are_read_back_through_rest_among_other_records(rest: RestNode) -> None:
    await rest.create("checked")

    for _ in range(2):
        status, output = await run("rest", rest.url.removeprefix("http://"), "checked", 30)

        assert (status, output.splitlines()[-1][:34]) == (0, "100 records were written to checke"), output


@pytest.mark.parametrize("protocol", ["kafka", "rest"])
async def test_the_program_waits_for_a_missing_stream_and_names_it(kafka: Node, rest: RestNode, protocol: str) -> None:
    address = {"kafka": kafka.address, "rest": rest.url.removeprefix("http://")}[protocol]

    status, output = await run(protocol, address, "absent", 1)

    assert status == 1
    assert "FAILED: the stream is not served: " in output
    assert "kubectl describe stream absent" in output
    assert {"kafka": "the topic absent", "rest": "404"}[protocol] in output


@pytest.mark.parametrize("protocol", ["kafka", "rest"])
async def test_the_program_waits_for_a_missing_server(protocol: str) -> None:
    status, output = await run(protocol, "127.0.0.1:1", "absent", 1)

    assert status == 1
    assert "FAILED: the stream is not served: " in output


@pytest.mark.parametrize(("password", "status"), [("secret", 0), ("wrong", 1)])
async def test_the_program_logs_in_to_kafka(kafka_cluster: Make, logins: Logins, password: str, status: int) -> None:
    cluster = await kafka_cluster(1, authentication=logins.settings())
    await add_user(cluster.metadata)
    await cluster[0].create("checked")

    found, output = await run(
        "kafka", cluster[0].address, "checked", 30 if status == 0 else 1, TEST_USER="alice", TEST_PASSWORD=password
    )

    assert found == status, output
    assert password not in output


async def test_the_program_logs_in_to_rest(rest_servers: MakeServers, logins: Logins) -> None:
    (node,) = await rest_servers(1, authentication=logins.settings())
    await add_user(node.metadata)
    await node.create("checked")

    status, output = await run(
        "rest", node.url.removeprefix("http://"), "checked", 30, TEST_USER="alice", TEST_PASSWORD="secret"
    )

    assert status == 0, output

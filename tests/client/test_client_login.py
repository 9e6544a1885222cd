"""Logins of the Python client: by password and by token, also while logins end during streaming calls."""

import asyncio

import grpc
import pytest

from bearlake.client import AsyncClient, Client, ClientSettings, Denied, Password, Token
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.logins import Logins, add_user

QUICK = ClientSettings(linger_ms=1, retry_pause_ms=5, retry_pause_max_ms=50)
ALICE = Password("alice", "secret")
LOGIN_COUNT = 8


async def start(grpc_cluster: MakeGrpc, logins: Logins, **changes: int) -> GrpcNode:
    cluster = await grpc_cluster(1, authentication=logins.settings(**changes))
    await add_user(cluster.metadata)
    return cluster[0]


async def test_a_password_and_a_token_are_logins(grpc_cluster: MakeGrpc, logins: Logins) -> None:
    node = await start(grpc_cluster, logins)
    await node.create("t")
    for login in (ALICE, Token(logins.token)):
        async with AsyncClient(node.address, login=login, settings=QUICK) as client:
            assert await client.list_streams() == ["t"]


@pytest.mark.parametrize("login", [None, Password("alice", "wrong"), Token(lambda: "a.b.c")], ids=str)
async def test_a_refused_login_is_not_tried_again(
    grpc_cluster: MakeGrpc, logins: Logins, login: Password | Token | None
) -> None:
    node = await start(grpc_cluster, logins)
    async with AsyncClient(node.address, login=login, settings=QUICK) as client:
        with pytest.raises(Denied) as caught:
            await client.list_streams()
    assert (caught.value.code, caught.value.is_retriable) == (grpc.StatusCode.UNAUTHENTICATED.name, False)


async def test_streams_go_on_in_order_while_logins_end(grpc_cluster: MakeGrpc, logins: Logins) -> None:
    """The work goes on until both streaming calls have ended several times."""
    node = await start(grpc_cluster, logins, session_ms_max=1_000)
    await node.create("t")
    login_count = 0

    def renewed() -> str:
        nonlocal login_count
        login_count += 1
        return logins.token()

    async with AsyncClient(node.address, login=Token(renewed), settings=QUICK) as client:

        async def write() -> int:
            async with client.producer() as producer:
                number = 0
                while login_count < LOGIN_COUNT:
                    await producer.send("t", str(number).encode())
                    number += 1
                    await asyncio.sleep(0.001)
                await producer.send("t", b"end")
            return number

        async def read() -> list[int]:
            found: list[int] = []
            async for record in client.read("t", follow=True):
                if record.value == b"end":
                    break
                found.append(int(record.value or b""))
            return found

        count, found = await asyncio.gather(write(), read())
    assert found == list(range(count))


def test_a_login_is_not_sent_to_other_machines_without_tls() -> None:
    with pytest.raises(ValueError, match="needs TLS"):
        Client("lake.example:50051", login=ALICE)
    for address in ("localhost:1", "127.0.0.1:1", "[::1]:1"):
        Client(address, login=ALICE).close()
    Client("lake.example:50051", login=Password("alice", "secret", without_tls=True)).close()


def test_a_login_does_not_show_its_secret() -> None:
    assert "secret" not in repr(ALICE)


def test_a_name_that_basic_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="colon"):
        Password("a:b", "secret")

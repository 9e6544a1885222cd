"""Hostile clients of a real server: floods of connections on every port, handshakes that stall, compressed bombs. Others are served."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import grpc
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.settings import GrpcSettings
from fixtures.grpc_server import MakeGrpc
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

MIB = 1024 * 1024
FLOOD_COUNT = 300
LIMITS = {
    "BEARLAKE_KAFKA__ADDRESS_CONNECTIONS_MAX": "50",
    "BEARLAKE_PULSAR__ADDRESS_CONNECTIONS_MAX": "50",
    "BEARLAKE_PULSAR_HTTP__ADDRESS_CONNECTION_COUNT_MAX": "50",
    "BEARLAKE_REST__ADDRESS_CONNECTION_COUNT_MAX": "50",
    "BEARLAKE_REGISTRY__ADDRESS_CONNECTION_COUNT_MAX": "50",
    "BEARLAKE_CATALOG__ADDRESS_CONNECTION_COUNT_MAX": "50",
    "BEARLAKE_GRPC__HANDSHAKE_MS": "1000",
    **{
        f"BEARLAKE_{name}REQUEST_COUNT_MAX": count
        for api in ("REST__", "REGISTRY__", "CATALOG__", "PULSAR_HTTP__", "ADMIN__")
        for name, count in ((api, "20"), (f"{api}ADDRESS_", "10"))
    },
}
HTTP = {
    "rest": "/v3/clusters",
    "registry": "/subjects",
    "catalog": "/v1/config",
    "pulsar_http": "/admin/v2/clusters",
    "admin": "/livez",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("flooded")
    words = ("up", "--no-tour", "--data-dir", folder / "data")
    with started(*words, ready_file=folder / "ready.json", environ=LIMITS) as process:
        yield process
        assert process.stop() == 0


def address_of(server: ServerProcess, name: str) -> tuple[str, int]:
    host, _, port = str(server.ready[name]).rpartition("://")[2].rpartition(":")
    return host, int(port)


async def is_served(server: ServerProcess, name: str) -> bool:
    """Whether a client at another address gets an answer."""
    host, port = address_of(server, name)
    other = ("127.0.0.2", 0)
    if name in HTTP:
        connector = aiohttp.TCPConnector(local_addr=other)
        url = f"http://{host}:{port}{HTTP[name]}"
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as response:
            return response.status == 200
    if name == "grpc":
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), WAIT_S)
            return True
    reader, writer = await asyncio.open_connection(host, port, local_addr=other)
    kafka = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    pulsar = bytes.fromhex("0000000b00000007080212030a0161")  # CONNECT
    writer.write(kafka if name == "kafka" else pulsar)
    answer = await reader.read(4)
    writer.close()
    return len(answer) == 4


@pytest.mark.parametrize("name", ["kafka", "pulsar", "grpc", *HTTP])
async def test_a_flood_of_silent_connections_leaves_the_port_to_others(server: ServerProcess, name: str) -> None:
    with ExitStack() as closing:
        for _ in range(FLOOD_COUNT):
            flooding = closing.enter_context(socket.socket())
            flooding.connect(address_of(server, name))

        async with asyncio.timeout(WAIT_S):
            assert await is_served(server, name)


BODIES = {
    "rest": "POST /topics/t",
    "registry": "POST /subjects/t/versions",
    "catalog": "POST /v1/namespaces",
    "pulsar_http": "PUT /admin/v2/persistent/public/default/t/partitions",
    "admin": "POST /v1/streams",
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_flood_of_requests_whose_bodies_do_not_arrive_leaves_the_port_to_others(
    server: ServerProcess, name: str
) -> None:
    """Each of them lasts a minute, and a server has a bounded number."""
    kind = "application/vnd.kafka.json.v2+json" if name == "rest" else "application/json"
    head = f"{BODIES[name]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as closing:
        for _ in range(20):
            flooding = closing.enter_context(socket.socket())
            flooding.connect(address_of(server, name))
            flooding.sendall(head.encode())

        async with asyncio.timeout(WAIT_S):
            host, port = address_of(server, name)
            async with aiohttp.ClientSession() as session:
                while True:
                    async with session.get(f"http://{host}:{port}{HTTP[name]}") as response:
                        if response.status == 503:
                            break
            assert await is_served(server, name)


def peak_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


async def test_a_compressed_bomb_over_grpc_takes_no_memory(server: ServerProcess) -> None:
    """200 KB of gzip are 200 MiB."""
    host, port = address_of(server, "grpc")
    request = pb.ProduceRequest(stream="t")
    request.payload.record_batches = bytes(200 * MIB)
    before = peak_bytes(server)

    async with grpc.aio.insecure_channel(f"{host}:{port}", compression=grpc.Compression.Gzip) as channel:
        call = channel.unary_unary(
            methods.PRODUCE.path,
            request_serializer=pb.ProduceRequest.SerializeToString,
            response_deserializer=pb.ProduceResponse.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request, timeout=WAIT_S)

    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak_bytes(server) - before < 100 * MIB
    assert await is_served(server, "grpc")


async def test_a_compressed_bomb_over_http_is_refused(server: ServerProcess) -> None:
    host, port = address_of(server, "rest")
    bomb = gzip.compress(bytes(200 * MIB), 9)
    before = peak_bytes(server)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/vnd.kafka.json.v2+json"}

    url = f"http://{host}:{port}/topics/t"
    async with aiohttp.ClientSession() as session, session.post(url, data=bomb, headers=headers) as response:
        assert response.status in (413, 415, 422)

    assert peak_bytes(server) - before < 100 * MIB
    assert await is_served(server, "rest")


async def test_a_grpc_handshake_that_stalls_ends(grpc_cluster: MakeGrpc) -> None:
    node = (await grpc_cluster(1, settings=GrpcSettings(handshake_ms=300)))[0]
    host, _, port = node.address.rpartition(":")

    reader, writer = await asyncio.open_connection(host, int(port))

    async with asyncio.timeout(WAIT_S):
        while await reader.read(1000):
            pass
    writer.close()


async def test_a_tls_handshake_of_http_that_stalls_ends(certificates: dict[str, Path], tmp_path: Path) -> None:
    stores = ["--metadata-url", f"sqlite:///{tmp_path}/metadata.db", "--object-store-url", tmp_path.as_uri()]
    environ = {
        "BEARLAKE_LISTENERS__REST__TLS_CERTIFICATE_FILE": str(certificates["server"]),
        "BEARLAKE_LISTENERS__REST__TLS_KEY_FILE": str(certificates["server_key"]),
        "BEARLAKE_REST__FIRST_REQUEST_MS": "500",
    }
    with started("serve", "rest", *stores, ready_file=tmp_path / "ready.json", environ=environ) as server:
        host, port = address_of(server, "rest")
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"\x16\x03\x01")

        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionResetError):  # an end too: the server left bytes unread
                assert await reader.read() == b""
        trusting = ssl.create_default_context(cafile=str(certificates["authority"]))
        trusting.check_hostname = False
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://{host}:{port}/v3/clusters", ssl=trusting) as response,
        ):
            assert response.status == 200
        writer.close()
        assert server.stop() == 0

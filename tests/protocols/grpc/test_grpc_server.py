"""The gRPC server itself: admin calls, health, reflection, ports, TLS, and the generated messages."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bearlake.client import AsyncClient, Tls
from bearlake.errors import Unavailable
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import generate
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.grpc.server import GrpcServer
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.serving.listener import ListenerSettings
from fixtures.grpc_server import GrpcNode, MakeGrpc, call
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S


def test_the_checked_in_messages_are_those_of_the_proto_file() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools compiles the .proto file")

    made = generate.generate()

    for name, content in made.items():
        is_same = (generate.FOLDER / name).read_text() == content
        assert is_same, f"{name} is out of date: run python -m bearlake.protocols.grpc.proto.generate"


def test_the_table_of_methods_is_that_of_the_proto_file() -> None:
    named = {method.path: method for method in vars(methods).values() if isinstance(method, methods.Method)}

    services = pb.DESCRIPTOR.services_by_name.values()

    assert {service.full_name for service in services} == set(methods.SERVICES)
    assert set(named) == {f"/{service.full_name}/{item.name}" for service in services for item in service.methods}
    for service in services:
        for item in service.methods:
            method = named[f"/{service.full_name}/{item.name}"]
            assert (item.input_type, item.output_type) == (method.request.DESCRIPTOR, method.response.DESCRIPTOR)
            assert (item.client_streaming, item.server_streaming) == (method.is_streaming,) * 2


async def test_streams_are_created_described_listed_and_deleted(grpc_node: GrpcNode) -> None:
    made = await grpc_node.call(
        methods.CREATE_STREAM,
        pb.CreateStreamRequest(name="orders", partition_count=3, configs={"retention.ms": "1000"}),
    )
    payload = pb.Payload(record_batches=batch_of(b"a", b"b"))
    await grpc_node.call(methods.PRODUCE, pb.ProduceRequest(stream="orders", partition=1, payload=payload))
    described = await grpc_node.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="orders"))
    await grpc_node.call(methods.DELETE_STREAM, pb.DeleteStreamRequest(name="orders"))
    left = await grpc_node.call(methods.LIST_STREAMS, pb.ListStreamsRequest())

    assert (made.name, made.partition_count, dict(made.configs)) == ("orders", 3, {"retention.ms": "1000"})
    assert len(made.id) == 16
    assert described.stream == made
    assert [(item.partition, item.start_offset, item.end_offset) for item in described.partitions] == [
        (0, 0, 0),
        (1, 0, 2),
        (2, 0, 0),
    ]
    assert list(left.streams) == []


async def test_streams_are_listed_in_pages(grpc_node: GrpcNode) -> None:
    for name in ("a1", "a2", "a3", "b"):
        await grpc_node.create(name)

    first = await grpc_node.call(methods.LIST_STREAMS, pb.ListStreamsRequest(prefix="a", page_size=2))
    token = first.next_page_token
    second = await grpc_node.call(
        methods.LIST_STREAMS, pb.ListStreamsRequest(prefix="a", page_size=2, page_token=token)
    )

    assert [item.name for item in first.streams] == ["a1", "a2"]
    assert [item.name for item in second.streams] == ["a3"]
    assert second.next_page_token == ""


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        (methods.CREATE_STREAM, pb.CreateStreamRequest(name="a b", partition_count=1), "INVALID_ARGUMENT"),
        (methods.CREATE_STREAM, pb.CreateStreamRequest(name="ab"), "INVALID_ARGUMENT"),
        (methods.CREATE_STREAM, pb.CreateStreamRequest(name="taken", partition_count=1), "ALREADY_EXISTS"),
        (methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name="none"), "NOT_FOUND"),
        (methods.DELETE_STREAM, pb.DeleteStreamRequest(name="none"), "NOT_FOUND"),
        (methods.LIST_STREAMS, pb.ListStreamsRequest(page_size=-1), "INVALID_ARGUMENT"),
    ],
)
async def test_wrong_admin_calls_are_refused(
    grpc_node: GrpcNode, method: "methods.Method[object, object]", request_: object, code: str
) -> None:
    await grpc_node.create("taken")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await grpc_node.call(method, request_)

    assert caught.value.code().name == code


async def test_health_serves_and_stops_serving_with_the_drain(grpc_node: GrpcNode) -> None:
    stub = health_pb2_grpc.HealthStub(grpc_node.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=methods.PRODUCER))
    watch = stub.Watch(health_pb2.HealthCheckRequest())
    first = await watch.read()

    await grpc_node.server.drain(500)
    second = await watch.read()

    assert answer.status == first.status == health_pb2.HealthCheckResponse.SERVING
    assert second.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_names_the_services_and_their_file(grpc_node: GrpcNode) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(grpc_node.channel)
    talk = stub.ServerReflectionInfo()

    await talk.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {item.name for item in (await talk.read()).list_services_response.service}
    await talk.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=methods.PRODUCER))
    files = (await talk.read()).file_descriptor_response.file_descriptor_proto
    talk.cancel()

    assert set(methods.SERVICES) < names
    assert any(b"ProduceStreamRequest" in item for item in files)


async def test_a_taken_port_is_reported(grpc_node: GrpcNode) -> None:
    with pytest.raises(Unavailable, match=str(grpc_node.server.endpoint.port)):
        GrpcServer(GrpcSettings(), ListenerSettings(port=grpc_node.server.endpoint.port))


async def test_clients_without_a_certificate_are_refused_if_one_is_required(
    grpc_cluster: MakeGrpc, certificates: dict[str, Path]
) -> None:
    listener = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    node = (await grpc_cluster(1, listener=listener))[0]
    files = await asyncio.to_thread(lambda: {name: path.read_bytes() for name, path in certificates.items()})

    async def names(*pair: bytes) -> list[str]:
        credentials = grpc.ssl_channel_credentials(files["authority"], *pair)
        async with grpc.aio.secure_channel(f"localhost:{node.server.endpoint.port}", credentials) as channel:
            found = await call(channel, methods.LIST_STREAMS, pb.ListStreamsRequest(), timeout=WAIT_S)
            return [item.name for item in found.streams]

    tls = Tls(
        ca_file=certificates["authority"], key_file=certificates["client_key"], certificate_file=certificates["client"]
    )
    async with AsyncClient(f"localhost:{node.server.endpoint.port}", tls=tls) as client:
        assert await client.list_streams() == []
    assert await names(files["client_key"], files["client"]) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await names()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

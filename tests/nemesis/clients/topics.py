"""Topics that several processes create, delete and create again at the same time, through the Kafka and gRPC APIs."""

import grpc

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from nemesis.clients.grpcs import _channel, _unary
from nemesis.script import Script

NAMES = ("churned-0", "churned-1")
PAUSE_S = 0.7


def churn(script: Script) -> None:
    """Send one request after another about a few topic names; gRPC returns the ids of incarnations."""
    while script.is_running:
        with _channel(script) as channel:
            for _ in range(20):
                if not script.is_running:
                    break
                topic = script.random.choice(NAMES)
                script.random.choice((_create, _delete, _describe, _produce))(script, channel, topic)
                script.pause(PAUSE_S * script.random.uniform(0.2, 2.0))


def _create(script: Script, channel: object, topic: str) -> None:
    operation = script.history.invoke("create", topic=topic)
    try:
        made = _unary(channel, methods.CREATE_STREAM, pb.CreateStreamRequest(name=topic, partition_count=1))
    except grpc.RpcError as error:
        _record_failure(script, operation, error, grpc.StatusCode.ALREADY_EXISTS, "exists")
        return
    script.history.ok(operation, incarnation=made.id.hex())


def _delete(script: Script, channel: object, topic: str) -> None:
    operation = script.history.invoke("delete", topic=topic)
    try:
        _unary(channel, methods.DELETE_STREAM, pb.DeleteStreamRequest(name=topic))
    except grpc.RpcError as error:
        _record_failure(script, operation, error, grpc.StatusCode.NOT_FOUND, "missing")
        return
    script.history.ok(operation)


def _describe(script: Script, channel: object, topic: str) -> None:
    operation = script.history.invoke("describe", topic=topic)
    try:
        found = _unary(channel, methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=topic))
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.NOT_FOUND:  # type: ignore[attr-defined]
            script.history.ok(operation, incarnation=None)
        else:
            script.history.unknown(operation, error.code().name)  # type: ignore[attr-defined]
        return
    script.history.ok(operation, incarnation=found.stream.id.hex())


def _produce(script: Script, channel: object, topic: str) -> None:
    """Produce records that compaction and deletion meet. No history has them, since a name does not identify an incarnation."""
    try:
        payload = pb.Payload(records=pb.Records(records=[pb.Record(value=b"churned")] * 20))
        _unary(channel, methods.PRODUCE, pb.ProduceRequest(stream=topic, partition=0, payload=payload))
    except grpc.RpcError as error:
        script.history.note(f"churned produce {error.code().name}")  # type: ignore[attr-defined]


def _record_failure(script: Script, operation: int, error: grpc.RpcError, refusal: grpc.StatusCode, why: str) -> None:
    code = error.code()  # type: ignore[attr-defined]
    if code == refusal:
        script.history.fail(operation, why)
    else:
        script.history.unknown(operation, code.name)
        script.history.note(f"topics {code.name}")

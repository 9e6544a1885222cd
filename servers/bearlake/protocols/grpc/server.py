"""The gRPC server: its methods, limits, health, reflection and drain.

Draining: health says NOT_SERVING, no more connections are accepted, streaming calls send Drain and end when their clients close their
side. Connections reach their age meanwhile and are told to go elsewhere (GOAWAY), while calls on them are still taken: gRPC's own way to
stop a server fails calls that are on their way (grpc/grpc#41785). When all have gone, or after most of the time, the server is stopped.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bearlake.metadata.model import Server
from bearlake.protocols.grpc import admin, consuming, fetching, framing, listening, methods, producing
from bearlake.protocols.grpc.call import Node, streaming, unary
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.service import Streams

NAME = "grpc"
_CLOSE_SHARE = 0.8  # of the time for draining that clients have; the rest is for what they sent last
_DRAIN_POLL_MS = 100
_SERVING = health_pb2.HealthCheckResponse.SERVING


class GrpcServer:
    """A `serving.Service` that speaks bearlake.stream.v1 on one port."""

    def __init__(self, settings: GrpcSettings, wanted: ListenerSettings) -> None:
        """Binds the port. Raises `Invalid`, `Unavailable`."""
        self._settings = settings
        self._server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=settings.calls_max)
        self.endpoint = listening.bind(self._server, wanted)
        self._listener = f"{NAME}:{wanted.name}" if wanted.name else NAME
        self._health = health.aio.HealthServicer()
        self._node: Node

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener."""
        return {self._listener: self.endpoint.address}

    @property
    def call_count(self) -> int:
        """Streaming calls under way."""
        return self._node.call_count

    async def start(
        self, streams: Streams, servers: Callable[[], Sequence[Server]], random_source: random.Random | None = None
    ) -> None:
        """Accept calls when this returns. `servers` tells the live ones."""
        self._node = Node(streams, servers, self._settings, random_source or random.SystemRandom())
        self._server.add_generic_rpc_handlers(_handlers(self._node))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            [*methods.SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server
        )
        for name in ("", *methods.SERVICES):
            await self._health.set(name, _SERVING)
        await self._server.start()

    async def drain(self, deadline_ms: int) -> None:
        """See the module's docstring; returns within `deadline_ms`."""
        await self._health.enter_graceful_shutdown()
        if not self._node.draining.done():
            self._node.draining.set_result(int(deadline_ms * _CLOSE_SHARE))
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_ms / 1000
        listening.stop_accepting(self.endpoint.port)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_ms * _CLOSE_SHARE / 1000):
                await self._node.idle.wait()
                while listening.connection_count(self.endpoint.port):  # noqa: ASYNC110
                    await asyncio.sleep(_DRAIN_POLL_MS / 1000)
        await self._server.stop(max(0.0, end - loop.time()))

    async def close(self) -> None:
        """End all calls at once and close the port."""
        await self._server.stop(None)


def _handlers(node: Node) -> tuple[grpc.GenericRpcHandler, ...]:
    one, both = unary, streaming
    produce_stream: Method[Any, Any] = methods.PRODUCE_STREAM  # its messages are read by `framing`
    handlers: list[tuple[Method[Any, Any], Any]] = [
        (methods.CREATE_STREAM, one(node, methods.CREATE_STREAM, admin.create)),
        (methods.DESCRIBE_STREAM, one(node, methods.DESCRIBE_STREAM, admin.describe)),
        (methods.LIST_STREAMS, one(node, methods.LIST_STREAMS, admin.list_streams)),
        (methods.DELETE_STREAM, one(node, methods.DELETE_STREAM, admin.delete)),
        (methods.INIT_PRODUCER, one(node, methods.INIT_PRODUCER, producing.init_producer)),
        (methods.PRODUCE, one(node, methods.PRODUCE, producing.produce)),
        (methods.PRODUCE_STREAM, both(node, produce_stream, producing.produce_stream)),
        (methods.FETCH, both(node, methods.FETCH, fetching.fetch)),
        (methods.CONSUME, both(node, methods.CONSUME, consuming.consume)),
    ]
    readers = {methods.PRODUCE_STREAM.name: framing.read}
    by_service: dict[str, dict[str, Any]] = {}
    for method, handle in handlers:
        make: Any = (
            grpc.stream_stream_rpc_method_handler if method.is_streaming else grpc.unary_unary_rpc_method_handler
        )
        by_service.setdefault(method.service, {})[method.name] = make(
            handle,
            request_deserializer=readers.get(method.name, method.request.FromString),
            response_serializer=_serialize,
        )
    return tuple(grpc.method_handlers_generic_handler(service, named) for service, named in by_service.items())


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    """Channel arguments. Source: grpc_types.h, "Channel argument keys"; gRFC A8 (keepalive), A9 (connection age, with jitter)."""
    grace_ms = settings.call_age_ms + settings.call_age_ms // 5 + settings.call_drain_ms
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", settings.keepalive_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        # This is what ends a connection whose probe is not answered; its own default is a minute (seen with gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", settings.ping_interval_min_ms),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", settings.ping_interval_min_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_connection_idle_ms", settings.connection_idle_ms),
        ("grpc.max_connection_age_ms", settings.connection_age_ms),
        # A call that began just before its connection was told to go may live for its own age, and be told to go then.
        ("grpc.max_connection_age_grace_ms", grace_ms),
    ]

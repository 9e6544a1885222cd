"""The gRPC server: its methods, limits, health, reflection and drain.

Draining: health reports NOT_SERVING, the server accepts no new connections, and each streaming call sends Drain and ends when its
client closes its side. Old connections receive GOAWAY, but calls on them are still accepted, because gRPC's own stop fails calls
in transit (grpc/grpc#41785). The server stops when all connections are closed, or when most of the time has passed.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from bearlake.metadata.model import Server
from bearlake.protocols.grpc import admin, consuming, fetching, framing, listening, methods, producing
from bearlake.protocols.grpc.call import Node, plain, streaming, unary, writing
from bearlake.protocols.grpc.login import GrpcListenerLogin
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.open_services import OpenServices
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.serving.authentication.revocations import RevocationLists

log = logging.getLogger(__name__)

NAME = "grpc"
_CLOSE_SHARE = 0.8  # share of the drain time for clients; the rest is for their last messages
_DRAIN_POLL_MS = 100
_SERVING = health_pb2.HealthCheckResponse.SERVING


class GrpcServer:
    """A `serving.Service` that speaks bearlake.stream.v1 on one port."""

    def __init__(self, settings: GrpcSettings, listener: ListenerSettings) -> None:
        """Bind the port. Raises `Invalid`, `Unavailable`."""
        self._settings = settings
        self._server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=settings.calls_max)
        self.endpoint = listening.bind(self._server, listener)
        self._connections = listening.OpenConnections(self.endpoint.port, settings.address_connections_max)
        self._revocations = _revocations(listener)
        self._listener = f"{NAME}:{listener.name}" if listener.name else NAME
        self._health = health.aio.HealthServicer()
        self._node: Node

    @property
    def endpoints(self) -> Mapping[str, str]:
        """Advertised `host:port` by listener name."""
        return {self._listener: self.endpoint.address}

    @property
    def call_count(self) -> int:
        """Number of open streaming calls."""
        return self._node.call_count

    async def start(
        self,
        streams: Streams,
        servers: Callable[[], Sequence[Server]],
        random_source: random.Random | None = None,
        login: GrpcListenerLogin | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not. Health and reflection need no login.

        Start; calls are accepted when this returns. `servers` lists the live servers."""
        self._node = Node(
            streams, servers, self._settings, random_source or random.SystemRandom(), login, self._revocations
        )
        metrics.GRPC_CONNECTIONS.set_function(lambda: self._connections.count)
        metrics.GRPC_CONNECTIONS_MAX.set(self._settings.connections_max)
        metrics.GRPC_UNREAD_BYTES.set_function(lambda: self._node.unread.size_bytes)
        self._server.add_generic_rpc_handlers(_handlers(self._node))
        open_services: Any = OpenServices(self._server, self._node)  # Any: in place of a server
        health_pb2_grpc.add_HealthServicer_to_server(self._health, open_services)
        names = [*methods.SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME]
        register: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server  # untyped
        register(reflection.aio.ReflectionServicer(names), open_services)
        for name in ("", *methods.SERVICES):
            await self._health.set(name, _SERVING)
        await self._server.start()

    async def run(self) -> None:
        """Check the connections every `address_check_ms`; ends only by cancellation."""
        while True:
            await asyncio.sleep(self._settings.address_check_ms / 1000)
            await self.check_addresses()
            await self.close_slow_readers()

    async def close_slow_readers(self) -> None:
        """Close the connections whose clients have not read for longest, if there were too many unread messages."""
        if peers := set(self._node.unread.closing):
            self._node.unread.closing -= peers
            await asyncio.to_thread(listening.hang_up, self.endpoint.port, peers)
            limit = self._settings.unread_bytes_max
            log.warning("closed connections with unread messages", extra={"closed": len(peers), "limit": limit})

    async def check_addresses(self) -> None:
        """Count the connections, and close the newest ones of each address that has more than `address_connections_max`."""
        closed_count = await asyncio.to_thread(self._connections.check)
        if closed_count:
            limit = self._settings.address_connections_max
            log.warning("closed connections over the limit", extra={"closed": closed_count, "limit": limit})

    async def drain(self, deadline_ms: int) -> None:
        """Drain as the module docstring describes; return within `deadline_ms`."""
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
        """Abort all calls and close the port."""
        await self._server.stop(None)


def _revocations(listener: ListenerSettings) -> "RevocationLists | None":
    """Return the lists of the listener's revoked client certificates, None without. Raises `Invalid`."""
    if not listener.tls_client_crl_file:
        return None
    from bearlake.serving.authentication.revocations import RevocationLists  # its library takes time to load

    return RevocationLists(listener.tls_client_crl_file, listener.tls_client_ca_file)


def _handlers(node: Node) -> tuple[grpc.GenericRpcHandler, ...]:
    def plainly(method: Method[Any, Any], handle: Any) -> tuple[Method[Any, Any], Any]:
        wrap: Any = streaming if method.is_streaming else unary
        return method, wrap(node, method, handle, plain(node, method))

    produced = writing(node, methods.PRODUCE, producing.produce, framing.read_unary)
    stream = streaming(node, methods.PRODUCE_STREAM, producing.produce_stream, framing.read_stream, is_drained=True)
    handlers: list[tuple[Method[Any, Any], Any]] = [
        plainly(methods.CREATE_STREAM, admin.create),
        plainly(methods.DESCRIBE_STREAM, admin.describe),
        plainly(methods.LIST_STREAMS, admin.list_streams),
        plainly(methods.DELETE_STREAM, admin.delete),
        plainly(methods.INIT_PRODUCER, producing.init_producer),
        (methods.PRODUCE, produced),
        (methods.PRODUCE_STREAM, stream),
        plainly(methods.FETCH, fetching.fetch),
        plainly(methods.CONSUME, consuming.consume),
    ]
    by_service: dict[str, dict[str, Any]] = {}
    for method, handle in handlers:
        make: Any = (
            grpc.stream_stream_rpc_method_handler if method.is_streaming else grpc.stream_unary_rpc_method_handler
        )
        by_service.setdefault(method.service, {})[method.name] = make(handle)
    return tuple(grpc.method_handlers_generic_handler(service, named) for service, named in by_service.items())


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    """Channel arguments. Source: grpc_types.h, "Channel argument keys"; gRFC A8 (keepalive), A9 (connection age, with jitter)."""
    grace_ms = settings.call_age_ms + settings.call_age_ms // 5 + settings.call_drain_ms
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.server_handshake_timeout_ms", settings.handshake_ms),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.keepalive_time_ms", settings.keepalive_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        # This option closes a connection whose probe is not answered; its default is one minute (gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", settings.ping_interval_min_ms),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", settings.ping_interval_min_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_connection_idle_ms", settings.connection_idle_ms),
        ("grpc.max_connection_age_ms", settings.connection_age_ms),
        # A call that begins just before its connection receives GOAWAY may live for its own age, then gets the notice.
        ("grpc.max_connection_age_grace_ms", grace_ms),
    ]

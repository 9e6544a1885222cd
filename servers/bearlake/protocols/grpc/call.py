"""What the handlers share (`Node`), who calls (`caller`), and the boundary around every call (`unary`, `streaming`).

The boundary translates errors into statuses and counts; a handler raises error kinds, or a `Failure` of its own.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from bearlake.errors import BearlakeError
from bearlake.metadata.model import Server
from bearlake.protocols.grpc.errors import DETAILS_KEY, Failure, failure_of
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.streams.principal import ANONYMOUS, Principal
from bearlake.streams.producer_ids import ProducerIds
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


DRAIN_AGAIN_MS = 500
"""Time (ms) that a streaming call lasts at least which a client begins at a server that drains."""


class Context(Protocol):
    """What is used of `grpc.aio.ServicerContext`."""

    async def write(self, message: Message) -> None: ...  # noqa: D102
    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, bytes], ...] = ()) -> None: ...  # noqa: D102 # fmt: skip
    def auth_context(self) -> dict[str, list[bytes]]: ...  # noqa: D102


class Node:
    """One gRPC server's handlers' common ground."""

    def __init__(
        self,
        streams: Streams,
        servers: Callable[[], Sequence[Server]],
        settings: GrpcSettings,
        random_source: random.Random,
    ) -> None:
        self.streams = streams
        self.servers = servers
        """The live servers as this one sees them."""
        self.settings = settings
        self.producer_ids = ProducerIds(streams.metadata.producers)
        self.draining: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Done when the server is about to stop: with the ms that calls still have."""
        self.call_count = 0
        """Streaming calls under way."""
        self.idle = asyncio.Event()
        """Set while there are none."""
        self.idle.set()
        self._random = random_source

    async def drain_notice(self) -> int:
        """Wait until a streaming call that begins now shall tell its client to go; returns the ms that it then has."""
        if self.draining.done():  # the client came back over its old connection: it is not told at once again
            await asyncio.sleep(DRAIN_AGAIN_MS / 1000)
        age_ms = self.settings.call_age_ms * self._random.uniform(0.9, 1.1)
        try:
            async with asyncio.timeout(age_ms / 1000):
                return await asyncio.shield(self.draining)
        except TimeoutError:
            return self.settings.call_drain_ms

    async def room(self) -> None:
        """Wait until the write path takes more: while it is over its budget, nothing is read from the client."""
        while self.streams.is_over_budget:
            relief: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.streams.on_relief(lambda relief=relief: None if relief.done() else relief.set_result(None))  # type: ignore[misc]
            await relief


def caller(context: Context) -> Principal:
    """Who calls: the common name of the client's certificate, else nobody in particular."""
    names = context.auth_context().get("x509_common_name")
    return Principal("User", names[0].decode("utf-8", "replace")) if names else ANONYMOUS


def unary(
    node: Node, method: Method[Request, Response], handle: Callable[[Node, Principal, Request], Awaitable[Response]]
) -> Callable[[Request, Context], Awaitable[Response]]:
    """A handler as grpc.aio wants it, of a method without streams."""
    meters = _Meters(method.name)

    async def run(request: Request, context: Context) -> Response:
        with meters:
            try:
                return await handle(node, caller(context), request)
            except (BearlakeError, Failure) as error:
                await _end(method.name, context, error)
                raise

    return run


def streaming(
    node: Node,
    method: Method[Request, Response],
    handle: Callable[[Node, Principal, AsyncIterator[Request], Context], Awaitable[None]],
) -> Callable[[AsyncIterator[Request], Context], Awaitable[None]]:
    """A handler as grpc.aio wants it, of a method with two streams."""
    meters = _Meters(method.name)

    async def run(requests: AsyncIterator[Request], context: Context) -> None:
        with meters:
            node.call_count += 1
            node.idle.clear()
            try:
                await handle(node, caller(context), requests, context)
            except (BearlakeError, Failure) as error:
                await _end(method.name, context, error)
            finally:
                node.call_count -= 1
                if not node.call_count:
                    node.idle.set()

    return run


async def _end(name: str, context: Context, error: BearlakeError | Failure) -> None:
    """End the call with the error's status; raises what grpc.aio ends calls with."""
    failure = error if isinstance(error, Failure) else failure_of(error)
    metrics.GRPC_ERRORS.labels(name, failure.code.name, failure.reason).inc()
    await context.abort(
        failure.code, str(failure), trailing_metadata=((DETAILS_KEY, failure.status().SerializeToString()),)
    )


class _Meters:
    """Counts the calls of one method; a context manager that many calls use at once."""

    def __init__(self, name: str) -> None:
        self._started = metrics.GRPC_CALLS.labels(name)
        self._open = metrics.GRPC_OPEN_CALLS.labels(name)

    def __enter__(self) -> None:
        self._started.inc()
        self._open.inc()

    def __exit__(self, *error: object) -> None:
        self._open.inc(-1)

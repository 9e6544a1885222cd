"""State shared by the handlers (`Node`), the caller's identity (`Node.admit`), and the boundary around every call (`unary`, `streaming`).

A handler raises error kinds or its own `Failure`; the boundary translates them into statuses and counts calls. It also parses messages,
after the login: gRPC itself would log an error with a traceback for each malformed message.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from bearlake.errors import BearlakeError, Denied, Overloaded
from bearlake.metadata.model import Server
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.grpc.errors import DETAILS_KEY, Failure, failure_of, malformed
from bearlake.protocols.grpc.login import Call, GrpcListenerLogin, address_of, certificate_of, unauthenticated
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.protocols.grpc.unread import UnreadMessages
from bearlake.serving.addresses import AddressCounts
from bearlake.streams.principal import ANONYMOUS, Principal, at_host, host_of
from bearlake.streams.producer_ids import ProducerIds
from bearlake.streams.quotas.timing import charged
from bearlake.streams.reservations import Reservation
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.watchdog import begin

if TYPE_CHECKING:  # its library takes time to load
    from bearlake.serving.authentication.revocations import RevocationLists

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Parsed = TypeVar("Parsed")

DRAIN_AGAIN_MS = 500
"""Minimum duration (ms) of a streaming call that a client starts on a draining server."""


class Context(Call, Protocol):
    """The part of `grpc.aio.ServicerContext` that we use."""

    async def write(self, message: bytes | Message) -> None: ...  # noqa: D102
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...  # noqa: D102
    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, bytes], ...] = ()) -> None: ...  # noqa: D102 # fmt: skip


class Writer(Protocol):
    """Sends messages to the caller of a streaming method."""

    async def write(self, message: Message) -> None:
        """Send a message."""


class Node:
    """State shared by the handlers of one gRPC server."""

    def __init__(
        self,
        streams: Streams,
        servers: Callable[[], Sequence[Server]],
        settings: GrpcSettings,
        random_source: random.Random,
        login: GrpcListenerLogin | None = None,
        revocations: "RevocationLists | None" = None,
    ) -> None:
        """`login`: how clients log in; None: they need not. `revocations`: of client certificates; None: they are not checked."""
        self.streams = streams
        self.servers = servers
        """The live servers known to this server."""
        self.settings = settings
        self.producer_ids = ProducerIds(streams.metadata.producers)
        self.draining: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Completes when the server starts to drain, with the time (ms) left for open calls."""
        self.call_count = 0
        """Open streaming calls."""
        self.idle = asyncio.Event()
        """Set while there are no open streaming calls."""
        self.idle.set()
        self._random = random_source
        self._login = login
        self._revocations = revocations
        self._calls: Counter[str] = Counter()
        self._addresses = AddressCounts(settings.address_call_count_max)
        self.unread = UnreadMessages(settings.unread_bytes_max)
        """What clients have not read."""

    @contextmanager
    def counted(self, connection: str) -> Iterator[None]:
        """Count the block as a call of the connection, given by its address and port.

        Raises `Overloaded` at the limit of the connection or of its address.
        """
        if self._calls[connection] >= self.settings.connection_call_count_max:
            raise Overloaded(f"this connection has {self._calls[connection]} calls, the limit")
        address = host_of(address_of(connection))
        if not self._addresses.enter(address):
            raise Overloaded(f"this address has {self.settings.address_call_count_max} calls, the limit")
        self._calls[connection] += 1
        try:
            yield
        finally:
            self._addresses.leave(address)
            self._calls[connection] -= 1
            if not self._calls[connection]:
                del self._calls[connection]

    async def admit(self, context: Context) -> tuple[Principal, float | None]:
        """Return who calls, and the time (s) until the login ends; None: never. Raises as `GrpcListenerLogin.admit`."""
        if self._revocations is not None:
            try:
                self._revocations.check(certificate_of(context))
            except Denied as error:
                raise unauthenticated(str(error)) from None
        address = address_of(context.peer())
        if self._login is None:
            return at_host(ANONYMOUS, address, "grpc"), None
        who, left_s = await self._login.admit(context)
        return at_host(who, address, "grpc"), left_s

    async def drain_notice(self) -> int:
        """Wait until a streaming call that starts now should tell its client to leave; return the time (ms) that the call then has."""
        if self.draining.done():  # the client came back over its old connection: delay the next notice
            await asyncio.sleep(DRAIN_AGAIN_MS / 1000)
        age_ms = self.settings.call_age_ms * self._random.uniform(0.9, 1.1)
        try:
            async with asyncio.timeout(age_ms / 1000):
                return await asyncio.shield(self.draining)
        except TimeoutError:
            return self.settings.call_drain_ms


def plain(node: Node, method: Method[Request, Response]) -> Callable[[bytes], Request]:
    """Return a parser of a method's messages without payloads. It raises `DecodeError`, and `Failure` over `request_bytes_max`.

    protobuf makes an object of every nested message before anyone can count them, and holds the event loop meanwhile.
    """
    bytes_max, parse = node.settings.request_bytes_max, method.request.FromString

    def parsed(message: bytes) -> Request:
        if len(message) > bytes_max:
            detail = f"the message has {len(message)} bytes, the limit of {method.name} is {bytes_max}"
            raise Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", detail)
        return parse(message)

    return parsed


def unary(
    node: Node,
    method: Method[Request, Response],
    handle: Callable[[Node, Principal, Parsed], Awaitable[Response]],
    parse: Callable[[bytes], Parsed],
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
    """Wrap a unary method as a grpc.aio handler of unparsed messages; `parse` may raise `DecodeError`, `Failure`.

    Register it as a method whose client streams: gRPC then reads the message only when the handler asks for it, after the login
    (decision 196). The bytes on the connection are the same.
    """

    async def answer(who: Principal, messages: AsyncIterator[bytes], _: int) -> Response:
        return await handle(node, who, parsed(parse, await received(messages, node.settings.receive_ms)))

    return _with_one_answer(node, method, answer)


def writing(
    node: Node,
    method: Method[Request, Response],
    handle: Callable[[Node, Principal, Parsed, Reservation, int], Awaitable[Response]],
    parse: Callable[[bytes], Parsed],
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
    """As `unary`, for a method that writes records: its message is read when the write path has room. `handle` lets the reservation count
    the message. Its last argument is `AppendCall.seen`: a message may wait in gRPC's buffers, so it counts as arrived when the call
    began.
    """

    async def answer(who: Principal, messages: AsyncIterator[bytes], seen: int) -> Response:
        node.streams.quotas.require(who, QuotaKey.PRODUCER_BYTE_RATE)
        with await node.streams.room(who, node.settings.write_wait_ms) as room:
            message = await received(messages, node.settings.receive_ms)
            return await handle(node, who, parsed(parse, message), room, seen)

    return _with_one_answer(node, method, answer)


def _with_one_answer(
    node: Node,
    method: Method[Request, Response],
    answer: Callable[[Principal, AsyncIterator[bytes], int], Awaitable[Response]],
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
    meters = _Meters(method.name)

    async def run(messages: AsyncIterator[bytes], context: Context) -> bytes:
        seen = node.streams.seen.position
        with meters:
            try:
                with node.counted(context.peer()):
                    who, _ = await node.admit(context)
                    found = await charged(node.streams.quotas, who, lambda: answer(who, messages, seen))
                    octets = found.SerializeToString()
                    node.unread.answering(context, len(octets))
                    return octets
            except (BearlakeError, Failure) as error:
                await end(method.name, context, error)
                raise

    return run


async def received(messages: AsyncIterator[bytes], wait_ms: int) -> bytes:
    """Return the next message of a call. Raises `Failure` if it does not come in time, `Ended` if the client sends no more."""
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await anext(messages)
    except StopAsyncIteration:
        raise Ended from None
    except TimeoutError:
        detail = f"the message did not arrive within {wait_ms} ms"
        raise Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "RECEIVE", detail, is_retriable=True) from None


class Ended(Failure):
    """The client sends no more messages, but the method needs one."""

    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.INTERNAL, "MALFORMED", "the call has no message")


def streaming(
    node: Node,
    method: Method[Request, Response],
    handle: Callable[[Node, Principal, AsyncIterator[Parsed], Writer], Awaitable[None]],
    parse: Callable[[bytes], Parsed],
    *,
    is_drained: bool = False,
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    """Wrap a bidirectional streaming method as a grpc.aio handler of unparsed messages; `parse` may raise `DecodeError`, `Failure`.

    `is_drained`: when the login ends, only the requests end at once; the handler has `call_drain_ms` to answer the requests before.
    """
    meters = _Meters(method.name)

    async def run(messages: AsyncIterator[bytes], context: Context) -> None:
        requests: AsyncIterator[Parsed] = _Requests(messages, parse)
        with meters:
            node.call_count += 1
            node.idle.clear()
            writing = WholeWrites(context, node.unread)
            try:
                try:
                    with node.counted(context.peer()):
                        who, left_s = await node.admit(context)
                        node.streams.quotas.require(who, QuotaKey.REQUEST_PERCENTAGE)
                        if is_drained and left_s is not None:
                            requests = _while_logged_in(requests, left_s)
                            left_s += node.settings.call_drain_ms / 1000
                        async with _until_the_login_ends(left_s):
                            await handle(node, who, requests, writing)
                finally:
                    await writing.finish()
            except (BearlakeError, Failure) as error:
                await end(method.name, context, error)
            finally:
                node.call_count -= 1
                if not node.call_count:
                    node.idle.set()

    return run


class WholeWrites:
    """The caller of a streaming method. A write that has begun is finished even if its task is cancelled.

    gRPC takes no status while a write is under way, so a call that ended then would leave its client waiting (grpc.aio raises
    `GRPC_CALL_ERROR_TOO_MANY_OPERATIONS`).
    """

    def __init__(self, context: Context, unread: UnreadMessages) -> None:
        self._context = context
        self._unread = unread
        self._write: asyncio.Future[None] | None = None
        """The last write; one runs at a time."""

    async def write(self, message: Message) -> None:
        """Send a message after the previous one. Raises what gRPC raises once the client has gone."""
        await self.finish()
        self._write = asyncio.ensure_future(self._send(message.SerializeToString()))
        await asyncio.shield(self._write)

    async def _send(self, octets: bytes) -> None:
        with self._unread.sending(self._context, len(octets)):
            await self._context.write(octets)

    async def finish(self) -> None:
        """Wait for a write whose task was cancelled. If it fails, its error is dropped: the client has gone."""
        write = self._write
        if write is not None:
            await asyncio.wait({write})
            if not write.cancelled():
                write.exception()


class _Requests(Generic[Parsed]):
    """The parsed messages of a call; reading one may be cancelled and tried again. Raises `Failure` for a malformed one."""

    def __init__(self, messages: AsyncIterator[bytes], parse: Callable[[bytes], Parsed]) -> None:
        self._messages = messages
        self._parse = parse

    def __aiter__(self) -> "_Requests[Parsed]":
        return self

    async def __anext__(self) -> Parsed:
        return parsed(self._parse, await anext(self._messages))


def parsed(parse: Callable[[bytes], Parsed], message: bytes) -> Parsed:
    """Parse a message. Raises `Failure` for a malformed one."""
    try:
        return parse(message)
    except DecodeError as error:
        raise malformed() from error


@asynccontextmanager
async def _until_the_login_ends(left_s: float | None) -> AsyncIterator[None]:
    """Run the block for `left_s` at most. Raises `Failure`: the login has ended."""
    try:
        async with asyncio.timeout(left_s) as login:
            yield
    except TimeoutError:
        if login.expired():
            raise _login_ended() from None
        raise


async def _while_logged_in(requests: AsyncIterator[Parsed], left_s: float) -> AsyncIterator[Parsed]:
    """Yield the requests that arrive in time. Raises `Failure`: the login has ended."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + left_s
    while loop.time() < ends_s:
        try:
            async with asyncio.timeout_at(ends_s):
                request = await anext(requests)
        except StopAsyncIteration:
            return
        except TimeoutError:
            break
        yield request
    raise _login_ended()


def _login_ended() -> Failure:
    return Failure(grpc.StatusCode.UNAUTHENTICATED, "LOGIN_ENDED", "the login has ended: call again", is_retriable=True)


async def end(name: str, context: Context, error: BearlakeError | Failure) -> None:
    """End the call with the error's status, by the exception that grpc.aio raises to abort."""
    failure = error if isinstance(error, Failure) else failure_of(error)
    metrics.GRPC_ERRORS.labels(name, failure.code.name, failure.reason).inc()
    await context.abort(
        failure.code, str(failure), trailing_metadata=((DETAILS_KEY, failure.status().SerializeToString()),)
    )


class _Meters:
    """Counts the calls of one method; a context manager that concurrent calls share."""

    def __init__(self, name: str) -> None:
        self._what = f"grpc {name}"
        self._started = metrics.GRPC_CALLS.labels(name)
        self._open = metrics.GRPC_OPEN_CALLS.labels(name)

    def __enter__(self) -> None:
        begin(self._what)
        self._started.inc()
        self._open.inc()

    def __exit__(self, *error: object) -> None:
        self._open.inc(-1)

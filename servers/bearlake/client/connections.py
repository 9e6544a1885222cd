"""Server addresses, client settings and retries.

Any server accepts any call. A client therefore uses one address until its server fails or announces a stop, then the next address.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from bearlake.client.errors import CallFailed, call_failed
from bearlake.client.login import Login, check_secrecy
from bearlake.protocols.grpc.methods import Method, Request, Response

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS with PEM files. Without `ca_file`, the client trusts the system's certificate authorities."""

    ca_file: Path | None = None
    """Certificate authorities that sign the servers' certificates."""
    certificate_file: Path | None = None
    """The client's own certificate, for servers that require one."""
    key_file: Path | None = None
    """The private key of `certificate_file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits and timeouts of a client."""

    batch_bytes: int = 256 * 1024
    """Size (bytes of records) at which a producer sends a batch. Larger batches cost the server less."""
    linger_ms: float = 5.0
    """Longest time (ms) that a record waits for others in its batch."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Unacknowledged bytes of records at which `send` waits."""
    delivery_timeout_s: float = 120.0
    """Time (s) of failed attempts after which a producer fails its records, and a reader or consumer raises an error."""
    read_bytes: int = 8 * 1024 * 1024
    """Bytes that a reader requests ahead of what it has returned."""
    read_messages: int = 64
    """Messages that a reader requests ahead of what it has returned."""
    auto_commit_ms: float = 5_000.0
    """Time (ms) between two automatic commits of a consumer."""
    call_timeout_s: float = 30.0
    """Timeout (s) of one attempt of a unary call, and of all retries after its first failure. Also the longest pause (s) before a retry
    that a server may ask for."""
    retry_pause_ms: float = 50.0
    """First pause (ms) before a retry; doubles up to `retry_pause_max_ms`, with jitter."""
    retry_pause_max_ms: float = 1_000.0
    """Longest pause (ms) before a retry."""
    keepalive_ms: int = 60_000
    """Idle time (ms) after which a connection with open calls is probed. Servers may disconnect clients that probe more often."""
    keepalive_timeout_ms: int = 20_000
    """Time (ms) without an answer to a probe after which the connection is closed; its calls are retried on the next server."""
    message_bytes_max: int = 64 * 1024 * 1024
    """Largest message (bytes) accepted from a server."""


class Connections:
    """Keeps at most one channel per address and uses one address at a time. Use from a single event loop."""

    def __init__(
        self, addresses: Sequence[str], tls: Tls | None, login: Login | None, settings: ClientSettings
    ) -> None:
        """`addresses` are `host:port`, at least one. Connects on demand. Raises `ValueError` if others could read the login."""
        if not addresses:
            raise ValueError("expected at least one address")
        if login is not None:
            check_secrecy(login, addresses, has_tls=tls is not None)
        self.settings = settings
        self._login = login
        self._addresses = list(addresses)
        self._at = 0
        self._credentials = None if tls is None else _credentials(tls)
        self._channels: dict[str, grpc.aio.Channel] = {}

    def channel(self) -> grpc.aio.Channel:
        """Return the channel to the current server."""
        address = self._addresses[self._at % len(self._addresses)]
        channel = self._channels.get(address)
        if channel is None:
            options = [
                ("grpc.max_receive_message_length", self.settings.message_bytes_max),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_time_ms", self.settings.keepalive_ms),
                ("grpc.keepalive_timeout_ms", self.settings.keepalive_timeout_ms),
                ("grpc.http2.ping_timeout_ms", self.settings.keepalive_timeout_ms),
                ("grpc.max_reconnect_backoff_ms", int(self.settings.retry_pause_max_ms)),
                ("grpc.initial_reconnect_backoff_ms", int(self.settings.retry_pause_ms) + 1),
                ("grpc.min_reconnect_backoff_ms", int(self.settings.retry_pause_ms) + 1),
            ]
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(address, options)
            else:
                channel = grpc.aio.secure_channel(address, self._credentials, options)
            self._channels[address] = channel
        return channel

    def move_on(self, channel: grpc.aio.Channel) -> None:
        """Move to the next address, if `channel` is the current channel."""
        if channel is self.channel():
            self._at += 1

    def open(self, channel: grpc.aio.Channel, method: Method[Any, Any]) -> Any:  # grpc's calls are not typed by message
        """Start a streaming call."""
        return channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )(metadata=self._metadata())

    async def call(self, method: Method[Request, Response], request: Request) -> Response:
        """Make a unary call, with retries while they can help. Raises `CallFailed`."""

        async def attempt(channel: grpc.aio.Channel) -> Response:
            invoke = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            answer: Response = await invoke(request, metadata=self._metadata(), timeout=self.settings.call_timeout_s)
            return answer

        return await self.retrying(attempt, self.settings.call_timeout_s)

    async def retrying(self, attempt: Callable[[grpc.aio.Channel], Awaitable[T]], timeout_s: float) -> T:
        """Run `attempt` on one server after another until it succeeds or a retry cannot help. Raises `CallFailed`."""
        pauses = Pauses(self.settings, timeout_s)
        while True:
            channel = self.channel()
            try:
                return await attempt(channel)
            except grpc.aio.AioRpcError as error:
                failure = call_failed(error)
                if not failure.is_retriable:
                    raise failure from error
                self.move_on(channel)
                await pauses.wait(failure)

    def _metadata(self) -> grpc.aio.Metadata:
        login = self._login
        return grpc.aio.Metadata() if login is None else grpc.aio.Metadata(("authorization", login.authorization()))

    async def close(self) -> None:
        """Close all channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))


class Pauses:
    """Growing pauses between attempts, until attempts have failed for `timeout_s`. A pause is at least as long as the server asks.

    Source: google.rpc.RetryInfo.
    """

    def __init__(self, settings: ClientSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._until: float | None = None
        self._pause_ms = settings.retry_pause_ms

    def reset(self) -> None:
        """Start again from the first pause and the full timeout, after an attempt that made progress."""
        self._until = None
        self._pause_ms = self._settings.retry_pause_ms

    async def wait(self, failure: CallFailed) -> None:
        """Wait before the next attempt, at least as long as the server asks, but not longer than `call_timeout_s`.

        Raises `failure` when no time is left.
        """
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._timeout_s
        pause_s = self._pause_ms * random.uniform(0.5, 1.0) / 1000  # noqa: S311 - jitter
        pause_s = max(pause_s, min(failure.retry_delay_s, self._settings.call_timeout_s))
        if now + pause_s > self._until:
            raise failure
        self._pause_ms = min(2 * self._pause_ms, self._settings.retry_pause_max_ms)
        await asyncio.sleep(pause_s)


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    ca, key, chain = (
        None if file is None else file.read_bytes() for file in (tls.ca_file, tls.key_file, tls.certificate_file)
    )
    return grpc.ssl_channel_credentials(ca, key, chain)

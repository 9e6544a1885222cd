"""Health and reflection: the services that need no login (decision 196).

Their libraries read a message of any size, and limit neither calls nor watchers. So whoever reached the port could hold all of `calls_max`
with `Watch`, and 16 MiB of memory with each call whose message never ends. This module counts their calls like others, and reads few of
their messages at a time.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from bearlake.errors import BearlakeError, Overloaded
from bearlake.protocols.grpc.call import Context, Ended, Node, end, parsed, received
from bearlake.protocols.grpc.errors import Failure
from bearlake.protocols.grpc.login import address_of
from bearlake.serving.addresses import AddressCounts
from bearlake.streams.principal import host_of

MESSAGE_BYTES_MAX = 16 * 1024
"""Largest message. The longest are names of services and files."""
RECEIVED_AT_ONCE = 16
"""Messages that are read at the same time: gRPC may hold `message_bytes_max` of each. One address has half of them."""


class OpenServices:
    """Takes the handlers of generated code, in place of a server, and registers them with limits."""

    def __init__(self, server: grpc.aio.Server, node: Node) -> None:
        self._server = server
        self._receiving = _Receiving(node)

    def add_generic_rpc_handlers(self, handlers: "Sequence[grpc.GenericRpcHandler[Any, Any]]") -> None:
        """Called by generated code."""
        self._server.add_generic_rpc_handlers(tuple(_Limited(handler, self._receiving) for handler in handlers))

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Called by generated code, with the same handlers again."""


class _Receiving:
    """Reads the messages of calls without a login."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._addresses = AddressCounts(RECEIVED_AT_ONCE // 2)
        self._count = 0

    async def message(self, messages: AsyncIterator[bytes], context: Context) -> bytes:
        """Return the next message. Raises `Overloaded`, `Failure`, `Ended`."""
        address = host_of(address_of(context.peer()))
        if self._count == RECEIVED_AT_ONCE or not self._addresses.enter(address):
            raise Overloaded("too many calls without a login send a message; retry later")
        self._count += 1
        try:
            message = await received(messages, self.node.settings.receive_ms)
        finally:
            self._count -= 1
            self._addresses.leave(address)
        if len(message) > MESSAGE_BYTES_MAX:
            detail = f"the message has {len(message)} bytes, the limit is {MESSAGE_BYTES_MAX}"
            raise Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", detail)
        return message


class _Limited(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs only
    """The handlers of one service; Any: their message types differ."""

    def __init__(self, handlers: "grpc.GenericRpcHandler[Any, Any]", receiving: _Receiving) -> None:
        self._handlers = handlers
        self._receiving = receiving

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        found: Any = self._handlers.service(handler_call_details)
        if found is None:
            return None
        name = handler_call_details.method.rpartition("/")[2]
        if found.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(
                self._answered(name, found), response_serializer=found.response_serializer
            )
        return grpc.stream_stream_rpc_method_handler(
            self._streamed(name, found), response_serializer=found.response_serializer
        )

    def _answered(self, name: str, handler: Any) -> Callable[[AsyncIterator[bytes], Context], Any]:
        async def run(messages: AsyncIterator[bytes], context: Context) -> Message:
            try:
                with self._receiving.node.counted(context.peer()):
                    request = await self._request(handler, messages, context)
                    answer: Message = await handler.unary_unary(request, context)
                    return answer
            except (BearlakeError, Failure) as error:
                await end(name, context, error)
                raise

        return run

    def _streamed(self, name: str, handler: Any) -> Callable[[AsyncIterator[bytes], Context], Any]:
        async def run(messages: AsyncIterator[bytes], context: Context) -> None:
            try:
                with self._receiving.node.counted(context.peer()):
                    if handler.unary_stream is not None:  # `Watch` writes its answers itself
                        await handler.unary_stream(await self._request(handler, messages, context), context)
                        return
                    async for answer in handler.stream_stream(self._requests(handler, messages, context), context):
                        await context.write(answer)
            except (BearlakeError, Failure) as error:
                await end(name, context, error)

        return run

    async def _requests(self, handler: Any, messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[Message]:
        try:
            while True:
                yield await self._request(handler, messages, context)
        except Ended:
            return

    async def _request(self, handler: Any, messages: AsyncIterator[bytes], context: Context) -> Message:
        request: Message = parsed(handler.request_deserializer, await self._receiving.message(messages, context))
        return request

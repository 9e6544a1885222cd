"""Maps each command to the function that executes it, and to the function that builds its error response.

Inline commands run before the next command is read, and never wait. Requests run concurrently as tasks; each gets one response, a
result or an error. Transaction commands are rejected. The error for an unknown command has no request id of the client, because the
position of the id in an unknown command is unknown.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from bearlake.errors import BearlakeError, Corrupt
from bearlake.protocols.pulsar import commands, lookups, positions, producing, subscribing, watching
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.errors import NO_TRANSACTIONS, Refused, count_error, error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    BaseCommand,
    CommandAuthResponse,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    CommandPing,
    CommandPong,
    CommandTcClientConnectResponse,
    TxnRequest,
    TxnResponse,
)

send = producing.send
send_parsed = producing.send_parsed

Inline = Callable[[Connection, Any], None]
Refuse = Callable[[Any, int, str], bytes]


class Request(NamedTuple):
    """A request: `handle` returns the response frame, or None if it has already answered; `refuse` builds the frame of an error.

    `begin`, if set, runs before the next command is read; if it returns False, the request is already complete.
    """

    handle: Callable[[Connection, Any], Awaitable[bytes | None]]
    refuse: Refuse
    begin: Callable[[Connection, Any], bool] | None = None


def carry_out(connection: Connection, number: int, command: BaseCommand) -> None:
    """Execute a command other than SEND, or start it. Raises `Corrupt`."""
    name = commands.NAMES.get(number)
    if name is None or (name not in _INLINE and name not in _REQUESTS):
        what = f"command {name or number} is not supported (protocol version {lookups.PROTOCOL_VERSION})"
        kind = "UnsupportedVersionError" if name is None else "NotAllowedError"
        connection.refuse(commands.SERVER_REQUEST_ID, Refused(kind, what))
        return
    if not command.HasField(name):
        raise Corrupt(f"a command {name} has no content")
    body = getattr(command, name)
    inline = _INLINE.get(name)
    if inline is not None:
        inline(connection, body)
        return
    request = _REQUESTS[name]
    try:
        is_open = request.begin is None or request.begin(connection, body)
    except BearlakeError as error:
        _answer_refusal(connection, request, body, error)
    else:
        if is_open:
            connection.start(_answer(connection, request, body))


async def _answer(connection: Connection, request: Request, body: Message) -> None:
    try:
        frame = await request.handle(connection, body)
    except BearlakeError as error:
        _answer_refusal(connection, request, body, error)
        return
    if frame is not None:
        connection.send(frame)


def _answer_refusal(connection: Connection, request: Request, body: Message, error: BearlakeError) -> None:
    number = error_of(error)
    count_error(number)
    connection.send(request.refuse(body, number, str(error)))


def _refuse(body: Any, number: int, message: str) -> bytes:  # any request
    return commands.error(body.request_id, number, message)


# -- keep-alive --------------------------------------------------------------------------------------------------


def _ping(connection: Connection, body: CommandPing) -> None:
    connection.send(commands.frame("pong", CommandPong()))


def _ignore(connection: Connection, body: Message) -> None:
    """Ignore PONG, whose arrival is enough."""


def _renew(connection: Connection, body: CommandAuthResponse) -> None:
    """AUTH_RESPONSE: the answer to a challenge."""
    if connection.session is not None:
        connection.session.renew(body)


# -- schemas -----------------------------------------------------------------------------------------------------


async def _get_schema(connection: Connection, body: CommandGetSchema) -> bytes:
    return commands.frame("get_schema_response", await connection.context.schemas.get(connection.who, body))


def _refuse_schema(body: CommandGetSchema, number: int, message: str) -> bytes:
    answer = CommandGetSchemaResponse(request_id=body.request_id, error_code=number, error_message=message)  # type: ignore[arg-type]
    return commands.frame("get_schema_response", answer)


async def _get_or_create_schema(connection: Connection, body: CommandGetOrCreateSchema) -> bytes:
    answer = await connection.context.schemas.get_or_create(connection.who, body)
    return commands.frame("get_or_create_schema_response", answer)


def _refuse_new_schema(body: CommandGetOrCreateSchema, number: int, message: str) -> bytes:
    answer = CommandGetOrCreateSchemaResponse(request_id=body.request_id, error_code=number, error_message=message)  # type: ignore[arg-type]
    return commands.frame("get_or_create_schema_response", answer)


# -- transactions ------------------------------------------------------------------------------------------------


async def _no_transactions(connection: Connection, body: TxnRequest) -> None:
    raise Refused("NotAllowedError", NO_TRANSACTIONS)


def _refuse_transaction(name: str) -> Request:
    def refuse(body: TxnRequest, number: int, message: str) -> bytes:
        return commands.frame(name, TxnResponse(request_id=body.request_id, error=number, message=message))  # type: ignore[arg-type]

    return Request(_no_transactions, refuse)


def _refuse_coordinator(body: TxnRequest, number: int, message: str) -> bytes:
    answer = CommandTcClientConnectResponse(request_id=body.request_id, error=number, message=message)  # type: ignore[arg-type]
    return commands.frame("tc_client_connect_response", answer)


_INLINE: dict[str, Inline] = {
    "connect": lookups.connect,
    "ping": _ping,
    "pong": _ignore,
    "auth_response": _renew,
    "close_producer": producing.close,
    "flow": subscribing.flow,
    "ack": subscribing.acknowledge,
    "redeliver_unacknowledged_messages": subscribing.redeliver,
    "close_consumer": subscribing.close,
    "watch_topic_list_close": watching.unwatch,
}

_REQUESTS: dict[str, Request] = {
    "partitioned_metadata": Request(lookups.partitioned_metadata, lookups.refuse_metadata),
    "lookup": Request(lookups.lookup, lookups.refuse_lookup),
    "get_topics_of_namespace": Request(lookups.topics_of_namespace, _refuse),
    "producer": Request(producing.open_producer, _refuse, producing.begin),
    "subscribe": Request(subscribing.subscribe, _refuse, subscribing.begin),
    "seek": Request(subscribing.seek, _refuse),
    "unsubscribe": Request(subscribing.unsubscribe, _refuse),
    "consumer_stats": Request(subscribing.stats, subscribing.refuse_stats),
    "get_last_message_id": Request(positions.last_message_id, _refuse),
    "get_schema": Request(_get_schema, _refuse_schema),
    "get_or_create_schema": Request(_get_or_create_schema, _refuse_new_schema),
    "watch_topic_list": Request(watching.watch, _refuse),
    "tc_client_connect_request": Request(_no_transactions, _refuse_coordinator),
    "new_txn": _refuse_transaction("new_txn_response"),
    "add_partition_to_txn": _refuse_transaction("add_partition_to_txn_response"),
    "add_subscription_to_txn": _refuse_transaction("add_subscription_to_txn_response"),
    "end_txn": _refuse_transaction("end_txn_response"),
}

NAMES = frozenset({"send", *_INLINE, *_REQUESTS})
"""The names of all supported commands."""

"""Requests of Kafka, Pulsar and gRPC to servers in this process: what handlers make of values that decode well.

A request may end its connection. It must not cause a fault of the server (`faults`), and the server must serve the next connection.
"""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import grpc

from bearlake.errors import BearlakeError
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.apis import APIS, BY_KEY
from bearlake.protocols.kafka.codec import ApiKey, Message
from bearlake.protocols.kafka.codec.classes import message_class
from bearlake.protocols.kafka.codec.schema import FIXED, Struct, load
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.proto import commands_pb2 as pulsar_pb
from bearlake.serving.authentication.settings import AuthenticationSettings, FailureSettings, TokenSettings
from fixtures.grpc_server import GrpcCluster
from fixtures.kafka_server import Cluster, open_stores
from fixtures.pulsar_server import PulsarCluster, message_bytes
from fuzz.faults import watched
from fuzz.target import Target
from fuzz.targets import grpc as grpc_payloads
from fuzz.targets import kafka_codec, logins, pulsar

Ask = Callable[[bytes], Awaitable[object]]
STREAM = "t"
"""The stream that exists; `kafka_codec` and `pulsar` name it in some of their requests."""
QUIET_S = 0.03
"""Wall-clock time after which a request counts as waiting, such as a fetch of later records."""
INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
STRINGS = (
    "",
    STREAM,
    "u",
    "a" * 300,
    "..",
    "é\0",
    "*",
    "__consumer_offsets",
    "retention.ms",
    "-1",
    "9" * 30,
    "SCRAM-SHA-256",
)


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send the parts over a connection of their own; return the first answer, or none if the server waits or closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(QUIET_S):
            for part in parts:
                writer.write(part)
            return await reader.read(65536)
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


# -- Kafka ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def kafka() -> AsyncIterator[Ask]:
    """One request after another, each on a connection of its own."""
    async with AsyncExitStack() as closing:
        cluster = Cluster(*await open_stores(None, closing), closing)
        closing.push_async_callback(cluster.close)
        node = await cluster.add(settings=KafkaSettings(default_partition_count=2))
        await node.create(STREAM, 2)
        check = await closing.enter_async_context(watched())

        async def ask(data: bytes) -> object:
            answer = await exchange(node.listeners[0].socket.getsockname()[1], struct.pack(">i", len(data)) + data)
            await asyncio.sleep(0)
            check()
            return struct.unpack_from(">hh", data) if len(data) >= 4 else None, len(answer) > 0

        yield ask


def kafka_requests() -> list[bytes]:
    """Requests of every API and version that the server serves."""
    found = []
    for frame in kafka_codec.requests():
        key, version = struct.unpack_from(">hh", frame)
        if key in BY_KEY and BY_KEY[key].version_min <= version <= BY_KEY[key].version_max:
            found.append(frame)
    assert len(found) >= 2 * len(APIS)
    return found


def change_message(random: Random, data: bytearray) -> None:
    """Give a field of a request another value of its type; leaves other bytes unchanged."""
    try:
        header, position = codec.read_request_header(memoryview(bytes(data)))
        request_codec = codec.request(header.api_key, header.version)
        message = request_codec.decode(memoryview(bytes(data)), position)
        schema = load(ApiKey(header.api_key)).request
        places = list(_places(message, schema.root, schema.structs, header.version))
        for _ in range(random.choice((1, 1, 2, 4))):
            owner, field = random.choice(places)
            setattr(owner, field.name, _other(random, getattr(owner, field.name), field.type))
        body = b"".join(map(bytes, request_codec.encode(message)))
    except (BearlakeError, IndexError):
        return
    data[position:] = body


def _places(message: Message, struct_: Struct, structs: Any, version: int) -> Iterator[Any]:
    for field in struct_.fields:
        value = getattr(message, field.name)
        yield message, field
        if field.is_struct and value is not None:
            for inner in value if field.is_array else [value]:
                yield from _places(inner, structs[field.type], structs, version)


def _other(random: Random, value: Any, type_: str) -> Any:
    if isinstance(value, list):
        return random.choice((value * 2, value * 20, [], value[:1], [*value, *value[:1]]))
    if type_ in INTEGERS:
        bits = INTEGERS[type_]
        return random.choice((0, 1, -1, 2**bits - 1, -(2**bits), random.randrange(-5, 5)))
    if type_ == "string":
        return random.choice((*STRINGS, None))
    if type_ == "bool":
        return not value
    if type_ in ("bytes", "records"):
        return random.choice((b"", None, random.randbytes(30), bytes(value or b"x") * 2))
    if type_ in FIXED:  # uuid
        return random.choice((bytes(16), random.randbytes(16)))
    return value


LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def with_logins(closing: AsyncExitStack) -> AuthenticationSettings:
    """Return settings of every mechanism, with the issuer of `logins`, and without limits of failures."""
    folder = closing.enter_context(TemporaryDirectory(prefix="fuzz-"))
    keys_file = Path(folder) / "keys.json"
    keys_file.write_bytes(logins.JWKS)
    token = TokenSettings(issuer=logins.ISSUER, audience=logins.AUDIENCE, keys_file=str(keys_file))
    limits = FailureSettings(per_address_max=10**9, per_user_max=10**9)
    return AuthenticationSettings(mechanisms=list(LOGINS), failures=limits, token=token)


@asynccontextmanager
async def kafka_logins() -> AsyncIterator[Ask]:
    """Messages of a SASL login: a mechanism and its messages, two bytes of length before each."""
    async with AsyncExitStack() as closing:
        cluster = Cluster(*await open_stores(None, closing), closing)
        closing.push_async_callback(cluster.close)
        node = await cluster.add(authentication=with_logins(closing))
        check = await closing.enter_async_context(watched())

        async def ask(data: bytes) -> object:
            mechanism = LOGINS[data[0] % len(LOGINS)] if data else ""
            parts = [_sasl(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)]
            at = 1
            while at + 2 <= len(data) and len(parts) < 4:
                end = at + 2 + int.from_bytes(data[at : at + 2], "big")
                parts.append(_sasl(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=data[at + 2 : end]))
                at = end
            answer = await exchange(node.listeners[0].socket.getsockname()[1], *parts)
            check()
            return mechanism, len(answer)

        yield ask


def _sasl(key: ApiKey, version: int, **fields: Any) -> bytes:
    message = message_class(key, "request")(**fields)
    return b"".join(map(bytes, codec.request(key, version).frame(1, "c", message)))


def login_messages() -> list[bytes]:
    """A login by each mechanism."""
    first, final = b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"
    token = logins.signed(json.dumps(logins.HEADER).encode(), json.dumps(logins.CLAIMS).encode())
    logged = ((b"\0alice\0secret",), (first, final), (b"n,,\1auth=Bearer " + token + b"\1\1",))
    tails = [b"".join(len(part).to_bytes(2, "big") + part for part in parts) for parts in logged]
    return [bytes([at]) + tail for at in range(len(LOGINS)) for tail in tails]


# -- Pulsar --------------------------------------------------------------------------------------------------------


def _command(name: str, body: Any, message: bytes = b"") -> bytes:
    return framing.message_frame(pulsar_pb.BaseCommand(type=commands.NUMBERS[name], **{name: body}), message)


CONNECT = _command("connect", pulsar_pb.CommandConnect(client_version="fuzz", protocol_version=20))
ATTACHED = _command("producer", pulsar_pb.CommandProducer(topic=STREAM, producer_id=1, request_id=1)) + _command(
    "subscribe",
    pulsar_pb.CommandSubscribe(topic=STREAM, subscription="s", consumer_id=1, request_id=2, sub_type="Shared"),
)


AUTH_RESPONSE = _command(
    "auth_response",
    pulsar_pb.CommandAuthResponse(
        client_version="fuzz", response=pulsar_pb.AuthData(auth_method_name="token", auth_data=b"x")
    ),
)


@asynccontextmanager
async def pulsar_commands() -> AsyncIterator[Ask]:
    """One command after another, each on a connection with a producer and a consumer."""
    async with AsyncExitStack() as closing:
        cluster = PulsarCluster(*await open_stores(None, closing), closing)
        node = await cluster.add()
        closing.push_async_callback(node.stop)
        await node.create(STREAM, 1)
        check = await closing.enter_async_context(watched())
        port = node.listeners[0].socket.getsockname()[1]

        async def ask(data: bytes) -> object:
            frame = struct.pack(">I", len(data)) + data
            is_first = data[4:6] == b"\x08\x02"  # a CONNECT
            parts = (frame,) if is_first else (CONNECT, ATTACHED, frame)
            answer = await exchange(port, *parts)
            await asyncio.sleep(0)
            check()
            return data[5:6], len(answer) > 0

        yield ask


@asynccontextmanager
async def pulsar_logins() -> AsyncIterator[Ask]:
    """A CONNECT, and an AUTH_RESPONSE after it."""
    async with AsyncExitStack() as closing:
        cluster = PulsarCluster(*await open_stores(None, closing), closing)
        node = await cluster.add(authentication=with_logins(closing))
        closing.push_async_callback(node.stop)
        check = await closing.enter_async_context(watched())
        port = node.listeners[0].socket.getsockname()[1]

        async def ask(data: bytes) -> object:
            answer = await exchange(port, struct.pack(">I", len(data)) + data, AUTH_RESPONSE)
            check()
            return len(answer) > 0

        yield ask


def pulsar_connects() -> list[bytes]:
    """CONNECTs with every method of authentication."""
    token = logins.signed(json.dumps(logins.HEADER).encode(), json.dumps(logins.CLAIMS).encode())
    methods = {"token": token, "basic": b"alice:secret", "tls": b"", "": b"", "none": b"x"}
    connects = [
        pulsar_pb.CommandConnect(
            client_version="fuzz",
            protocol_version=20,
            auth_method_name=name,
            auth_data=data,
            original_principal=proxied,
            original_auth_data="Bearer x" if proxied else "",
            original_auth_method=name if proxied else "",
        )
        for name, data in methods.items()
        for proxied in ("", "alice")
    ]
    return [_command("connect", connect)[4:] for connect in connects]


def pulsar_frames() -> list[bytes]:
    """Every command with an id of what is attached, and SENDs with messages."""
    made = list(pulsar.commands())
    send = pulsar_pb.CommandSend(producer_id=1, sequence_id=5)
    made += [_command("send", send, message)[4:] for message in pulsar.message_frames()]
    made.append(_command("send", send, message_bytes(b"v", 6))[4:])
    ids = [pulsar_pb.MessageIdData(ledger_id=1, entry_id=0)]
    ack = pulsar_pb.CommandAck(consumer_id=1, ack_type="Individual", message_id=ids, request_id=3)
    made.append(_command("ack", ack)[4:])
    made.append(_command("seek", pulsar_pb.CommandSeek(consumer_id=1, request_id=4, message_id=ids[0]))[4:])
    made.append(_command("flow", pulsar_pb.CommandFlow(consumer_id=1, message_permits=5))[4:])
    return made


def change_command(random: Random, data: bytearray) -> None:
    """Give a field of a command another value of its type."""
    try:
        frame = framing.read_frame(memoryview(bytes(data)))
    except BearlakeError:
        return
    name = commands.NAMES.get(frame.command.type, "")
    if not name:
        return
    pulsar.change_fields(random, getattr(frame.command, name))
    body = frame.command.SerializePartialToString()
    data[:] = struct.pack(">I", len(body)) + body + bytes(frame.message)


# -- gRPC ----------------------------------------------------------------------------------------------------------

GRPC: Sequence[Method[Any, Any]] = (
    *(methods.CREATE_STREAM, methods.DESCRIBE_STREAM, methods.LIST_STREAMS, methods.DELETE_STREAM),
    *(methods.INIT_PRODUCER, methods.PRODUCE, methods.PRODUCE_STREAM, methods.FETCH, methods.CONSUME),
)
BUGS = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
"""The status with which gRPC ends a call if no handler translated the error. INTERNAL is the answer to a malformed message."""


@asynccontextmanager
async def grpc_calls() -> AsyncIterator[Ask]:
    """One message to one method: the first byte chooses the method."""
    async with AsyncExitStack() as closing:
        cluster = GrpcCluster(*await open_stores(None, closing), closing)
        node = await cluster.add()
        closing.push_async_callback(node.stop)
        await node.create(STREAM, 2)
        check = await closing.enter_async_context(watched())

        async def ask(data: bytes) -> object:
            method = GRPC[data[0] % len(GRPC)] if data else GRPC[0]
            kind = node.channel.stream_stream if method.is_streaming else node.channel.unary_unary
            message = data[1:]
            start: Any = kind(method.path)  # Any: a call of either form
            call = start(iter([message]) if method.is_streaming else message, timeout=QUIET_S * 4)
            try:
                if method.is_streaming:
                    async for _ in call:
                        pass
                else:
                    await call
            except grpc.aio.AioRpcError:
                pass
            code = await call.code()
            assert code not in BUGS, (code, await call.details())
            await asyncio.sleep(0)
            check()
            return method.name, code

        yield ask


def grpc_messages() -> list[bytes]:
    """A request to every method, with payloads of every form for those that write."""
    random = Random("grpc")
    made = []
    for at, method in enumerate(GRPC):
        for _ in range(3):
            made.append(bytes([at]) + pulsar.filled(method.request.DESCRIPTOR, random).SerializeToString())
    for payload in grpc_payloads.payloads():
        request = pb.ProduceRequest(stream=STREAM, payload=payload)
        made.append(bytes([GRPC.index(methods.PRODUCE)]) + request.SerializeToString())
    return made


def change_call(random: Random, data: bytearray) -> None:
    """Give a field of a request another value of its type."""
    from google.protobuf.message import DecodeError

    if not data:
        return
    try:
        message = GRPC[data[0] % len(GRPC)].request.FromString(bytes(data[1:]))
    except DecodeError:
        return
    pulsar.change_fields(random, message)
    data[1:] = message.SerializePartialToString()


def _target(name: str, **options: Any) -> Target:
    defaults: dict[str, Any] = {"errors": (), "share": 0.02, "processor_s": 1.0, "change_share": 0.7, "is_timed": True}
    return Target(name=name, **{**defaults, **options})


TARGETS = [
    _target("Kafka server", seeds=kafka_requests, session=kafka, change=change_message, short_inputs=400),
    _target("Kafka logins", seeds=login_messages, session=kafka_logins, bytes_max=2000, short_inputs=100),
    _target("Pulsar logins", seeds=pulsar_connects, session=pulsar_logins, change=change_command, short_inputs=100),
    _target("Pulsar server", seeds=pulsar_frames, session=pulsar_commands, change=change_command, short_inputs=250),
    _target("gRPC server", seeds=grpc_messages, session=grpc_calls, change=change_call, short_inputs=250),
]

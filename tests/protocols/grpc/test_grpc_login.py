"""Logins of gRPC calls, with grpcio as the client: which calls are accepted, the errors of others, and when a call ends.

Source: gRPC's status codes (UNAUTHENTICATED: the request has no valid credentials).
"""

import asyncio
import ssl
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.errors import DETAILS_KEY
from bearlake.protocols.grpc.login import GrpcListenerLogin, address_of
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.serving.authentication.pem import subject_of
from bearlake.serving.authentication.settings import FailureSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.append import AppendCall
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.grpc_server import GrpcNode, MakeGrpc, call
from fixtures.logins import Logins, add_user, basic
from fixtures.waiting import until

Metadata = list[tuple[str, str]]


def metadata_of(headers: dict[str, str]) -> Metadata:
    return [(name.lower(), value) for name, value in headers.items()]


class Seen(Authorizer):
    """An authorizer that records the callers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        self.names.add(str(who))
        return True


async def lists(node: GrpcNode, metadata: Metadata) -> int:
    answer = await node.call(methods.LIST_STREAMS, pb.ListStreamsRequest(), metadata=metadata)
    return len(answer.streams)


async def refusal(node: GrpcNode, metadata: Metadata) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await lists(node, metadata)
    return caught.value


async def read_to_error(opened: Any) -> None:
    while True:
        assert await opened.read() is not grpc.aio.EOF


async def start(grpc_cluster: MakeGrpc, logins: Logins, **changes: Any) -> GrpcNode:
    node = (await grpc_cluster(1, authentication=logins.settings(**changes)))[0]
    await add_user(node.streams.metadata)
    await node.create("t")
    return node


async def test_a_password_or_a_token_lets_a_call_in_as_its_user(grpc_cluster: MakeGrpc, logins: Logins) -> None:
    node = await start(grpc_cluster, logins)
    seen = node.streams.authorizer = Seen()
    assert await lists(node, metadata_of(basic())) == 1
    assert await lists(node, metadata_of(logins.bearer(sub="bob"))) == 1
    assert seen.names == {"User:alice", "User:bob"}


async def test_other_calls_are_not_authenticated(grpc_cluster: MakeGrpc, logins: Logins) -> None:
    node = await start(grpc_cluster, logins)
    refused = [
        [],
        metadata_of(basic(password="wrong")),
        metadata_of(basic(user="ghost")),
        metadata_of(logins.bearer(exp=int(time.time()) - 60)),
        metadata_of(logins.bearer(aud="somebody else")),
        [("authorization", "Bearlake a.b.c")],
        metadata_of(basic()) + metadata_of(logins.bearer(sub="bob")),
        [("x-principal", "User:alice")],
    ]
    for metadata in refused:
        error = await refusal(node, metadata)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED, metadata
        assert "secret" not in str(error.details())


@pytest.mark.parametrize("method", [methods.PRODUCE_STREAM, methods.FETCH, methods.CONSUME], ids=lambda item: item.name)
async def test_a_stream_needs_a_login(
    grpc_cluster: MakeGrpc, logins: Logins, method: "methods.Method[object, object]"
) -> None:
    node = await start(grpc_cluster, logins)
    opened = node.open(method)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await opened.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", [methods.PRODUCE_STREAM, methods.FETCH, methods.CONSUME], ids=lambda item: item.name)
async def test_a_stream_ends_with_its_login(
    grpc_cluster: MakeGrpc,
    logins: Logins,
    monkeypatch: pytest.MonkeyPatch,
    method: "methods.Method[object, object]",
) -> None:
    node = await start(grpc_cluster, logins, session_ms_max=200)
    may_log_in, admit = asyncio.Event(), GrpcListenerLogin.admit

    async def held(login: GrpcListenerLogin, context: Any) -> tuple[Principal, float | None]:
        await may_log_in.wait()
        return await admit(login, context)

    monkeypatch.setattr(GrpcListenerLogin, "admit", held)
    opened = node.open(method, metadata=metadata_of(basic()))
    if method is methods.CONSUME:
        await opened.write(pb.ConsumeRequest(join=pb.Join(group="g", streams=["t"])))
    may_log_in.set()  # not before all is written: the library of a client that writes while its call ends drops the server's status
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_to_error(opened)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "ended" in str(caught.value.details())


async def test_a_batch_that_is_under_way_when_its_login_ends_is_acknowledged(
    grpc_cluster: MakeGrpc, logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the client does not learn that the batch is stored, and sends it again."""
    node = await start(grpc_cluster, logins, session_ms_max=2_000)
    held: list[AppendCall] = []
    append = node.streams.submit
    monkeypatch.setattr(node.streams, "submit", held.append)
    opened = node.open(methods.PRODUCE_STREAM, metadata=metadata_of(basic()))
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=b"v")]))
    await opened.write(pb.ProduceStreamRequest(stream="t", partition=0, payload=payload))
    await until(lambda: held)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(reading := asyncio.ensure_future(opened.read())), 2.5)  # the login ends
    append(held[0])

    assert (await reading).acknowledged_count == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await opened.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("user", ["alice", "ghost"])
async def test_guessing_ends_with_the_time_to_wait(grpc_cluster: MakeGrpc, logins: Logins, user: str) -> None:
    limits = FailureSettings(per_address_max=3, window_ms=3_600_000)
    node = await start(grpc_cluster, logins, failures=limits)
    for number in range(3):
        assert (await refusal(node, metadata_of(basic(user, f"guess {number}")))).code().name == "UNAUTHENTICATED"
    error = await refusal(node, metadata_of(basic()))
    status = Status.FromString(dict(error.trailing_metadata())[DETAILS_KEY])
    (pause,) = [detail for detail in status.details if detail.Is(RetryInfo.DESCRIPTOR)]
    told = RetryInfo()
    pause.Unpack(told)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 1 < told.retry_delay.ToSeconds() <= 1200


@pytest.mark.parametrize("has_tls", [False, True], ids=["without TLS", "with TLS"])
async def test_a_password_of_another_machine_needs_tls(
    grpc_cluster: MakeGrpc,
    logins: Logins,
    certificates: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    has_tls: bool,
) -> None:
    files = {"tls_certificate_file": str(certificates["server"]), "tls_key_file": str(certificates["server_key"])}
    listener = ListenerSettings(**files if has_tls else {})  # type: ignore[arg-type]
    node = (await grpc_cluster(1, listener=listener, authentication=logins.settings()))[0]
    await add_user(node.streams.metadata)
    monkeypatch.setattr("bearlake.protocols.grpc.login.address_of", lambda _: "203.0.113.7")
    address = f"localhost:{node.server.endpoint.port}"
    authority = await asyncio.to_thread(certificates["authority"].read_bytes)
    opened = (
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority))
        if has_tls
        else grpc.aio.insecure_channel(address)
    )
    codes = []
    async with opened as channel:
        for headers in (basic(), logins.bearer()):
            try:
                await call(channel, methods.LIST_STREAMS, pb.ListStreamsRequest(), metadata=metadata_of(headers))
                codes.append(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())

    assert codes == [grpc.StatusCode.OK if has_tls else grpc.StatusCode.UNAUTHENTICATED] * 2


@pytest.fixture
def listener(certificates: dict[str, Path]) -> ListenerSettings:
    """A listener that wants client certificates."""
    return ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )


async def by_certificate(node: GrpcNode, certificates: dict[str, Path]) -> None:
    """A call with the client's certificate. Raises `AioRpcError`."""
    files = await asyncio.to_thread(lambda: {name: path.read_bytes() for name, path in certificates.items()})
    credentials = grpc.ssl_channel_credentials(files["authority"], files["client_key"], files["client"])
    async with grpc.aio.secure_channel(f"localhost:{node.server.endpoint.port}", credentials) as channel:
        await call(channel, methods.LIST_STREAMS, pb.ListStreamsRequest(), metadata=metadata_of(basic("bob", "b")))


async def test_a_certificate_names_the_caller(
    grpc_cluster: MakeGrpc, logins: Logins, certificates: dict[str, Path], listener: ListenerSettings
) -> None:
    node = (await grpc_cluster(1, listener=listener, authentication=logins.settings()))[0]
    seen = node.streams.authorizer = Seen()
    await node.create("t")
    await by_certificate(node, certificates)
    assert seen.names == {"User:CN=alice"}


@pytest.mark.parametrize("logs_in", [True, False])
async def test_a_revoked_certificate_is_refused(
    grpc_cluster: MakeGrpc,
    logins: Logins,
    certificates: dict[str, Path],
    listener: ListenerSettings,
    tmp_path: Path,
    logs_in: bool,
) -> None:
    """Also on a listener that wants a certificate, and no login."""
    lists = tmp_path / "crl.pem"
    lists.write_bytes(revocation_list(certificates, []))
    listener = replace(listener, tls_client_crl_file=str(lists), anonymous=not logs_in)
    authentication = {"authentication": logins.settings()} if logs_in else {}
    node = (await grpc_cluster(1, listener=listener, **authentication))[0]
    await by_certificate(node, certificates)
    lists.write_bytes(revocation_list(certificates, ["client"]))
    other = (await grpc_cluster(1, listener=listener, **authentication))[0]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await by_certificate(other, certificates)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "revoked" in (caught.value.details() or "")


def revocation_list(certificates: dict[str, Path], revoked: Sequence[str]) -> bytes:
    """Return a list of the authority that revokes these certificates."""
    authority = x509.load_pem_x509_certificate(certificates["authority"].read_bytes())
    key = load_pem_private_key(certificates["authority_key"].read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    start = datetime.now(UTC) - timedelta(hours=1)
    made = x509.CertificateRevocationListBuilder(authority.subject, start, start + timedelta(days=2))
    for name in revoked:
        number = x509.load_pem_x509_certificate(certificates[name].read_bytes()).serial_number
        made = made.add_revoked_certificate(x509.RevokedCertificateBuilder(number, start).build())
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM)


def test_a_subject_is_read_as_from_a_connection(tmp_path: Path, certificates: dict[str, Path]) -> None:
    """Kafka's listeners get the subject from the ssl module, and gRPC's from a PEM file: one user must have one name."""
    subject = "/C=DE/ST=B/L=M/O=Bears, Ltd/OU=Honey+UID=7/CN=alice/emailAddress=a@b.example/serialNumber=1/DC=x"
    made = tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-multivalue-rdn", "-subj", subject]
    subprocess.run([*words, "-keyout", tmp_path / "key.pem", "-out", made], check=True, capture_output=True, timeout=60)
    assert subject_of(made.read_bytes()) == ssl._ssl._test_decode_cert(str(made))["subject"]  # type: ignore[attr-defined]  # noqa: SLF001


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:192.0.2.1:50", "192.0.2.1"), ("ipv6:%5B2001:db8::1%5D:50", "2001:db8::1"), ("unix:/tmp/x", "")],
)
def test_the_address_of_a_peer(peer: str, address: str) -> None:
    assert address_of(peer) == address

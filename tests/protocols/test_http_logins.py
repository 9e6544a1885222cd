"""Logins of HTTP requests, the same for REST, the schema registry, the Iceberg REST catalog and Pulsar's HTTP API: which requests are
accepted, and the errors of others.

Source: RFC 9110 (401 has WWW-Authenticate), RFC 7617 (Basic), RFC 6750 (Bearer), RFC 6585 (429).
"""

import asyncio
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.users import SCRAM_HASHES, CredentialChange
from bearlake.protocols.pulsar.http.server import PulsarHttpServer
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.server import PulsarServer
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.columns import ColumnReservations
from bearlake.protocols.rest.iceberg.routes import CatalogRoutes, Tables
from bearlake.protocols.rest.iceberg.server import CatalogServer
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.registry.server import RegistryServer
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.server import RestServer
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.authentication.settings import FailureSettings
from bearlake.serving.http.handlers import GatedHandler
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.service import Streams
from fixtures.kafka_server import open_stores
from fixtures.logins import Logins, add_user, basic, http_login_of
from fixtures.rest_server import MakeServers

TIMEOUT = aiohttp.ClientTimeout(total=30)
PROTOCOLS = {
    "rest": "/topics",
    "registry": "/subjects",
    "catalog": "/v1/config",
    "pulsar_http": "/admin/v2/persistent/public/default",
}
"""A path of each API that any user may read."""
ERROR_BODIES: dict[str, Callable[[Any], bool]] = {
    "rest": lambda body: body["error_code"] == 40101 and bool(body["message"]),
    "registry": lambda body: body["error_code"] == 40101 and bool(body["message"]),
    "catalog": lambda body: body["error"]["type"] == "NotAuthorizedException" and bool(body["error"]["message"]),
    "pulsar_http": lambda body: bool(body["reason"]),
}


CUT_OFF = (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)
"""What the client sees when the server ends the connection of an answer, after its head and before."""


class Seen(Authorizer):
    """An authorizer that records the callers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        self.names.add(str(who))
        return True


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any


class Place:
    """One server of each API on common stores."""

    def __init__(self, metadata: Metadata, seen: Seen, session: aiohttp.ClientSession) -> None:
        self.metadata = metadata
        self.seen = seen
        self.urls: dict[str, str] = {}
        self.session = session

    async def ask(self, protocol: str, headers: Any = None, path: str = "", method: str = "GET") -> Answer:
        url = self.urls[protocol] + (path or PROTOCOLS[protocol])
        async with self.session.request(method, url, headers=headers, timeout=TIMEOUT) as response:
            text = await response.text()
            return Answer(response.status, response.headers, json.loads(text) if text else None)


Start = Callable[..., Awaitable[Place]]


async def _no_tables() -> Tables:
    raise Unavailable("this catalog has no tables")


@pytest.fixture
async def start(logins: Logins) -> AsyncIterator[Start]:
    """`await start(…)`: options change the settings of authentication."""
    async with AsyncExitStack() as closing:

        async def begin(cors_origins: tuple[str, ...] = (), **changes: Any) -> Place:
            metadata, store = await open_stores(None, closing)
            await add_user(metadata)
            listeners = {name: open_listener(ListenerSettings(), name) for name in (*PROTOCOLS, "pulsar")}
            endpoints = dict(listener.endpoint(name) for name, listener in listeners.items())
            member = await RegisteredServer.join(metadata.servers, ServerSettings(name="server"), endpoints)
            seen = Seen()
            streams = Streams(metadata, store, member.server, authorizer=seen)
            await streams.start()
            closing.push_async_callback(streams.close)
            running = asyncio.create_task(streams.run())
            closing.callback(running.cancel)
            await streams.catalog.create("t", 1, {})
            schemas = Schemas(metadata.schemas, authorizer=seen)
            closing.callback(schemas.close)
            login = http_login_of(metadata, logins.settings(**changes), closing, member.node_id)
            settings = RestSettings(cors_origins=cors_origins)
            rest = RestServer(streams, schemas, member, settings, [listeners["rest"]], login)
            registry = RegistryServer(schemas, RegistrySettings(), [listeners["registry"]], login=login)
            access, columns = TableAccess(streams.catalog, seen), ColumnReservations(metadata.table_columns)
            routes = CatalogRoutes(_no_tables, access, columns, "bearlake", CatalogSettings())
            catalog = CatalogServer(routes, CatalogSettings(), [listeners["catalog"]], login=login)
            pulsar = PulsarServer(streams, schemas, member, PulsarSettings(), [listeners["pulsar"]])
            http = PulsarHttpServer(pulsar.context, PulsarHttpSettings(), listeners["pulsar_http"], login)
            closing.push_async_callback(pulsar.close)
            session = await closing.enter_async_context(aiohttp.ClientSession())
            place = Place(metadata, seen, session)
            for server in (rest, registry, catalog, http):
                await server.start()
                closing.push_async_callback(server.close)
                place.urls |= {name: f"http://{address}" for name, address in server.endpoints.items()}
            return place

        yield begin


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_password_or_a_token_lets_a_client_in_as_its_user(start: Start, logins: Logins, protocol: str) -> None:
    place = await start()
    by_password = await place.ask(protocol, basic())
    by_token = await place.ask(protocol, logins.bearer(sub="bob"))
    assert (by_password.status, by_token.status) == (200, 200)
    assert place.seen.names <= {"User:alice", "User:bob"}
    if protocol not in ("registry", "catalog"):  # their paths here have nothing to ask about
        assert place.seen.names == {"User:alice", "User:bob"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_others_are_refused_in_the_form_of_their_protocol(start: Start, logins: Logins, protocol: str) -> None:
    place = await start()
    stranger = Logins(logins.keys_file.parent.joinpath("..").resolve())
    refused = [
        {},
        basic(password="wrong"),
        basic(user="ghost"),
        basic(user=""),
        {"Authorization": "Basic !"},
        {"Authorization": "Basic " + "A" * 4001},
        {"Authorization": "Digest x"},
        {"Authorization": "Bearlake eyJhbGciOiJub25lIn0.e30."},
        {"Authorization": f"Bearer {stranger.token()}"},
        logins.bearer(aud="somebody else"),
        logins.bearer(exp=int(time.time()) - 60),
        {"X-Principal": "User:alice", "Bearlake-Forwarded": "0"},
    ]
    for headers in refused:
        answer = await place.ask(protocol, headers)
        assert answer.status == 401, headers
        assert "Basic realm=" in answer.headers["WWW-Authenticate"]
        assert "Bearer realm=" in answer.headers["WWW-Authenticate"]
        assert ERROR_BODIES[protocol](answer.body), answer.body
        assert "secret" not in str(answer.body)
    assert place.seen.names == set()


@pytest.mark.parametrize("path", ["/nowhere", "/docs", "/openapi.json", "/"])
async def test_no_path_is_served_without_a_login(start: Start, path: str) -> None:
    place = await start()
    for protocol in PROTOCOLS:
        assert (await place.ask(protocol, path=path)).status == 401


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("user", ["alice", "ghost"])
async def test_guessing_ends_with_429(start: Start, protocol: str, user: str) -> None:
    place = await start(failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    guesses = [await place.ask(protocol, basic(user, f"guess {number}")) for number in range(3)]
    right = await place.ask(protocol, basic())
    assert [guess.status for guess in guesses] == [401] * 3
    assert right.status == 429
    assert 1 <= int(right.headers["Retry-After"]) <= 1200


async def test_a_valid_token_is_accepted_from_an_address_that_sends_guesses(start: Start, logins: Logins) -> None:
    """Clients behind one proxy have one address: a client with a wrong password must not lock the others out."""
    place = await start(failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    answers = [await place.ask("rest", basic("ghost", f"guess {number}")) for number in range(4)]
    assert answers[-1].status == 429
    assert (await place.ask("rest", logins.bearer())).status == 200
    assert (await place.ask("rest", logins.bearer(aud="somebody else"))).status == 429


async def test_a_password_that_was_right_is_not_an_oracle_for_guesses_at_once(start: Start) -> None:
    place = await start(failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    assert (await place.ask("rest", basic())).status == 200
    guesses = [basic("alice", f"guess {number}") for number in range(20)]
    answers = await asyncio.gather(*(place.ask("rest", guess) for guess in guesses))
    assert sorted(answer.status for answer in answers) == [401] * 3 + [429] * 17
    assert (await place.ask("rest", basic())).status == 429


async def test_a_deleted_user_and_an_old_password_are_refused_at_once(start: Start) -> None:
    place = await start()
    assert [(await place.ask("rest", basic())).status for _ in range(2)] == [200, 200]
    await add_user(place.metadata, password="new")
    old, new = await place.ask("rest", basic()), await place.ask("rest", basic(password="new"))
    gone = [CredentialChange("alice", mechanism, None) for mechanism in SCRAM_HASHES]
    await place.metadata.users.change(gone, revision=await place.metadata.users.revision())
    deleted = await place.ask("rest", basic(password="new"))
    assert (old.status, new.status, deleted.status) == (401, 200, 401)


async def test_two_logins_in_one_request_are_refused(start: Start, logins: Logins) -> None:
    place = await start()
    headers = [*basic().items(), *logins.bearer(sub="bob").items()]
    assert (await place.ask("rest", headers)).status == 401


async def test_a_listener_without_passwords_does_not_ask_for_one(start: Start, logins: Logins) -> None:
    place = await start(mechanisms=["OAUTHBEARER"])
    refused = await place.ask("rest", basic())
    assert refused.status == 401
    assert "Basic" not in refused.headers["WWW-Authenticate"]
    assert (await place.ask("rest", logins.bearer())).status == 200


async def test_a_page_of_any_origin_needs_a_token_of_its_own(start: Start, logins: Logins) -> None:
    """A browser adds the password of its user to requests of every page."""
    place = await start(cors_origins=("*",))
    page = {"Origin": "https://evil.example"}
    assert (await place.ask("rest", {**basic(), **page})).status == 403
    assert (await place.ask("rest", {**logins.bearer(), **page})).status == 200
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    elsewhere = await start()
    assert (await elsewhere.ask("rest", {**basic(), **followed})).status == 200  # a link; no page can read the answer
    preflight = {**page, "Access-Control-Request-Method": "GET"}
    assert (await place.ask("rest", preflight, method="OPTIONS")).status == 204


async def test_an_answer_that_follows_a_stream_ends_with_the_login(start: Start, logins: Logins) -> None:
    place = await start(session_ms_max=300)
    headers = {**logins.bearer(), "Content-Type": "text/plain"}
    session = place.session
    async with session.put(place.urls["rest"] + "/v1/stream/s", headers=headers, timeout=TIMEOUT) as made:
        assert made.status == 201, await made.text()
    brief = {**logins.bearer(), "Accept": "text/event-stream"}
    url = place.urls["rest"] + "/v1/stream/s?offset=-1&live=sse"
    async with session.get(url, headers=brief, timeout=TIMEOUT) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_a_certificate_names_the_client_until_its_session_ends(
    rest_servers: MakeServers, logins: Logins, certificates: dict[str, Path]
) -> None:
    listening = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    for session_ms, is_kept in ((3_600_000, True), (1, False)):
        settings = logins.settings(session_ms_max=session_ms)
        (node,) = await rest_servers(1, listening=listening, authentication=settings)
        seen = node.streams.authorizer = Seen()
        await node.create(f"t{session_ms}")
        url = node.url.replace("127.0.0.1", "localhost") + f"/topics/t{session_ms}"
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session,
            session.get(url, headers=basic("bob", "b")) as answer,
        ):
            assert answer.status == 200
            assert (answer.headers.get("Connection") != "close") == is_kept
        assert seen.names == {"User:CN=alice"}


async def read_events(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status == 200
        await answer.read()


@pytest.mark.parametrize("age_s", [3599.9, 3601.0])
async def test_an_answer_by_certificate_ends_with_the_session_of_its_connection(
    rest_servers: MakeServers,
    logins: Logins,
    certificates: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
) -> None:
    """A request that comes later, as the last one of its connection, has the time of any request."""
    listening = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    settings = logins.settings(session_ms_max=3_600_000)
    (node,) = await rest_servers(1, listening=listening, authentication=settings, request_timeout_ms=3_000)
    await node.create("s")
    monkeypatch.setattr(GatedHandler, "age_s", age_s)
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    url = node.url.replace("127.0.0.1", "localhost") + "/v1/stream/s?offset=-1&live=sse"

    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
        with pytest.raises(CUT_OFF):
            await read_events(session, url)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_curl_is_let_in_and_refused(start: Start, logins: Logins, protocol: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    place = await start()
    url = place.urls[protocol] + PROTOCOLS[protocol]

    async def status(*words: str) -> int:
        command = ["curl", "-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}", *words, url]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True, timeout=60)
        return int(done.stdout)

    assert await status("-u", "alice:secret") == 200
    assert await status("--anyauth", "-u", "alice:secret") == 200  # asks first, and follows WWW-Authenticate
    assert await status("--oauth2-bearer", logins.token()) == 200
    assert await status() == 401
    assert await status("-u", "alice:wrong") == 401
    assert await status("--oauth2-bearer", logins.token(exp=int(time.time()) - 60)) == 401

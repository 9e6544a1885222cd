"""The admin API with TLS: which logins are accepted, which certificate it shows, and how servers verify each other."""

import asyncio
import logging
import shutil
import ssl
import subprocess
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bearlake.errors import Invalid
from bearlake.serving.addresses import url_of
from bearlake.serving.admin.auth import read_token
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.authentication.peer import LoginRules
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.certificates import Certificates
from bearlake.serving.groups.client import GroupClient
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.listener import open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.serving.trust import PeerTrust
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.settings import GroupSettings
from fixtures.kafka_server import open_stores
from fixtures.logins import Logins, add_user, authenticator_of, basic
from fixtures.small_cluster import served
from fixtures.waiting import WAIT_S

TOKEN = "token of sixteen or more"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PROBES = ("/livez", "/readyz", "/healthz")
TIMEOUT = aiohttp.ClientTimeout(total=WAIT_S)
CERTIFICATE_RULES = ["RULE:CN=(.*)/$1/"]


class Place:
    """An admin API with TLS; its files are in `folder`."""

    def __init__(self, folder: Path, made: Mapping[str, Path], http: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.made = made
        self.http = http
        self.server: Any = None
        self.certificates = Certificates()
        for name in ("server", "server_key", "authority"):
            self.put(name, name)

    def put(self, name: str, source: str) -> None:
        """Replace a file by one of the session's certificates or keys, as renewal does."""
        shutil.copy(self.made[source], self.folder / "new")
        (self.folder / "new").rename(self.folder / name)

    def settings(self, **more: Any) -> AdminSettings:
        files = {"tls_certificate_file": self.folder / "server", "tls_key_file": self.folder / "server_key"}
        return AdminSettings(port=0, **{key: str(value) for key, value in (files | more).items()})

    @property
    def address(self) -> str:
        """`localhost:port`: the name that the certificate has."""
        return "localhost:" + self.server.endpoints["admin"].rpartition(":")[2]

    def client(self, name: str = "", authority: str = "authority") -> ssl.SSLContext:
        """What a client trusts, and the certificate that it presents."""
        context = ssl.create_default_context(cafile=str(self.made[authority]))
        if name:
            context.load_cert_chain(self.made[name], self.made[f"{name}_key"])
        return context

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> tuple[int, str]:
        """Return status and title of an answer, over a connection of its own."""
        url = f"https://{self.address}{path}"
        ask = {"Connection": "close", **(headers or {})}
        async with self.http.get(url, headers=ask, ssl=tls or self.client()) as response:
            content = await response.read()
            title = (await response.json(content_type=None)).get("title", "") if response.status >= 400 else ""
            assert content
            return response.status, title


@pytest.fixture
async def start(
    tmp_path: Path, certificates: dict[str, Path], logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Any]]:
    """`await start(**settings)` serves; the clients seem to be on another machine."""
    monkeypatch.setattr("bearlake.serving.http.login.address_of", lambda _: "203.0.113.7")
    async with AsyncExitStack() as closing:

        async def begin(super_users: tuple[str, ...] = ("User:alice",), **given: Any) -> Place:
            http = await closing.enter_async_context(aiohttp.ClientSession(timeout=TIMEOUT))
            place = Place(tmp_path, certificates, http)
            metadata, _ = await open_stores(None, closing)
            await add_user(metadata)
            await add_user(metadata, "bob")
            settings = place.settings(**given)
            listener = open_listener(settings, "admin")
            assert listener.tls is not None
            place.certificates.watch(settings, "admin", listener.tls)
            authentication: AuthenticationSettings = logins.settings()
            authenticator = authenticator_of(
                metadata, replace(authentication, certificate_rules=CERTIFICATE_RULES), closing
            )
            rules = LoginRules(("PLAIN", "OAUTHBEARER"), may_use_certificate=bool(settings.tls_client_ca_file))
            member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
            place.server = AdminServer(
                listener,
                metadata.log,
                member,
                settings,
                token=AdminToken(TOKEN),
                login=HttpListenerLogin(authenticator, rules),
                is_super_user=lambda who: str(who) in super_users,
            )
            await place.server.start()
            place.server.is_ready = True
            closing.push_async_callback(place.server.close)
            return place

        yield begin


async def test_passwords_and_tokens_of_super_users_are_accepted_from_other_machines(
    start: Callable[..., Any], logins: Logins
) -> None:
    place = await start()

    assert place.server.endpoints["admin"].startswith("https://127.0.0.1:")
    for headers in (basic(), logins.bearer(), BEARER):
        assert await place.get("/v1/servers", headers) == (200, "")
    assert (await place.get("/v1/servers", basic("bob")))[0] == 403
    assert (await place.get("/v1/servers", basic(password="wrong")))[0] == 401
    assert (await place.get("/v1/servers"))[0] == 401


async def test_probes_are_answered_without_a_certificate(start: Callable[..., Any], certificates: Any) -> None:
    place = await start(tls_client_ca_file=certificates["authority"])

    assert [await place.get(path) for path in PROBES] == [(200, "")] * 3


async def test_a_client_certificate_names_a_user_who_must_be_a_super_user(
    start: Callable[..., Any], certificates: Any
) -> None:
    place = await start(tls_client_ca_file=certificates["authority"])

    assert await place.get("/v1/servers", tls=place.client("client")) == (200, "")
    assert (await place.get("/v1/servers", tls=place.client("server")))[0] == 403  # localhost is not a super user
    assert (await place.get("/v1/servers"))[0] == 401
    assert (await place.get("/v1/servers", BEARER))[0] == 200
    assert (await place.get("/v1/servers", basic()))[0] == 200
    assert (await place.get("/v1/servers", BEARER, place.client("server")))[0] == 200  # the token comes first
    wrong = await place.get("/v1/servers", {"Authorization": "Bearer of no token"}, place.client("client"))
    assert wrong[0] == 401  # a login that fails is not replaced by the certificate


async def test_without_client_authorities_a_certificate_does_not_log_in(start: Callable[..., Any]) -> None:
    place = await start()

    assert (await place.get("/v1/servers", tls=place.client("client")))[0] == 401


def revocations(made: Mapping[str, Path], *revoked: str) -> bytes:
    """The authority's list (PEM) of these certificates."""
    now = datetime.now(UTC)
    authority = x509.load_pem_x509_certificate(made["authority"].read_bytes())
    key = load_pem_private_key(made["authority_key"].read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    built = x509.CertificateRevocationListBuilder(authority.subject, now - timedelta(days=1), now + timedelta(days=1))
    for name in revoked:
        number = x509.load_pem_x509_certificate(made[name].read_bytes()).serial_number
        built = built.add_revoked_certificate(x509.RevokedCertificateBuilder(number, now).build())
    return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


async def test_a_revoked_client_certificate_is_refused_without_a_restart(
    start: Callable[..., Any], certificates: Any, tmp_path: Path
) -> None:
    lists = tmp_path / "crl.pem"
    lists.write_bytes(revocations(certificates))
    place = await start(tls_client_ca_file=certificates["authority"], tls_client_crl_file=lists)
    assert (await place.get("/v1/servers", tls=place.client("client")))[0] == 200

    (tmp_path / "new").write_bytes(revocations(certificates, "client"))
    (tmp_path / "new").rename(lists)
    place.certificates.renew()

    with pytest.raises(aiohttp.ClientError):
        await place.get("/v1/servers", tls=place.client("client"))
    assert (await place.get("/v1/servers", BEARER))[0] == 200
    assert (await place.get("/livez"))[0] == 200


async def test_a_renewed_certificate_is_shown_without_a_restart(start: Callable[..., Any]) -> None:
    place = await start()
    port = int(place.address.rpartition(":")[2])

    async def shown() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=WAIT_S)

    def der(text: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert(text)

    assert der(await shown()) == der(place.made["server"].read_text())
    place.put("server_key", "client_key")
    place.put("server", "client")
    place.certificates.renew()

    assert der(await shown()) == der(place.made["client"].read_text())


async def test_a_client_that_does_not_trust_the_authority_is_not_connected(
    start: Callable[..., Any], certificates: Any
) -> None:
    place = await start()

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await place.get("/livez", tls=place.client(authority="client"))


async def test_plain_http_is_refused_without_a_trace_in_the_log(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    place = await start()

    with pytest.raises(aiohttp.ClientError):
        async with place.http.get(f"http://{place.address}/livez") as response:
            await response.read()
    assert (await place.get("/livez"))[0] == 200

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_curl_is_let_in_by_certificate(start: Callable[..., Any], certificates: Any) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    place = await start(tls_client_ca_file=certificates["authority"])
    own = ["--cert", certificates["client"], "--key", certificates["client_key"]]

    for words, status in ((own, "200"), ([], "401"), (["-u", "alice:secret"], "200"), (["-u", "bob:secret"], "403")):
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", certificates["authority"], *words]
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, f"https://{place.address}/v1/servers"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert done.stdout == status, words


async def test_connections_by_certificate_end_with_the_session(
    start: Callable[..., Any], certificates: Any, logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "settings", lambda: replace(Logins.settings(logins), session_ms_max=1))
    place = await start(tls_client_ca_file=certificates["authority"])
    url = f"https://{place.address}/livez"

    async with place.http.get(url, ssl=place.client("client")) as response:
        assert response.headers["Connection"] == "close"


async def test_servers_verify_each_other_before_they_send_the_token(
    start: Callable[..., Any], certificates: Any, tmp_path: Path
) -> None:
    place = await start()
    url = place.server.endpoints["admin"]  # by address, which is not in the certificate
    now_s = [0.0]
    file = tmp_path / "trusted"
    shutil.copy(certificates["client"], file)

    async def ask(trust: PeerTrust) -> str:
        client = GroupClient(GroupSettings(), AdminToken(TOKEN), trust=trust)
        try:
            await client.ask(url, "describe", {"group": "g"})
        except GroupRefusal as refusal:
            return str(refusal)
        finally:
            await client.close()
        return ""

    trust = PeerTrust(str(file), "localhost", now_s=lambda: now_s[0])
    assert "CERTIFICATE_VERIFY_FAILED" in await ask(trust)
    shutil.copy(certificates["authority"], file)
    now_s[0] = 10.0
    assert "status 404" in await ask(trust)  # connected and let in; this server has no groups
    assert "CERTIFICATE_VERIFY_FAILED" in await ask(PeerTrust(str(file)))  # by the address
    assert "CERTIFICATE_VERIFY_FAILED" in await ask(PeerTrust(server_name="localhost"))
    file.write_text("damaged")
    now_s[0] = 20.0
    assert "status 404" in await ask(trust)
    with pytest.raises(Invalid, match="tls_ca_file"):
        PeerTrust(str(file))


async def test_servers_follow_no_redirect_of_another_server() -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async with served(elsewhere) as url:

        async def redirect(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(url)

        async with served(redirect) as first:
            client = GroupClient(GroupSettings(), AdminToken(TOKEN))
            with pytest.raises(GroupRefusal, match="status 307"):
                await client.ask(first, "describe", {"group": "g"})
            await client.close()


def test_settings_that_contradict_each_other_are_refused(certificates: Any) -> None:
    with pytest.raises(ValueError, match="require each other"):
        AdminSettings(tls_certificate_file="a")
    with pytest.raises(ValueError, match="tls_client_ca_file needs"):
        AdminSettings(tls_client_ca_file="a")
    with pytest.raises(Invalid, match="need a token"):
        read_token(AdminSettings(tls_certificate_file="a", tls_key_file="b", tls_client_ca_file="c"), {})


def test_an_endpoint_without_a_scheme_has_no_tls() -> None:
    assert [url_of(endpoint) for endpoint in ("10.0.0.1:9644", "https://10.0.0.1:9644")] == [
        "http://10.0.0.1:9644",
        "https://10.0.0.1:9644",
    ]


@pytest.mark.parametrize(
    ("least", "most", "ciphers"),
    [
        (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"),
        (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2, "aNULL:@SECLEVEL=0"),
        (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2, "eNULL:@SECLEVEL=0"),
    ],
    ids=["TLS 1.1", "no authentication", "no encryption"],
)
async def test_weak_versions_and_ciphers_end_the_handshake(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture, least: Any, most: Any, ciphers: str
) -> None:
    place = await start()
    weak = place.client()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TLS 1.0 and 1.1
        weak.minimum_version, weak.maximum_version = least, most
    weak.set_ciphers(ciphers)

    with pytest.raises(aiohttp.ClientConnectorError):
        await place.get("/livez", tls=weak)
    assert await place.get("/livez") == (200, "")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ["foreign", "forged"])
async def test_a_certificate_of_another_authority_ends_the_handshake(
    start: Callable[..., Any], certificates: Any, tmp_path: Path, name: str
) -> None:
    place = await start(tls_client_ca_file=certificates["authority"])
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "alice")])
    now = datetime.now(UTC)
    signer = key if name == "foreign" else ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        # The issuer claims to be the trusted authority in the second case, whose signature it cannot make.
        .issuer_name(subject if name == "foreign" else _subject_of(certificates["authority"]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )
    held = tmp_path / "held.pem"
    held.write_bytes(
        made.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    tls = place.client()
    tls.load_cert_chain(held)

    with pytest.raises(aiohttp.ClientError):
        await place.get("/v1/servers", tls=tls)
    assert await place.get("/v1/servers", tls=place.client("client")) == (200, "")


def _subject_of(file: Path) -> x509.Name:
    return x509.load_pem_x509_certificate(file.read_bytes()).subject

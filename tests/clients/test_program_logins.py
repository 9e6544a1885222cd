"""Pulsar's Java and Go clients and grpcurl, unmodified, log in by token, password and certificate, or are refused as they know it.

One server has a Pulsar listener without TLS, one with TLS, and one that asks for client certificates. `alice` may do everything, `bob` may
read one topic, and other users may do nothing. `pulsar_java/PulsarLogins.java` and `pulsar_go/logins.go` try all logins in one run. If a
program is missing and cannot be fetched, its tests are skipped with a message.
"""

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa

from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED
from fixtures.server_process import ServerProcess, finished, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.long]

SOURCES = Path(__file__).resolve().parent
RUN_TIMEOUT_S = 240.0
LET_IN_WAIT_S, REFUSED_WAIT_S = 60, 8
"""Timeouts of the clients: some retry a refused login until the end of theirs."""
ISSUER, AUDIENCE = "https://issuer.example", "bearlake"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PASSWORD = "correct horse"
TOPIC = "persistent://public/default/orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A login and what the client then does: `listener` is clear, tls or certificates; `trusts` says whether it knows the authority."""

    listener: str = "clear"
    kind: str = "token"
    secret: str = ""
    action: str = "write"
    trusts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The server, its addresses for Pulsar by listener, and the certificates that were made for it."""

    server: ServerProcess
    urls: Mapping[str, str]
    certificates: Mapping[str, Path]


def token(user: str = "alice", *, expires_s: int = 3600, audience: str = AUDIENCE) -> str:
    claims = {"iss": ISSUER, "aud": audience, "sub": user, "exp": int(time.time()) + expires_s}
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "k"})


def attempts(certificates: Mapping[str, Path]) -> dict[str, Attempt]:
    """The logins by name; a name that begins with `let-in` must succeed. The first one writes what later ones read."""
    certificate = f"{certificates['client']}:{certificates['client_key']}"
    return {
        "let-in-token": Attempt(secret=token()),
        "let-in-token-reads": Attempt(secret=token(), action="read"),
        "let-in-token-tls": Attempt(secret=token(), listener="tls"),
        "let-in-password-tls": Attempt(kind="basic", secret=f"alice:{PASSWORD}", listener="tls"),
        "let-in-certificate": Attempt(kind="certificate", secret=certificate, listener="certificates"),
        "let-in-right-to-read": Attempt(secret=token("bob"), action="read"),
        "login-none": Attempt(kind="none"),
        "login-expired": Attempt(secret=token(expires_s=-3600)),
        "login-other-audience": Attempt(secret=token(audience="somebody else")),
        "login-damaged": Attempt(secret=token()[:-8] + "AAAAAAAA"),
        "login-password": Attempt(kind="basic", secret="alice:guess", listener="tls"),
        "right-to-write": Attempt(secret=token("bob")),
        "right-to-anything": Attempt(secret=token("carol"), action="read"),
        "tls-authority": Attempt(secret=token(), listener="tls", trusts=False),
        "tls-certificate": Attempt(kind="none", listener="certificates"),
    }


NAMES = tuple(attempts({name: Path(name) for name in ("client", "client_key")}))
"""The names alone, for parameters of tests."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, certificates: Mapping[str, Path]) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("program-logins")
    key = jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "k", "alg": "RS256", "use": "sig"}]}))
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(settings(folder, certificates)))
    commands = (
        ("user", "create", "alice", "--password-file", "-"),
        ("access", "allow", "--principal", "User:bob", "--operation", "Read", "--resource", "Topic:orders"),
    )
    for words in commands:
        made = finished(*words, "--config", config, stdin=f"{PASSWORD}\n".encode())
        assert made.returncode == 0, made.stderr.decode()
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--config", config)
    with started(*words, ready_file=folder / "ready.json") as server:
        urls = {
            "clear": f"pulsar://{server.ready['pulsar']}",
            "tls": f"pulsar+ssl://{server.ready['pulsar:TLS']}",
            "certificates": f"pulsar+ssl://{server.ready['pulsar:CERTIFICATES']}",
        }
        yield Place(server=server, urls=urls, certificates=certificates)


def settings(folder: Path, certificates: Mapping[str, Path]) -> dict[str, Any]:
    """The settings of the server."""
    tls = {
        "advertised_host": "localhost",
        "tls_certificate_file": str(certificates["server"]),
        "tls_key_file": str(certificates["server_key"]),
    }
    asking = {**tls, "name": "CERTIFICATES", "tls_client_ca_file": str(certificates["authority"])}
    return {
        "metadata": {"url": f"sqlite://{folder}/metadata.db"},
        "object_store": {"url": f"file://{folder}/objects"},
        "listeners": {"pulsar_more": [{**tls, "name": "TLS"}, asking]},
        "access": {"super_users": ["User:alice"], "allow_if_no_rule": False},
        "authentication": {
            "mechanisms": ["PLAIN", "OAUTHBEARER"],
            "certificate_rules": ["RULE:^CN=([^,]+)$/$1/"],
            "failures": {"per_address_max": 1_000_000, "per_user_max": 1_000_000},
            "token": {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(folder / "keys.json")},
        },
    }


def outcomes(place: Place, program: Sequence[str | Path], folder: Path) -> dict[str, str]:
    """What the program says about each attempt: `ok`, or the kind and the text of an error."""
    lines = []
    for name, attempt in attempts(place.certificates).items():
        authority = str(place.certificates["authority"]) if attempt.trusts else ""
        wait_s = str(LET_IN_WAIT_S if name.startswith("let-in") else REFUSED_WAIT_S)
        words = [
            name,
            place.urls[attempt.listener],
            authority,
            attempt.kind,
            attempt.secret,
            attempt.action,
            TOPIC,
            wait_s,
        ]
        lines.append("\t".join(words))
    log, errors = folder / "logins.log", folder / "logins.err"
    text = "".join(f"{line}\n" for line in lines).encode()
    ended = processes.run(program, log=log, errors=errors, timeout_s=RUN_TIMEOUT_S, stdin=text)
    assert ended.is_success, f"{ended.tail()} {errors.read_text(errors='replace')[-1000:]}"
    return dict(line.split("\t", 1) for line in ended.text().splitlines() if "\t" in line)


def obtained(name: str, obtain: Callable[[], Path]) -> Path:
    try:
        return obtain()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"{name} NOT TESTED: {error}")


@pytest.fixture(scope="module")
def java_outcomes(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    sources = SOURCES / "pulsar_java"
    jars = obtained("PULSAR'S JAVA CLIENT", partial(packages.obtain_jars, sources / "pom.xml", "pulsar-jars"))
    classes = obtained("PULSAR'S JAVA CLIENT", partial(packages.obtain_java_program, sources, jars))
    logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    program = ["java", *SHORT_LIVED, logging, "-cp", f"{classes}:{jars}/*", "PulsarLogins"]
    return outcomes(place, program, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def go_outcomes(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    program = obtained("PULSAR'S GO CLIENT", partial(packages.obtain_go_program, SOURCES / "pulsar_go"))
    return outcomes(place, [program, "logins"], tmp_path_factory.mktemp("go"))


JAVA_ERRORS = {
    "login": "AuthenticationException",
    "right": "AuthorizationException",
    "tls": "PulsarClientException",
}
"""The class of the exception by the first word of an attempt's name."""


@pytest.mark.parametrize("name", NAMES)
def test_the_java_client(java_outcomes: Mapping[str, str], name: str) -> None:
    assert java_outcomes[name].split("\t")[0] == JAVA_ERRORS.get(name.partition("-")[0], "ok"), java_outcomes[name]


GO_ERRORS = {"login": "connection error", "right": "AuthorizationError", "tls": "connection error"}
"""A part of the error's text; the Go client drops the reason of a refused connection."""


@pytest.mark.parametrize("name", NAMES)
def test_the_go_client(go_outcomes: Mapping[str, str], name: str) -> None:
    assert GO_ERRORS.get(name.partition("-")[0], "ok") in go_outcomes[name]


@pytest.fixture(scope="module")
def grpcurl() -> Path:
    return obtained("GRPCURL", packages.obtain_grpcurl)


@pytest.mark.parametrize(
    ("authorization", "method", "status"),
    [
        (lambda: f"Bearer {token()}", "ListStreams", ""),
        (lambda: f"Basic {base64.b64encode(f'alice:{PASSWORD}'.encode()).decode()}", "ListStreams", ""),
        (lambda: f"Bearer {token('bob')}", "CreateStream", "PermissionDenied"),
        (lambda: f"Bearer {token(expires_s=-3600)}", "ListStreams", "Unauthenticated"),
        (lambda: f"Basic {base64.b64encode(b'alice:guess').decode()}", "ListStreams", "Unauthenticated"),
        (lambda: "", "ListStreams", "Unauthenticated"),
    ],
    ids=["token", "password", "no-right", "expired", "wrong-password", "no-login"],
)
def test_grpcurl_logs_in_by_a_header(
    place: Place, grpcurl: Path, authorization: Callable[[], str], method: str, status: str
) -> None:
    header = authorization()
    login = ["-H", f"authorization: {header}"] if header else []
    request = '{"name": "by-grpcurl", "partition_count": 1}' if method == "CreateStream" else "{}"
    words = ["-plaintext", *login, "-d", request, str(place.server.ready["grpc"])]

    ended = subprocess.run(
        [grpcurl, *words, f"bearlake.stream.v1.Admin/{method}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    if status:
        assert f"Code: {status}" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr

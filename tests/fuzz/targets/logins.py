"""Logins: SASL messages of Kafka, Authorization of HTTP and gRPC, CONNECT of Pulsar; tokens, keys of issuers, certificates' names."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519

from bearlake.errors import BearlakeError, Denied, Invalid
from bearlake.protocols.kafka.sasl import read_bearer, read_plain
from bearlake.serving.authentication.certificates import CertificateNames
from bearlake.serving.authentication.presented import read_basic
from bearlake.serving.authentication.scram import ScramExchange
from bearlake.serving.authentication.settings import TokenSettings
from bearlake.serving.authentication.signing_keys import SigningKeys, parse_keys
from bearlake.serving.authentication.tokens import Tokens
from fixtures.users import Users
from fuzz.mutation import change_json
from fuzz.target import Choices, Target

ISSUER, AUDIENCE = "https://issuer.example", "bearlake"
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
JWK = jwt.get_algorithm_by_name("EdDSA").to_jwk(KEY.public_key(), as_dict=True)
JWKS = json.dumps({"keys": [{**JWK, "kid": "k", "alg": "EdDSA", "use": "sig"}]}).encode()
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": 2**33, "groups": ["ops"], "nbf": 5, "iat": 5}
HEADER = {"alg": "EdDSA", "typ": "JWT", "kid": "k"}
NAMES = CertificateNames(["RULE:^CN=([^,]+),.*$/$1/L", "DEFAULT"])
PASSWORD_FREE = Users({})


def message(data: bytes) -> object:
    """Read one message of a login."""
    choices = Choices(data)
    kind, rest = choices.byte() % 4, choices.rest
    if kind == 0:
        return len(read_plain(rest))
    if kind == 1:
        return len(read_bearer(rest)) > 5
    if kind == 2:
        return len(read_basic(rest.decode("utf-8", "surrogateescape")))
    parts = [part.split("=", 1) for part in rest.decode("utf-8", "replace").split(",")]
    return NAMES.name(tuple(((part[0], part[-1]),) for part in parts))[:1]


def _b64(octets: bytes) -> bytes:
    return base64.urlsafe_b64encode(octets).rstrip(b"=")


def signed(header: bytes, claims: bytes) -> bytes:
    """A token with a signature of the issuer, whatever header and claims are."""
    covered = _b64(header) + b"." + _b64(claims)
    return covered + b"." + _b64(KEY.sign(covered))


@asynccontextmanager
async def scram() -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """Both messages of a SCRAM client, of a user that exists or not."""

    async def run(data: bytes) -> object:
        choices = Choices(data)
        mechanism, size = choices.of(("SCRAM-SHA-256", "SCRAM-SHA-512")), choices.byte()
        rest = choices.rest
        exchange = ScramExchange(mechanism, PASSWORD_FREE)
        answer = await exchange.answer(rest[:size])
        final = rest[size:].replace(b"NONCE", answer.split(b",")[0][2:])
        await exchange.answer(final)
        raise AssertionError("nobody knows this password")

    yield run


@asynccontextmanager
async def tokens() -> AsyncIterator[Callable[[bytes], Awaitable[object]]]:
    """Tokens: as they are, or signed by the issuer with changed header and claims."""

    async def fetch() -> bytes:
        return JWKS

    keys = SigningKeys(fetch, refresh_ms=2**40, retry_ms=2**40, stale_ms_max=2**40)
    settings = TokenSettings(issuer=ISSUER, audience=AUDIENCE)
    verifier = Tokens(settings, keys)
    await verifier.verify(signed(json.dumps(HEADER).encode(), json.dumps(CLAIMS).encode()).decode())

    async def run(data: bytes) -> object:
        choices = Choices(data)
        is_signed, size = choices.byte() % 2, choices.byte()
        rest = choices.rest
        token = signed(rest[:size], rest[size:]) if is_signed else rest
        who = await verifier.verify(token.decode("utf-8", "surrogateescape"))
        return len(who.groups), len(who.name)

    try:
        yield run
    finally:
        await keys.close()


def _token_seeds() -> list[bytes]:
    header, claims = json.dumps(HEADER).encode(), json.dumps(CLAIMS).encode()
    return [bytes([0, 0]) + signed(header, claims), bytes([1, len(header)]) + header + claims]


def _token_json(random: Random, data: bytearray) -> None:
    """Change header or claims of a token that the issuer signs."""
    size = data[1] if len(data) > 1 else 0
    header, claims = data[2 : 2 + size], data[2 + size :]
    change_json(random, claims if random.random() < 0.7 else header)
    data[:] = bytes([1, min(255, len(header))]) + header + claims


def keys(data: bytes) -> object:
    """Read an issuer's keys."""
    return len(parse_keys(data))


MESSAGES = (
    b"\0" + b"\0alice\0secret",
    b"\1" + b"n,a=alice,\1auth=Bearer abcdefgh\1host=x\1\1",
    b"\2" + base64.b64encode(b"alice:secret"),
    b"\3" + b"countryName=DE,organizationName=a+b,commonName=#x ",
)
SCRAM_SEEDS = tuple(
    bytes([at, len(first)]) + first + final
    for at in (0, 1)
    for first in (b"n,,n=alice,r=abc", b"y,a=bob,n=a=2Cb,r=abc", b"p=tls-unique,,n=a,r=x")
    for final in (b"c=biws,r=NONCE,p=AAAA", b"c=biws,r=NONCE,p=" + base64.b64encode(bytes(32)))
)
TARGETS = [
    Target(
        name="login messages",
        seeds=lambda: list(MESSAGES),
        run=message,
        errors=(Denied,),
        tokens=(b"\0", b"\1", b"auth=", b"=", b",", b"n,,"),
        bytes_max=1024,
    ),
    Target(
        name="SCRAM logins",
        seeds=lambda: list(SCRAM_SEEDS),
        session=scram,
        errors=(Denied,),
        tokens=(b"n,,", b"n=", b"r=", b"p=", b"c=", b",", b"=2C", b"NONCE", b"m=x", "ﷺ".encode()),
        bytes_max=5000,
        share=0.5,
    ),
    Target(
        name="tokens",
        seeds=_token_seeds,
        session=tokens,
        errors=(BearlakeError,),
        change=_token_json,
        share=0.5,
        short_inputs=750,
    ),
    Target(
        name="issuers' keys",
        seeds=lambda: [
            JWKS,
            b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "", "y": ""}]}',
        ],
        run=keys,
        errors=(Invalid,),
        change=change_json,
        memory_bytes=2 * 1024 * 1024,
        short_inputs=500,
    ),
]

"""JSON Web Tokens: which are accepted; the attacks of RFC 8725 and their relatives are refused."""

import asyncio
import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bearlake.errors import Denied, Unavailable
from bearlake.serving.authentication.settings import TokenSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.serving.authentication.tokens import Tokens

ISSUER, AUDIENCE, FAR = "https://issuer.example", "bearlake", 4_102_444_800
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, key_id: str, algorithm: str) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": key_id, "alg": algorithm, "use": "sig"}


JWKS = {"keys": [jwk(RSA, "r", "RS256"), jwk(EC, "e", "ES256"), jwk(ED, "d", "EdDSA")]}


class Issuer:
    """An issuer whose document, clock and health a test sets."""

    def __init__(self, document: Any = JWKS) -> None:
        self.document = document
        self.now_s = 0.0
        self.is_up = True
        self.fetch_count = 0
        self.settings = TokenSettings(issuer=ISSUER, audience=AUDIENCE)
        self.tokens = Tokens(
            self.settings,
            SigningKeys(
                self.fetch,
                refresh_ms=self.settings.refresh_ms,
                retry_ms=self.settings.retry_ms,
                stale_ms_max=self.settings.stale_ms_max,
                now_s=lambda: self.now_s,
            ),
        )

    async def fetch(self) -> bytes:
        self.fetch_count += 1
        if not self.is_up:
            raise Unavailable("the issuer does not answer")
        return json.dumps(self.document).encode()


def token(key: Any = RSA, algorithm: str = "RS256", key_id: str | None = "r", **claims: Any) -> str:
    full = {"iss": ISSUER, "aud": AUDIENCE, "exp": FAR, "sub": "alice", **claims}
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode({k: v for k, v in full.items() if v is not None}, key, algorithm, headers=headers)


@pytest.mark.parametrize(("key", "algorithm", "key_id"), [(RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")])
async def test_a_token_of_the_issuer_is_accepted(key: Any, algorithm: str, key_id: str) -> None:
    login = await Issuer().tokens.verify(token(key, algorithm, key_id, groups=["ops", "dev"]))
    assert str(login) == "User:alice"
    assert login.groups == {"ops", "dev"}
    assert login.expires_s == FAR


PUBLIC_PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def hmac_with_public_key() -> str:
    """The classic confusion of algorithms: the public key as an HMAC secret."""
    import base64
    import hashlib
    import hmac

    def part(value: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    body = part({"alg": "HS256", "kid": "r"}) + b"." + part({"iss": ISSUER, "aud": AUDIENCE, "exp": FAR, "sub": "root"})
    signature = base64.urlsafe_b64encode(hmac.digest(PUBLIC_PEM, body, hashlib.sha256)).rstrip(b"=")
    return (body + b"." + signature).decode()


REFUSED = {
    "expired": token(exp=1),
    "not yet valid": token(nbf=FAR),
    "without an end": token(exp=None),
    "of another issuer": token(iss="https://evil.example"),
    "without an issuer": token(iss=None),
    "for another audience": token(aud="another"),
    "without an audience": token(aud=None),
    "without a user": token(sub=None),
    "with an empty user": token(sub=""),
    "with groups that are not a list": token(groups="ops"),
    "with too many groups": token(groups=[str(i) for i in range(201)]),
    "signed by another key": token(OTHER_RSA),
    "of an unknown key": token(OTHER_RSA, key_id="x"),
    "without a key id, of an issuer with several keys": token(key_id=None),
    "with the key of another algorithm": token(RSA, "RS512", "r"),
    "with the public key as secret": hmac_with_public_key(),
    "unsigned": jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "exp": FAR, "sub": "root"}, "", "none"),
    "not a token": "abc",
    "empty": "",
    "too long": "x" * 20_000,
    "with its signature cut": token()[:-10],
    "with an end that is not a time": token(exp=10**400),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_token_is_refused(name: str) -> None:
    with pytest.raises(Denied) as error:
        await Issuer().tokens.verify(REFUSED[name])
    assert len(REFUSED[name]) < 10 or REFUSED[name] not in str(error.value)


async def test_a_key_that_the_token_brings_is_not_trusted() -> None:
    forged = jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "exp": FAR, "sub": "root"},
        OTHER_RSA,
        "RS256",
        headers={"kid": "r", "jwk": jwk(OTHER_RSA, "r", "RS256"), "jku": "https://evil.example/keys"},
    )
    with pytest.raises(Denied):
        await Issuer().tokens.verify(forged)


async def test_an_algorithm_beyond_the_list_is_refused_even_with_a_key_of_the_issuer() -> None:
    key = ec.generate_private_key(ec.SECP256K1())
    issuer = Issuer({"keys": [*JWKS["keys"], jwk(key, "k", "ES256K")]})

    with pytest.raises(Denied, match="algorithm is not accepted"):
        await issuer.tokens.verify(token(key, "ES256K", "k"))


async def test_a_symmetric_key_in_the_document_is_not_used() -> None:
    secret = "a secret that everyone can read, as the document is public"
    issuer = Issuer({"keys": [{"kty": "oct", "kid": "o", "k": "YSBzZWNyZXQ", "alg": "HS256"}]})
    with pytest.raises(Denied):
        await issuer.tokens.verify(token(secret, "HS256", "o"))


async def test_without_an_issuer_no_token_is_accepted() -> None:
    issuer = Issuer()
    tokens = Tokens(TokenSettings(), SigningKeys(issuer.fetch, refresh_ms=1, retry_ms=1, stale_ms_max=1))
    with pytest.raises(Denied):
        await tokens.verify(token())


async def test_a_new_key_is_found_at_its_first_token_and_floods_do_not_reach_the_issuer() -> None:
    issuer = Issuer({"keys": [jwk(EC, "e", "ES256")]})
    for _ in range(100):
        with pytest.raises(Denied):
            await issuer.tokens.verify(token())
    assert issuer.fetch_count == 1
    issuer.document = JWKS
    issuer.now_s = 11.0
    assert (await issuer.tokens.verify(token())).name == "alice"
    assert issuer.fetch_count == 2


async def test_an_outage_of_the_issuer_is_survived_for_a_bounded_time() -> None:
    issuer = Issuer()
    await issuer.tokens.verify(token())
    issuer.is_up = False
    issuer.now_s = 3_000.0
    await issuer.tokens.verify(token())
    issuer.now_s = 3_700.0
    with pytest.raises(Unavailable):
        await issuer.tokens.verify(token())
    issuer.is_up = True
    issuer.now_s = 3_711.0
    await issuer.tokens.verify(token())


async def test_a_key_that_the_issuer_withdrew_is_refused_after_the_next_refresh() -> None:
    issuer = Issuer()
    await issuer.tokens.verify(token())
    issuer.document = {"keys": [jwk(EC, "e", "ES256")]}
    issuer.now_s = 301.0
    await issuer.tokens.verify(token(EC, "ES256", "e"))  # starts the refresh in the background
    await asyncio.sleep(0)
    with pytest.raises(Denied):
        await issuer.tokens.verify(token())


def raw_token(header: bytes, claims: bytes = b"{}") -> str:
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, claims, b"signature"))


@pytest.mark.parametrize(
    "text",
    [
        raw_token(b"[" * 10_000),
        raw_token(b'{"alg": "RS256", "kid": ' + b"[" * 9_000),
        raw_token(b'{"alg": ["RS256"]}'),
        raw_token(b'{"alg": "RS256", "kid": {}}'),
        raw_token(b'{"alg": "RS256", "kid": ["a"]}'),
        raw_token(b'{"alg": "RS256", "kid": 1, "crit": ["x"]}'),
        raw_token(b"null"),
        "\ud800.\ud800.\ud800",
        "a.b.c",
        "é.é.é",
        "....",
    ],
    ids=[
        "nested",
        "nested kid",
        "alg list",
        "kid object",
        "kid list",
        "crit",
        "null",
        "surrogates",
        "short",
        "text",
        "dots",
    ],
)
async def test_a_hostile_header_is_denied(text: str) -> None:
    with pytest.raises(Denied):
        await Issuer().tokens.verify(text)


async def test_a_token_cannot_have_the_name_of_callers_without_a_login() -> None:
    with pytest.raises(Denied):
        await Issuer().tokens.verify(token(sub="ANONYMOUS"))

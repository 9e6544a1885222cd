"""Where signing keys come from: a file, a URL, the discovery document; what an issuer may not make the server do."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.authentication.issuer import DISCOVERY, KeysFile, KeysUrl, check_url, signing_keys
from bearlake.serving.authentication.settings import TokenSettings
from bearlake.serving.authentication.signing_keys import BYTES_MAX

KEYS = b'{"keys": []}'

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuer:
    """An HTTP server on this machine; a test sets its answers by path."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        answer = self.answers.get(request.path)
        return web.Response(status=404) if answer is None else await answer(request)

    def gives(self, path: str, body: bytes | object, status: int = 200, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=content, status=status, headers=headers)

        self.answers[path] = answer


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}"
    yield made
    await runner.cleanup()


def settings(issuer: Issuer, **more: object) -> TokenSettings:
    return TokenSettings(issuer=issuer.url, audience="bearlake", **more)  # type: ignore[arg-type]


async def test_keys_come_from_the_url_that_the_discovery_document_names(issuer: Issuer) -> None:
    issuer.gives(DISCOVERY, {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"})
    issuer.gives("/keys", KEYS)

    assert await KeysUrl(settings(issuer))() == KEYS
    assert issuer.asked == [DISCOVERY, "/keys"]


async def test_keys_come_from_the_configured_url_alone(issuer: Issuer) -> None:
    issuer.gives("/own", KEYS)

    assert await KeysUrl(settings(issuer, keys_url=f"{issuer.url}/own"))() == KEYS
    assert issuer.asked == ["/own"]


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example", "jwks_uri": "https://other.example/keys"},
        {"issuer": "", "jwks_uri": "http://192.0.2.1/keys"},
        {"jwks_uri": "https://issuer.example/keys"},
        {"issuer": "", "jwks_uri": 7},
        [],
        7,
    ],
)
async def test_a_discovery_document_that_misleads_is_refused(issuer: Issuer, document: object) -> None:
    if isinstance(document, dict) and document.get("issuer") == "":
        document = {**document, "issuer": issuer.url}
    issuer.gives(DISCOVERY, document)

    with pytest.raises(Invalid):
        await KeysUrl(settings(issuer))()
    assert issuer.asked == [DISCOVERY]


async def test_redirects_are_not_followed(issuer: Issuer) -> None:
    issuer.gives("/own", b"", status=302, Location="/elsewhere")
    issuer.gives("/elsewhere", KEYS)

    with pytest.raises(Unavailable, match="302"):
        await KeysUrl(settings(issuer, keys_url=f"{issuer.url}/own"))()
    assert issuer.asked == ["/own"]


async def test_an_endless_answer_is_cut_off(issuer: Issuer) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(bytes(BYTES_MAX // 10))
        return response

    issuer.answers["/own"] = endless
    with pytest.raises(Unavailable, match="more than"):
        await KeysUrl(settings(issuer, keys_url=f"{issuer.url}/own"))()


async def test_an_issuer_that_is_away_is_unavailable() -> None:
    away = Issuer()
    away.url = "http://127.0.0.1:1"
    with pytest.raises(Unavailable):
        await KeysUrl(settings(away))()


@pytest.mark.parametrize(
    "url", ["http://issuer.example", "ftp://127.0.0.1", "file:///etc/passwd", "https://", "", "http://[", "//a"]
)
def test_other_urls_are_invalid(url: str) -> None:
    with pytest.raises(Invalid):
        check_url(url)


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    fetch = KeysFile(path)
    with pytest.raises(Unavailable):
        await fetch()
    path.write_bytes(KEYS)
    assert await fetch() == KEYS
    path.write_bytes(bytes(2 * BYTES_MAX))
    assert len(await fetch()) == BYTES_MAX + 1


async def test_without_an_issuer_there_are_no_keys() -> None:
    with pytest.raises(Unavailable):
        await signing_keys(TokenSettings()).find("k")

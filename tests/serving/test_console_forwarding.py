"""The console's server: what it passes on to the public APIs and what not, its page's policy, and whom it lets in."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bearlake.errors import Invalid
from bearlake.serving.console.pages import FOLDER
from bearlake.serving.console.routes import check_exposure, passes
from bearlake.serving.console.server import ConsoleServer
from bearlake.serving.console.settings import ConsoleSettings
from bearlake.serving.listener import open_listener
from fixtures.waiting import WAIT_S, until

LARGE = b"x" * (3 * 1024 * 1024)


class Upstream:
    """An API that answers with what it was asked, and some paths that misbehave."""

    def __init__(self) -> None:
        self.url = ""
        self.has_cancelled = False
        self.waits = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/config":
            return web.Response(
                status=401, text="log in", headers={"WWW-Authenticate": 'Basic realm="bearlake"', "Set-Cookie": "a=b"}
            )
        if request.path == "/metrics":
            return web.Response(body=LARGE, content_type="text/plain")
        if request.path == "/v1/servers":
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"half")
            assert request.transport is not None
            request.transport.abort()
            return response
        if request.path.endswith("/stats"):
            return web.Response(
                status=307, headers={"Location": self.url + request.path.removesuffix("stats") + "partitions"}
            )
        if request.path.endswith("/internalStats"):
            return web.Response(status=307, headers={"Location": self.url + "/admin/v2/brokers/health"})
        if request.path == "/v1/transactions":
            try:
                self.waits.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.has_cancelled = True
                raise
        return web.json_response(
            {
                "method": request.method,
                "path": request.raw_path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "body": (await request.read()).decode(),
            }
        )


class Console:
    """A console before that API, and a client of it."""

    def __init__(self, url: str, session: aiohttp.ClientSession, upstream: Upstream) -> None:
        self.url = url
        self.session = session
        self.upstream = upstream

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
        from yarl import URL

        url = URL(self.url + path, encoded=True)
        async with self.session.request(
            method, url, timeout=aiohttp.ClientTimeout(total=WAIT_S), **options
        ) as response:
            return response.status, response.headers, await response.read()


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    async with AsyncExitStack() as closing:
        upstream = Upstream()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", upstream.handle)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        closing.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        upstream.url = f"http://127.0.0.1:{port}"
        settings = ConsoleSettings(port=0, request_bytes_max=100_000)
        urls = dict.fromkeys(("admin", "rest", "registry", "pulsar", "catalog"), upstream.url)
        server = ConsoleServer(open_listener(settings, "console"), settings, urls)
        await server.start()
        closing.push_async_callback(server.close)
        session = await closing.enter_async_context(aiohttp.ClientSession())
        yield Console(f"http://{server.endpoints['console']}", session, upstream)


async def test_a_request_goes_on_as_it_is_with_the_callers_login_and_nothing_else_of_the_caller(
    console: Console,
) -> None:
    headers = {
        "Authorization": "Basic YTpi",
        "Content-Type": "application/json",
        "Cookie": "c=d",
        "X-Forwarded-For": "1.2.3.4",
    }
    status, _, body = await console.ask(
        "POST", "/api/rest/v3/clusters/c/topics/a%2Fb/records?x=%20y", data=b"{}", headers=headers
    )

    found = json.loads(body)
    assert status == 200
    assert (found["method"], found["path"], found["body"]) == (
        "POST",
        "/v3/clusters/c/topics/a%2Fb/records?x=%20y",
        "{}",
    )
    assert found["headers"]["authorization"] == "Basic YTpi"
    assert found["headers"]["content-type"] == "application/json"
    assert {"cookie", "x-forwarded-for", "origin", "user-agent"}.isdisjoint(found["headers"])


async def test_a_refusal_has_its_status_and_no_challenge_for_the_browsers_own_password_dialog(console: Console) -> None:
    status, headers, body = await console.ask("GET", "/api/admin/v1/config")

    assert (status, body) == (401, b"log in")
    assert "WWW-Authenticate" not in headers
    assert "Set-Cookie" not in headers


async def test_a_pulsar_server_may_send_a_request_to_another_server_but_nowhere_else(console: Console) -> None:
    topic = "/api/pulsar/admin/v2/persistent/public/default/t"
    headers = {"Authorization": "Basic YTpi"}
    status, _, body = await console.ask("GET", f"{topic}/stats", headers=headers)
    refused, given, _ = await console.ask("GET", f"{topic}/internalStats", headers=headers)

    assert (status, json.loads(body)["path"]) == (200, "/admin/v2/persistent/public/default/t/partitions")
    assert json.loads(body)["headers"]["authorization"] == "Basic YTpi"
    assert refused == 307
    assert "Location" not in given


async def test_an_answer_of_an_api_is_no_page_of_the_console(console: Console) -> None:
    _, headers, _ = await console.ask("GET", "/api/admin/metrics")

    assert "sandbox" in headers["Content-Security-Policy"]


async def test_a_large_answer_arrives_whole(console: Console) -> None:
    assert (await console.ask("GET", "/api/admin/metrics"))[2] == LARGE


async def test_an_answer_that_an_api_cuts_off_is_cut_off_for_the_page_too(console: Console) -> None:
    with pytest.raises(aiohttp.ClientError):
        await console.ask("GET", "/api/admin/v1/servers")


async def test_a_request_ends_at_the_api_when_its_browser_has_gone(console: Console) -> None:
    asking = asyncio.create_task(console.ask("GET", "/api/admin/v1/transactions"))
    await console.upstream.waits.wait()
    asking.cancel()

    await until(lambda: console.upstream.has_cancelled)


async def test_an_api_that_does_not_answer_is_named(console: Console) -> None:
    settings = ConsoleSettings(port=0)
    closed = open_listener(settings, "closed")
    server = ConsoleServer(open_listener(settings, "console"), settings, {"admin": f"http://{closed.address}"})
    closed.socket.close()
    await server.start()
    try:
        async with console.session.get(f"http://{server.endpoints['console']}/api/admin/v1/servers") as response:
            assert response.status == 503
            assert closed.address in (await response.json())["detail"]
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/admin/v1/groups/join"),
        ("POST", "/api/admin/v1/shares/acquire"),
        ("PUT", "/api/admin/v1/access"),
        ("GET", "/api/rest/v3/clusters/x%2f..%2f..%2ftopics"),
        ("GET", "/api/rest/v3/clusters/x%5c..%5ctopics"),
        ("DELETE", "/api/pulsar/admin/v2/persistent/public/default/t"),
        ("PUT", "/api/pulsar/admin/v2/tenants/t"),
        ("POST", "/api/catalog/v1/namespaces/streams/tables/t"),
        ("DELETE", "/api/catalog/v1/namespaces/streams/tables/t"),
        ("GET", "/api/catalog/v1/sql"),
        ("GET", "/api/admin/docs"),
        ("GET", "/api/admin/v1/streams/../../v1/groups"),
        ("GET", "/api/admin/v1/streams/%2e%2e/partitions"),
        ("POST", "/api/rest/topics/t"),
        ("GET", "/api/rest/v3/clusters/../../topics"),
        ("GET", "/api/other/v1/streams"),
        ("GET", "/api/admin//v1/streams"),
    ],
)
async def test_no_other_request_passes(console: Console, method: str, path: str) -> None:
    assert (await console.ask(method, path))[0] == 404


async def test_a_body_beyond_the_limit_is_refused(console: Console) -> None:
    assert (await console.ask("POST", "/api/rest/v3/clusters/c/topics", data=b"x" * 100_001))[0] == 413


@pytest.mark.parametrize("host", ["evil.example.com", "lake", "10.0.0.1", ""])
async def test_a_page_with_a_name_of_its_own_cannot_use_a_console_on_loopback(console: Console, host: str) -> None:
    assert (await console.ask("GET", "/api/admin/v1/streams", headers={"Host": host}))[0] == 403


async def test_a_page_of_another_origin_cannot_change_anything(console: Console) -> None:
    path = "/api/rest/v3/clusters/c/topics"

    assert (await console.ask("POST", path, data=b"{}", headers={"Origin": "http://evil.example.com"}))[0] == 403
    assert (await console.ask("POST", path, data=b"{}", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await console.ask("POST", path, data=b"{}", headers={"Origin": console.url}))[0] == 200


async def test_the_page_allows_scripts_of_its_own_origin_only_and_no_frame(console: Console) -> None:
    status, headers, body = await console.ask("GET", "/")

    policy = headers["Content-Security-Policy"]
    assert status == 200
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert b"<script>" not in body
    assert b" style=" not in body


async def test_each_part_of_the_page_is_served_with_its_type_and_known_by_its_tag(console: Console) -> None:
    parts = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()]
    assert "main.js" in parts
    for part in parts:
        status, headers, body = await console.ask("GET", f"/static/{part}")
        again, _, nothing = await console.ask("GET", f"/static/{part}", headers={"If-None-Match": headers["ETag"]})

        assert (status, body) == (200, (FOLDER / part).read_bytes())
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert (again, nothing) == (304, b"")
    assert (await console.ask("GET", "/static/../settings.py"))[0] == 404
    assert (await console.ask("GET", "/static/%2e%2e/settings.py"))[0] == 404


async def test_the_vendored_library_has_its_licences_beside_it() -> None:
    text = (FOLDER / "vendor/licences.txt").read_text()

    assert [path.name for path in sorted((FOLDER / "vendor").iterdir())] == ["licences.txt", "preact.js"]
    assert "Apache License" in text
    assert "The MIT License" in text


def test_a_console_that_others_reach_does_not_lead_to_an_api_on_loopback() -> None:
    check_exposure("127.0.0.1", {"admin": "http://127.0.0.1:9644"})
    check_exposure("0.0.0.0", {"admin": "http://lake:9644"})
    named = {f"{api}_url": "http://lake:1" for api in ("admin", "rest", "registry")}
    listener = open_listener(ConsoleSettings(port=0), "console")
    assert set(ConsoleServer(listener, ConsoleSettings(host="0.0.0.0", **named), {}).urls) == {
        "admin",
        "rest",
        "registry",
    }
    listener.socket.close()
    with pytest.raises(Invalid, match=r"console\.admin_url"):
        check_exposure("0.0.0.0", {"rest": "http://lake:8082", "admin": "http://localhost:9644"})


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://user:password@host", "http://host/?a=b", "host:9644"])
def test_an_address_of_an_api_is_a_url_without_a_login(url: str) -> None:
    listener = open_listener(ConsoleSettings(port=0), "console")
    try:
        with pytest.raises(Invalid, match=r"console\.admin_url"):
            ConsoleServer(listener, ConsoleSettings(port=0, admin_url=url), {})
    finally:
        listener.socket.close()


def test_only_listed_methods_pass() -> None:
    assert passes("admin", "PATCH", "/v1/streams")
    assert not passes("admin", "PUT", "/v1/streams")
    assert not passes("admin", "GE", "/v1/streams")
    assert not passes("registry", "DELETE", "/subjects/a")

"""Logins to the admin API: its token, the metrics token, and super users by password or token of their own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from bearlake.serving.admin import operations
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.authentication.settings import FailureSettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.access.control import AccessSettings
from fixtures.kafka_server import open_stores
from fixtures.logins import Logins, add_user, basic, http_login_of

TOKEN = "sixteen-characters"
METRICS_TOKEN = "reads-metrics-and-nothing-else"
TIMEOUT = aiohttp.ClientTimeout(total=30)


@pytest.fixture
async def session(logins: Logins) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an admin API with a token, where alice is a super user and bob is not."""
    async with AsyncExitStack() as closing:
        metadata, _ = await open_stores(None, closing)
        await add_user(metadata)
        await add_user(metadata, "bob", "bear")
        listener = open_listener(ListenerSettings(), "admin")
        member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
        limits = FailureSettings(per_address_max=3, window_ms=3_600_000)
        server = AdminServer(
            listener,
            metadata.log,
            member,
            AdminSettings(),
            token=AdminToken(TOKEN),
            metrics_token=AdminToken(METRICS_TOKEN),
            login=http_login_of(metadata, logins.settings(failures=limits), closing),
            is_super_user=AccessSettings(super_users=["User:alice"]).is_super_user,
        )
        await server.start()
        closing.push_async_callback(server.close)
        url = f"http://{server.endpoints['admin']}"
        yield await closing.enter_async_context(aiohttp.ClientSession(url, timeout=TIMEOUT))


async def status(
    session: aiohttp.ClientSession, headers: dict[str, str], path: str = "/v1/servers", method: str = "GET"
) -> int:
    async with session.request(method, path, headers=headers) as response:
        assert response.status in (200, 429) or response.content_type == "application/problem+json"
        assert (response.status == 401) == ("WWW-Authenticate" in response.headers)
        assert (response.status == 429) == ("Retry-After" in response.headers)
        return response.status


async def test_the_token_and_super_users_are_let_in(session: aiohttp.ClientSession, logins: Logins) -> None:
    for headers in ({"Authorization": f"Bearer {TOKEN}"}, basic(), logins.bearer()):
        assert await status(session, headers) == 200


async def test_other_users_log_in_and_are_denied(session: aiohttp.ClientSession, logins: Logins) -> None:
    assert await status(session, basic("bob", "bear")) == 403
    assert await status(session, logins.bearer(sub="bob")) == 403


SECURED = [route for route in operations.OPERATIONS if route[1] not in ("/livez", "/readyz", "/healthz")]


async def test_a_client_without_a_login_learns_only_health(session: aiohttp.ClientSession) -> None:
    for method, path in SECURED:
        assert await status(session, {}, path.format(name="t", id=1), method) == 401, (method, path)
    assert await status(session, {"Authorization": "Bearlake a.b.c"}) == 401
    assert await status(session, {}, "/livez") == 200
    assert await status(session, {}, "/healthz") == 200


async def test_every_route_denies_other_users(session: aiohttp.ClientSession, logins: Logins) -> None:
    bob = logins.bearer(sub="bob")
    for method, path in SECURED:
        assert await status(session, bob, path.format(name="t", id=1), method) == 403, (method, path)


async def test_the_metrics_token_reads_metrics_and_health_and_nothing_else(session: aiohttp.ClientSession) -> None:
    bearer = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    for path in ("/metrics", "/livez", "/healthz"):
        assert await status(session, bearer, path) == 200
    for method, path in SECURED:
        if path != "/metrics":
            assert await status(session, bearer, path.format(name="t", id=1), method) == 403, (method, path)
    for path in ("/metrics/", "/metrics/more", "/v1/../v1/servers", "/"):
        assert await status(session, bearer, path) == 403, path
    assert await status(session, {"Authorization": f"Bearer {METRICS_TOKEN}x"}, "/metrics") == 401


async def test_guessing_ends_and_never_locks_servers_out(session: aiohttp.ClientSession) -> None:
    """Servers try a new and an old token in turn while the token changes; an unknown token is answered with 401 each time."""
    unknown = [await status(session, {"Authorization": "Bearer another-token-of-servers"}) for _ in range(10)]
    guesses = [await status(session, basic("alice", f"guess {number}")) for number in range(5)]
    assert unknown == [401] * 10
    assert guesses == [401] * 3 + [429] * 2
    assert await status(session, {"Authorization": f"Bearer {TOKEN}"}) == 200

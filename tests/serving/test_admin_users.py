"""Users over the admin API: who may log in, page by page, without anything of a password."""

import aiohttp

from bearlake.metadata.open import open_metadata
from bearlake.metadata.users import CredentialChange
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.users import UserRoutes
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from fixtures.waiting import WAIT_S


async def test_users_are_listed_in_pages_without_their_keys() -> None:
    metadata = await open_metadata("memory:///")
    made = create_credential("SCRAM-SHA-256", "of bears", 4096)
    changes = [CredentialChange(name, made.mechanism, made) for name in ("alice", "bob", "carol")]
    await metadata.users.change(changes, revision=await metadata.users.revision())
    member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
    listener = open_listener(ListenerSettings(), "admin")
    server = AdminServer(listener, metadata.log, member, AdminSettings(), routes=[UserRoutes(metadata.users)])
    await server.start()
    url, timeout = f"http://{server.endpoints['admin']}", aiohttp.ClientTimeout(total=WAIT_S)
    try:
        async with aiohttp.ClientSession(url, timeout=timeout) as http:
            async with http.get("/v1/users?limit=2") as response:
                first = await response.json()
            async with http.get(f"/v1/users?after={first['next']}&limit=2") as response:
                second = await response.json()
    finally:
        await server.close()
        await metadata.close()

    shown = [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert first == {"users": [{"name": name, "credentials": shown} for name in ("alice", "bob")], "next": "bob"}
    assert second == {"users": [{"name": "carol", "credentials": shown}], "next": None}

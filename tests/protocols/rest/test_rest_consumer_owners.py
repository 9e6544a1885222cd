"""A consumer instance belongs to the user who created it, on whichever server it is, and whichever server its client asks."""

import pytest

from bearlake.errors import Denied
from bearlake.serving.authentication import forwarding
from bearlake.serving.authentication.forwarding import VALID_S, ForwardedLogins
from bearlake.streams.principal import Principal
from fixtures.logins import Logins, add_user, basic
from fixtures.rest_server import MakeServers

ALICE = Principal("User", "alice", frozenset({"bears"}), 5_000.0)


@pytest.mark.parametrize("count", [1, 3], ids=["one server", "three servers"])
async def test_an_instance_does_not_exist_for_another_user(
    rest_servers: MakeServers, logins: Logins, count: int
) -> None:
    nodes = await rest_servers(count, authentication=logins.settings())
    await add_user(nodes[0].metadata)
    bob = logins.bearer(sub="bob")
    made = await nodes[0].post("/consumers/g", {"name": "one"}, headers=basic())
    path = "/consumers/g/instances/one"
    own = [await node.get(f"{path}/subscription", headers=basic()) for node in nodes]
    renewed = [await node.get(f"{path}/subscription", headers=logins.bearer(groups=["new"])) for node in nodes]
    foreign = [await node.get(f"{path}/subscription", headers=bob) for node in nodes]
    stolen = [await node.delete(path, headers=bob) for node in nodes]
    nobody = [
        await node.get(f"{path}/subscription", headers={"Bearlake-Forwarded": "0", "X-Principal": "User:alice"})
        for node in nodes
    ]
    twice = [await node.post("/consumers/g", {"name": "one"}, headers=basic()) for node in nodes]
    of_bob = await nodes[0].post("/consumers/g", {"name": "one"}, headers=bob)
    deleted = await nodes[-1].delete(path, headers=basic())

    assert made.status == 200
    assert [answer.status for answer in own + renewed] == [200] * 2 * count
    assert [(answer.status, answer.body["error_code"]) for answer in foreign] == [(404, 40403)] * count
    assert [answer.status for answer in stolen] == [404] * count
    assert [answer.status for answer in nobody] == [401] * count
    assert [answer.status for answer in twice] == [409] * count
    assert of_bob.status == 200
    assert deleted.status == 204


async def test_a_server_whose_token_is_refused_says_so_and_creates_no_second_instance(
    rest_servers: MakeServers, logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has logged in, so the answer must not ask it to log in. A server that cannot ask the others cannot call a name free."""
    nodes = await rest_servers(2, authentication=logins.settings())
    made = await nodes[0].post("/consumers/g", {"name": "one"}, headers=logins.bearer())
    monkeypatch.setattr(forwarding, "VALID_S", -1)
    answers = [await node.get("/consumers/g/instances/one/subscription", headers=logins.bearer()) for node in nodes]
    again = [await node.post("/consumers/g", {"name": "one"}, headers=logins.bearer()) for node in nodes]

    assert made.status == 200
    assert sorted(answer.status for answer in answers) == [200, 503]
    assert sorted(answer.status for answer in again) == [409, 503]


class Scene:
    """Two servers of a deployment at the same time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.first = ForwardedLogins(self.secret, 1, lambda: self.now_s)
        self.second = ForwardedLogins(self.secret, 2, lambda: self.now_s)
        self.stranger = ForwardedLogins(self.other_secret, 1, lambda: self.now_s)

    async def secret(self) -> bytes:
        return b"a secret of this deployment"

    async def other_secret(self) -> bytes:
        return b"a secret of another deployment"


async def test_a_server_names_its_client_to_one_other_server_for_one_request() -> None:
    scene = Scene()
    scheme, _, token = (await scene.first.sign(ALICE, 2, "GET", "/a?b=%20")).partition(" ")
    who = await scene.second.verify(token, "GET", "/a?b=%20")
    assert scheme == "Bearlake"
    assert (who, who.expires_s) == (ALICE, 5_000.0)
    for server, method, path in (
        (scene.first, "GET", "/a?b=%20"),
        (scene.second, "DELETE", "/a?b=%20"),
        (scene.second, "GET", "/a"),
    ):
        with pytest.raises(Denied):
            await server.verify(token, method, path)


async def test_the_token_of_another_deployment_or_an_ended_one_is_refused() -> None:
    scene = Scene()
    _, _, foreign = (await scene.stranger.sign(ALICE, 2, "GET", "/a")).partition(" ")
    _, _, own = (await scene.first.sign(ALICE, 2, "GET", "/a")).partition(" ")
    _, _, late = (await scene.first.sign(Principal("User", "a", expires_s=1_001.0), 2, "GET", "/a")).partition(" ")
    for token in (foreign, "", "a.b.c", "eyJhbGciOiJub25lIn0.e30."):
        with pytest.raises(Denied):
            await scene.second.verify(token, "GET", "/a")
    scene.now_s += 2
    with pytest.raises(Denied):
        await scene.second.verify(late, "GET", "/a")
    scene.now_s += VALID_S
    with pytest.raises(Denied):
        await scene.second.verify(own, "GET", "/a")


async def test_a_page_of_another_origin_cannot_take_the_records_of_an_instance(
    rest_servers: MakeServers, logins: Logins
) -> None:
    """A browser adds its user's password to the page's request, such as for an image; the answer would move the instance."""
    [node] = await rest_servers(1, authentication=logins.settings())
    await add_user(node.streams.metadata)
    await node.create("t")
    written = await node.post("/topics/t", {"records": [{"value": "dg=="}]}, kind="binary", headers=basic())
    assert written.status == 200
    await node.post("/consumers/g", {"name": "one", "auto.offset.reset": "earliest"}, headers=basic())
    path, partitions = "/consumers/g/instances/one", {"partitions": [{"topic": "t", "partition": 0}]}
    assert (await node.post(f"{path}/assignments", partitions, headers=basic())).status == 204

    image = {**basic(), "Sec-Fetch-Site": "cross-site"}
    assert (await node.get(f"{path}/records", headers=image)).status == 403
    assert (await node.get(f"{path}/subscription", headers=image)).status == 200
    while not (own := await node.get(f"{path}/records", headers=basic())).body:
        pass
    assert len(own.body) == 1

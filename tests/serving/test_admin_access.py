"""Access rules over the admin API: list, create, delete; and requests that arrive late."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import jsonschema
import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.serving.admin.access import AccessRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.principal import Principal
from fixtures.kafka_server import open_stores

TIMEOUT = aiohttp.ClientTimeout(total=30)
ALICE = Principal("User", "alice")


class Api:
    """An admin API, and a client of it."""

    def __init__(self, http: aiohttp.ClientSession, metadata: Metadata, access: AccessControl) -> None:
        self.http = http
        self.metadata = metadata
        self.access = access

    async def call(self, method: str, path: str = "/v1/access", body: object = None) -> tuple[int, Any]:
        async with self.http.request(method, path, json=body) as response:
            return response.status, await response.json(content_type=None)

    async def rules(self, query: str = "") -> list[Mapping[str, str]]:
        status, answer = await self.call("GET", f"/v1/access{query}")
        assert status == 200
        return list(answer["rules"])


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with AsyncExitStack() as closing:
        metadata, _ = await open_stores(None, closing)
        access = AccessControl(metadata.access, AccessSettings(allow_if_no_rule=False))
        await access.refresh()
        member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
        listener = open_listener(ListenerSettings(), "admin")
        server = AdminServer(listener, metadata.log, member, AdminSettings(), routes=[AccessRoutes(access)])
        await server.start()
        closing.push_async_callback(server.close)
        url = f"http://{server.endpoints['admin']}"
        http = await closing.enter_async_context(aiohttp.ClientSession(url, timeout=TIMEOUT))
        yield Api(http, metadata, access)


def rule(name: str = "orders", operation: str = "Read", **more: str) -> dict[str, str]:
    return {"resource": "Topic", "name": name, "principal": "User:alice", "operation": operation, **more}


async def test_a_rule_is_created_with_defaults_applied_listed_and_deleted(api: Api) -> None:
    status, _ = await api.call("POST", body={"rules": [rule()]})

    assert status == 200
    full = rule(pattern="Literal", host="*", permission="Allow")
    assert await api.rules() == [full]
    assert api.access.allows(ALICE, Operation.READ, Resource.STREAM, "orders")
    stored = (await api.metadata.access.read()).rules
    pattern, allowed = PatternKind.LITERAL, Permission.ALLOW
    assert stored == [AccessRule(Resource.STREAM, "orders", pattern, "User:alice", "*", Operation.READ, allowed)]

    assert (await api.call("DELETE", body={"rules": [full]}))[0] == 200
    assert await api.rules() == []
    assert not api.access.allows(ALICE, Operation.READ, Resource.STREAM, "orders")


async def test_only_the_named_rule_is_deleted(api: Api) -> None:
    others = [
        rule(operation="Write"),
        rule(permission="Deny"),
        rule(host="10.0.0.1"),
        rule(pattern="Prefixed"),
        {**rule(), "resource": "Subject"},
        {**rule(), "principal": "User:bob"},
    ]
    await api.call("POST", body={"rules": [rule(), *others]})

    for body in ({"rules": [rule()]}, {"rules": [rule()]}):
        assert (await api.call("DELETE", body=body))[0] == 200

    assert len(await api.rules()) == len(others)
    assert rule(pattern="Literal", host="*", permission="Allow") not in await api.rules()


async def test_rules_are_selected_and_listed_in_pages_of_one_revision(api: Api) -> None:
    await api.call("POST", body={"rules": [rule(f"t{number}") for number in range(5)]})
    await api.call("POST", body={"rules": [{**rule("t1"), "resource": "Group"}]})

    _, first = await api.call("GET", "/v1/access?resource=Topic&limit=3")
    _, second = await api.call("GET", f"/v1/access?resource=Topic&limit=3&after={first['next']}")

    names = [row["name"] for row in (*first["rules"], *second["rules"])]
    assert (names, second["next"]) == ([f"t{number}" for number in range(5)], None)
    assert first["revision"] == second["revision"] == (await api.metadata.access.read()).revision
    assert {row["resource"] for row in await api.rules("?name=t1")} == {"Topic", "Group"}
    assert await api.rules("?principal=User:bob") == []
    assert (await api.call("GET", "/v1/access?resource=Topi"))[0] == 400


async def test_a_request_that_names_an_older_revision_changes_nothing(api: Api) -> None:
    revision = (await api.call("GET"))[1]["revision"]
    status, answer = await api.call("POST", body={"rules": [rule()], "revision": revision})
    assert (status, answer) == (200, {"revision": revision + 1})

    for method, late in (("POST", rule("late")), ("DELETE", rule())):
        status, problem = await api.call(method, body={"rules": [late], "revision": revision})
        assert (status, problem["title"]) == (409, "Conflict")

    assert [row["name"] for row in await api.rules()] == ["orders"]


async def test_deleting_an_absent_rule_by_revision_refuses_its_late_creation(api: Api) -> None:
    """The creation was sent first, and its sender does not know whether it arrives."""
    revision = (await api.call("GET"))[1]["revision"]

    status, answer = await api.call("DELETE", body={"rules": [rule()], "revision": revision})
    late, _ = await api.call("POST", body={"rules": [rule()], "revision": revision})

    assert (status, answer["revision"] > revision) == (200, True)
    assert late == 409
    assert await api.rules() == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource": "Topics"}, "rules[0].resource"),
        ({"operation": "read"}, "rules[0].operation"),
        ({"permission": "Maybe"}, "rules[0].permission"),
        ({"principal": "Server:admin-api"}, "User:name, Group:name"),
        ({"principal": "alice"}, "User:name, Group:name"),
        ({"name": ""}, "name"),
        ({"owner": "me"}, "rules[0].owner"),
    ],
)
async def test_a_wrong_rule_is_refused_with_all_others(api: Api, wrong: dict[str, str], message: str) -> None:
    for more in ({}, {"revision": 0}):
        status, problem = await api.call("POST", body={"rules": [{**rule(), **wrong}, rule("fine")], **more})

        assert status == 400
        assert message in problem["detail"]
    assert await api.rules() == []


async def test_the_number_of_rules_in_a_request_is_bounded(api: Api) -> None:
    for count in (0, 1001):
        status, problem = await api.call("POST", body={"rules": [rule(f"t{number}") for number in range(count)]})
        assert (status, "a list of 1 to 1000 rules" in problem["detail"]) == (400, True)


async def test_answers_fit_the_openapi_document(api: Api) -> None:
    await api.call("POST", body={"rules": [rule()]})
    _, document = await api.call("GET", "/openapi.json")

    _, page = await api.call("GET")

    schema = {"$ref": "#/components/schemas/RulePage", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(page)
    asked = document["paths"]["/v1/access"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert asked == {"$ref": "#/components/schemas/RuleChange"}


async def decided(api: Api, **query: str) -> Any:
    names = "&".join(f"{name}={value}" for name, value in query.items())
    status, answer = await api.call("GET", f"/v1/access/decisions?{names}")
    assert status == 200, answer
    return answer


async def test_a_decision_says_what_a_principal_may_do_and_by_which_rules(api: Api) -> None:
    rules = [
        rule(name="ord", pattern="Prefixed"),
        rule(principal="Group:staff", operation="Write"),
        rule(principal="User:*", operation="Read", permission="Deny", host="10.0.0.9"),
        rule(principal="User:bob", operation="All"),
        rule(name="other", operation="All"),
    ]
    assert (await api.call("POST", body={"rules": rules}))[0] == 200
    asked = {"principal": "User:alice", "resource": "Topic", "name": "orders"}
    alone = await decided(api, **asked, host="10.0.0.1")
    staff = await decided(api, **asked, host="10.0.0.1", group="staff")
    denied = await decided(api, **asked, host="10.0.0.9")
    unknown = await decided(api, **{**asked, "name": "nothing"})

    def allowed(answer: Any) -> set[str]:
        return {name for name, may in answer["operations"].items() if may}

    assert allowed(alone) == {"Read", "Describe"}
    assert [found["name"] for found in alone["rules"]] == ["ord"]
    assert allowed(staff) == {"Read", "Write", "Describe"}
    assert allowed(denied) == {"Describe"}
    assert {found["permission"] for found in denied["rules"]} == {"Allow", "Deny"}
    assert (allowed(unknown), unknown["has_rules"], unknown["rules"]) == (set(), False, [])


async def test_a_decision_about_no_user_is_refused(api: Api) -> None:
    for principal in ("alice", "Group:staff", "User:"):
        status, _ = await api.call("GET", f"/v1/access/decisions?principal={principal}&resource=Topic&name=orders")

        assert status == 400, principal

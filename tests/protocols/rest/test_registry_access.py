"""Rights in every route of the schema registry: nothing without a right, and everything with exactly the rights that the table names."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bearlake.protocols.rest.registry import operations
from bearlake.protocols.rest.registry.rights import EVERYWHERE, NEEDED, OUTSIDE
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.rights import EVERY, OnlyRights, all_but
from fixtures.schema_registry import Answer, RegistryNode, started

Route = tuple[str, str]

CONTEXT = "/contexts/{context}"
INSIDE = {(method, CONTEXT + path): needed for (method, path), needed in EVERYWHERE.items()}
ALL = {**NEEDED, **INSIDE}
SECURED = [route for route in ALL if ALL[route]]
NAMING = [route for route in SECURED if any(part in route[1] for part in ("{subject}", "{id}", "{guid}"))]
BY_ID = [route for route in SECURED if "{id}" in route[1] or "{guid}" in route[1]]
INT, LONG = {"schema": '"int"'}, {"schema": '"long"'}
BODIES: dict[Route, Any] = {
    ("POST", "/subjects/{subject}"): INT,
    ("POST", "/subjects/{subject}/versions"): LONG,
    ("POST", "/compatibility/subjects/{subject}/versions"): LONG,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): LONG,
    ("PUT", "/config"): {"compatibility": "FULL"},
    ("PUT", "/config/{subject}"): {"compatibility": "FULL"},
    ("PUT", "/mode"): {"mode": "READONLY"},
    ("PUT", "/mode/{subject}"): {"mode": "READONLY"},
}


class Switch(Authorizer):
    """Asks another authorizer, which tests set."""

    def __init__(self) -> None:
        self.now: Authorizer = OnlyRights(EVERY)

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        assert kind is Resource.SUBJECT
        return self.now.allows(who, operation, kind, name)


class On(Authorizer):
    """Allows some operations on one subject, and nothing else."""

    def __init__(self, subject: str, *operations: Operation) -> None:
        self._subject = subject
        self._operations = operations

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return name == self._subject and operation in self._operations


class Scene:
    """A registry with a subject `s` in the default context and in the context `c`, each with a config and a mode."""

    def __init__(self, registry: RegistryNode, rights: Switch, guid: str) -> None:
        self.registry = registry
        self.rights = rights
        self.guid = guid

    async def ask(self, route: Route, *, is_absent: bool = False) -> Answer:
        """Send the request of a route, about what exists or about what does not."""
        method, pattern = route
        path = pattern.format(
            context=".c",
            subject="absent" if is_absent else "s",
            id=77 if is_absent else 1,
            guid="00000000-0000-0000-0000-000000000000" if is_absent else self.guid,
            version=1,
        )
        query = "?key=k&value=v" if pattern.endswith("/metadata") else ""
        return await self.registry.ask(method, path + query, BODIES.get((method, pattern.removeprefix(CONTEXT))))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as closing:
        rights = Switch()
        registry = await started(closing, authorizer=rights)
        for prefix in ("", "/contexts/.c"):
            draft = {**INT, "metadata": {"properties": {"k": "v"}}}
            made = await registry.post(f"{prefix}/subjects/s/versions", draft)
            assert made.status == 200
            for path, body in (("config", {"compatibility": "NONE"}), ("mode", {"mode": "READWRITE"})):
                for below in ("", "/s"):
                    assert (await registry.put(f"{prefix}/{path}{below}", body)).status == 200
        yield Scene(registry, rights, made.body["guid"])


def is_refused(answer: Answer) -> bool:
    """Whether an answer is a refusal, says that there is nothing, or is an empty list."""
    return answer.status in (403, 404) or (answer.status == 200 and answer.body == [])


def test_the_table_of_rights_has_every_route() -> None:
    assert set(ALL) == set(operations.OPERATIONS)
    assert not set(EVERYWHERE) & set(OUTSIDE)


async def test_every_route_is_refused_without_any_right(scene: Scene) -> None:
    scene.rights.now = OnlyRights([])
    assert not [route for route in SECURED if not is_refused(await scene.ask(route))]


async def test_routes_without_rights_answer_everybody(scene: Scene) -> None:
    scene.rights.now = OnlyRights([])
    for path in [path for (_, path), needed in ALL.items() if not needed and path != "/docs"]:
        assert (await scene.registry.get(path.format(context=".c"))).status == 200, path


async def test_a_refusal_does_not_reveal_whether_a_subject_or_a_schema_exists(scene: Scene) -> None:
    scene.rights.now = OnlyRights([])
    for route in NAMING:
        there, missing = await scene.ask(route), await scene.ask(route, is_absent=True)
        assert (there.status, there.body["error_code"]) == (missing.status, missing.body["error_code"]), route


@pytest.mark.parametrize("route", SECURED, ids=" ".join)
async def test_every_route_needs_exactly_the_rights_of_the_table(scene: Scene, route: Route) -> None:
    for right in ALL[route]:
        scene.rights.now = all_but(right)
        assert is_refused(await scene.ask(route)), right
    scene.rights.now = OnlyRights(ALL[route])
    answer = await scene.ask(route)

    assert answer.status == 200, answer.body
    assert not is_refused(answer) or route[1].endswith("/referencedby"), answer  # nothing references the schema


@pytest.mark.parametrize("route", BY_ID, ids=" ".join)
async def test_a_schema_is_there_for_readers_of_a_subject_that_uses_it(scene: Scene, route: Route) -> None:
    """Deserializers ask for schemas by their id, with rights on the subjects of their topics only."""
    prefix = ":.c:" if "{context}" in route[1] else ""
    scene.rights.now = On(f"{prefix}s", Operation.READ, Operation.DESCRIBE)
    assert (await scene.ask(route)).status == 200
    assert (await scene.ask(route, is_absent=True)).status in (403, 404)

    scene.rights.now = On(f"{prefix}other", Operation.READ, Operation.DESCRIBE)
    there, missing = await scene.ask(route), await scene.ask(route, is_absent=True)
    assert there.status == missing.status
    assert there.status in (403, 404)


@pytest.mark.parametrize("route", [route for route, body in BODIES.items() if "schema" in body], ids=" ".join)
async def test_a_schema_may_reference_only_what_its_caller_may_read(scene: Scene, route: Route) -> None:
    record = '{"type": "record", "name": "Secret", "fields": [{"name": "salary", "type": "int"}]}'
    user = '{"type": "record", "name": "User", "fields": [{"name": "f", "type": "Secret"}]}'
    await scene.registry.register("secret", record)

    async def send(subject: str) -> Answer:
        references = [{"name": "Secret", "subject": subject, "version": 1}]
        path = route[1].format(subject="mine", version="latest")
        return await scene.registry.post(path, {"schema": user, "references": references})

    class AllButSecret(OnlyRights):
        def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
            return name not in ("secret", "absent")

    scene.rights.now = OnlyRights(EVERY)
    await scene.registry.register("mine", '"int"')
    scene.rights.now = AllButSecret(EVERY)
    refused = await send("secret")
    assert (refused.status, refused.body["error_code"]) == (403, 40301)
    assert (await send("absent")).status == 403
    scene.rights.now = OnlyRights(EVERY)
    assert (await send("secret")).status != 403


async def test_rights_on_one_subject_do_not_allow_choosing_ids_of_its_context(scene: Scene) -> None:
    """The next ids follow the largest one: otherwise the largest possible id would end all registrations of the context."""
    largest = {**LONG, "id": 2**31 - 1, "version": 1}
    scene.rights.now = On("mine", *Operation)
    assert (await scene.registry.put("/mode/mine", {"mode": "IMPORT"})).status == 200
    refused = await scene.registry.post("/subjects/mine/versions", largest)
    assert (refused.status, refused.body["error_code"]) == (403, 40301)

    scene.rights.now = OnlyRights(EVERY)
    assert await scene.registry.register("other", '"string"') == 2
    assert (await scene.registry.post("/subjects/mine/versions", {**largest, "id": 7})).body["id"] == 7


@pytest.mark.parametrize("operation", ["versions", "config", "mode"])
async def test_rights_in_a_context_do_not_count_in_the_default_context(scene: Scene, operation: str) -> None:
    """A subject `:.c:x` of the default context would have the name, and so the rights, of the subject `x` of the context `c`."""
    scene.rights.now = On(":.c:x", *Operation)
    name = ":.::.c:x"
    if operation == "versions":
        refused = await scene.registry.post(f"/subjects/{name}/versions", INT)
    else:
        body = {"compatibility": "NONE"} if operation == "config" else {"mode": "IMPORT"}
        refused = await scene.registry.put(f"/{operation}/{name}", body)
    assert (refused.status, refused.body["error_code"]) == (422, 42208)
    assert (await scene.registry.get("/schemas/ids/1")).status == 403


async def test_a_resolved_schema_needs_the_right_to_read_what_it_references(scene: Scene) -> None:
    names = ["first", "second", "third"]
    for at, name in enumerate(names):
        fields = [{"name": "f", "type": names[at - 1] if at else "int"}]
        references = [{"name": names[at - 1], "subject": names[at - 1], "version": 1}] if at else []
        await scene.registry.register(name, {"type": "record", "name": name, "fields": fields}, references=references)

    class AllBut(OnlyRights):
        def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
            return name != self.hidden

        def __init__(self, hidden: str) -> None:
            super().__init__(EVERY)
            self.hidden = hidden

    for path in ("/subjects/third/versions/1", "/subjects/third/versions/1/schema", "/schemas/ids/4"):
        for hidden in ("first", "second"):
            scene.rights.now = AllBut(hidden)
            assert (await scene.registry.get(path)).status == 200
            assert (await scene.registry.get(f"{path}?format=resolved")).status == 403
        scene.rights.now = OnlyRights(EVERY)
        assert (await scene.registry.get(f"{path}?format=resolved")).status == 200

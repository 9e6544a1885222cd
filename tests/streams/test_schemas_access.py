"""Access control in the schema registry: every call is checked, and lists contain only what the caller may see."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bearlake.errors import Denied
from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import Deletion
from bearlake.streams.principal import ANONYMOUS, Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Mode
from bearlake.streams.schemas.payloads import Choice, Payloads
from bearlake.streams.schemas.service import Schemas

OWNER = Principal("User", "owner")
GUEST = Principal("User", "guest")
DRAFT = Draft(text='"int"')


class Grants(Authorizer):
    """The owner may do everything; the other principal only what was granted."""

    def __init__(self) -> None:
        self.granted: set[tuple[Operation, str]] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        assert kind is Resource.SUBJECT
        return who == OWNER or (who == GUEST and (operation, name) in self.granted)


@pytest.fixture
def grants() -> Grants:
    return Grants()


@pytest.fixture
async def schemas(grants: Grants) -> AsyncIterator[Schemas]:
    metadata = await open_metadata("memory:///")
    made = Schemas(metadata.schemas, authorizer=grants)
    for subject in ("mine", "yours", ":.other:mine"):
        await made.register(OWNER, subject, DRAFT)
    yield made
    made.close()
    await metadata.close()


Call = Callable[[Schemas, Principal], Awaitable[object]]
CALLS: list[tuple[Operation, str, Call]] = [
    (Operation.WRITE, "mine", lambda schemas, who: schemas.register(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.lookup(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.check(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.version(who, "mine", 1)),
    (Operation.DESCRIBE, "mine", lambda schemas, who: schemas.versions(who, "mine", Deletion.LIVE)),
    (Operation.READ, "mine", lambda schemas, who: schemas.referrers(who, "mine", 1)),
    (Operation.DELETE, "mine", lambda schemas, who: schemas.delete_version(who, "mine", 1)),
    (Operation.DELETE, "mine", lambda schemas, who: schemas.delete_subject(who, "mine")),
    (Operation.ALTER, "mine", lambda schemas, who: schemas.set_config(who, "mine", {"normalize": True})),
    (Operation.ALTER, "mine", lambda schemas, who: schemas.set_mode(who, "mine", Mode.READONLY)),
    (Operation.ALTER, "__GLOBAL", lambda schemas, who: schemas.set_config(who, "", {"normalize": True})),
    (Operation.ALTER, ":.other:", lambda schemas, who: schemas.set_mode(who, ":.other:", Mode.READONLY)),
    (Operation.DESCRIBE, "mine", lambda schemas, who: schemas.mode(who, "mine", is_in_scope=True)),
    (Operation.DESCRIBE, "__GLOBAL", lambda schemas, who: schemas.config(who)),
    (Operation.READ, "__GLOBAL", lambda schemas, who: schemas.schema(who, 1)),
    (Operation.READ, ":.other:", lambda schemas, who: schemas.schema(who, 1, ":.other:")),
    (Operation.READ, "__GLOBAL", lambda schemas, who: schemas.last_id(who)),
]


@pytest.mark.parametrize(("operation", "name", "call"), CALLS)
async def test_a_call_needs_exactly_its_own_grant(
    schemas: Schemas, grants: Grants, operation: Operation, name: str, call: Call
) -> None:
    grants.granted = {(other, name) for other in Operation if other is not operation}
    with pytest.raises(Denied, match=f"User:guest may not {operation.value} Subject"):
        await call(schemas, GUEST)
    grants.granted = {(operation, name)}
    await call(schemas, GUEST)
    with pytest.raises(Denied):
        await call(schemas, ANONYMOUS)


async def test_lists_contain_what_the_caller_may_see(schemas: Schemas, grants: Grants) -> None:
    grants.granted = {(Operation.DESCRIBE, "mine"), (Operation.READ, "mine"), (Operation.DESCRIBE, ":.other:")}
    found = await schemas.all_versions(GUEST, names.ALL_CONTEXTS, Deletion.LIVE)

    assert await schemas.subjects(GUEST, names.ALL_CONTEXTS, Deletion.LIVE) == ["mine"]
    assert [version.subject.name for version in found] == ["mine"]
    assert await schemas.contexts(GUEST) == [".other"]
    assert len(await schemas.subjects(OWNER, names.ALL_CONTEXTS, Deletion.LIVE)) == 3


async def test_writing_values_registers_as_the_caller(schemas: Schemas, grants: Grants) -> None:
    payloads = Payloads(schemas)
    with pytest.raises(Denied):
        await payloads.writer(GUEST, Choice(type=DRAFT.type, text=DRAFT.text), "t", "value", payloads.budget())
    grants.granted = {(Operation.WRITE, "t-value")}
    writer = await payloads.writer(GUEST, Choice(type=DRAFT.type, text=DRAFT.text), "t", "value", payloads.budget())

    assert await payloads.write_all(writer, [b"1"], payloads.budget()) == [b"\0\0\0\0\1\2"]

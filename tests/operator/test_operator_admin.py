"""The operator's admin client against the real admin API: the contract between the two planes."""

import pytest

from bearlake.metadata.open import open_metadata
from bearlake.objects.open import open_store
from bearlake.serving.admin.access import AccessRoutes
from bearlake.serving.admin.compaction import CompactionRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.streams import StreamRoutes
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.service import Streams
from bearlake_operator import admin
from bearlake_operator.admin import PATTERN_COUNT, AdminClient, Backlog, Commits, StreamChange
from bearlake_operator.api import AccessRule
from bearlake_operator.errors import Conflict, Invalid, Unavailable

TOKEN = "sixteen-characters"


@pytest.fixture
async def admin_url():
    metadata, store = await open_metadata("memory:///"), open_store("memory:///")
    member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {"kafka": "127.0.0.1:9092"})
    streams = Streams(metadata, store, member.server)
    await streams.start()
    server = AdminServer(
        open_listener(ListenerSettings(), "admin"),
        metadata.log,
        member,
        AdminSettings(),
        routes=[StreamRoutes(streams), AccessRoutes(streams.access), CompactionRoutes(metadata)],
        token=AdminToken(TOKEN),
    )
    await server.start()
    yield f"http://{server.endpoints['admin']}"
    await server.close()
    await streams.close()
    await store.close()
    await metadata.close()


@pytest.fixture
async def client(admin_url):
    opened = AdminClient(lambda: ["http://127.0.0.1:9", admin_url], lambda: TOKEN)  # nothing listens on the first one
    yield opened
    await opened.close()


def new(name, partitions=1, **configs):
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return StreamChange(name=name, is_new=True, partitions=partitions, set_configs=given)


async def test_streams_are_created_changed_listed_and_deleted(client):
    assert await client.change([new("a", 2, retention_ms="1000"), new("b")]) == {}
    change = StreamChange(
        name="a", is_new=False, partitions=3, set_configs={"max.message.bytes": "9"}, unset_configs=["retention.ms"]
    )
    assert await client.change([change]) == {}

    found = await client.streams()

    assert sorted(found) == ["a", "b"]
    assert (found["a"].partitions, found["a"].configs) == (3, {"max.message.bytes": "9"})
    assert await client.delete({"a": found["a"].id, "never": found["a"].id}) == {}
    assert sorted(await client.streams()) == ["b"]


async def test_deleting_an_old_stream_id_keeps_a_new_stream_of_the_same_name(client):
    await client.change([new("a")])
    before = (await client.streams())["a"].id
    await client.delete({"a": before})
    await client.change([new("a")])

    assert await client.delete({"a": before}) == {}
    assert (await client.streams())["a"].id != before


async def test_a_thousand_streams_with_the_longest_names_are_created_and_deleted_in_batches(client):
    names = [f"{number:04}".rjust(249, "s") for number in range(1000)]
    assert await client.change([new(name) for name in names]) == {}

    found = await client.streams()
    assert sorted(found) == names
    assert await client.delete({name: found[name].id for name in names}) == {}
    assert await client.streams() == {}


async def test_problems_are_returned_by_stream_and_do_not_affect_others(client):
    problems = await client.change([new("a", nonsense="1"), new("b")])

    assert problems == {"a": "Unknown topic config name: nonsense"}
    assert sorted(await client.streams()) == ["b"]


async def test_a_stream_that_is_too_large_for_a_request_does_not_affect_others(client):
    """A Stream may have 1.5 MB; names of its configs have no limit."""
    large = StreamChange(name="large", is_new=True, partitions=1, set_configs={"x" * 1_100_000: "1"})

    problems = await client.change([new("a"), large, new("b")])

    assert list(problems) == ["large"]
    assert sorted(await client.streams()) == ["a", "b"]


async def test_streams_with_many_long_configs_are_changed_in_several_requests(client):
    """Configs that servers do not know are sent in every run, with the changes of all other Streams."""
    unknown = {f"{number}.{'x' * 900}": "y" * 1000 for number in range(64)}
    streams = [StreamChange(name=f"s{number}", is_new=True, partitions=1, set_configs=unknown) for number in range(20)]

    problems = await client.change([*streams, new("z")])

    assert sorted(problems) == sorted(stream.name for stream in streams)
    assert sorted(await client.streams()) == ["z"]


async def test_an_empty_data_layer_has_no_backlog(client):
    found = await client.backlogs()

    assert (found.total, found.streams, found.quarantined_count) == (Backlog(), {}, 0)


async def test_many_patterns_are_split_over_several_requests(client):
    """No request line exceeds the servers' limit."""
    patterns = [f"{number:03}-{'x' * 245}" for number in range(3 * PATTERN_COUNT)]

    backlogs, commits = await client.backlogs(patterns), await client.commits(["orders-*", "*.raw", "[a-c]?"])

    assert (backlogs.total, backlogs.quarantined_count) == (Backlog(), 0)
    assert commits == Commits(count=0, streams=[])


async def test_the_previous_token_is_tried_if_the_new_one_is_rejected(admin_url):
    token = TOKEN
    client = AdminClient(lambda: [admin_url], lambda: token)
    assert await client.streams() == {}

    token = "the-token-of-tomorrow"

    assert await client.streams() == {}
    await client.close()


async def test_a_data_layer_without_a_server_is_unavailable(admin_url):
    client = AdminClient(list, lambda: TOKEN)

    with pytest.raises(Unavailable):
        await client.streams()
    await client.close()


async def test_a_rejected_token_is_unavailable_because_it_may_be_rotating(admin_url):
    client = AdminClient(lambda: [admin_url], lambda: "the-token-of-yesterday")

    with pytest.raises(Unavailable):
        await client.streams()
    await client.close()


async def test_a_rejected_request_raises_the_servers_message(client):
    with pytest.raises(Invalid):
        await client._request("POST", "/v1/streams", body={"streams": [{"name": "a"}] * 1001})  # noqa: SLF001 - the operator itself sends no request that is rejected so


def rule(principal="User:alice", operation="Read"):
    return AccessRule(principal, "*", operation, "Allow")


async def test_access_rules_are_created_listed_and_deleted_by_revision(client):
    before = await client.access_rules()
    assert before.streams == {}
    given = [("a", rule()), ("a", rule(operation="Write")), ("b", rule("Group:ops"))]

    revision = await client.create_rules(given, before.revision)

    found = await client.access_rules()
    assert found.revision == revision
    assert found.streams == {"a": {rule(), rule(operation="Write")}, "b": {rule("Group:ops")}}
    with pytest.raises(Conflict):
        await client.delete_rules(given, before.revision)
    await client.delete_rules([*given[1:], ("never", rule())], revision)
    assert (await client.access_rules()).streams == {"a": {rule()}}


async def test_access_rules_are_listed_in_pages_of_one_revision(client, monkeypatch):
    monkeypatch.setattr(admin, "PAGE_COUNT", 2)
    given = [(f"t{number}", rule()) for number in range(5)]
    revision = await client.create_rules(given, (await client.access_rules()).revision)
    assert set((await client.access_rules()).streams) == {name for name, _ in given}

    request, pages = client._request, []  # noqa: SLF001 - another client changes rules between two pages

    async def change_between(verb, path, **options):
        pages.append(path)
        if len(pages) == 2:
            await request(
                "POST", "/v1/access", body={"rules": [{"resource": "Topic", "name": "a", **rule()._asdict()}]}
            )
        return await request(verb, path, **options)

    monkeypatch.setattr(client, "_request", change_between)
    found = await client.access_rules()

    assert found.revision == revision + 1
    assert set(found.streams) == {"a", *(name for name, _ in given)}


async def test_rules_that_do_not_name_one_stream_are_left_out(client, admin_url):
    prefixed = {"resource": "Topic", "name": "a", "pattern": "Prefixed", **rule()._asdict()}
    group = {"resource": "Group", "name": "a", **rule()._asdict()}
    await client._request("POST", "/v1/access", body={"rules": [prefixed, group]})  # noqa: SLF001 - as another client

    assert (await client.access_rules()).streams == {}


async def test_rules_that_the_servers_refuse_are_invalid(client):
    with pytest.raises(Invalid, match="User:name"):
        await client.create_rules([("a", rule("Server:admin-api"))], 0)

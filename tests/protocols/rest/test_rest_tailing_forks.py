"""Forks over /v1/stream beyond the conformance suite: other protocols, several servers, trimmed and deleted sources."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import NotFound
from bearlake.protocols.rest.tailing import lifetimes, lineage
from bearlake.protocols.rest.tailing.lineage import Fork, Piece, bounds_of, pieces_of
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import INTERNAL
from fixtures.rest_server import Answer, MakeServers, RestNode

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}


def token(offset: int) -> str:
    return f"{offset:020}"


async def fork(rest: RestNode, name: str, source: str, offset: int | None = None, **more: Any) -> Answer:
    headers = {"Stream-Forked-From": f"/v1/stream/{source}"}
    if offset is not None:
        headers["Stream-Fork-Offset"] = token(offset)
    return await rest.put(f"/v1/stream/{name}", headers=headers | more, skip_auto_headers=["Content-Type"])


async def test_a_fork_is_read_through_its_source_at_the_same_offsets(rest: RestNode) -> None:
    await rest.put("/v1/stream/source", b"[0,1,2,3]", headers=JSON)
    made = await fork(rest, "fork", "source", 2)
    await rest.post("/v1/stream/source", b"[4]", headers=JSON)
    appended = await rest.post("/v1/stream/fork", b'["x","y"]', headers=JSON)

    assert (made.status, made.headers["Stream-Next-Offset"]) == (201, token(2))
    assert appended.headers["Stream-Next-Offset"] == token(4)
    assert (await rest.get("/v1/stream/fork")).body == [0, 1, "x", "y"]
    assert [(await rest.get(f"/v1/stream/fork?offset={token(n)}")).body for n in (1, 2, 3, 4)] == [
        [1, "x", "y"],
        ["x", "y"],
        ["y"],
        [],
    ]
    assert (await rest.get("/v1/stream/source")).body == [0, 1, 2, 3, 4]


async def test_other_protocols_see_the_own_records_of_a_fork(rest: RestNode) -> None:
    await rest.put("/v1/stream/source", b"[0,1]", headers=JSON)
    await fork(rest, "fork", "source")
    await rest.post("/topics/fork", {"records": [{"value": "own"}]}, kind="json")
    await rest.post("/consumers/g", {"name": "c", "format": "json", "auto.offset.reset": "earliest"})
    await rest.post("/consumers/g/instances/c/subscription", {"topics": ["fork"]})
    accept = {"Accept": "application/vnd.kafka.json.v2+json"}
    seen = await rest.get("/consumers/g/instances/c/records", headers=accept)

    assert [(record["offset"], record["value"]) for record in seen.body] == [(0, "own")]
    assert (await rest.get("/v1/stream/fork")).body == [0, 1, "own"]


async def test_a_partition_of_another_protocol_s_stream_is_forked(rest: RestNode) -> None:
    await rest.create("orders", 3)
    await rest.post("/topics/orders/partitions/2", {"records": [{"value": "eA=="}, {"value": "eQ=="}]}, kind="binary")
    ambiguous = await fork(rest, "fork", "orders")
    made = await fork(rest, "fork", "orders/2", 1)
    await rest.post("/v1/stream/fork", b"z", headers={"Content-Type": "application/octet-stream"})

    assert (ambiguous.status, made.status) == (400, 201)
    assert (await rest.get("/v1/stream/fork")).body == b"xz"
    assert (await fork(rest, "fork", "orders/2", 1)).status == 200
    assert (await fork(rest, "fork", "orders/1", 1)).status == 409
    assert (await fork(rest, "fork", "orders/2", 0)).status == 409


async def test_a_fork_begins_where_its_source_was_trimmed(rest: RestNode) -> None:
    await rest.put("/v1/stream/source", b"[0,1,2,3]", headers=JSON)
    await fork(rest, "fork", "source", 3)
    await rest.post("/v1/stream/fork", b'["x"]', headers=JSON)
    await rest.streams.trim(INTERNAL, "source", 0, 2)
    page = await rest.get("/v1/stream/fork")
    gone = await rest.get(f"/v1/stream/fork?offset={token(1)}")
    await rest.streams.trim(INTERNAL, "source", 0, 4)

    assert page.body == [2, "x"]
    assert gone.status == 410
    assert (await rest.get("/v1/stream/fork")).body == ["x"]

    await rest.streams.trim(INTERNAL, "fork", 0, 1)

    assert (await rest.get("/v1/stream/fork")).body == []
    assert (await rest.get(f"/v1/stream/fork?offset={token(4)}")).status == 200


async def test_a_fork_keeps_its_own_records_if_another_protocol_deletes_the_source(rest: RestNode) -> None:
    await rest.put("/v1/stream/source", b"[0,1]", headers=JSON)
    await fork(rest, "fork", "source")
    await rest.post("/v1/stream/fork", b'["x"]', headers=JSON)
    await rest.streams.delete(INTERNAL, (await rest.streams.catalog.resolve("source")).stream)
    await rest.put("/v1/stream/source", b'["another"]', headers=JSON)

    assert (await rest.get("/v1/stream/fork")).body == ["x"]
    assert (await rest.get(f"/v1/stream/fork?offset={token(0)}")).status == 410
    assert (await rest.delete("/v1/stream/source")).status == 204
    assert (await rest.get("/v1/stream/source")).status == 404  # the new stream has no forks


async def test_forks_and_deletions_of_two_servers_agree(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2, sweep_ms=10)
    await first.put("/v1/stream/source", b"[0,1]", headers=JSON)
    made = await fork(second, "fork", "source")
    deleted = await first.delete("/v1/stream/source")
    await second.post("/v1/stream/fork", b'["x"]', headers=JSON)

    assert (made.status, deleted.status) == (201, 204)
    assert (await first.get("/v1/stream/fork")).body == [0, 1, "x"]

    await first.delete("/v1/stream/fork")
    while "source" in {stream.name for stream in await first.streams.metadata.streams.list()}:  # noqa: ASYNC110 - until the sweep did it
        await asyncio.sleep(0)

    assert (await first.get("/v1/stream/source")).status in (
        404,
        410,
    )  # the server may not have followed the deletion yet


async def test_a_fork_of_a_stream_that_is_being_deleted_is_whole_or_not_made(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    for turn in range(30):
        source, name = f"source-{turn}", f"fork-{turn}"
        await first.put(f"/v1/stream/{source}", b"[0,1]", headers=JSON)
        forked, deleted = await asyncio.gather(fork(second, name, source), first.delete(f"/v1/stream/{source}"))
        seen = await first.get(f"/v1/stream/{name}")

        assert (forked.status, seen.status) in ((201, 200), (404, 404), (409, 404))
        assert deleted.status == 204
        if forked.status == 201:
            assert seen.body == [0, 1]


async def test_a_creation_that_was_cut_off_is_hidden_and_made_again(rest: RestNode) -> None:
    await rest.create("t", http_content_type="text/plain", http_incomplete="true")
    early = [await rest.get("/v1/stream/t"), await rest.put("/v1/stream/t", b"a", headers=TEXT)]
    rest.server._tailing.lifetimes._create_ms_max = -1  # noqa: SLF001 - the creator's time is over
    late = await rest.put("/v1/stream/t", b"a", headers=TEXT)

    assert [answer.status for answer in early] == [503, 503]
    assert late.status == 201
    assert (await rest.get("/v1/stream/t")).body == b"a"


async def test_a_stream_with_content_is_shown_when_it_is_whole(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"a", headers=TEXT)

    assert not lifetimes.is_marked(await rest.streams.catalog.find("t"), lifetimes.INCOMPLETE)


@pytest.mark.parametrize(
    "headers",
    [
        {"Stream-Forked-From": "source"},
        {"Stream-Forked-From": "/v1/stream/a/b/c"},
        {"Stream-Forked-From": "/v1/stream/source", "Stream-Fork-Offset": "x"},
        {"Stream-Forked-From": "/v1/stream/source", "Stream-Fork-Offset": "0000000000000000_0000000000000001"},
        {"Stream-Forked-From": "/v1/stream/source", "Stream-Fork-Offset": token(3)},
        {"Stream-Forked-From": "/v1/stream/source", "Stream-Fork-Offset": token(2), "Stream-Fork-Sub-Offset": "1"},
        {"Stream-Forked-From": "/v1/stream/source", "Stream-Fork-Offset": token(1), "Stream-Fork-Sub-Offset": "2"},
        {"Stream-Fork-Offset": token(0)},
    ],
)
async def test_a_fork_at_an_invalid_place_is_refused(rest: RestNode, headers: dict[str, str]) -> None:
    await rest.put("/v1/stream/source", b"[0,1]", headers=JSON)
    answer = await rest.put("/v1/stream/fork", headers=headers, skip_auto_headers=["Content-Type"])

    assert answer.status == 400
    assert (await rest.get("/v1/stream/fork")).status == 404


async def test_pieces_of_forks_of_forks(rest: RestNode) -> None:
    await rest.put("/v1/stream/a", b"[0,1,2,3]", headers=JSON)
    await fork(rest, "b", "a", 3)
    await rest.post("/v1/stream/b", b"[3,4]", headers=JSON)
    await fork(rest, "c", "b", 4)
    await fork(rest, "d", "c", 2)
    catalog = rest.streams.catalog
    a, b, c, d = [(await catalog.find(name)).partition(0) for name in "abcd"]

    assert await pieces_of(catalog, await catalog.find("c"), 0) == [
        Piece(a, "a", 0, 3),
        Piece(b, "b", 3, 4),
        Piece(c, "c", 4, None),
    ]
    assert await pieces_of(catalog, await catalog.find("d"), 0) == [Piece(a, "a", 0, 2), Piece(d, "d", 2, None)]
    with pytest.raises(NotFound):
        bounds_of([Piece(a, "a", 0, 2), Piece(d, "d", 2, None)], {}, None)


@pytest.mark.parametrize("text", ["", "x", "1/0@2+0", "99999999/0@2+0=2", "1/0@2+0=2 "])
async def test_a_config_that_names_no_older_stream_makes_no_fork(rest: RestNode, text: str) -> None:
    await rest.create("t", http_fork=text)

    assert lineage.fork_of(await rest.streams.catalog.find("t")) is None


def test_the_origin_of_a_fork_is_text_in_its_config() -> None:
    assert str(Fork(12, 3, 4, 5, 9)) == "12/3@4+5=9"


@pytest.mark.parametrize("had_forks", [False, True])
async def test_a_fork_that_is_made_after_a_deletion_looked_for_forks_is_seen(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch, had_forks: bool
) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/source", b"[0,1]", headers=JSON)
    if had_forks:
        await fork(first, "former", "source")
        await first.delete("/v1/stream/former")
    # The other server's fork happens between two steps of the deletion.
    lives = first.server._tailing.lifetimes  # noqa: SLF001
    look = lives._has_forks  # noqa: SLF001
    made: list[Answer] = []

    async def look_then_fork(view: StreamView) -> bool:
        found = await look(view)
        if not made:
            made.append(await fork(second, "fork", "source"))
        return found

    monkeypatch.setattr(lives, "_has_forks", look_then_fork)
    deleted = await first.delete("/v1/stream/source")

    assert (made[0].status, deleted.status) == (201, 204)
    assert (await second.get("/v1/stream/fork")).body == [0, 1]
    assert (await first.get("/v1/stream/source")).status == 410


async def test_a_fork_is_undone_when_its_source_is_deleted_before_its_answer(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/source", b"[0,1]", headers=JSON)
    # The deletion happens between two steps of the fork.
    forking = second.server._tailing._create._forking  # noqa: SLF001
    register_fork = forking.register_fork

    async def delete_then_register(source: StreamView, made: StreamView) -> None:
        assert (await first.delete("/v1/stream/source")).status == 204
        await register_fork(source, made)

    monkeypatch.setattr(forking, "register_fork", delete_then_register)
    refused = await fork(second, "fork", "source")

    assert refused.status == 409
    assert (await second.get("/v1/stream/fork")).status == 404

"""/v1/stream on PostgreSQL: the rules on which several servers must agree."""

import asyncio

import pytest

from fixtures.rest_server import MakeServers

pytestmark = pytest.mark.integration

JSON = {"Content-Type": "application/json"}
LARGEST = 2**53 - 1


@pytest.fixture
def rest_metadata_url(postgresql_url: str) -> str:
    return postgresql_url


def producer(epoch: int, sequence: int) -> dict[str, str]:
    return {**JSON, "Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


async def test_producers_are_known_to_all_servers(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    claims = [(0, 0), (0, 0), (0, 2), (0, 1), (LARGEST, 0), (LARGEST, 1), (LARGEST - 1, 0), (LARGEST, LARGEST)]
    answers = [
        await (first, second)[turn % 2].post("/v1/stream/t", b"[%d]" % turn, headers=producer(*claim))
        for turn, claim in enumerate(claims)
    ]

    assert [answer.status for answer in answers] == [200, 204, 409, 200, 200, 200, 403, 409]
    assert answers[6].headers["Producer-Epoch"] == str(LARGEST)
    assert answers[7].headers["Producer-Expected-Seq"] == "2"
    assert (await first.get("/v1/stream/t")).body == [0, 3, 4, 5]


async def test_the_same_append_at_two_servers_at_once_is_done_once(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    for n in range(8):
        headers = {**producer(0, n), "Stream-Seq": str(n)}
        both = [server.post("/v1/stream/t", b"[%d]" % n, headers=headers) for server in (first, second)]
        statuses = sorted(answer.status for answer in await asyncio.gather(*both))
        assert statuses in (
            [200, 204],
            [200, 409],
        )  # 409: a server that read before the other commit refuses it

    assert (await first.get("/v1/stream/t")).body == list(range(8))


async def test_forks_closes_and_deletions_agree(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    for turn in range(6):
        source, fork = f"/v1/stream/source-{turn}", f"/v1/stream/fork-{turn}"
        await first.put(source, b"[0,1]", headers=JSON)
        closing = first.post(source, headers={"Stream-Closed": "true"})
        forked, closed, appended = await asyncio.gather(
            second.put(fork, b"[2]", headers={**JSON, "Stream-Forked-From": source, "Stream-Fork-Offset": f"{2:020}"}),
            closing,
            second.post(source, b"[9]", headers=JSON),
        )
        remade, deleted = await asyncio.gather(
            second.put(fork + "-of-it", headers={**JSON, "Stream-Forked-From": fork}), first.delete(fork)
        )

        assert (forked.status, closed.status, deleted.status) == (201, 204, 204)
        end = int(closed.headers["Stream-Next-Offset"])
        assert (appended.status, end) in ((204, 3), (409, 2))
        assert (await second.get(source)).body == [0, 1, 9][:end]
        assert remade.status in (201, 404, 409)
        if remade.status == 201:
            assert (await first.get(fork + "-of-it")).body == [0, 1, 2]
            assert (await first.get(fork)).status == 410


async def test_an_expired_stream_is_gone_and_its_name_free(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"[0]", headers={**JSON, "Stream-TTL": "0"})

    assert (await second.get("/v1/stream/t")).status == 404
    assert (await second.put("/v1/stream/t", b"[1]", headers={**JSON, "Stream-TTL": "1000"})).status == 201
    assert (await first.get("/v1/stream/t")).body == [1]

"""A record-count bomb does not hold a REST server: a batch of less than 1 KiB has 300,000 records, which take 70 MB as objects."""

from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.append import Append
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.deployment import append_of
from fixtures.held import held_at_most
from fixtures.rest_consumer import Client
from fixtures.rest_server import RestNode

COUNT = 300_000
PER_ANSWER = 10_000


async def test_a_consumer_gets_a_bomb_in_bounded_answers(rest: RestNode) -> None:
    view = await rest.streams.catalog.create("t", 1, {})
    client = await Client.create(rest)
    await client.subscribe("t")
    await client.poll(0)
    bomb: Append = append_of(view, encode([Record(timestamp=-1)] * COUNT, codec=Compression.ZSTD))
    assert len(bomb.batch) < 300_000
    await rest.streams.append([bomb], rest.streams.seen.position)

    first = await client.poll()
    async with held_at_most(4 * LIMIT_S):  # the client of the test decodes the answer, too
        second = await client.poll()

    assert [len(answer.body) for answer in (first, second)] == [PER_ANSWER, PER_ANSWER]
    assert [record["offset"] for record in second.body] == list(range(PER_ANSWER, 2 * PER_ANSWER))

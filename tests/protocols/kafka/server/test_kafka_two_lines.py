"""A connection in the line for room in the write path that also waits for its quota: it loses a turn, and neither place nor quota twice."""

from typing import Any

import pytest

from bearlake.metadata.quotas import DEFAULT, Entity, QuotaKey
from bearlake.streams.relief import ReliefLine
from fixtures.kafka_server import Make, batch_of, produce_request
from fixtures.quotas import LimitedServer
from fixtures.waiting import until

RATE = 1000.0


async def test_a_turn_for_room_that_comes_during_a_wait_for_the_quota_comes_again(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the quota begins with the answer to a request before, when the next one stands in line for room already."""
    node = (await kafka_cluster(1))[0]
    await node.create("t")
    used = [0.0]
    line = ReliefLine(lambda: used[0])
    monkeypatch.setattr(node.streams._writer, "relief", line)  # noqa: SLF001
    limited = LimitedServer(node)
    await limited.limit(QuotaKey.PRODUCER_BYTE_RATE, RATE, Entity(user=DEFAULT, client_id="batch"))
    first = await node.client("batch")
    assert await written(first)
    connection = limited.connection()
    charged = count_charges(limited, monkeypatch)
    used[0] = 2.0
    first.send(produce_request("t", batch_of(b"v" * 500)), 9)
    await until(lambda: len(line) == 1)
    connection.throttle(5.0)

    used[0] = 0.0
    line.relieve()
    await until(lambda: len(line) == 0)
    assert connection.waits_for_quota
    assert not connection._slots  # noqa: SLF001
    used[0] = 2.0
    other = await node.client("console")
    other.send(produce_request("t", batch_of(b"w")), 9)
    await until(lambda: len(line) == 1)
    connection.end_quota_wait()
    await until(lambda: len(line) == 2)
    used[0] = 0.0
    line.relieve()

    assert (await other.receive()).responses[0].partition_responses[0].error_code == 0
    assert (await first.receive()).responses[0].partition_responses[0].error_code == 0
    assert len(charged) == 1


async def written(client: Any) -> bool:
    answer = await client.ask(produce_request("t", batch_of(b"v")), 9)
    return bool(answer.responses[0].partition_responses[0].error_code == 0)


def count_charges(limited: LimitedServer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bytes that are charged from now on."""
    usage = limited.quotas.usage
    assert usage is not None
    charged: list[float] = []
    charge = type(usage).charge

    def counting(self: Any, who: Any, key: QuotaKey, amount: float) -> Any:
        if key is QuotaKey.PRODUCER_BYTE_RATE:
            charged.append(amount)
        return charge(self, who, key, amount)

    monkeypatch.setattr(type(usage), "charge", counting)
    return charged

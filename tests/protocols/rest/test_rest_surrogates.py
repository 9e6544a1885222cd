r"""A JSON escape can name half of a character (`\ud800`), which has no UTF-8 form. It is refused and never reaches a store."""

import pytest

from fixtures.rest_server import MakeServers

HALF = '"\\ud800"'
V3 = "/v3/clusters/{cluster}"
REQUESTS = {
    "topic name": ("POST", f"{V3}/topics", '{"topic_name": HALF, "partitions_count": 1}'),
    "config": (
        "POST",
        f"{V3}/topics",
        '{"topic_name": "t2", "partitions_count": 1, "configs": [{"name": "note", "value": HALF}]}',
    ),
    "changed config": ("POST", f"{V3}/topics/t/configs:alter", '{"data": [{"name": "retention.ms", "value": HALF}]}'),
    "consumer instance": ("POST", "/consumers/g", '{"name": HALF, "format": "binary"}'),
    "text record": ("POST", f"{V3}/topics/t/records", '{"value": {"type": "STRING", "data": HALF}}'),
    "header": (
        "POST",
        f"{V3}/topics/t/records",
        '{"headers": [{"name": HALF, "value": "YQ=="}], "value": {"type": "BINARY", "data": "YQ=="}}',
    ),
    "access rule": (
        "POST",
        f"{V3}/acls",
        '{"resource_type": "TOPIC", "resource_name": HALF, "pattern_type": "LITERAL", "principal": "User:a", "host": "*"}',
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_half_a_character_is_refused(rest_servers: MakeServers, name: str) -> None:
    (node,) = await rest_servers(1)
    await node.create("t")
    cluster = (await node.get("/v3/clusters")).body["data"][0]["cluster_id"]
    method, path, body = REQUESTS[name]
    media = "application/vnd.kafka.v2+json" if path.startswith("/consumers") else "application/json"

    octets = body.replace("HALF", HALF).encode()
    answer = await node.ask(method, path.format(cluster=cluster), octets, headers={"Content-Type": media})

    code = (
        answer.body.get("error_code", 0) if answer.status == 200 else answer.status
    )  # v3 streams the results of records
    assert 400 <= code < 500 or 40_000 <= code < 50_000, answer

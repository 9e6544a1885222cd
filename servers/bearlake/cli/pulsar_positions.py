"""A reset of a Pulsar subscription: the preview comes from REST, the move from Pulsar's HTTP API, whose servers dispatch the partitions.

The whole topic moves at once: only then does any server pass the request on to the servers that hold the partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bearlake.cli.extras import server_module
from bearlake.cli.group_positions import Group, positions
from bearlake.cli.http_client import Api, HttpClient
from bearlake.cli.rest_client import RestClient
from bearlake.errors import Invalid

API = Api(word="pulsar", title="Pulsar's HTTP API", url_default="http://127.0.0.1:8080", error_field="reason")
TARGETS = ("earliest", "latest", "timestamp")


def reset(
    rest: RestClient, url: str, group: Group, to: Mapping[str, Any], partitions: Sequence[int], *, is_real: bool
) -> list[dict[str, Any]]:
    """Move the subscription in all partitions; return what moved. Without `is_real`: what would move.

    `url`: Pulsar's HTTP API, at which `rest` logs in the same way. Raises as `RestClient.call`; `Invalid`: Pulsar has no such reset.
    """
    if to["to"] not in TARGETS:
        raise Invalid("Pulsar subscriptions move to earliest, latest or time:T")
    if partitions:
        raise Invalid("a Pulsar subscription moves in all partitions of its topic: leave --partition out")
    stream, _, name = group.name.partition("/")
    moves = [_move(rest, row, to) for row in positions(rest, group)]
    if is_real:
        topic = server_module("bearlake.protocols.pulsar.names").topic_of(stream)
        if topic is None:
            raise Invalid(f"stream {stream} has no name in Pulsar")
        words = {"earliest": "resetcursor/0", "latest": "skip_all"}
        word = words.get(to["to"]) or f"resetcursor/{to['timestamp_ms']}"
        parts = [*topic.namespace.split("/"), topic.local]
        path = "/".join(quote(part, safe="") for part in parts)
        client = HttpClient(API, url, rest.authorization, rest.tls)
        client.send("POST", f"/admin/v2/persistent/{path}/subscription/{quote(name, safe='')}/{word}")
    return moves


def _move(rest: RestClient, row: Mapping[str, Any], to: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a partition's position would go: the offset of the first record there, else the end."""
    asked = {"partition_ids": [row["partition"]], "record_count_max": 1, "bytes_max": 1}
    start = {"start": to["to"]} | ({"timestamp_ms": to["timestamp_ms"]} if "timestamp_ms" in to else {})
    found = rest.ask("POST", f"/topics/{quote(row['stream'], safe='')}/records:read", {**asked, **start})
    (place,) = found["positions"]
    offset = found["data"][0]["offset"] if found["data"] else place["offset"]
    return {
        "stream": row["stream"],
        "partition": row["partition"],
        "offset": row["offset"],
        "new_offset": offset,
        "end_offset": row["end_offset"],
        "lag": row["lag"],
        "new_lag": max(0, row["end_offset"] - offset),
    }

"""Where groups are in their streams, by the REST API: consumer groups, share groups and Pulsar subscriptions by the same words.

group     {group, type, state}                                    type: classic, consumer, streams, share or pulsar ("STREAM/SUBSCRIPTION")
position  {stream, partition, offset, end_offset, lag, lag_s, …}        lag: records; lag_s: see `add_ages`
move      {stream, partition, offset, new_offset, start_offset, end_offset, lag, new_lag}
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from bearlake.cli.positions import time_ms
from bearlake.cli.rest_client import RestClient
from bearlake.errors import BearlakeError, Conflict, Denied, Invalid, NotFound, Unavailable

AGED_COUNT = 20
"""Partitions of a group whose next record is read for its time: those with the largest lag."""
LISTED_COUNT = 100
"""Groups of a list whose next record is read for its time: those with the largest lag."""
PULSAR = "pulsar"
"""Type of a Pulsar subscription."""
TARGETS = ("earliest", "latest", "offset:", "time:", "shift:")


class Group(NamedTuple):
    """A group, and its path in the API."""

    name: str
    type: str
    state: str
    path: str

    @property
    def shown(self) -> dict[str, Any]:
        """The group for output."""
        return {"group": self.name, "type": self.type, "state": self.state}


def all_groups(rest: RestClient) -> list[Group]:
    """Return the consumer groups, share groups and Pulsar subscriptions that the caller may see, by name. Raises as `RestClient.call`."""
    shares = {group.name: group for group in map(_share, rest.all("/share-groups"))}
    consumers = [_consumer(found) for found in rest.all("/consumer-groups")]
    subscriptions = [_subscription(found) for found in _subscriptions(rest)]
    both = [*shares.values(), *(group for group in consumers if group.name not in shares)]
    return sorted([*both, *subscriptions], key=lambda group: group.name)


def find(rest: RestClient, name: str) -> Group:
    """Return the group. Raises `NotFound`, and as `RestClient.call`."""
    path = quote(name, safe="")
    try:
        return _share(rest.ask("GET", f"/share-groups/{path}"))
    except NotFound:  # also what a consumer group is to this route
        pass
    try:
        return _consumer(rest.ask("GET", f"/consumer-groups/{path}"))
    except NotFound:
        stream, slash, subscription = name.partition("/")
        if not slash:
            raise
        found = _subscription({"topic_name": stream, "subscription_name": subscription})
        rest.ask("GET", f"{found.path}/lags")
        return found


def members(rest: RestClient, group: Group) -> list[dict[str, Any]] | None:
    """Return the group's members; None: those of a subscription, which are not known here. Raises as `RestClient.call`."""
    if group.type == PULSAR:
        return None
    return [
        {
            "member": found["consumer_id"],
            "client_id": found["client_id"],
            "instance_id": found.get("instance_id"),
            "host": found.get("client_host", "").removeprefix("/") or None,
        }
        for found in rest.all(f"{group.path}/consumers")
    ]


def positions(rest: RestClient, group: Group) -> list[dict[str, Any]]:
    """Return where the group is in each partition, without `lag_s`. Raises as `RestClient.call`."""
    return [
        {
            "stream": found["topic_name"],
            "partition": found["partition_id"],
            "offset": found["current_offset"],
            "end_offset": found["log_end_offset"],
            "lag": found["lag"],
            "client_id": found.get("client_id") or None,
        }
        for found in rest.all(f"{group.path}/lags")
    ]


def add_ages(rest: RestClient, rows: Sequence[dict[str, Any]], now_ms: int) -> None:
    """Add `lag_s` to each position: how old the next record to read is, in seconds; 0 without a lag; None: unknown.

    It is unknown beyond the first `AGED_COUNT` partitions by lag, where the caller may not read, and where the record is deleted.
    Raises `Unavailable`.
    """
    for row in rows:
        row["lag_s"] = 0.0 if row["lag"] == 0 else None
    behind = sorted((row for row in rows if row["lag"]), key=lambda row: -row["lag"])
    for row in behind[:AGED_COUNT]:
        row["lag_s"] = _age_s(rest, row, now_ms)


def add_lags(rest: RestClient, groups: Sequence[Group], rows: Sequence[dict[str, Any]], now_ms: int) -> None:
    """Add `lag` and `lag_s` to the rows of groups: records of all partitions, and the age of the next record where the lag is largest.

    Unknown (None) if the group has no position, or is gone; the age also beyond the first `LISTED_COUNT` groups by lag.
    Raises `Unavailable`.
    """
    worst: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    for group, row in zip(groups, rows, strict=True):
        row["lag"], row["lag_s"] = None, None
        try:
            places = [place for place in positions(rest, group) if place["lag"] is not None]
        except NotFound:
            continue
        if places:
            row["lag"] = sum(place["lag"] for place in places)
            row["lag_s"] = None if row["lag"] else 0.0
            worst.append((row["lag"], row, max(places, key=lambda place: place["lag"])))
    behind = sorted((item for item in worst if item[0]), key=lambda item: -item[0])
    for _, row, place in behind[:LISTED_COUNT]:
        row["lag_s"] = _age_s(rest, place, now_ms)


def _age_s(rest: RestClient, row: Mapping[str, Any], now_ms: int) -> float | None:
    place = {"partition_id": row["partition"], "offset": row["offset"]}
    asked = {"positions": [place], "record_count_max": 1, "bytes_max": 1}
    try:
        found = rest.ask("POST", f"/topics/{quote(row['stream'], safe='')}/records:read", asked)["data"]
    except Unavailable:
        raise
    except BearlakeError:
        return None
    return max(0, now_ms - int(found[0]["timestamp_ms"])) / 1000 if found else None


def target(text: str) -> dict[str, Any]:
    """Return the API's fields for a word of `--to`. Raises `click.UsageError`."""
    word, colon, value = text.partition(":")
    if text in ("earliest", "latest"):
        return {"to": text}
    if word == "time" and colon:
        return {"to": "timestamp", "timestamp_ms": time_ms(value)}
    try:
        if word == "offset" and int(value) >= 0:
            return {"to": "offset", "offset": int(value)}
        if word == "shift":
            return {"to": "shift", "shift": int(value)}
    except ValueError:
        pass
    raise click.UsageError(f"--to {text}: expected earliest, latest, offset:N, time:T, or shift:N (with a minus: back)")


def reset(
    rest: RestClient, group: Group, stream: str, partitions: Sequence[int], to: Mapping[str, Any], *, is_real: bool
) -> list[dict[str, Any]]:
    """Move the group's offsets in the stream's partitions (none given: all); return what moved. Without `is_real`: what would move.

    Raises as `RestClient.call`; `Conflict`: the group has members; `NotFound` also if there is no such stream.
    """
    chosen = {"partition_ids": list(partitions)} if partitions else {}
    asked = {"topic_name": stream, **to, **chosen, "validate_only": not is_real}
    try:
        moves = rest.ask("POST", f"{group.path}/offsets:reset", asked)["data"]
    except NotFound:
        _check_stream(rest, stream)  # the API has Kafka's words for it
        raise
    return [
        {
            "stream": found["topic_name"],
            "partition": found["partition_id"],
            "offset": found["current_offset"],
            "new_offset": found["new_offset"],
            "start_offset": found["start_offset"],
            "end_offset": found["log_end_offset"],
            "lag": found["current_lag"],
            "new_lag": found["new_lag"],
        }
        for found in moves
    ]


def _check_stream(rest: RestClient, name: str) -> None:
    """Raise `NotFound` unless the caller sees a stream with this name."""
    try:
        rest.ask("GET", f"/topics/{quote(name, safe='')}")
    except NotFound:
        raise NotFound(f"there is no stream {name!r}") from None


def delete(rest: RestClient, name: str) -> dict[str, Any]:
    """Delete a group; return its result for `results.report`. Raises `Unavailable`."""
    try:
        found = find(rest, name)
        if found.type == PULSAR:
            stream, _, subscription = name.partition("/")
            advice = f"pulsar-admin topics unsubscribe -s {subscription} {stream}"
            raise Invalid(f"{name!r} is a Pulsar subscription; to delete it: {advice}")
        rest.tell("DELETE", found.path)
    except NotFound:
        return _failed(name, 404, "Not found", f"there is no group {name!r}")
    except Conflict as error:
        return _failed(name, 409, "Conflict", str(error))
    except Denied as error:
        return _failed(name, 403, "Not allowed", str(error))
    except Invalid as error:
        return _failed(name, 400, "Invalid request", str(error))
    return {"name": name, "status": 200}


def _failed(name: str, status: int, title: str, detail: str) -> dict[str, Any]:
    return {"name": name, "status": status, "problem": {"title": title, "status": status, "detail": detail}}


def _share(found: Mapping[str, Any]) -> Group:
    name = found["share_group_id"]
    return Group(name, "share", found["state"].lower(), f"/share-groups/{quote(name, safe='')}")


def _consumer(found: Mapping[str, Any]) -> Group:
    name = found["consumer_group_id"]
    return Group(name, found["type"].lower(), found["state"].lower(), f"/consumer-groups/{quote(name, safe='')}")


def _subscriptions(rest: RestClient) -> list[Mapping[str, Any]]:
    try:
        return rest.all("/subscriptions")
    except NotFound:  # an older server
        return []


def _subscription(found: Mapping[str, Any]) -> Group:
    stream, name = found["topic_name"], found["subscription_name"]
    path = f"/topics/{quote(stream, safe='')}/subscriptions/{quote(name, safe='')}"
    return Group(f"{stream}/{name}", PULSAR, "", path)

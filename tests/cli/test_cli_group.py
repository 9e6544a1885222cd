"""`bearlake group`: consumer groups and share groups by the same words, and a reset that first shows what would move."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from bearlake.cli import completion, group_positions
from bearlake.cli.main import run
from bearlake.cli.rest_client import RestClient
from bearlake.errors import Conflict, Denied, Invalid, NotFound, Unavailable
from bearlake.protocols.kafka import messages as m
from faults.waiting import until
from fixtures.console_lake import Lake
from fixtures.kafka_server import Client
from fixtures.server_process import started
from fixtures.waiting import WAIT_S

NOW_MS = 1_800_000_000_000


class Rest(RestClient):
    """A REST API whose answers come from a function."""

    def __init__(self, answer: Callable[[str, str, Any], Any]) -> None:
        super().__init__("http://127.0.0.1:1", None, {})
        self._given = answer

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return self._given(method, path, body)


def consumer(name: str) -> dict[str, Any]:
    return {"consumer_group_id": name, "type": "CLASSIC", "state": "EMPTY"}


def share(name: str) -> dict[str, Any]:
    return {"share_group_id": name, "state": "STABLE"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", {"to": "earliest"}),
        ("latest", {"to": "latest"}),
        ("offset:12", {"to": "offset", "offset": 12}),
        ("shift:-3", {"to": "shift", "shift": -3}),
        ("time:1700000000000", {"to": "timestamp", "timestamp_ms": 1_700_000_000_000}),
        ("time:2023-11-14T22:13:20.000Z", {"to": "timestamp", "timestamp_ms": 1_700_000_000_000}),
    ],
)
def test_targets_have_the_words_of_the_api(text: str, expected: Mapping[str, Any]) -> None:
    assert group_positions.target(text) == expected


@pytest.mark.parametrize("text", ["", "earliest:1", "offset", "offset:-1", "offset:x", "time:soon", "shift:", "end"])
def test_unknown_targets_are_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError):
        group_positions.target(text)


def test_a_group_of_both_lists_is_a_share_group() -> None:
    lists = {
        "/share-groups": [share("both")],
        "/consumer-groups": [consumer("both"), consumer("also")],
        "/subscriptions": [{"topic_name": "orders", "subscription_name": "archive"}],
    }

    found = group_positions.all_groups(Rest(lambda _, path, __: {"data": lists[path]}))

    assert [(group.name, group.type) for group in found] == [
        ("also", "classic"),
        ("both", "share"),
        ("orders/archive", "pulsar"),
    ]


def test_names_are_encoded_in_paths() -> None:
    asked = []

    def answer(_: str, path: str, __: Any) -> Any:
        asked.append(path)
        if path.startswith("/share-groups"):
            raise NotFound("no share group")
        return consumer("a/b?c")

    assert group_positions.find(Rest(answer), "a/b?c").path == "/consumer-groups/a%2Fb%3Fc"
    assert asked == ["/share-groups/a%2Fb%3Fc", "/consumer-groups/a%2Fb%3Fc"]


def test_names_of_groups_complete_from_both_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {
        "/share-groups": [share("packers")],
        "/consumer-groups": [consumer("payers"), consumer("p$(reboot)")],
        "/subscriptions": [],
    }
    monkeypatch.setattr(RestClient, "ask", lambda _, __, path: {"data": lists[path]})
    context = click.Context(click.Command("describe"))

    assert completion.rest_group_names(context, click.Argument(["name"]), "pa") == ["packers", "payers"]
    assert completion.rest_group_names(context, click.Argument(["name"]), "p$") == []


def position(partition: int, lag: int) -> dict[str, Any]:
    return {"stream": "s", "partition": partition, "offset": 5, "lag": lag}


def test_the_lag_in_seconds_is_the_age_of_the_next_record() -> None:
    found: Sequence[Any] = (
        [{"timestamp_ms": NOW_MS - 2_500}],
        [{"timestamp_ms": NOW_MS + 1_000}],
        [],
        NotFound("gone"),
    )
    rows = [position(index, 3) for index in range(4)] + [position(4, 0)]

    def answer(_: str, __: str, body: Any) -> Any:
        records = found[body["positions"][0]["partition_id"]]
        if isinstance(records, Exception):
            raise records
        return {"data": records}

    group_positions.add_ages(Rest(answer), rows, NOW_MS)

    assert [row["lag_s"] for row in rows] == [2.5, 0, None, None, 0]


def test_ages_are_read_only_where_the_lag_is_largest() -> None:
    rows = [position(index, index + 1) for index in range(group_positions.AGED_COUNT + 1)]

    group_positions.add_ages(Rest(lambda *_: {"data": [{"timestamp_ms": NOW_MS}]}), rows, NOW_MS)

    assert [row["partition"] for row in rows if row["lag_s"] is None] == [0]


def test_a_list_has_the_lag_of_each_group_and_the_age_where_it_is_furthest_behind() -> None:
    lags = {
        "/consumer-groups/a/lags": [(0, 2), (1, 7)],
        "/consumer-groups/b/lags": [(0, 0)],
        "/consumer-groups/c/lags": [],
    }

    def answer(_: str, path: str, body: Any) -> Any:
        if path.endswith("records:read"):
            return {"data": [{"timestamp_ms": NOW_MS - 1_000 * body["positions"][0]["partition_id"]}]}
        if path not in lags:
            raise NotFound("gone")
        shown = [
            {"topic_name": "t", "partition_id": index, "current_offset": 1, "log_end_offset": 9, "lag": lag}
            for index, lag in lags[path]
        ]
        return {"data": shown}

    groups = [group_positions.Group(name, "classic", "empty", f"/consumer-groups/{name}") for name in "abcd"]
    rows: list[dict[str, Any]] = [{} for _ in groups]

    group_positions.add_lags(Rest(answer), groups, rows, NOW_MS)

    assert [(row["lag"], row["lag_s"]) for row in rows] == [(9, 1.0), (0, 0.0), (None, None), (None, None)]


def test_a_pulsar_subscription_is_found_by_stream_and_name_and_moves_where_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(_: RestClient, __: str, path: str, body: Any = None) -> Any:
        if path == "/topics/orders/subscriptions/a%2Fb/lags":
            return {"data": []}
        if path == "/topics/orders/subscriptions/a%2Fb/offsets:reset":
            sent.append(body)
            return {"data": []}
        raise NotFound(path)

    sent: list[Any] = []
    monkeypatch.setattr(RestClient, "ask", ask)

    assert run(["group", "describe", "orders/a/b"]) == 0
    assert "pulsar" in capsys.readouterr().out
    reset = ["group", "reset", "orders/a/b", "--stream"]
    for words in (["orders", "--to", "shift:1"], ["other", "--to", "latest"]):
        assert run([*reset, *words]) == 2
    assert capsys.readouterr().err.count("bearlake: ") == 2
    assert run([*reset, "orders", "--to", "offset:1", "--partition", "3", "--execute"]) == 0
    assert sent == [{"topic_name": "orders", "to": "offset", "offset": 1, "partition_ids": [3], "validate_only": False}]
    assert run(["group", "describe", "orders/other"]) == 1


def test_an_outage_is_no_unknown_age() -> None:
    def answer(*_: Any) -> Any:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        group_positions.add_ages(Rest(answer), [position(0, 1)], NOW_MS)


def header(user: str | None = None, **files: Path) -> str:
    return RestClient("http://127.0.0.1:1", user, files).authorization


def test_the_login_is_a_user_or_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("abc\n")
    password.write_text("größe \n")

    assert header() == ""
    assert header(token=token) == "Bearer abc"
    assert header("ann", password=password) == "Basic " + base64.b64encode("ann:größe ".encode()).decode()
    monkeypatch.setenv("BEARLAKE_REST_TOKEN", "of-the-environment")
    monkeypatch.setenv("BEARLAKE_REST_PASSWORD", "secret")
    assert header() == "Bearer of-the-environment"
    assert header("ann") == "Basic " + base64.b64encode(b"ann:secret").decode()
    with pytest.raises(Invalid, match="one login"):
        header("ann", token=token)
    with pytest.raises(Invalid, match="--rest-user"):
        header(password=password)


def test_a_share_group_has_no_shift(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(RestClient, "ask", lambda *_: share("s"))

    assert run(["group", "reset", "s", "--stream", "orders", "--to", "shift:1"]) == 2
    assert "share groups and Pulsar subscriptions have no shift" in capsys.readouterr().err


def test_groups_are_deleted_and_each_failure_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(_: RestClient, __: str, path: str, ___: Any = None) -> Any:
        if path in ("/consumer-groups/full", "/consumer-groups/billing"):
            return consumer(path.rpartition("/")[2])
        if path in ("/share-groups/packers", "/share-groups/kept"):
            return share(path.rpartition("/")[2])
        if path == "/topics/orders/subscriptions/archive/lags":
            return {"data": []}
        raise NotFound("Consumer group cannot be found.")

    def tell(_: RestClient, method: str, path: str) -> None:
        sent.append((method, path))
        if path.endswith("/full"):
            raise Conflict("group 'full' has members: stop its consumers first")
        if path.endswith("/kept"):
            raise Denied("User:ann may not Delete Group 'kept'")

    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(RestClient, "ask", ask)
    monkeypatch.setattr(RestClient, "tell", tell)

    assert run(["group", "delete", "billing", "packers"]) == 0
    assert capsys.readouterr().out == "billing: deleted\npackers: deleted\n"
    assert sent == [("DELETE", "/consumer-groups/billing"), ("DELETE", "/share-groups/packers")]
    assert run(["group", "delete", "full", "absent", "kept", "orders/archive", "billing"]) == 1
    said = capsys.readouterr()
    assert said.out == "billing: deleted\n"
    assert said.err.splitlines() == [
        "bearlake: group 'full' has members: stop its consumers first",
        "bearlake: there is no group 'absent'",
        "bearlake: User:ann may not Delete Group 'kept'",
        "bearlake: 'orders/archive' is a Pulsar subscription; to delete it: pulsar-admin topics unsubscribe -s archive orders",
    ]
    assert run(["group", "delete", "absent", "--if-exists"]) == 0
    assert capsys.readouterr().out == "absent: nothing to do (not found)\n"
    assert run(["group", "delete", "absent", "billing", "--json"]) == 1
    assert [(row["name"], row["status"]) for row in json.loads(capsys.readouterr().out)] == [
        ("absent", 404),
        ("billing", 200),
    ]


def test_a_reset_names_a_stream_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(_: RestClient, method: str, path: str, ___: Any = None) -> Any:
        if (method, path) in (("GET", "/consumer-groups/billing"), ("GET", "/topics/orders")):
            return consumer("billing")
        if path.startswith("/share-groups"):
            raise NotFound("no share group")
        raise NotFound(f"This server does not host this topic-partition: {path}")

    monkeypatch.setattr(RestClient, "ask", ask)

    assert run(["group", "reset", "billing", "--stream", "nope", "--to", "earliest"]) == 1
    assert capsys.readouterr().err == "bearlake: there is no stream 'nope'\n"
    assert run(["group", "reset", "billing", "--stream", "orders", "--to", "earliest"]) == 1
    assert "does not host" in capsys.readouterr().err


def test_a_refusal_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any) -> Any:
        raise Denied("not allowed")

    monkeypatch.setattr(RestClient, "ask", refuse)

    assert run(["group", "list"]) == 1
    assert capsys.readouterr().err == "bearlake: not allowed\n"


@pytest.mark.integration
def test_groups_are_listed_described_and_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bearlake(*words: str, code: int = 0) -> str:
        assert run(["group", *words]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    def as_json(*words: str) -> Any:
        return json.loads(bearlake(*words, "--json"))

    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        monkeypatch.setenv("BEARLAKE_REST", str(server.ready["rest"]))
        lake = Lake(server)
        lake.create("orders", 1)
        times = ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z", "2023-11-14T22:13:22Z")
        lake.write("orders", *({"timestamp": time, "value": {"type": "STRING", "data": time}} for time in times))
        lake.read_with_group("billing", "orders")
        with lake.sharing("packers", "orders"):
            to_start = ("reset", "packers", "--stream", "orders", "--to", "earliest")
            assert "has members" in bearlake(*to_start, "--execute", code=1)
            full = "bearlake: share group 'packers' has members: stop its consumers first\n"
            assert bearlake("delete", "packers", code=1) == full
            joined = as_json("describe", "packers")

        assert (joined["type"], joined["lag"], len(joined["members"])) == ("share", 0, 1)
        lake.pulsar("PUT", "/admin/v2/persistent/public/default/orders/subscription/archive", "earliest")
        assert [(row["group"], row["type"], row["lag"]) for row in as_json("list")] == [
            ("billing", "classic", 0),
            ("orders/archive", "pulsar", 3),
            ("packers", "share", 0),
        ]
        assert as_json("list")[1]["lag_s"] > 86_400
        assert [row["lag"] for row in as_json("describe", "orders/archive")["positions"]] == [3]

        def archived() -> int:
            return int(as_json("describe", "orders/archive")["positions"][0]["offset"])

        moving = ("reset", "orders/archive", "--stream", "orders", "--to")
        assert [move["new_offset"] for move in as_json(*moving, f"time:{times[1]}")["moves"]] == [1]
        for target, offset in (("latest", 3), ("earliest", 0), (f"time:{times[2]}", 2), ("offset:1", 1)):
            assert [move["new_offset"] for move in as_json(*moving, target, "--execute")["moves"]] == [offset]
            until(lambda want=offset: archived() == want, WAIT_S, "the new position is saved")
        for name in ("billing", "packers"):
            reset = ("reset", name, "--stream", "orders", "--partition", "0", "--to")
            before = as_json("describe", name)["positions"][0]["offset"]
            preview = as_json(*reset, "offset:2")
            assert (preview["is_executed"], preview["moves"][0]["new_offset"]) == (False, 2)
            assert as_json("describe", name)["positions"][0]["offset"] == before
            for target, offset in (("latest", 3), ("earliest", 0), ("offset:2", 2), (f"time:{times[1]}", 1)):
                assert as_json(*reset, target, "--execute")["moves"][0]["new_offset"] == offset
                assert as_json("describe", name)["positions"][0]["offset"] == offset
            described = as_json("describe", name)
            assert described["lag"] == 2
            assert described["lag_s"] > 86_400
        assert as_json(*reset[:1], "billing", *reset[2:], "shift:1")["moves"][0]["new_offset"] == 2
        assert bearlake("describe", "billing").startswith("GROUP    TYPE     STATE")
        assert "absent" in bearlake("describe", "absent", code=1)
        assert bearlake("delete", "billing", "packers") == "billing: deleted\npackers: deleted\n"
        assert [row["group"] for row in as_json("list")] == ["orders/archive"]
        assert bearlake("delete", "billing", code=1) == "bearlake: there is no group 'billing'\n"


async def _streaming(port: int, group: str, source: str, *, leaves: bool = False) -> None:
    """Let a member of a streams group commit offset 1 of the source's partition 0, and stay or leave."""
    client = await Client.connect(port, "counter")
    asked = m.StreamsGroupHeartbeatRequest
    topology = asked.Topology(epoch=0, subtopologies=[asked.Subtopology(subtopology_id="0", source_topics=[source])])
    joining: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "topology": topology, "process_id": "p"}
    joining |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    head: dict[str, Any] = {"group_id": group, "member_id": "one", "endpoint_information_epoch": -1}
    answer = await client.ask(asked(**head, member_epoch=0, **joining), 0)
    assert answer.error_code == 0, answer
    committed = m.OffsetCommitRequest
    partition = committed.Partition(partition_index=0, committed_offset=1)
    topics = [committed.Topic(name=source, partitions=[partition])]
    request = committed(
        group_id=group, member_id="one", generation_id_or_member_epoch=answer.member_epoch, topics=topics
    )
    assert (await client.ask(request, 9)).topics[0].partitions[0].error_code == 0
    if leaves:
        assert (await client.ask(asked(**head, member_epoch=-1), 0)).error_code == 0
    await client.close()


@pytest.mark.integration
def test_a_streams_group_is_listed_described_and_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def as_json(*words: str, code: int = 0) -> Any:
        assert run(["group", *words, "--json"]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else said.err

    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        monkeypatch.setenv("BEARLAKE_REST", str(server.ready["rest"]))
        lake = Lake(server)
        lake.create("orders", 1)
        times = ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z", "2023-11-14T22:13:22Z")
        lake.write("orders", *({"timestamp": time, "value": {"type": "STRING", "data": time}} for time in times))
        port = int(str(server.ready["kafka"]).rpartition(":")[2])
        asyncio.run(_streaming(port, "words", "orders"))
        (listed,) = as_json("list")
        assert (listed["group"], listed["type"], listed["lag"]) == ("words", "streams", 2)
        described = as_json("describe", "words")
        assert [(item["member"], item["client_id"]) for item in described["members"]] == [("one", "counter")]
        reset = ("reset", "words", "--stream", "orders", "--to", "earliest", "--execute")
        assert "members" in as_json(*reset, code=1)
        asyncio.run(_streaming(port, "words", "orders", leaves=True))
        assert as_json("describe", "words")["state"] == "empty"
        assert as_json(*reset)["moves"][0]["new_offset"] == 0
        assert as_json("describe", "words")["lag"] == 3
